"""The servers of one virtual server: which are up, which serve, and whether there are enough of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from haxlb.health.quorum import Quorum
from haxlb.health.rise_fall import RiseFall, Verdict
from haxlb.model.addresses import IPAddress
from haxlb.model.check import Check
from haxlb.model.commands import Command
from haxlb.model.facts import BackendChanged, QuorumChanged
from haxlb.model.virtual_server import RealServer, VirtualServer


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScript:
    """Effect: run the operator's command, after the earlier ones of the same queue."""

    queue: str
    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChanged:
    """Effect: what the forwarder shall do for this virtual server differs from before."""

    virtual_server: str
    """Its name."""


PoolEffect = BackendChanged | QuorumChanged | RunScript | PoolChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the forwarder shall do with one server."""

    address: IPAddress
    port: int
    weight: int
    """Effective: 0 = no new flows."""
    alive: bool
    """False = its flows move."""
    is_sorry: bool = False

    @property
    def key(self) -> str:
        """`address:port`, of IPv6 `[address]:port`."""
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"  # noqa: PLR2004 - the family


@dataclass(slots=True)
class Member:
    """One real server of one virtual server."""

    server: RealServer
    assumed_up: bool
    """How a check without a verdict is read: what was known of this server before, else the opposite of `alpha`."""
    up: bool
    reason: str
    """Of the last change, or of the last probe that disagreed."""
    since_us: int
    begins: bool = False
    """It has just come, nothing was known of it before, and nothing was said of it yet."""
    counted: int = 0
    """Its share of the pool's alive weight."""


def starts_down(virtual_server: VirtualServer, server: RealServer) -> bool:
    """Whether a server of which nothing is known is down until its checks have passed (`alpha`)."""
    return virtual_server.alpha if server.alpha is None else server.alpha


def member_name(virtual_server: str, server: RealServer) -> str:
    """How a real server of a virtual server is remembered when the process ends."""
    return f"{virtual_server} {server.key}"


class Pool:
    """One virtual server. `refresh` is its machine: it compares what the checks say with what it last said."""

    def __init__(self, virtual_server: VirtualServer, now: int) -> None:
        self.virtual_server = virtual_server
        self.members: dict[str, Member] = {}
        """By `RealServer.key`, in configuration order."""
        self.quorum = Quorum()
        self.quorum_since_us = now
        """When the quorum was last gained or lost, or the pool made."""
        self._alive_weight = 0

    @property
    def name(self) -> str:
        """What makes it the same one across a reload."""
        return self.virtual_server.name

    @property
    def sorry_serves(self) -> bool:
        """The quorum is lost and there is a sorry server."""
        return self.virtual_server.sorry_server is not None and not self.quorum.up

    def configure(self, virtual_server: VirtualServer, remembered: Mapping[str, bool], now: int) -> None:
        """Take over a configuration; servers that stay keep their state, also while their new checks know nothing.

        A `refresh` of all members must follow.
        """
        self.virtual_server = virtual_server
        self._alive_weight = 0
        former, self.members = self.members, {}
        for server in virtual_server.real_servers:
            member = former.get(server.key)
            if member is not None:
                member.server, member.assumed_up, member.counted = server, member.up, 0
            else:
                name = member_name(virtual_server.name, server)
                assumed_up = not server.checks or remembered.get(name, not starts_down(virtual_server, server))
                member = Member(server, assumed_up, assumed_up, "not probed yet", now, begins=name not in remembered)
            self.members.setdefault(server.key, member)

    def refresh(
        self,
        members: Iterable[Member],
        checks: Mapping[Check, RiseFall],
        reachable: Mapping[IPAddress, bool],
        now: int,
    ) -> list[PoolEffect]:
        """Draw the consequences of what is said now of these members; no effects where nothing changed.

        The order is the one in which an operator reads it: servers, quorum, then what is forwarded.
        """
        effects: list[PoolEffect] = []
        for member in members:
            effects += self._refresh_member(member, checks, now)
            # A server that no frame can reach is as good as none: a pool of such servers has no quorum.
            counts = member.up and reachable.get(member.server.address, False)
            self._alive_weight -= member.counted
            member.counted = member.server.weight if counts else 0
            self._alive_weight += member.counted
        altered = any(isinstance(each, BackendChanged) for each in effects)
        if self.quorum.handle(self.virtual_server, self._alive_weight):
            up, self.quorum_since_us = self.quorum.up, now
            effects.append(QuorumChanged(virtual_server=self.name, up=up, reason=self.quorum.reason, at_us=now))
            effects += self._script(self.virtual_server.quorum_up if up else self.virtual_server.quorum_down)
            altered = altered or self.virtual_server.sorry_server is not None
        if altered:
            effects.append(PoolChanged(virtual_server=self.name))
        return effects

    def serving(self) -> tuple[Serving, ...]:
        """What the forwarder shall do, server by server, the sorry server last.

        That is in the pool while it serves; with `sorry_server_inhibit` always, so that its flows end where they are.
        """
        sorry, serves = self.virtual_server.sorry_server, self.sorry_serves
        serving = [_serve(member, sorry_serves=serves) for member in self.members.values()]
        if sorry is not None and (serves or (sorry.inhibit_on_failure and sorry.key not in self.members)):
            weight = max(1, sorry.weight) if serves else 0
            serving.append(_serving(sorry, weight=weight, alive=True, is_sorry=True))
        return tuple(serving)

    def _refresh_member(
        self, member: Member, checks: Mapping[Check, RiseFall], now: int
    ) -> list[BackendChanged | RunScript]:
        machines = [checks[check] for check in member.server.checks]
        failing = [each for each in machines if not _reads_up(each, assumed_up=member.assumed_up)]
        member.reason = _reason(failing, machines)
        up = not failing
        begins, member.begins = member.begins, False
        if up is member.up:
            told = up and begins and member.server.notify_up_at_start
            return [*self._script(member.server.notify_up)] if told else []
        member.up, member.since_us = up, now
        fact = BackendChanged(
            virtual_server=self.name, real_server=member.server.key, up=up, reason=member.reason, at_us=now
        )
        return [fact, *self._script(member.server.notify_up if up else member.server.notify_down)]

    def _script(self, command: Command) -> list[RunScript]:
        return [RunScript(queue=self.name, command=command)] if command else []


def _serve(member: Member, *, sorry_serves: bool) -> Serving:
    server = member.server
    if not member.up and server.inhibit_on_failure:
        return _serving(server, weight=0, alive=True)
    # keepalived takes the servers that are left out of the pool while the sorry server is in it; an inhibited one,
    # already at weight 0, stays. Without a sorry server a lost quorum changes nothing but the scripts.
    return _serving(server, weight=server.weight, alive=member.up and not sorry_serves)


def _serving(server: RealServer, *, weight: int, alive: bool, is_sorry: bool = False) -> Serving:
    return Serving(address=server.address, port=server.port, weight=weight, alive=alive, is_sorry=is_sorry)


def _reads_up(machine: RiseFall, *, assumed_up: bool) -> bool:
    return assumed_up if machine.verdict is Verdict.UNKNOWN else machine.verdict is Verdict.UP


def _reason(failing: list[RiseFall], machines: list[RiseFall]) -> str:
    """The check that keeps the server down, else one that begins to doubt, else the last."""
    if not machines:
        return "no check configured"
    doubting = [each for each in machines if not each.settled]
    telling = (failing or doubting or machines[-1:])[0]
    return f"{telling.check.kind.value}: {telling.reason}"

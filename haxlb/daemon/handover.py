"""A planned hand-over of instances to the peer, step by step: `haxlb failover`.

A backup is silent (RFC 9568 section 6.4.2), so a master cannot know by VRRP alone that somebody would take over.
Before: refuse unless there is evidence of a living peer. After: watch for the peer's first advert, and take the role
back when none comes, because an address that nobody holds is worse than a hand-over that did not happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from haxlb.daemon.control import Answer, Step
from haxlb.daemon.messages import HandOver, Message, Resume
from haxlb.daemon.ports import ClockPort
from haxlb.daemon.supervisor_ports import BrokerPort, PeerProbePort, WallClockPort
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.status import InstanceStatus, PeerStatus
from haxlb.model.units import SECOND_US

POLL_S = 0.05
RELEASE_US = SECOND_US
"""The speaker takes VIPs off in milliseconds; after this it is stuck."""
TAKE_OVER_GRACE_US = SECOND_US
"""Beyond the peer's longest skew time: its advert, and its host's own delays."""
TAKE_BACK_GRACE_US = SECOND_US


class HandOverProcedure:
    """Runs one `Failover` command; `step` is told each step as it happens."""

    def __init__(
        self,
        *,
        clock: ClockPort,
        wall: WallClockPort,
        probe: PeerProbePort,
        broker: BrokerPort,
        send: Callable[[Message], None],
        statuses: Callable[[], Awaitable[tuple[InstanceStatus, ...]]],
        step: Callable[[Step], None],
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._probe = probe
        self._broker = broker
        self._send = send
        self._statuses = statuses
        self._step = step

    async def run(self, instances: tuple[VrrpInstance, ...], names: tuple[str, ...], *, force: bool) -> Answer:
        """Hand the instances of these names (empty = all that are MASTER here) over."""
        unknown = [name for name in names if name not in {each.name for each in instances}]
        if unknown:
            known = ", ".join(each.name for each in instances) or "none"
            return self._refuse("", f"no instance is called {unknown[0]}", remedy=f"there are: {known}")
        now = {each.name: each for each in await self._statuses()}
        chosen = tuple(each for each in instances if each.name in names) if names else instances
        masters = tuple(each for each in chosen if each.name in now and now[each.name].role is Role.MASTER)
        if names and len(masters) < len(chosen):
            other = next(each.name for each in chosen if each not in masters)
            role = now[other].role.value if other in now else "not running"
            return self._refuse(
                other, f"{other} is {role} here: only a MASTER can hand over", remedy=self._elsewhere(now, (other,))
            )
        if not masters:
            remedy = self._elsewhere(now, tuple(each.name for each in chosen))
            return self._refuse("", "no instance is MASTER here: there is nothing to hand over", remedy=remedy)
        for instance in masters:
            self._tell(instance, "check", f"MASTER here: {now[instance.name].reason}")
        for instance in masters:
            if not await self._peer_lives(instance, now[instance.name]) and not force:
                return self._refuse(
                    instance.name,
                    f"no peer of {instance.name} is heard: nobody would take over",
                    remedy="start the peer, or use --force",
                )
        return await self._hand_over(masters)

    async def _peer_lives(self, instance: VrrpInstance, status: InstanceStatus) -> bool:
        evidence = self._recently_heard(status) or self._broker.evidence(instance.vrid)
        if not evidence:
            evidence = await self._probe.probe(instance, _asked(instance, status))
        resigned = "".join(f"; {peer.address} has resigned" for peer in status.peers if peer.priority == 0)
        self._tell(instance, "peer", evidence or f"no sign of a living peer{resigned}", ok=bool(evidence))
        return bool(evidence)

    def _recently_heard(self, status: InstanceStatus) -> str:
        peer = self._speaking(status)
        return f"{peer.address} sent an advert {self._wall.wall() - peer.heard_at:.1f} s ago" if peer else ""

    def _speaking(self, status: InstanceStatus) -> PeerStatus | None:
        """The other director whose adverts keep ours silent, or would; None when nobody was heard lately."""
        for peer in status.peers:
            ago = self._wall.wall() - peer.heard_at
            if 0 <= ago * SECOND_US <= status.master_down_interval_us and peer.priority > 0:
                return peer
        return None

    def _elsewhere(self, now: Mapping[str, InstanceStatus], names: tuple[str, ...]) -> str:
        """Who is MASTER of these instead: `192.168.10.12 is MASTER of VI_1, VI_2: hand over there`."""
        masters: dict[str, list[str]] = {}
        for name in names:
            peer = self._speaking(now[name]) if name in now else None
            if peer is not None:
                masters.setdefault(str(peer.address), []).append(name)
        said = " and ".join(f"{address} is MASTER of {', '.join(held)}" for address, held in masters.items())
        return f"{said}: hand over there" if said else ""

    async def _hand_over(self, masters: tuple[VrrpInstance, ...]) -> Answer:
        names = tuple(each.name for each in masters)
        asked_at = self._wall.wall()
        self._send(HandOver(instances=names, reason="planned hand-over (haxlb failover)"))
        released = await self._wait(names, lambda each: each.role is not Role.MASTER, RELEASE_US)
        for instance in masters:
            gone = instance.name in released
            said = "sent priority 0 and took its addresses off" if gone else "did not give up MASTER within 1 s"
            self._tell(instance, "hand_over", said, ok=gone)
        if len(released) < len(masters):
            self._send(Resume(instances=names))
            return Answer(ok=False, exit_code=1, message="the speaker did not hand over", remedy="see its log")
        return await self._watch(masters, asked_at)

    async def _watch(self, masters: tuple[VrrpInstance, ...], asked_at: float) -> Answer:
        """The peer's first advert after the hand-over was asked for is the proof.

        Not any other time of an advert than before: the speaker's two clocks are never read at one instant, so that
        the time of day at which the same advert was heard differs by microseconds from one status to the next.
        """
        names = tuple(each.name for each in masters)

        def decided(each: InstanceStatus) -> bool:
            # Priority 0 is a farewell, not a take-over.
            return each.role is Role.MASTER or any(peer.heard_at > asked_at for peer in each.peers if peer.priority > 0)

        settled = await self._wait(names, decided, max(map(_longest_skew_us, masters)) + TAKE_OVER_GRACE_US)
        taken = {name: status for name, status in settled.items() if status.role is not Role.MASTER}
        orphans = [each for each in masters if each.name not in taken]
        for instance in masters:
            if instance.name in taken:
                self._tell(instance, "take_over", f"{_newest(taken[instance.name])} is MASTER now")
        if not orphans:
            return Answer(ok=True, message=f"handed over: {', '.join(names)}")
        return await self._take_back(orphans)

    async def _take_back(self, orphans: list[VrrpInstance]) -> Answer:
        names = tuple(each.name for each in orphans)
        for instance in orphans:
            self._tell(instance, "take_over", "nobody took over", ok=False)
        self._send(Resume(instances=names))
        statuses = await self._statuses()
        patience = max((each.master_down_interval_us for each in statuses if each.name in names), default=0)
        settled = await self._wait(names, lambda each: each.role is Role.MASTER, patience + TAKE_BACK_GRACE_US)
        for instance in orphans:
            back = instance.name in settled
            said = "MASTER here again" if back else "not MASTER here; see haxlb show"
            self._tell(instance, "take_back", said, ok=back)
        return Answer(
            ok=False,
            exit_code=1,
            message=f"nobody took over {', '.join(names)}",
            remedy="see that the peer runs and that its adverts arrive here",
        )

    async def _wait(
        self, names: Iterable[str], holds: Callable[[InstanceStatus], bool], patience_us: int
    ) -> dict[str, InstanceStatus]:
        """The statuses of those instances for which `holds` came true in time."""
        deadline = self._clock.now() + patience_us
        wanted, found = set(names), dict[str, InstanceStatus]()
        while True:
            found.update(
                {
                    each.name: each
                    for each in await self._statuses()
                    if each.name in wanted and each.name not in found and holds(each)
                }
            )
            if len(found) == len(wanted) or self._clock.now() >= deadline:
                return found
            await asyncio.sleep(POLL_S)

    def _tell(self, instance: VrrpInstance, step: str, reason: str, *, ok: bool = True) -> None:
        self._step(Step(subject=instance.name, step=step, ok=ok, reason=reason))

    def _refuse(self, subject: str, message: str, *, remedy: str = "") -> Answer:
        self._step(Step(subject=subject, step="refused", ok=False, reason=message))
        return Answer(ok=False, exit_code=1, message=message, remedy=remedy)


def _asked(instance: VrrpInstance, status: InstanceStatus) -> tuple[str, ...]:
    """The peers of whom an ARP answer says something: not those that have resigned, whose hosts are up without VRRP."""
    resigned = {peer.address for peer in status.peers if peer.priority == 0}
    known = instance.peers or tuple(peer.address for peer in status.peers)
    return tuple(str(address) for address in known if address not in resigned)


def _newest(status: InstanceStatus) -> str:
    speaking = [peer for peer in status.peers if peer.priority > 0]
    return str(max(speaking, key=lambda peer: peer.heard_at).address)


def _longest_skew_us(instance: VrrpInstance) -> int:
    """Skew time of a peer of priority 1: 255/256 s in version 2, of the advert interval in version 3."""
    interval = SECOND_US if instance.version == 2 else instance.advert_interval_us  # noqa: PLR2004 - the version
    return interval * 255 // 256

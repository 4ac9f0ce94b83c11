"""A new configuration: what it changes, who must be told, what is refused.

All that can be refused is refused before anything is changed, and whom nothing concerns is told nothing: the speaker
does not even wake up for a reload that changes a real server's weight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from haxlb.config.diff import plan_reload
from haxlb.daemon.chronicle import Chronicle
from haxlb.daemon.messages import Message
from haxlb.daemon.processes import Processes
from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import Findings, World
from haxlb.daemon.tracking import anything, tracker_orders
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError
from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role
from haxlb.model.node import NodeConfig
from haxlb.model.settings import TABLE_SIZES

_REMAKE = "stop haxlb, run `haxlb detach`, start it: tables that are there are kept as large as they are"
ORDER_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The difference of two configurations, by who is concerned."""

    speaker: bool
    checker: bool
    broker: bool
    tracker: bool
    frames: bool
    """Other addresses or interfaces: gratuitous ARP must be crafted anew."""
    summary: str
    """In words."""
    later: tuple[str, ...] = ()
    """What takes effect only after a restart, or where something is made anew."""
    lost: tuple[str, ...] = ()
    """Instances and virtual servers that are in force and will not be."""

    @property
    def nothing(self) -> bool:
        """Nobody is told anything."""
        return not (self.speaker or self.checker or self.tracker or self.broker)


def compare(old: NodeConfig, new: NodeConfig) -> Change:
    """What changes from `old` to `new`."""
    plan = plan_reload(old, new)
    scripts = old.notification.scripts != new.notification.scripts  # speaker and checker run some, too
    speaker = not plan.instances.none or not plan.sync_groups.none or _host_side(old) != _host_side(new)
    forwarding = (old.forwarding, old.checker, old.timeouts) != (new.forwarding, new.checker, new.timeouts)
    moved = old.forwarding_interfaces != new.forwarding_interfaces
    later = []
    if old.node != new.node:
        later.append(f"the node is called {old.node} until haxlb is restarted")
    sizes = [each for each in TABLE_SIZES if getattr(old.forwarding, each) != getattr(new.forwarding, each)]
    if sizes and old.virtual_servers:
        # They outlive haxlb, with the flows in them: neither a restart nor a swap makes them anew.
        later.append(
            f"{' and '.join(sizes)} {'count' if sizes[1:] else 'counts'} where the tables are made anew: "
            "stop haxlb, `haxlb detach`, start it"
        )
    if old.forwarding.mode != new.forwarding.mode:
        # A link keeps its mode; to replace it would be a gap in which packets reach nobody.
        later.append("forwarding.mode counts where the program is attached anew: stop haxlb, `haxlb detach`, start it")
    return Change(
        speaker=speaker or scripts,
        checker=not plan.virtual_servers.none or forwarding or moved or scripts,
        broker=old.mqtt != new.mqtt,
        tracker=tracker_orders(old) != tracker_orders(new),
        frames=_announced(old) != _announced(new),
        summary="; ".join(plan.lines()) or "nothing has changed",
        later=tuple(later),
        lost=tuple(
            f"{kind} {each.name}"
            for kind, touched in (("vrrp_instance", plan.instances), ("virtual_server", plan.virtual_servers))
            for each in touched.removed
        ),
    )


def error_that_removes(old: NodeConfig, new: NodeConfig, findings: Findings) -> str:
    """Why `new` had better not be put in force; empty = it may.

    A misspelt word can leave out a block that serves now: whoever deletes one on purpose does so in a file without
    errors, or says that he means it. Nor is a file that leaves nothing at all: mostly it is about to be written, and
    has been emptied for that.
    """
    lost = compare(old, new).lost
    if lost and not (new.instances or new.virtual_servers):
        return f"{', '.join(lost)} would be removed, and there would be nothing left: is the file being written?"
    errors = [each for each in findings if each.get("severity") in ("error", "fatal")]
    if not lost or not errors:
        return ""
    first = errors[0]
    further = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return (
        f"{', '.join(lost)} would be removed, and the file has errors:"
        f" {first.get('file', '')}:{first.get('line', '')}: {first.get('message', '')}{further}"
    )


class ReloadProcedure:
    """Puts configurations in force, one after the other."""

    def __init__(
        self,
        world: World,
        standing: Standing,
        processes: Processes,
        chronicle: Chronicle,
        *,
        build: Callable[[NodeConfig], Awaitable[str]],
    ) -> None:
        self._world = world
        self._standing = standing
        self._processes = processes
        self._chronicle = chronicle
        self._build = build
        self.roles = asyncio.Lock()
        """Held while orders are given that decide which roles there are, and who has them."""

    async def run(self, config: NodeConfig, on_compile: Callable[[], None]) -> tuple[Change, list[str]]:
        """Put this configuration in force; what changed, and what did not work. Raises HostError: nothing changed.

        `on_compile` is called before the forwarder is compiled, which may take a minute.
        """
        standing = self._standing
        change = compare(standing.config, config)
        config = replace(config, node=standing.config.node)
        if change.nothing:
            standing.config = config
            return change, []
        program = standing.program
        if change.checker and config.virtual_servers:
            if not self._processes.known("checker"):
                on_compile()
                program = await self._build(config)
            elif too_much := self._world.builder.excess(config):
                raise HostError(too_much, remedy=_REMAKE)
            elif self._world.builder.outdated(config):
                on_compile()
                program = await self._world.builder.extend(config)
        async with self.roles:
            self._world.routers.claim(config.instances)
            renamed = standing.adopt(config)
            standing.program = program
            problems = await self._put_in_force(change)
        for instance in renamed:
            self._chronicle.adopt(
                RoleChanged(
                    instance=instance.name,
                    vrid=instance.vrid,
                    before=Role.MASTER,
                    after=Role.MASTER,
                    reason="renamed",
                    priority=instance.priority,
                    at_us=self._world.clock.now(),
                )
            )
        return change, problems

    async def _put_in_force(self, change: Change) -> list[str]:
        standing, config = self._standing, self._standing.config
        if change.broker:
            self._world.broker.configure(config.mqtt, config.node)
        if change.broker or change.speaker:
            self._chronicle.configure(config.instances, config.mqtt)
        orders = []
        if change.checker:
            orders.append(self._order("checker", standing.checker_orders(), wanted=bool(config.virtual_servers)))
        if change.speaker:
            self._world.bequest.prepare(standing.bequeathed)
            orders.append(self._order("speaker", standing.speaker_orders(), wanted=bool(config.instances)))
        if change.tracker:
            tracker = standing.tracker_orders()
            orders.append(self._order("tracker", tracker, wanted=anything(tracker)))
        return [problem for problem in await asyncio.gather(*orders) if problem]

    async def _order(self, name: str, orders: Message, *, wanted: bool) -> str:
        if self._processes.known(name):
            return await self._processes.order(name, orders, ORDER_PATIENCE_S)
        if wanted:
            try:
                self._processes.start(name)
            except HostError as problem:
                return str(problem)
        return ""


def _announced(config: NodeConfig) -> set[tuple[IPAddress, str]]:
    return {(vip.address, vip.interface) for each in config.instances for vip in (*each.vips, *each.excluded_vips)}


def _host_side(config: NodeConfig) -> tuple[object, ...]:
    """What the speaker is told besides instances and groups."""
    return (config.speaker, config.static_addresses, config.static_routes, config.static_rules)

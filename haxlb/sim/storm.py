"""Random faults: whatever can happen to a cluster, several at once and at the worst moments, then a quiet end.

Each kind of fault is a pair, what is done and what undoes it; some are over at once. The storm draws one after the
other, waits between them for anything from nothing to several times the longest wait of the protocol, and undoes all
at the end: what the laws demand after that is rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.tracking import TrackKind
from haxlb.model.units import SECOND_US
from haxlb.sim.director import Director
from haxlb.sim.lan import Wire
from haxlb.sim.membership import Process
from haxlb.sim.scenario import TRACK_FAILS, Scenario
from haxlb.sim.stage import Stage
from haxlb.sim.tracked import Health
from haxlb.vrrp.election import OWNER_PRIORITY

Undo = Callable[[], None]
_FAULTS = (4, 12)
_CLIENTS = "clients"
_BAD_WIRES = (
    Wire(loss=0.02),
    Wire(loss=0.3),
    Wire(duplicates=0.3),
    Wire(disorder_us=2_000),
    Wire(latency_us=500, jitter_us=3_000),
    Wire(loss=0.05, duplicates=0.1, disorder_us=1_000),
)
_VERSION_2 = 2
_FASTEST_US = 10_000
_JUMPS_US = (-3600 * SECOND_US, -5 * SECOND_US, 40 * SECOND_US, 86_400 * SECOND_US)


class Storm:
    """The faults of one run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._dice = stage.dice
        self._world = stage.world
        self._open: dict[tuple[str, ...], Undo] = {}
        """What has still to be undone."""
        self._kinds: tuple[tuple[int, Callable[[], None]], ...] = (
            (3, self._power),
            (3, self._kill),
            (3, self._kill_speaker),
            (1, self._kill_supervisor),
            (2, self._stop),
            (4, self._freeze),
            (2, self._suspend),
            (3, self._unplug),
            (5, self._cut),
            (2, self._cut_clients),
            (4, self._wire),
            (2, self._hand_over),
            (2, self._clock),
            (5, self._reload),
            (4, self._track),
        )

    def play(self) -> Iterator[int]:
        """Wait between them, µs."""
        weights = [weight for weight, _ in self._kinds]
        for _ in range(self._dice.randrange(*_FAULTS)):
            fault = self._dice.choices(self._kinds, weights)[0][1]
            if self._open and self._dice.random() < 0.4:  # noqa: PLR2004 - a share
                fault = partial(self._undo, self._dice.choice(list(self._open)))
            fault()
            yield self._pause()
        while self._open:
            self._undo(next(iter(self._open)))
            yield self._pause() // 4
        yield self._stage.rest_us

    # -- kinds of faults

    def _power(self) -> None:
        if director := self._some(lambda each: each.powered and not each.suspended):
            director.power_off()
            self._open["host", director.name] = director.power_on

    def _kill(self) -> None:
        if director := self._running():
            director.kill()
            self._open["host", director.name] = partial(self._start, director)

    def _kill_supervisor(self) -> None:
        if director := self._speaking():
            director.kill_supervisor()
            self._open["host", director.name] = partial(self._start, director)

    def _stop(self) -> None:
        if director := self._speaking():
            director.stop("a drill")
            self._open["host", director.name] = partial(self._start, director)

    def _kill_speaker(self) -> None:
        if director := self._speaking():
            director.kill_speaker()

    def _freeze(self) -> None:
        if director := self._running():
            director.freeze()
            self._open["host", director.name] = director.thaw

    def _suspend(self) -> None:
        if director := self._running():
            director.suspend()
            stood = self._dice.random() < 0.5  # noqa: PLR2004 - a share
            self._open["host", director.name] = partial(director.resume_host, clock_stood=stood)

    def _unplug(self) -> None:
        director = self._some(lambda each: each.powered and not each.suspended)
        if director is None:
            return
        interface = self._dice.choice([name for name, nic in director.nics.items() if nic.base is None])
        if director.nics[interface].carrier and ("link", director.name, interface) not in self._open:
            director.set_link(interface, up=False)
            self._open["link", director.name, interface] = partial(self._plug, director, interface)

    def _cut(self) -> None:
        one, other = self._dice.sample(self._world.directors, 2)
        ways = self._dice.choice((((one, other),), ((one, other), (other, one))))
        for sender, receiver in ways:
            key = ("cut", sender.name, receiver.name)
            if key not in self._open:
                self._world.cut(sender, receiver)
                self._open[key] = partial(self._world.heal, sender, receiver)

    def _cut_clients(self) -> None:
        name = self._dice.choice(self._world.directors).name
        key = ("cut", name, _CLIENTS)
        if key not in self._open:
            self._world.lan.cut(name, _CLIENTS)
            self._open[key] = partial(self._heal_clients, name)

    def _wire(self) -> None:
        if ("wire",) not in self._open:
            fine = self._world.lan.wire
            bad = self._dice.choice(_BAD_WIRES)
            self._world.ledger.note("LAN", f"is bad: {bad}")
            self._world.lan.wire = bad
            self._open["wire",] = partial(self._repair, fine)

    def _hand_over(self) -> None:
        if director := self._speaking():
            director.hand_over("a drill")
            self._open["yielded", director.name] = partial(self._resume, director)

    def _clock(self) -> None:
        self._dice.choice(self._world.directors).jump_wall_clock(self._dice.choice(_JUMPS_US))

    def _track(self) -> None:
        director = self._some(lambda each: each.process is Process.RUNNING)
        tracks = [] if director is None else [track for each in director.memberships for track in each.instance.tracks]
        names = dict.fromkeys((each.kind, each.name) for each in tracks if each.kind is not TrackKind.INTERFACE)
        if director is None or not names:
            return
        key = self._dice.choice(list(names))
        script = key[0] is TrackKind.SCRIPT
        ways = (Health.ILL, Health.HANGING, Health.MISSING) if script else (Health.ILL,)
        director.set_health(key, self._dice.choice(ways))
        self._open["track", director.name, *map(str, key)] = partial(director.set_health, key, Health.WELL)

    def _reload(self) -> None:
        """Another priority or name concerns one director; addresses and intervals all of them, one after the other."""
        index = self._dice.randrange(len(self._world.directors[0].memberships))
        kind = self._dice.choice(("priority", "name", "addresses", "interval"))
        director = self._running()
        if director is None:
            return
        before = director.memberships[index].instance
        if kind in ("priority", "name"):
            # What the members of a sync group disagree on they must not get by chance.
            indices = range(len(director.memberships)) if director.config.sync_groups else (index,)
            by = self._dice.choice((-60, -20, 20, 60))
            change = partial(_reprioritised, by=by) if kind == "priority" else _renamed
            director.reload(_with(director.config, indices, change), f"another {kind}")
            return
        if any(each.process is Process.FROZEN for each in self._world.directors):
            return
        if kind == "addresses":
            alter = partial(_readdressed, former=before)
        else:
            faster = 2 if before.version != _VERSION_2 and before.advert_interval_us > _FASTEST_US else 1
            slower = 2 if before.advert_interval_us < 2 * SECOND_US else 1
            interval_us = self._dice.choice((before.advert_interval_us // faster, before.advert_interval_us * slower))
            alter = partial(_paced, interval_us=interval_us)
        for each in self._world.directors:
            each.reload(_with(each.config, (index,), alter), f"other {kind}")

    # -- inside

    def _undo(self, key: tuple[str, ...]) -> None:
        self._open.pop(key)()

    def _start(self, director: Director) -> None:
        if director.powered and director.process is Process.DEAD:
            director.start_again()

    def _plug(self, director: Director, interface: str) -> None:
        if director.powered:
            director.set_link(interface, up=True)

    def _heal_clients(self, name: str) -> None:
        self._world.lan.heal(name, _CLIENTS)

    def _repair(self, wire: Wire) -> None:
        self._world.ledger.note("LAN", "is well again")
        self._world.lan.wire = wire

    def _resume(self, director: Director) -> None:
        if director.process is Process.RUNNING and director.has_speaker:
            director.resume()

    def _running(self) -> Director | None:
        return self._some(lambda each: each.process is Process.RUNNING)

    def _speaking(self) -> Director | None:
        return self._some(lambda each: each.process is Process.RUNNING and each.has_speaker)

    def _some(self, which: Callable[[Director], bool]) -> Director | None:
        chosen = [each for each in self._world.directors if which(each)]
        return self._dice.choice(chosen) if chosen else None

    def _pause(self) -> int:
        kind = self._dice.random()
        down_us = self._stage.down_us
        if kind < 0.2:  # noqa: PLR2004 - shares
            return self._dice.randrange(1, 2_000)
        if kind < 0.6:  # noqa: PLR2004
            return self._dice.randrange(1, down_us)
        return self._dice.randrange(down_us, 4 * down_us)


def _play(stage: Stage) -> Iterator[int]:
    return Storm(stage).play()


STORM = Scenario(
    name="storm", summary="random faults on every director and every cable, then rest", play=_play, settles=False
)
"""Begins while the directors still boot."""

ON_DEMAND = (TRACK_FAILS, STORM)
"""Not in the round of `SCENARIOS`: played when they are asked for."""


def _with(config: NodeConfig, indices: Iterable[int], change: Callable[[VrrpInstance], VrrpInstance]) -> NodeConfig:
    """The configuration with some instances changed; sync groups follow their names."""
    instances = list(config.instances)
    names = {}
    for index in indices:
        before, instances[index] = instances[index], change(instances[index])
        names[before.name] = instances[index].name
    groups = tuple(
        replace(each, members=tuple(names.get(name, name) for name in each.members)) for each in config.sync_groups
    )
    return replace(config, instances=tuple(instances), sync_groups=groups)


def _reprioritised(instance: VrrpInstance, by: int) -> VrrpInstance:
    if instance.priority == OWNER_PRIORITY:
        return instance
    return replace(instance, priority=max(1, min(254, instance.priority + by)))


def _renamed(instance: VrrpInstance) -> VrrpInstance:
    name = instance.name
    return replace(instance, name=name.removesuffix("_new") if name.endswith("_new") else f"{name}_new")


def _readdressed(instance: VrrpInstance, former: VrrpInstance) -> VrrpInstance:
    """One address more, or the last one less, on all alike."""
    if len(former.vips) > 1:
        return replace(instance, vips=former.vips[:-1])
    last = former.vips[-1]
    return replace(instance, vips=(*former.vips, replace(last, address=last.address + 1)))


def _paced(instance: VrrpInstance, interval_us: int) -> VrrpInstance:
    return replace(instance, advert_interval_us=interval_us)

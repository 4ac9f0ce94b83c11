"""The named drills. Each is a generator: it does something to the world, then yields how long to let it run (µs).

When within the advert interval it begins, and how long it lasts, is the seed's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from haxlb.sim.stage import Stage
from haxlb.sim.tracked import Health

Play = Callable[[Stage], Iterator[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One drill."""

    name: str
    summary: str
    """What happens, for people."""
    play: Play
    settles: bool = True
    """Whether it begins when the world has settled."""


def _crash(stage: Stage) -> Iterator[int]:
    stage.victim.power_off()
    yield stage.rest_us


def _graceful_stop(stage: Stage) -> Iterator[int]:
    stage.victim.stop("a drill")
    yield stage.rest_us


def _planned_failover(stage: Stage) -> Iterator[int]:
    stage.victim.hand_over("a drill")
    yield stage.rest_us
    stage.victim.resume()
    yield stage.rest_us


def _killed(stage: Stage) -> Iterator[int]:
    stage.victim.kill()
    yield stage.rest_us


def _speaker_killed(stage: Stage) -> Iterator[int]:
    stage.victim.kill_speaker()
    yield 2 * stage.rest_us


def _freeze(stage: Stage) -> Iterator[int]:
    stage.victim.freeze()
    yield stage.between(0.1, 6)
    stage.victim.thaw()
    yield stage.rest_us


def _link_down(stage: Stage) -> Iterator[int]:
    stage.victim.unplug()
    yield stage.between(0.3, 4)
    stage.victim.plug()
    yield 2 * stage.rest_us


def _link_cut(stage: Stage) -> Iterator[int]:
    return _cut(stage, outward=True, inward=True)


def _one_way_cut_out(stage: Stage) -> Iterator[int]:
    return _cut(stage, outward=True, inward=False)


def _one_way_cut_in(stage: Stage) -> Iterator[int]:
    return _cut(stage, outward=False, inward=True)


def _cut(stage: Stage, *, outward: bool, inward: bool) -> Iterator[int]:
    world, victim = stage.world, stage.victim
    for other in stage.others:
        if outward:
            world.cut(victim, other)
        if inward:
            world.cut(other, victim)
    yield stage.between(0.3, 8)
    for other in stage.others:
        if outward:
            world.heal(victim, other)
        if inward:
            world.heal(other, victim)
    yield 2 * stage.rest_us


def _return_of_master(stage: Stage) -> Iterator[int]:
    """The outage that counts begins with the return: of the crash before it there is a drill of its own."""
    stage.victim.power_off()
    yield stage.between(1.2, 6)
    stage.begin()
    stage.victim.power_on()
    yield 2 * stage.rest_us


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(name="crash", summary="the master loses its power", play=_crash),
    Scenario(name="graceful-stop", summary="haxlb is stopped in order on the master", play=_graceful_stop),
    Scenario(
        name="planned-failover", summary="haxlb failover on the master, later haxlb resume", play=_planned_failover
    ),
    Scenario(
        name="return-of-master",
        summary="the master comes back after a crash; counted from its return",
        play=_return_of_master,
    ),
    Scenario(name="freeze", summary="haxlb's processes on the master stand still for a while", play=_freeze),
    Scenario(name="killed", summary="all of haxlb is killed on the master, its kernel lives", play=_killed),
    Scenario(
        name="speaker-killed", summary="the master's speaker is killed, its supervisor lives", play=_speaker_killed
    ),
    Scenario(name="link-down", summary="the master's cables are pulled, and put back", play=_link_down),
    Scenario(name="link-cut", summary="master and backups do not hear each other, clients hear all", play=_link_cut),
    Scenario(
        name="one-way-cut-out",
        summary="backups do not hear the master; it hears them",
        play=_one_way_cut_out,
    ),
    Scenario(
        name="one-way-cut-in",
        summary="the master does not hear the backups; they hear it",
        play=_one_way_cut_in,
    ),
)
"""In the order in which seeds go round them."""


def _track_fails(stage: Stage) -> Iterator[int]:
    stage.victim.set_health(stage.track, Health.ILL)
    yield 2 * stage.rest_us
    stage.victim.set_health(stage.track, Health.WELL)
    yield 2 * stage.rest_us


TRACK_FAILS = Scenario(
    name="track-fails",
    summary="what the master tracks (a script, a file, a process, a BFD session) fails, and recovers",
    play=_track_fails,
)
"""Only when it is asked for: not every configuration tracks something."""


def by_seed(seed: int) -> Scenario:
    """Which drill a seed plays when none is named: seed 1 is a crash, the next ones follow in order."""
    return SCENARIOS[(seed - 1) % len(SCENARIOS)]

"""One run: a seed, a scenario, a cluster; and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest

from haxlb.model.addresses import IPAddress
from haxlb.sim.laws import Breach
from haxlb.sim.ledger import Entry
from haxlb.sim.membership import Membership, RouterKey
from haxlb.sim.scenario import Scenario
from haxlb.sim.stage import Stage, settle_us
from haxlb.sim.topology import Station
from haxlb.sim.world import Nature, World
from haxlb.splitbrain import protocol_window_us
from haxlb.splitbrain.window import master_down_interval_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One VIP, as its clients saw it."""

    vip: IPAddress
    unserved_us: int
    """How long nobody answered, in sum."""
    theory_us: int
    """3 * advert_int + skew_time of the best of the others: what VRRP promises after a crash."""
    mute_us: int
    """How long its virtual router had no MASTER, in sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Two directors were MASTER at the same time."""

    router: RouterKey
    begin_us: int
    """Since the drill's beginning; negative where the directors did not even start well."""
    length_us: int
    alarm_us: int | None
    """How long after its beginning the first alarm came; None = there was none."""
    interval_us: int
    """Advert interval: two MASTERs for no longer than that are a part of the election."""
    window_us: int
    """The detector's window: a shorter one is not told."""

    @property
    def is_election(self) -> bool:
        """Whether it is only the moment in which one MASTER takes over from another."""
        return self.length_us <= self.interval_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of one drill."""

    seed: int
    scenario: str
    summary: str
    """What happens in it, for people."""
    begun_us: int
    """Virtual time from which outages are counted."""
    outages: tuple[Outage, ...]
    splits: tuple[Split, ...]
    laws_broken: tuple[str, ...]
    timeline: tuple[Entry, ...]
    digest: int
    events: int

    @property
    def split_us(self) -> int:
        """How long two directors were MASTER, elections aside, in sum over all virtual routers."""
        return sum(each.length_us for each in self.splits if not each.is_election)

    @property
    def alarm_us(self) -> int | None:
        """How long the first alarm took; None = there was none."""
        return next((each.alarm_us for each in self.splits if each.alarm_us is not None), None)


def rehearse(stations: tuple[Station, ...], seed: int, scenario: Scenario, nature: Nature, *, track: str = "") -> Run:
    """Play one drill twice: the same seed must give the same trace (law L10)."""
    run, again = (play(stations, seed, scenario, nature, track=track) for _ in range(2))
    if (run.digest, run.timeline) == (again.digest, again.timeline):
        return run
    pairs = zip_longest(run.timeline, again.timeline)
    index = next((index for index, (one, other) in enumerate(pairs) if one != other), len(run.timeline))
    breach = Breach(
        law="L10",
        at_us=run.begun_us,
        sentence=f"two runs of seed {seed} differ from line {index + 1} of the timeline on",
    )
    return replace(run, laws_broken=(*run.laws_broken, str(breach)))


def play(stations: tuple[Station, ...], seed: int, scenario: Scenario, nature: Nature, *, track: str = "") -> Run:
    """Play one drill. `track`: what is to fail; raises ConfigError where nothing of that name is tracked."""
    world = World(stations, seed, nature)
    dice = world.dice(seed, "scenario")
    loop = world.loop
    for director in world.directors:
        within = min(each.instance.advert_interval_us for each in director.memberships)
        loop.at(dice.randrange(within), director.power_on)
    if scenario.settles:
        loop.run_until(settle_us(world))
    stage = Stage(world, dice, track)
    loop.run_until(loop.now_us + stage.phase())
    stage.begin()
    theories = _theories(world)
    for wait_us in scenario.play(stage):
        # What a scenario has done between two waits is an event, too.
        world.look()
        loop.run_until(loop.now_us + wait_us)
    world.finish()
    return Run(
        seed=seed,
        scenario=scenario.name,
        summary=scenario.summary,
        begun_us=stage.begun_us,
        outages=_outages(world, stage.begun_us, theories),
        splits=_splits(world, stage.begun_us),
        laws_broken=tuple(map(str, world.laws.breaches)),
        timeline=tuple(world.ledger.entries),
        digest=world.ledger.digest,
        events=loop.fired,
    )


def _theories(world: World) -> dict[RouterKey, int]:
    """By router: how long the best of those that are not MASTER needs to notice that the MASTER is gone."""
    out = {}
    for key, members in world.routers.items():
        waiting = [each for each in members if not each.is_live_master] or members
        out[key] = min(_down_us(each) for each in waiting)
    return out


def _down_us(member: Membership) -> int:
    """master_down_interval as it runs in this world: version 3 counts in the MASTER's interval."""
    master = next((each for each in member.colleagues if each.is_live_master), member)
    if member.instance.version == 2:  # noqa: PLR2004 - version 2 has one interval for all
        return master_down_interval_us(member.instance)
    return master_down_interval_us(replace(member.instance, advert_interval_us=master.instance.advert_interval_us))


def _outages(world: World, begun_us: int, theories: dict[RouterKey, int]) -> tuple[Outage, ...]:
    end_us = world.loop.now_us
    out = []
    for client in world.clients:
        for vip in client.vips:
            router = world.router_of[client.segment, vip]
            out.append(
                Outage(
                    vip=vip,
                    unserved_us=sum(stop - start for start, stop in client.unserved.of(vip, begun_us, end_us)),
                    theory_us=theories[router],
                    mute_us=sum(stop - start for start, stop in world.mute.of(router, begun_us, end_us)),
                )
            )
    return tuple(out)


def _splits(world: World, begun_us: int) -> tuple[Split, ...]:
    end_us = world.loop.now_us
    out = []
    for router, members in world.routers.items():
        spans = world.split.of(router, 0, end_us)
        limits = [start for start, _ in spans[1:]] + [end_us + 1] * bool(spans)
        alarms = [at for key, at in world.raised if key == router]
        for (start, stop), limit in zip(spans, limits, strict=True):
            raised = next((at for at in alarms if start <= at < limit), None)
            out.append(
                Split(
                    router=router,
                    begin_us=start - begun_us,
                    length_us=stop - start,
                    alarm_us=None if raised is None else raised - start,
                    interval_us=max(each.instance.advert_interval_us for each in members),
                    window_us=max(protocol_window_us(each.instance) for each in members),
                )
            )
    return tuple(sorted(out, key=lambda each: each.begin_us))

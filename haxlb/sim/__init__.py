"""The virtual world: the real speaker, detector and claimant on a virtual clock and an in-memory LAN.

    keepalived.conf -> topology (stations) -> world -> scenario plays on the stage -> drill (Run) -> report

`loop` is the clock, `lan` the cables, `director` a host with its processes, `client` those who are served, `laws` those
who look on. One seed gives one trace, on every run.
"""

from haxlb.sim.drill import Run, play, rehearse
from haxlb.sim.scenario import SCENARIOS, Scenario, by_seed
from haxlb.sim.topology import Station, plan
from haxlb.sim.world import Nature, World

__all__ = ["SCENARIOS", "Nature", "Run", "Scenario", "Station", "World", "by_seed", "plan", "play", "rehearse"]

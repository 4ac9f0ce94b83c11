"""What a scenario plays on: the settled world, who is MASTER in it, and how long things take there."""

from __future__ import annotations

from random import Random

from haxlb.model.node import SECOND_US, Role
from haxlb.sim.director import Director
from haxlb.sim.laws import longest_down_us
from haxlb.sim.world import World
from haxlb.splitbrain import protocol_window_us

_GARP_SETTLE_US = 6 * SECOND_US
"""The second round of gratuitous ARP comes five seconds after the first."""


class Stage:
    """Made once the world has settled."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self._random = random
        members = [each for director in world.directors for each in director.memberships]
        self.down_us = max(longest_down_us(each.instance, each.colleagues) for each in members)
        """The longest time that any instance waits before it takes over."""
        self.window_us = max(protocol_window_us(each.instance) for each in members)
        preempt_us = max(each.instance.preempt_delay_us for each in members)
        self.rest_us = 3 * self.window_us + self.down_us + preempt_us + _GARP_SETTLE_US
        """After this everything that follows from one event has happened."""
        self.interval_us = max(each.instance.advert_interval_us for each in members)
        self.begun_us = world.loop.now_us
        self.victim = self._victim()
        self.others = tuple(each for each in world.directors if each is not self.victim)

    def begin(self) -> None:
        """Outages and split brains are counted from now on."""
        self.begun_us = self.world.loop.now_us

    def between(self, low: float, high: float) -> int:
        """A random time between these multiples of `down_us`."""
        return self._random.randrange(int(low * self.down_us), int(high * self.down_us))

    def phase(self) -> int:
        """A random moment within an advert interval."""
        return self._random.randrange(self.interval_us)

    def _victim(self) -> Director:
        """The director that is MASTER most often; the first of several."""

        def masters(director: Director) -> int:
            return sum(each.role is Role.MASTER for each in director.memberships)

        return max(self.world.directors, key=masters)


def settle_us(world: World) -> int:
    """How long a world needs from power on until the last preemption is over."""
    members = [each for director in world.directors for each in director.memberships]
    down_us = max(longest_down_us(each.instance, each.colleagues) for each in members)
    return 3 * down_us + max(each.instance.preempt_delay_us for each in members) + _GARP_SETTLE_US

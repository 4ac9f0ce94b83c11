"""What a scenario plays on: the settled world, who is MASTER in it, and how long things take there."""

from __future__ import annotations

from random import Random

from haxlb.model.errors import ConfigError
from haxlb.model.instance import Role
from haxlb.model.node import NodeConfig
from haxlb.model.tracking import TrackKind
from haxlb.model.units import SECOND_US
from haxlb.sim.director import Director
from haxlb.sim.laws import longest_down_us
from haxlb.sim.membership import Membership
from haxlb.sim.tracked import Key
from haxlb.sim.world import World
from haxlb.splitbrain import protocol_window_us

_GARP_SETTLE_US = 6 * SECOND_US
"""The second round of gratuitous ARP comes five seconds after the first."""


class Stage:
    """Made once the world has settled."""

    def __init__(self, world: World, dice: Random, track: str = "") -> None:
        """`track`: the name of what is to fail where something that is tracked does; empty = the first one."""
        self.world = world
        self.dice = dice
        self.begun_us = world.loop.now_us
        self.victim = self._victim()
        self._track = track
        self.others = tuple(each for each in world.directors if each is not self.victim)

    @property
    def down_us(self) -> int:
        """The longest time that any instance waits before it takes over."""
        return max(longest_down_us(each.instance, each.colleagues) for each in self._members)

    @property
    def rest_us(self) -> int:
        """After this everything that follows from one event has happened."""
        window_us = max(protocol_window_us(each.instance) for each in self._members)
        preempt_us = max(each.instance.preempt_delay_us for each in self._members)
        startup_us = max(each.config.speaker.startup_delay_us for each in self.world.directors)
        return 3 * window_us + self.down_us + preempt_us + startup_us + _GARP_SETTLE_US

    @property
    def interval_us(self) -> int:
        """The longest advert interval."""
        return max(each.instance.advert_interval_us for each in self._members)

    @property
    def track(self) -> Key:
        """What is to fail. Raises ConfigError where nothing of that name is tracked."""
        keys = track_keys(self.victim.config)
        found = [key for key in keys if self._track in ("", key[1])]
        if found:
            return found[0]
        names = ", ".join(name for _, name in keys)
        raise ConfigError(
            f"{self.victim.name} tracks nothing that is called {self._track}" if names else "nothing is tracked",
            remedy=f"there are: {names}" if names else "choose another scenario",
        )

    @property
    def _members(self) -> list[Membership]:
        return [each for director in self.world.directors for each in director.memberships]

    def begin(self) -> None:
        """Outages and split brains are counted from now on."""
        self.begun_us = self.world.loop.now_us

    def between(self, low: float, high: float) -> int:
        """A random time between these multiples of `down_us`."""
        return self.dice.randrange(int(low * self.down_us), int(high * self.down_us))

    def phase(self) -> int:
        """A random moment within an advert interval."""
        return self.dice.randrange(self.interval_us)

    def _victim(self) -> Director:
        """The director that is MASTER most often; the first of several."""

        def masters(director: Director) -> int:
            return sum(each.role is Role.MASTER for each in director.memberships)

        return max(self.world.directors, key=masters)


def track_keys(config: NodeConfig) -> list[Key]:
    """What can be made to fail: all that is tracked but interfaces, which have drills of their own."""
    lists = (*(each.tracks for each in config.instances), *(each.tracks for each in config.sync_groups))
    keys = ((each.kind, each.name) for listed in lists for each in listed if each.kind is not TrackKind.INTERFACE)
    return list(dict.fromkeys(keys))


def settle_us(world: World) -> int:
    """How long a world needs from power on until the last preemption is over."""
    members = [each for director in world.directors for each in director.memberships]
    down_us = max(longest_down_us(each.instance, each.colleagues) for each in members)
    waits_us = max(each.instance.preempt_delay_us for each in members)
    waits_us += max(each.config.speaker.startup_delay_us for each in world.directors)
    return 3 * down_us + waits_us + _GARP_SETTLE_US

"""Announcements on their way out: at once, or spread where the operator wants a pause between two frames.

The pause (`garp_interval`, `gna_interval`) is between frames of one interface, whichever instances they are for; the
interfaces of one `garp_group` share it. What waits is bounded: a newer set of rounds for an address takes the place of
the older one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.daemon.ports import AnnouncePort
from haxlb.model.addresses import Vip
from haxlb.model.node import GarpConfig

_IPV4 = 4


@dataclass(slots=True)
class _Lane:
    """The frames of one family on one interface, or group of interfaces."""

    at: int = 0
    """The next frame goes out no earlier, monotonic µs."""
    pause_us: int = 0
    waiting: dict[Vip, int] = field(default_factory=dict)
    """Rounds still to send, in the order of sending."""


class AnnouncementQueue:
    """Executes Announce for all instances of a node."""

    def __init__(self, announcer: AnnouncePort) -> None:
        self._announcer = announcer
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self.next_at: int | None = None
        """When `due` wants to be called, monotonic µs."""

    def announce(self, vips: tuple[Vip, ...], rounds: int, config: GarpConfig, now: int) -> None:
        """Send `rounds` times over all of these, as fast as the configuration allows."""
        if not config.interval_us and not config.gna_interval_us:
            for _ in range(rounds):
                self._announcer.announce(vips)
            return
        at_once: list[Vip] = []
        for vip in vips:
            pause_us = config.interval_us if vip.family == _IPV4 else config.gna_interval_us
            if not pause_us:
                at_once.append(vip)
                continue
            lane = self._lanes.setdefault((config.group or f"interface {vip.interface}", vip.family), _Lane())
            lane.pause_us = pause_us
            lane.waiting.pop(vip, None)
            lane.waiting[vip] = rounds
        for _ in range(rounds if at_once else 0):
            self._announcer.announce(at_once)
        self.due(now)

    def drop(self, vips: tuple[Vip, ...]) -> None:
        """These are no longer ours: nothing more is said of them."""
        if self.next_at is not None:
            for lane in self._lanes.values():
                for vip in vips:
                    lane.waiting.pop(vip, None)

    def due(self, now: int) -> None:
        """Send what may be sent by now."""
        for lane in self._lanes.values():
            while lane.waiting and lane.at <= now:
                vip, rounds = next(iter(lane.waiting.items()))
                del lane.waiting[vip]
                if rounds > 1:
                    lane.waiting[vip] = rounds - 1
                self._announcer.announce((vip,))
                # Not made up for after a stall: the pause is there for a switch that drops frames when they come fast.
                lane.at = now + lane.pause_us
        self.next_at = min((lane.at for lane in self._lanes.values() if lane.waiting), default=None)

    def stop(self) -> None:
        """Nothing more is sent."""
        self._lanes.clear()
        self.next_at = None

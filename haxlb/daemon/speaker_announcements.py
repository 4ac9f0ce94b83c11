"""Announcements on their way out: as fast as adverts permit, or spread where the operator wants a pause between frames.

Without a pause they leave in portions, and adverts that are due go out between two of them: five rounds over a thousand
addresses take several times an advert interval of 10 ms. A round of one instance takes turns with those of others.

The pause (`garp_interval`, `gna_interval`) is between frames of one interface, whichever instances they are for; the
interfaces of one `garp_group` share it. What waits is bounded: a newer set of rounds for an address takes the place of
the older one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from haxlb.daemon.ports import AnnouncePort
from haxlb.model.addresses import Vip
from haxlb.model.instance import GarpConfig

PORTION = 64
"""Frames that are sent in one go: less than a millisecond."""
_IPV4 = 4


@dataclass(slots=True)
class _Lane:
    """The frames of one family on one interface, or group of interfaces."""

    at: int = 0
    """The next frame goes out no earlier, monotonic µs."""
    pause_us: int = 0
    waiting: dict[Vip, int] = field(default_factory=dict)
    """Rounds still to send, in the order of sending."""


@dataclass(slots=True)
class _Burst:
    """Rounds over some addresses without a pause."""

    vips: tuple[Vip, ...]
    rounds: int
    """Still to finish."""
    done: int = 0
    """Addresses of the present round that are announced."""


class AnnouncementQueue:
    """Executes Announce for all instances of a node."""

    def __init__(self, announcer: AnnouncePort) -> None:
        self._announcer = announcer
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._bursts: deque[_Burst] = deque()
        self._turn_at: int | None = None
        self._left_of_turn = PORTION
        self.next_at: int | None = None
        """When `due` wants to be called, monotonic µs."""

    def announce(self, vips: tuple[Vip, ...], rounds: int, config: GarpConfig, now: int) -> None:
        """Send `rounds` times over all of these, as fast as the configuration allows."""
        if not config.interval_us and not config.gna_interval_us:
            self._at_once(vips, rounds, now)
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
        self._at_once(tuple(at_once), rounds, now)
        self._send_paced(now)
        self._set_alarm(now)

    def drop(self, vips: tuple[Vip, ...]) -> None:
        """These are no longer ours: nothing more is said of them."""
        if self.next_at is not None:
            self._drop_bursts(vips)
            for lane in self._lanes.values():
                for vip in vips:
                    lane.waiting.pop(vip, None)

    def due(self, now: int) -> None:
        """Send what may be sent by now, one portion of it at most."""
        self._left_of_turn = PORTION
        self._send_bursts()
        self._send_paced(now)
        self._set_alarm(now)

    def stop(self) -> None:
        """Nothing more is sent."""
        self._lanes.clear()
        self._bursts.clear()
        self.next_at = None

    def _at_once(self, vips: tuple[Vip, ...], rounds: int, now: int) -> None:
        if not vips or not rounds:
            return
        if self._turn_at != now:
            self._turn_at, self._left_of_turn = now, PORTION
        self._drop_bursts(vips)
        self._bursts.append(_Burst(vips, rounds))
        self._send_bursts()
        self._set_alarm(now)

    def _drop_bursts(self, vips: tuple[Vip, ...]) -> None:
        gone: frozenset[Vip] | None = None
        for _ in range(len(self._bursts)):
            burst = self._bursts.popleft()
            if burst.vips == vips:
                continue
            gone = frozenset(vips) if gone is None else gone
            if not gone.isdisjoint(burst.vips):
                before = tuple(vip for vip in burst.vips[: burst.done] if vip not in gone)
                after = tuple(vip for vip in burst.vips[burst.done :] if vip not in gone)
                burst.vips, burst.done = before + after, len(before)
            if burst.vips:
                self._bursts.append(burst)

    def _send_bursts(self) -> None:
        """What of them the turn permits."""
        while self._bursts and self._left_of_turn:
            burst = self._bursts[0]
            some = burst.vips[burst.done : burst.done + self._left_of_turn]
            self._announcer.announce(some)
            self._left_of_turn -= len(some)
            burst.done += len(some)
            if burst.done >= len(burst.vips):
                burst.done = 0
                burst.rounds -= 1
                self._bursts.popleft()
                if burst.rounds:
                    self._bursts.append(burst)

    def _send_paced(self, now: int) -> None:
        for lane in self._lanes.values():
            while lane.waiting and lane.at <= now:
                vip, rounds = next(iter(lane.waiting.items()))
                del lane.waiting[vip]
                if rounds > 1:
                    lane.waiting[vip] = rounds - 1
                self._announcer.announce((vip,))
                # Not made up for after a stall: the pause is there for a switch that drops frames when they come fast.
                lane.at = now + lane.pause_us

    def _set_alarm(self, now: int) -> None:
        if self._bursts:
            self.next_at = now
        else:
            self.next_at = min((lane.at for lane in self._lanes.values() if lane.waiting), default=None)

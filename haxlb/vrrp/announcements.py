"""When a MASTER announces its addresses: at once, a second time, refreshed, and when somebody else claimed them.

A machine of its own inside the router: told the time, it answers with Announce effects. keepalived's `garp_*` options
say how often; the pause between two frames (`garp_interval`, `gna_interval`) is a matter of interfaces, which instances
share, and is kept by whoever sends them (`haxlb.daemon.speaker_announcements`).
"""

from __future__ import annotations

from haxlb.model.addresses import Vip
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.contest import Contest
from haxlb.vrrp.holdings import addresses
from haxlb.vrrp.inputs import Announce


class Announcements:
    """The announcements of one instance while it is MASTER."""

    def __init__(self, instance: VrrpInstance) -> None:
        self._config = instance.garp
        self._vips = addresses(instance)
        self._extra = _extra(instance)
        self._contest = Contest()
        self._second_at: int | None = None
        self._refresh_at: int | None = None
        self._lower_second_at: int | None = None
        self._extra_at: int | None = None
        self._is_on = False
        self._next: int | None = None

    @property
    def is_contested(self) -> bool:
        """Whether adverts of lower priority keep coming in."""
        return self._contest.sustained

    def has_rival(self, patience_us: int, now: int) -> bool:
        """Whether an advert of lower priority was heard that recently."""
        return self._contest.has_rival(patience_us, now)

    def reconfigure(self, instance: VrrpInstance, now: int) -> None:
        """Take another pace and other addresses; a burst under way goes on, a refresh that changes starts anew."""
        former, self._config = self._config, instance.garp
        self._vips, self._extra = addresses(instance), _extra(instance)
        if self._is_on:
            if self._config.master_refresh_us != former.master_refresh_us:
                self._refresh_at = _after(now, self._config.master_refresh_us)
            if self._config.extra_if_us != former.extra_if_us or (self._extra and self._extra_at is None):
                self._extra_at = _after(now, self._config.extra_if_us) if self._extra else None
            self._plan()

    def begin(self, now: int) -> list[Announce]:
        """MASTER from now on."""
        config = self._config
        self._is_on = True
        self._second_at = _after(now, config.master_delay_us)
        # keepalived's first refresh comes one period after the second set.
        self._refresh_at = now + config.master_delay_us + config.master_refresh_us if config.master_refresh_us else None
        self._extra_at = _after(now, config.extra_if_us) if self._extra else None
        self._plan()
        return _set(self._vips, config.master_repeat)

    def resume(self, now: int) -> list[Announce]:
        """MASTER in the place of a process that has died: one frame per address, and no second set."""
        self.begin(now)
        self._second_at = None
        self._plan()
        return _set(self._vips, min(1, self._config.master_repeat))

    def end(self) -> None:
        """No longer MASTER: what was not sent yet is not sent."""
        if self._is_on:
            self._is_on = False
            self._second_at = self._refresh_at = self._lower_second_at = self._extra_at = self._next = None
            self._contest.end()

    def added(self, vips: tuple[Vip, ...]) -> list[Announce]:
        """Further addresses while MASTER."""
        return _set(vips, self._config.master_repeat)

    def lower_priority(self, interval_us: int, now: int) -> list[Announce] | None:
        """Somebody else believes to be MASTER and may have poisoned caches; None = no announcement for this advert."""
        heeded = self._contest.heard(interval_us, now)
        if self._contest.sustained:
            # It will be announced again anyway, while the contest goes on and at its end.
            self._lower_second_at = None
        elif heeded:
            self._lower_second_at = _after(now, self._config.lower_prio_delay_us)
        self._plan()
        return _set(self._vips, self._config.lower_prio_repeat) if heeded else None

    def rival_left(self, now: int) -> list[Announce]:
        """Another MASTER has resigned: whoever believed it is without an answer from now on."""
        heeded = self._contest.left(now)
        self._plan()
        return _set(self._vips, self._config.lower_prio_repeat) if heeded else []

    def companion(self, now: int) -> list[Announce]:
        """Another member of the sync group has heard a lower priority: the same is believed of these addresses."""
        heeded = self._contest.shared(now)
        if heeded:
            self._lower_second_at = _after(now, self._config.lower_prio_delay_us)
        self._plan()
        return _set(self._vips, self._config.lower_prio_repeat) if heeded else []

    def next_deadline(self) -> int | None:
        """When `due` wants to be called, µs."""
        return self._next

    def due(self, now: int) -> list[Announce]:
        """What is to be sent by now, of the addresses held now."""
        if self._next is None or self._next > now:
            return []
        config = self._config
        out: list[Announce] = []
        if self._second_at is not None and self._second_at <= now:
            self._second_at = None
            out += _set(self._vips, config.master_repeat)
        if self._lower_second_at is not None and self._lower_second_at <= now:
            self._lower_second_at = None
            out += _set(self._vips, config.lower_prio_repeat)
        if self._contest.due(now):
            out += _set(self._vips, config.lower_prio_repeat)
        if self._refresh_at is not None and self._refresh_at <= now:
            self._refresh_at = _following(self._refresh_at, config.master_refresh_us, now)
            out += _set(self._vips, config.master_refresh_repeat)
        if self._extra_at is not None and self._extra_at <= now:
            self._extra_at = _following(self._extra_at, config.extra_if_us, now)
            out += _set(self._extra, 1)
        self._plan()
        return out

    def _plan(self) -> None:
        times = (self._second_at, self._refresh_at, self._lower_second_at, self._extra_at, self._contest.silent_at)
        self._next = min((at for at in times if at is not None), default=None)


def _set(vips: tuple[Vip, ...], rounds: int) -> list[Announce]:
    return [Announce(vips=vips, rounds=rounds)] if vips and rounds > 0 else []


def _after(now: int, delay_us: int) -> int | None:
    """Zero = never."""
    return now + delay_us if delay_us else None


def _following(at: int, period_us: int, now: int) -> int | None:
    """The next time of a period that keeps its phase: what a stall has missed is not made up for."""
    return at + ((now - at) // period_us + 1) * period_us if period_us else None


def _extra(instance: VrrpInstance) -> tuple[Vip, ...]:
    """For garp_extra_if: one address of each virtual MAC's interface that sends no adverts (or of all of them).

    A switch that hears nothing from a MAC forgets where it is; adverts come from the base interface with xmit_base.
    """
    config, virtual = instance.garp, instance.virtual_mac
    if not config.extra_if_us:
        return ()
    made = {each.interface for each in instance.virtual_macs}
    if virtual is not None and not virtual.xmit_base and not config.extra_if_all:
        made.discard(virtual.interface)
    chosen: dict[str, Vip] = {}
    for vip in addresses(instance):
        if vip.interface in made:
            chosen.setdefault(vip.interface, vip)
    return tuple(chosen.values())

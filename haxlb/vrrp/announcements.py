"""When a MASTER announces its addresses by gratuitous ARP: at once, a second time, and refreshed.

A machine of its own inside the router: told the time, it answers with Announce effects. keepalived's `garp_*` options
set the pace.
"""

from __future__ import annotations

from haxlb.model.addresses import Vip
from haxlb.model.node import SECOND_US, GarpConfig
from haxlb.vrrp.inputs import Announce

_LOWER_PRIORITY_PAUSE_US = SECOND_US
"""At most one burst in this time however many adverts of lower priority come in: a flood must not become two."""


class Announcements:
    """The announcements of one instance while it is MASTER."""

    def __init__(self, config: GarpConfig) -> None:
        self._config = config
        self._second_at: int | None = None
        self._refresh_at: int | None = None
        self._lower_second_at: int | None = None
        self._lower_muted_until: int | None = None
        self._paced: list[Vip] = []
        self._paced_at: int | None = None

    def reconfigure(self, config: GarpConfig, now: int) -> None:
        """Take another pace; a burst under way goes on, the refresh starts anew."""
        if config.master_refresh_us != self._config.master_refresh_us:
            self._refresh_at = now + config.master_refresh_us if config.master_refresh_us else None
        self._config = config

    def begin(self, vips: tuple[Vip, ...], now: int) -> list[Announce]:
        """MASTER from now on."""
        config = self._config
        self._second_at = now + config.master_delay_us if config.master_delay_us else None
        # keepalived's first refresh comes one period after the second set.
        self._refresh_at = now + config.master_delay_us + config.master_refresh_us if config.master_refresh_us else None
        return self._set(vips, config.master_repeat, now)

    def end(self) -> None:
        """No longer MASTER: what was not sent yet is not sent."""
        self._second_at = self._refresh_at = self._lower_second_at = self._lower_muted_until = self._paced_at = None

    def added(self, vips: tuple[Vip, ...], now: int) -> list[Announce]:
        """Further addresses while MASTER."""
        if self._paced_at is not None:
            self._paced += list(vips) * self._config.master_repeat
            return []
        return self._set(vips, self._config.master_repeat, now)

    def lower_priority(self, vips: tuple[Vip, ...], now: int) -> list[Announce]:
        """Somebody else believed to be MASTER and may have poisoned caches: announce again."""
        if self._lower_muted_until is not None and now < self._lower_muted_until:
            return []
        config = self._config
        self._lower_muted_until = now + _LOWER_PRIORITY_PAUSE_US
        self._lower_second_at = now + config.lower_prio_delay_us if config.lower_prio_delay_us else None
        return self._set(vips, config.lower_prio_repeat, now)

    def next_deadline(self) -> int | None:
        """When `due` wants to be called, µs."""
        waiting = [
            at for at in (self._second_at, self._refresh_at, self._lower_second_at, self._paced_at) if at is not None
        ]
        return min(waiting) if waiting else None

    def due(self, vips: tuple[Vip, ...], now: int) -> list[Announce]:
        """What is to be sent by now, of the addresses held now."""
        config = self._config
        out: list[Announce] = []
        if self._second_at is not None and self._second_at <= now:
            self._second_at = None
            out += self._set(vips, config.master_repeat, now)
        if self._lower_second_at is not None and self._lower_second_at <= now:
            self._lower_second_at = None
            out += self._set(vips, config.lower_prio_repeat, now)
        if self._refresh_at is not None and self._refresh_at <= now:
            missed = (now - self._refresh_at) // config.master_refresh_us
            self._refresh_at += (missed + 1) * config.master_refresh_us
            out += self._set(vips, config.master_refresh_repeat, now)
        if self._paced_at is not None and self._paced_at <= now:
            self._paced = [vip for vip in self._paced if vip in vips]
            out += self._pace(now)
        return out

    def _set(self, vips: tuple[Vip, ...], rounds: int, now: int) -> list[Announce]:
        if not vips or rounds < 1:
            return []
        if not self._config.interval_us:
            return [Announce(vips=vips, rounds=rounds)]
        # A newer set replaces the rest of an older one: the queue cannot outgrow one set.
        self._paced = list(vips) * rounds
        return self._pace(now)

    def _pace(self, now: int) -> list[Announce]:
        sent = self._paced[:1]
        del self._paced[:1]
        self._paced_at = now + self._config.interval_us if self._paced else None
        return [Announce(vips=(vip,), rounds=1) for vip in sent]

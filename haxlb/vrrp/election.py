"""What a BACKUP waits for: the Master_Down_Timer, and when preemption is allowed.

Preemption has no path of its own. A BACKUP that may preempt ignores adverts of lower priority, and its timer runs out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from haxlb.model.addresses import IPAddress
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.vrrp.timers import master_down_interval, skew_time

if TYPE_CHECKING:
    # Who only reads a configuration needs no codec.
    from haxlb.vrrp.advert import Advert

OWNER_PRIORITY = 255


class Election:
    """The election as one BACKUP sees it; also keeps the interval in force for the formulae."""

    def __init__(self, instance: VrrpInstance) -> None:
        self.instance = instance
        self.priority = instance.priority
        """The effective one; `reprioritise` changes it."""
        self.deadline: int | None = None
        """When the Master_Down_Timer runs out; None while not BACKUP."""
        self._silent_since = 0
        self._why = ""
        self._listened_again = False
        self._preempt_at: int | None = None
        self._learned_interval_us: int | None = None

    @property
    def master_interval_us(self) -> int:
        """Master_Adver_Interval: the MASTER's in version 3, our own until one was heard and in version 2."""
        return self._learned_interval_us or self.instance.advert_interval_us

    @property
    def skew_us(self) -> int:
        """Skew_Time."""
        return skew_time(self.instance.version, self.priority, self.master_interval_us)

    @property
    def master_down_interval_us(self) -> int:
        """Master_Down_Interval."""
        instance = self.instance
        interval, adverts = self.master_interval_us, instance.down_timer_adverts
        return master_down_interval(instance.version, self.priority, interval, adverts)

    @property
    def is_nopreempt(self) -> bool:
        """Whether `nopreempt` has force: as in keepalived, `state MASTER` and priority 255 clear it."""
        instance = self.instance
        return instance.nopreempt and instance.initial_role is not Role.MASTER and instance.priority != OWNER_PRIORITY

    def forget(self) -> None:
        """No longer BACKUP."""
        self.deadline = self._preempt_at = self._learned_interval_us = None
        self._why = ""
        self._listened_again = False

    def rest(self, now: int, learned_interval_us: int | None = None) -> None:
        """The full wait begins: a MASTER was heard, or might be there."""
        # Version 2 demands equal intervals, so there is nothing to learn.
        if learned_interval_us is not None and self.instance.version != 2:  # noqa: PLR2004
            self._learned_interval_us = learned_interval_us
        self.deadline = now + self.master_down_interval_us
        self._silent_since = now
        self._why = ""
        self._listened_again = False

    def wait_again(self, now: int) -> None:
        """The timer ran out, but the sync group holds the instance back; the reason for it stays (keepalived)."""
        self._why = self.reason(now)
        self.deadline = now + self.master_down_interval_us

    def hurry(self, now: int) -> None:
        """After the start with `state MASTER`.

        As keepalived: one interval and the least skew instead of three, so that a pair that boots settles quickly.
        """
        interval = self.instance.advert_interval_us
        wait = interval + skew_time(self.instance.version, OWNER_PRIORITY, interval)
        self.deadline = now + wait
        self._why = f"state MASTER, and no higher priority heard for {seconds(wait)} after the start"

    def owner_starts(self, now: int) -> None:
        """Priority 255 does not wait, but for the sync group or vrrp_startup_delay."""
        self.deadline = now
        self._why = "started with priority 255, the addresses' owner"

    def owner_returns(self, now: int) -> None:
        """Priority 255 after FAULT: one interval and the skew (keepalived)."""
        self.deadline = now + self.instance.advert_interval_us + self.skew_us

    def resigned(self, source: IPAddress, now: int) -> None:
        """Priority 0 was heard: only the skew remains, so that the best BACKUP is the first."""
        self.deadline = now + self.skew_us
        self._why = f"{source} resigned (priority 0)"

    def yields_to(self, advert: Advert, *, yielded: bool, now: int) -> bool:
        """Whether this advert, of a priority above 0, is to be respected as the MASTER's."""
        instance = self.instance
        if advert.priority >= self.priority:
            self._preempt_at = None
            return True
        if yielded or self.is_nopreempt:
            return True
        # keepalived: `state MASTER` clears preempt_delay.
        if not instance.preempt_delay_us or instance.initial_role is Role.MASTER:
            return False
        if self._preempt_at is None:
            self._preempt_at = now + instance.preempt_delay_us
        return now < self._preempt_at

    def respects(self, source: IPAddress, priority: int, *, yielded: bool, reserve: str = "") -> str:
        """Why an advert that `yields_to` accepted makes it stay BACKUP, in words."""
        ours = self.priority
        if priority > ours:
            return f"priority {priority} of {source} is higher than our {ours}"
        if priority == ours:
            return f"{source} is MASTER with the same priority {ours}"
        lower = f"priority {priority} of {source} is lower than our {ours}"
        if yielded:
            return f"{lower}, but we have handed over"
        if reserve:
            return f"{lower}, but {reserve}"
        if self.is_nopreempt:
            return f"{lower}, but nopreempt leaves it alone"
        delay = seconds(self.instance.preempt_delay_us)
        return f"{lower}, but preempt_delay leaves it alone for {delay} after it was first heard"

    def outrank(self, source: IPAddress, priority: int) -> None:
        """An advert of lower priority was ignored; the timer runs on."""
        self._why = f"our priority {self.priority} is higher than {priority} of {source}"

    def is_over(self, now: int) -> bool:
        """Whether the timer has run out."""
        return self.deadline is not None and self.deadline <= now

    def overslept(self, now: int) -> bool:
        """Whether a timer that has run out proves nothing; if so it has been set anew.

        Whoever did not run did not listen either: a paused virtual machine gets no packets. Only once per silence, or
        a host that is always late would never have a MASTER.
        """
        if self.deadline is None or now - self.deadline < self.master_interval_us or self._listened_again:
            return False
        self._listened_again = True
        self.deadline = now + self.master_interval_us + self.skew_us
        return True

    def reason(self, now: int) -> str:
        """Why the BACKUP becomes MASTER, in words."""
        return self._why or f"no advert for {seconds(now - self._silent_since)}"

    def reprioritise(self, priority: int, now: int) -> None:
        """Another effective priority."""
        before, self.priority = self.master_down_interval_us, priority
        self._shift(before, now)

    def reconfigure(self, instance: VrrpInstance, priority: int, now: int) -> None:
        """Other settings."""
        before = self.master_down_interval_us
        if instance.version != self.instance.version:
            self._learned_interval_us = None
        self.instance, self.priority = instance, priority
        self._shift(before, now)

    def _shift(self, before: int, now: int) -> None:
        """As in keepalived the running timer shifts by the difference of the intervals."""
        shift = self.master_down_interval_us - before
        if self.deadline is not None and shift:
            self.deadline = max(now, self.deadline + shift)


def seconds(us: int) -> str:
    """A duration for people."""
    return f"{us / SECOND_US:.3f} s"

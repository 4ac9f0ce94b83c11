"""Laws L8 and L11: how often an instance speaks, and how often it announces its addresses.

L8   A MASTER sends an advert every interval, no later, and nobody sends one without a cause: its turn, a change of
     role, other settings, or an advert that is to be answered (haxlb.vrrp.router, haxlb.vrrp.farewell).
L11  Only a MASTER announces; each announcement has a cause, and those that answer others' adverts stay under twenty
     a second for each address.

What happens in one moment belongs together, and is judged when the moment is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.vrrp.holdings import addresses

_TOLERANCE_US = 100
_CONTESTS_IN_A_SECOND = 3
_OUT_OF_TURN = 2
"""Adverts that may come with one change of a role: priority 0 twice on the way to FAULT, or a last word after
another (higher_prio_send_advert)."""


class Pace:
    """One instance of one speaker."""

    def __init__(self, who: str, instance: VrrpInstance, accuse: Callable[[str, str], None]) -> None:
        self.instance = instance
        self._who = who
        self._accuse = accuse
        self._role = self._role_before = Role.INIT
        self._moment = 0
        self._sent = 0
        self._causes = 0
        self._announced: dict[IPAddress, int] = {}
        self._last_sent: int | None = None
        """None = nothing is expected of it."""
        self._last_interval_us = instance.advert_interval_us
        self._in_turn_at = 0
        """From when on an advert is in turn."""
        self._begins = False
        self._cause_at = -SECOND_US
        """Of an announcement."""
        self._sets: deque[int] = deque(maxlen=64)
        """When it had a cause to announce that is not another router's advert."""
        self._latest: deque[int] = deque(maxlen=_CONTESTS_IN_A_SECOND)
        """When it announced anything."""
        self._times: dict[IPAddress, deque[int]] = {}

    @property
    def role(self) -> Role:
        """As reported last."""
        return self._role

    def is_hoarse(self, now: int) -> bool:
        """Whether it has announced so often within a second that it must wait before it does again."""
        return len(self._latest) == _CONTESTS_IN_A_SECOND and now - self._latest[0] < SECOND_US

    def begin(self, now: int) -> None:
        """A new speaker, or one that runs again after it was stopped: nothing is late yet."""
        self._at(now)
        self._last_sent = now if self._role is Role.MASTER else None
        self._in_turn_at = now
        self._begins = True
        self._causes += 1
        # What was due while it was stopped comes now.
        self._cause_at = now
        self._sets.append(now)

    def resumed(self, now: int) -> None:
        """MASTER in the place of a speaker that has died."""
        self._at(now)
        self._role = Role.MASTER
        self._last_sent = now

    def reset(self, now: int) -> None:
        """The speaker is gone."""
        self._at(now)
        self._role = self._role_before = Role.INIT
        self._last_sent = None
        # The next speaker does not know of it, nor has a booted host the same clock.
        self._times.clear()
        self._latest.clear()
        self._sets.clear()

    def pause(self, now: int) -> None:
        """Its process is stopped."""
        self._at(now)
        self._check_gap(now)
        self._last_sent = None

    def disturb(self, now: int, instance: VrrpInstance | None = None) -> None:
        """Other settings, a link that comes or goes, a tracked thing: a cause for an advert and an announcement."""
        self._at(now)
        self._causes += 1
        self._sets.append(now)
        self._cause_at = now
        if instance is not None:
            self._check_gap(now)
            self._last_interval_us = max(self._last_interval_us, instance.advert_interval_us)
            self._in_turn_at = now
            self.instance = instance

    def heard(self, now: int) -> None:
        """An advert has reached the speaker."""
        self._at(now)
        self._causes += 1
        self._cause_at = now

    def companion_heard(self, now: int) -> None:
        """An advert has reached another member of its sync group."""
        self._cause_at = now

    def sent(self, now: int) -> None:
        """An advert was sent."""
        self._at(now)
        self._sent += 1

    def announced(self, vip: Vip, now: int) -> None:
        """One frame for this address was sent."""
        self._at(now)
        self._announced[vip.address] = self._announced.get(vip.address, 0) + 1

    def changed(self, role: Role, now: int) -> None:
        """The role is another one."""
        self._at(now)
        if self._role is Role.MASTER and not self._sent:
            self._check_gap(now)
        self._role = role
        self._causes += _OUT_OF_TURN
        self._sets.append(now)
        self._cause_at = now

    def finish(self, now: int) -> None:
        """The end of the run."""
        self._at(now + 1)
        self._check_gap(now)

    # -- inside

    def _at(self, now: int) -> None:
        if now != self._moment:
            self._judge()
            self._moment = now

    def _judge(self) -> None:
        now = self._moment
        if self._sent:
            self._judge_adverts(now)
        if self._announced:
            self._judge_announcements(now)
        if self._role is not Role.MASTER:
            self._last_sent = None
        self._role_before = self._role
        self._sent = self._causes = 0
        self._begins = False

    def _judge_adverts(self, now: int) -> None:
        self._check_gap(now)
        in_turn = now >= self._in_turn_at
        allowed = self._causes + int(in_turn and Role.MASTER in (self._role, self._role_before))
        if self._sent > allowed:
            why = f"{self._causes} causes{' and its turn' if in_turn else ''}"
            self._accuse("L8", f"{self._who} as {self._role.value} sent {self._sent} adverts at once with {why}")
        # After an answer the next one in turn may come early (Schedule.answer).
        wait = self.instance.advert_interval_us // (2 if self._causes else 1)
        if self._begins:
            wait = 0  # late, and the schedule keeps its phase
        self._in_turn_at = now + wait - _TOLERANCE_US
        self._last_sent = now if self._role is Role.MASTER else None
        self._last_interval_us = self.instance.advert_interval_us

    def _check_gap(self, now: int) -> None:
        if self._last_sent is None:
            return
        interval = max(self._last_interval_us, self.instance.advert_interval_us)
        gap = now - self._last_sent
        if gap > interval + _TOLERANCE_US:
            self._accuse(
                "L8", f"{self._who} was MASTER and silent for {gap / 1000:.1f} ms, its interval is {interval / 1000:g}"
            )

    def _judge_announcements(self, now: int) -> None:
        announced, self._announced = self._announced, {}
        self._latest.append(now)
        garp = self.instance.garp
        own = {vip.address for vip in addresses(self.instance)}
        listed = [(address, count) for address, count in announced.items() if address in own]
        if not listed:
            return
        if Role.MASTER not in (self._role, self._role_before):
            self._accuse("L11", f"{self._who} is {self._role.value} and announces {listed[0][0]}")
        if garp.interval_us or garp.gna_interval_us:
            return  # spread over an unknown time
        late = max(garp.master_delay_us, garp.lower_prio_delay_us, SECOND_US) + 2 * self._longest_us
        if not garp.master_refresh_us and now - self._cause_at > late:
            self._accuse(
                "L11",
                f"{self._who} announces {listed[0][0]} {(now - self._cause_at) / SECOND_US:.3f} s after any cause",
            )
        recent = now - SECOND_US
        second = garp.master_delay_us
        sets = sum(at > recent for at in self._sets) + sum(recent < at + second <= now for at in self._sets if second)
        budget = _CONTESTS_IN_A_SECOND * garp.lower_prio_repeat + sets * garp.master_repeat
        # The second set after an advert of lower priority.
        budget += garp.lower_prio_repeat * bool(garp.lower_prio_delay_us)
        if garp.master_refresh_us:
            budget += garp.master_refresh_repeat * (SECOND_US // garp.master_refresh_us + 1)
        for address, count in listed:
            times = self._times.setdefault(address, deque(maxlen=512))
            times.extend([now] * count)
            while times[0] <= recent:
                times.popleft()
            if len(times) > budget:
                self._accuse("L11", f"{self._who} has announced {address} {len(times)} times within a second")

    @property
    def _longest_us(self) -> int:
        return max(self._last_interval_us, self.instance.advert_interval_us)

"""Where every fact goes: the log, the history, MQTT, the split-brain detector; and the alarms that come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from haxlb.daemon.history import History, RejectedFilter, describe
from haxlb.daemon.supervisor_ports import World
from haxlb.model.facts import AdvertRejected, AlarmCleared, AlarmRaised, Fact, PeerClaimed, RoleChanged
from haxlb.model.instance import VrrpInstance
from haxlb.model.settings import MqttSettings
from haxlb.model.status import AlarmStatus
from haxlb.model.units import SECOND_US
from haxlb.splitbrain.claimant import Claimant, PublishClaim
from haxlb.splitbrain.detector import SplitBrainDetector
from haxlb.splitbrain.watch import last_will_us

MOST_CLAIMS = 1024
"""Anybody may publish claims: what is remembered of them is bounded."""


class Chronicle:
    """Takes facts and the supervisor's own remarks; wakes itself for the detector's and the claimant's deadlines."""

    def __init__(self, world: World, node: str, *, on_change: Callable[[], None]) -> None:
        """`on_change` is called when what the status shows has changed."""
        self._world = world
        self._on_change = on_change
        self._history = History()
        self._detector = SplitBrainDetector(node)
        self._claimant = Claimant()
        self._rejected = RejectedFilter()
        self._claims: dict[tuple[str, int, str], bool] = {}
        self._alarms: dict[str, tuple[str, AlarmRaised]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def configure(self, instances: tuple[VrrpInstance, ...], mqtt: MqttSettings | None) -> None:
        """Follow these instances from now on; claims come by this broker."""
        # Directors of a pair have the same settings: how long a dead one's claim stands is known by our own.
        if mqtt is not None:
            self._detector.expect_last_will(last_will_us(mqtt.keepalive_s))
        for alarm in self._detector.configure(instances, self._world.clock.now()):
            self._tell(alarm)
        self._publish(self._claimant.configure(instances))
        self._arm()

    def take(self, fact: Fact, source: str = "") -> None:
        """A fact from a child (`source`), from MQTT or from the network."""
        now = self._world.clock.now()
        match fact:
            case AlarmRaised():
                self._alarms[fact.key] = (source, fact)
            case AlarmCleared():
                self._alarms.pop(fact.key, None)
        if self._is_news(fact):
            self._tell(fact)
        for alarm in self._detector.handle(fact, now):
            self._tell(alarm)
        if isinstance(fact, RoleChanged):
            self._publish(self._claimant.handle(fact, now))
        self._arm()

    def adopt(self, fact: RoleChanged) -> None:
        """A role that is no change: an instance has got another name. No news, but the machines must know."""
        now = self._world.clock.now()
        for alarm in self._detector.handle(fact, now):
            self._tell(alarm)
        self._publish(self._claimant.handle(fact, now))
        self._arm()

    def note(self, level: str, event: str, sentence: str, **fields: object) -> None:
        """A remark of the supervisor's own, for the log and the history; a field with an empty text is left out."""
        self._world.log.log(level, event, **{name: value for name, value in fields.items() if value != ""})
        self._history.add(sentence, self._world.wall.wall())

    def raise_alarm(self, key: str, summary: str, evidence: Iterable[str] = (), *, severity: str = "warning") -> None:
        """An alarm of the supervisor's own; raising it again changes nothing."""
        if key not in self._alarms:
            now = self._world.clock.now()
            alarm = AlarmRaised(key=key, severity=severity, summary=summary, evidence=tuple(evidence), at_us=now)
            self._alarms[key] = ("", alarm)
            self._tell(alarm)

    def clear_alarm(self, key: str, reason: str) -> None:
        """The alarm is over; nothing happens when it was not raised."""
        if self._alarms.pop(key, None) is not None:
            self._tell(AlarmCleared(key=key, reason=reason, at_us=self._world.clock.now()))

    def clear_alarms_of(self, source: str, reason: str) -> None:
        """The child is gone and with it what it complained of; its successor complains anew."""
        for key in [key for key, (whose, _) in self._alarms.items() if whose == source]:
            self.clear_alarm(key, reason)

    def alarms(self) -> tuple[AlarmStatus, ...]:
        """What is raised now, oldest first."""
        others = (alarm for _, alarm in self._alarms.values())
        raised = sorted((*self._detector.status(), *others), key=lambda alarm: alarm.at_us)
        return tuple(
            AlarmStatus(
                key=alarm.key,
                severity=alarm.severity,
                summary=alarm.summary,
                evidence=alarm.evidence,
                raised_at=self.wall_of(alarm.at_us),
            )
            for alarm in raised
        )

    def lines(self) -> tuple[str, ...]:
        """The history, newest last."""
        return self._history.lines()

    def wall_of(self, at_us: int) -> float:
        """The time of day of a monotonic time, seconds since the epoch."""
        return self._world.wall.wall() - (self._world.clock.now() - at_us) / SECOND_US

    def close(self) -> None:
        """No timers any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_news(self, fact: Fact) -> bool:
        """Claims are repeated every second, and a broken peer can fill a log: neither is news each time."""
        if isinstance(fact, PeerClaimed):
            key = (fact.node, fact.vrid, fact.instance)
            known = self._claims.get(key)
            if len(self._claims) >= MOST_CLAIMS:
                self._claims.clear()
            self._claims[key] = fact.master
            return bool(known) is not fact.master
        return not isinstance(fact, AdvertRejected) or self._rejected.passes(fact)

    def _tell(self, fact: Fact) -> None:
        entry = describe(fact)
        self._world.log.log(entry.level, entry.event, **entry.fields)
        if entry.lasting:
            self._history.add(entry.sentence, self.wall_of(fact.at_us))
            self._world.broker.publish(fact)
            self._on_change()

    def _publish(self, claims: list[PublishClaim]) -> None:
        for claim in claims:
            self._world.broker.claim(claim)

    def _arm(self) -> None:
        """One timer for whichever machine wants to be woken first."""
        self.close()
        wanted = [each for each in (self._detector.next_deadline(), self._claimant.next_deadline()) if each is not None]
        if wanted:
            delay_us = max(0, min(wanted) - self._world.clock.now())
            self._timer = asyncio.get_running_loop().call_later(delay_us / SECOND_US, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._world.clock.now()
        for alarm in self._detector.handle_timer(now):
            self._tell(alarm)
        self._publish(self._claimant.handle_timer(now))
        self._arm()

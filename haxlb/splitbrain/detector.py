"""The detector: from facts and the time to alarms.

Theory. Two MASTERs for a moment are part of the protocol: a director that was stalled, or that comes back with the
higher priority, speaks once before the other one yields. Two MASTERs for longer than the protocol's window (our
master_down_interval and one advert) are a split brain. Three independent paths show it, and each has to show it
again after a whole window before it counts:

* an advert of another director for our VRID, while we are MASTER;
* another director's MAC that announces or answers ARP for a VIP that we hold;
* another node's claim on MQTT. A claim counts once it was repeated while we were MASTER; one that is never repeated
  counts when the last will of a dead author would have taken it back.

So an alarm comes within two windows of the first evidence (by ARP, which asks every three seconds, within nine
seconds if that is longer), and none without a second MASTER. It is cleared when nothing was seen for one window (by
ARP: two questions) and no claim stands, or at once when we leave MASTER.

A foreign MAC that belongs to no director is another fault, with another remedy: `vip-conflict/<vip>`. It is taken for
a director's after all while adverts for our VRID come in that we do not believe (another password, version or
interval): two directors that do not believe each other are both MASTER.
"""

from __future__ import annotations

from haxlb.model.addresses import IPAddress
from haxlb.model.facts import (
    AdvertRejected,
    AlarmCleared,
    AlarmRaised,
    Fact,
    ForeignAdvertHeard,
    ForeignMacHeard,
    PeerClaimed,
    RoleChanged,
)
from haxlb.model.instance import Role, VrrpInstance
from haxlb.splitbrain.watch import LAST_WILL_US, InstanceWatch

Alarm = AlarmRaised | AlarmCleared


class SplitBrainDetector:
    """A machine: facts and the time in, alarms out. Facts that it has no use for are ignored."""

    def __init__(self, node: str, instances: tuple[VrrpInstance, ...] = ()) -> None:
        self._node = node
        self._watches: dict[str, InstanceWatch] = {each.name: InstanceWatch(each) for each in instances}
        self._raised: dict[str, AlarmRaised] = {}
        self._last_will_us = LAST_WILL_US

    def expect_last_will(self, after_us: int) -> None:
        """A broker takes a dead node's claims back so long after its last word; before `configure`."""
        self._last_will_us = after_us

    def configure(self, instances: tuple[VrrpInstance, ...], now: int) -> list[Alarm]:
        """Watch these instances from now on; what is known of one that stays is kept."""
        before, self._watches = self._watches, {}
        alarms: list[Alarm] = []
        for each in instances:
            watch = before.pop(each.name, None)
            if watch is None:
                watch = InstanceWatch(each)
            elif watch.instance != each:
                for vip in watch.instance.vips:
                    if vip not in each.vips:
                        alarms += self._clear(f"vip-conflict/{vip.address}", "the VIP is no longer ours", now)
                watch.reconfigure(each)
            watch.last_will_us = self._last_will_us
            self._watches[each.name] = watch
        for watch in before.values():
            alarms += self._clear_all(watch, f"{watch.instance.name} is no longer configured", now)
        for watch in self._watches.values():
            alarms += self._judge(watch, now)
        return alarms

    def handle(self, fact: Fact, now: int) -> list[Alarm]:
        """Take one fact, at the time when we learn of it.

        Its own time stamp is not asked: after a stall of this process a heap of old adverts would look like a split
        brain that has lasted. Counted from now, a stall can only delay an alarm.
        """
        match fact:
            case RoleChanged():
                return self._handle_role(fact, now)
            case ForeignAdvertHeard():
                watch = self._watches.get(fact.instance)
                if watch is not None:
                    watch.see_advert(fact, now)
                    return self._judge(watch, now)
            case AdvertRejected():
                watch = self._watches.get(fact.instance or "")
                if watch is not None:
                    watch.see_rejected(fact, now)
                    return self._judge(watch, now)
            case ForeignMacHeard():
                watch = self._holder(fact.vip)
                if watch is not None:
                    watch.see_mac(fact, now)
                    return self._judge(watch, now)
            case PeerClaimed():
                return self._handle_claim(fact, now)
        return []

    def next_deadline(self) -> int | None:
        """When `handle_timer` wants to be called, µs; None = not before the next fact."""
        return min((each.look_us for each in self._watches.values() if each.look_us is not None), default=None)

    def handle_timer(self, now: int) -> list[Alarm]:
        """Clear what has fallen silent, raise what was never withdrawn."""
        alarms: list[Alarm] = []
        for watch in self._watches.values():
            # Of hundreds of instances one is due; to judge them all would be most of what a quiet supervisor does.
            if watch.look_us is not None and watch.look_us <= now:
                alarms += self._judge(watch, now)
        return alarms

    def status(self) -> tuple[AlarmRaised, ...]:
        """The alarms that are raised, oldest first, with the evidence that raised them."""
        return tuple(self._raised.values())

    def _handle_role(self, fact: RoleChanged, now: int) -> list[Alarm]:
        watch = self._watches.get(fact.instance)
        if watch is None:
            return []
        watch.enter(fact.after, now)
        if fact.after is Role.MASTER:
            return self._judge(watch, now)
        watch.plan(now, raised=False)
        reason = f"{fact.instance} left MASTER and is {fact.after.value}: {fact.reason}"
        return self._clear_all(watch, reason, now)

    def _handle_claim(self, fact: PeerClaimed, now: int) -> list[Alarm]:
        # A claim names no link. Where two of our instances share a VRID on two links their names must tell which.
        watches = [each for each in self._watches.values() if each.instance.vrid == fact.vrid]
        if len(watches) > 1:
            watches = [each for each in watches if each.instance.name == fact.instance]
        if fact.node == self._node or not watches:
            return []
        watches[0].see_claim(fact, now)
        return self._judge(watches[0], now)

    def _holder(self, vip: IPAddress) -> InstanceWatch | None:
        for watch in self._watches.values():
            if watch.role is Role.MASTER and any(each.address == vip for each in watch.instance.vips):
                return watch
        return None

    def _judge(self, watch: InstanceWatch, now: int) -> list[Alarm]:
        name = watch.instance.name
        key = f"split-brain/{name}"
        alarms: list[Alarm] = []
        if key not in self._raised and watch.standing(now):
            vips = ", ".join(str(vip.address) for vip in watch.instance.vips) or "no VIP"
            summary = f"{name}: two MASTERs of VRID {watch.instance.vrid} ({vips}): this director and {watch.others()}"
            alarms += self._raise(key, summary, watch.lines(now), now)
        elif key in self._raised and watch.silent(now):
            alarms += self._clear(key, "no sign of another MASTER any more", now)
        alarms += self._judge_conflicts(watch, now)
        watch.plan(now, raised=key in self._raised)
        return alarms

    def _judge_conflicts(self, watch: InstanceWatch, now: int) -> list[Alarm]:
        alarms: list[Alarm] = []
        conflicts = dict(reversed(watch.conflicts(now)))
        for vip in watch.instance.vips:
            key, mac = f"vip-conflict/{vip.address}", conflicts.get(vip.address)
            if mac is None:
                alarms += self._clear(key, "nobody else answers ARP for it any more, or it is another director", now)
            elif key not in self._raised:
                summary = (
                    f"{mac} answers ARP for our VIP {vip.address}: clients may bypass this director. Most likely"
                    f" {watch.likely_owner(now)}"
                )
                alarms += self._raise(key, summary, watch.lines(now), now)
        return alarms

    def _raise(self, key: str, summary: str, evidence: tuple[str, ...], now: int) -> list[Alarm]:
        alarm = AlarmRaised(key=key, severity="critical", summary=summary, evidence=evidence, at_us=now)
        self._raised[key] = alarm
        return [alarm]

    def _clear(self, key: str, reason: str, now: int) -> list[Alarm]:
        if self._raised.pop(key, None) is None:
            return []
        return [AlarmCleared(key=key, reason=reason, at_us=now)]

    def _clear_all(self, watch: InstanceWatch, reason: str, now: int) -> list[Alarm]:
        alarms = self._clear(f"split-brain/{watch.instance.name}", reason, now)
        for vip in watch.instance.vips:
            alarms += self._clear(f"vip-conflict/{vip.address}", reason, now)
        return alarms

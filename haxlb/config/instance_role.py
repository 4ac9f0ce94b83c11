"""What decides the role of an instance, and when: state, priority, preemption, intervals, strictness."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.config.defaults import DOWN_TIMER_ADVERTS, Defaults
from haxlb.model.instance import Role
from haxlb.model.units import SECOND_US
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span

OWNER = 255
_V3 = 3
_V3_LONGEST_ADVERT_US = 40_950_000
"""Twelve bits of centiseconds (RFC 9568 section 5.2.7)."""
_CENTISECOND_US = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Fields of the instance of the same names."""

    priority: int
    initial_role: Role
    nopreempt: bool
    preempt_delay_us: int
    down_timer_adverts: int
    accept: bool
    lower_prio_no_advert: bool
    higher_prio_send_advert: bool
    owner_ignore_adverts: bool


def read_standing(
    section: Section, name: str, defaults: Defaults, complaints: Complaints, *, block: Entry, version: int, strict: bool
) -> Standing:
    """All of it."""
    return _Reader(section, name, defaults, complaints, block=block, strict=strict).read(version)


def advert_interval(section: Section, name: str, version: int, complaints: Complaints) -> int:
    """advert_int in µs, as the protocol's version can say it."""
    found = section.entry("advert_int")
    if found is None:
        return SECOND_US
    wanted = int(found.value)
    if version == _V3:
        taken = min((wanted + _CENTISECOND_US // 2) // _CENTISECOND_US * _CENTISECOND_US, _V3_LONGEST_ADVERT_US)
        limit = "VRRPv3 counts hundredths of a second, up to 40.95"
    else:
        taken = max((wanted + SECOND_US // 2) // SECOND_US, 1) * SECOND_US
        limit = "VRRPv2 counts whole seconds"
    if taken != wanted:
        complaints.warning(
            "rounded-interval",
            found.argument_span,
            f"{name}: advert_int {wanted / SECOND_US:g} is taken as {taken / SECOND_US:g}: {limit}",
            "write what is meant, the same on both directors" + ("" if version == _V3 else ", or `version 3` on both"),
        )
    return taken


class _Reader:
    def __init__(
        self,
        section: Section,
        name: str,
        defaults: Defaults,
        complaints: Complaints,
        *,
        block: Entry,
        strict: bool,
    ) -> None:
        self._section = section
        self._name = name
        self._defaults = defaults
        self._complaints = complaints
        self._block = block
        self._strict = strict

    def read(self, version: int) -> Standing:
        state = self._state()
        priority = self._priority(state)
        if self._strict:
            state = self._strict_state(state, priority)
        nopreempt, delay = self._preemption(state, priority)
        owner = priority == OWNER
        return Standing(
            priority=priority,
            initial_role=Role.MASTER if state == "MASTER" or (state is None and owner) else Role.BACKUP,
            nopreempt=nopreempt,
            preempt_delay_us=delay,
            down_timer_adverts=self._down_timer_adverts(),
            accept=self._accept(version, owner=owner),
            lower_prio_no_advert=self._switch("lower_prio_no_advert", strict=True),
            higher_prio_send_advert=self._switch("higher_prio_send_advert", strict=False),
            owner_ignore_adverts=self._ignores(owner=owner),
        )

    def _place(self, name: str) -> Span:
        found = self._section.entry(name)
        return found.argument_span if found else self._block.argument_span

    def _reset(self, entry: Entry, what: str) -> None:
        self._complaints.warning(
            "strict-conflict",
            entry.words[0],
            f"{self._name}: under vrrp_strict {what}, as in keepalived",
            "delete the line, or vrrp_strict, on both directors",
        )

    def _state(self) -> str | None:
        found = self._section.entry("state")
        if found is None or found.value != "SLAVE":
            return None if found is None else str(found.value)
        self._complaints.warning(
            "old-spelling", found.argument_span, f"{self._name}: state SLAVE is taken as BACKUP", "write BACKUP"
        )
        return "BACKUP"

    def _strict_state(self, state: str | None, priority: int) -> str:
        meant = "MASTER" if priority == OWNER else "BACKUP"
        found = self._section.entry("state")
        if found is not None and state != meant:
            self._reset(found, f"an instance of priority {priority} begins as {meant}")
        return meant

    def _priority(self, state: str | None) -> int:
        found = self._section.entry("priority")
        if found is not None:
            return int(found.value)
        if state == "MASTER" and "priority" not in self._section.refused:
            self._complaints.warning(
                "owner-by-default",
                self._place("state"),
                f"{self._name}: `state MASTER` without priority means priority 255, as in keepalived",
                "name a priority below 255, different on each director",
            )
            return OWNER
        return 100

    def _preemption(self, state: str | None, priority: int) -> tuple[bool, int]:
        switches = [each for each in self._section.entries if each.keyword.name in ("preempt", "nopreempt")]
        nopreempt = bool(switches) and switches[-1].keyword.name == "nopreempt"
        if nopreempt and (state == "MASTER" or priority == OWNER):
            why = "`state MASTER`" if state == "MASTER" and not self._strict else "priority 255"
            self._complaints.warning(
                "useless-nopreempt",
                switches[-1].span,
                f"{self._name}: nopreempt does not work with {why} and is switched off, as in keepalived",
                "write `state BACKUP` on both directors",
            )
            nopreempt = False
        delay = self._section.entry("preempt_delay")
        if delay is None:
            return nopreempt, 0
        if delay.value and (nopreempt or state == "MASTER" or self._strict):
            why = "nopreempt" if nopreempt else "vrrp_strict" if self._strict else "`state MASTER`"
            self._complaints.warning(
                "useless-preempt-delay",
                delay.span,
                f"{self._name}: preempt_delay does not work with {why} and is 0, as in keepalived",
            )
            return nopreempt, 0
        return nopreempt, int(delay.value)

    def _down_timer_adverts(self) -> int:
        entry = self._section.entry("down_timer_adverts")
        wanted = int(entry.value) if entry is not None else self._defaults.down_timer_adverts
        if self._strict and wanted != DOWN_TIMER_ADVERTS:
            if entry is not None:
                self._reset(entry, "down_timer_adverts is 3")
            return DOWN_TIMER_ADVERTS
        return wanted

    def _accept(self, version: int, *, owner: bool) -> bool:
        switches = [each for each in self._section.entries if each.keyword.name in ("accept", "no_accept")]
        if not switches:
            return not self._strict or owner
        last = switches[-1]
        accept = last.keyword.name == "accept"
        if accept and self._strict and not owner and version != _V3:
            self._reset(last, "a backup router does not accept packets to the VIPs in version 2 (RFC 3768)")
            return False
        return accept

    def _switch(self, name: str, *, strict: bool) -> bool:
        entry = self._section.entry(name)
        wanted = bool(entry.value) if entry is not None else bool(getattr(self._defaults, name))
        if not self._strict:
            return wanted
        if entry is not None and wanted is not strict:
            self._reset(entry, f"{name} is {str(strict).lower()}")
        return strict

    def _ignores(self, *, owner: bool) -> bool:
        entry = self._section.entry("owner_ignore_adverts")
        if entry is not None and not owner:
            if entry.value:
                self._complaints.warning(
                    "useless-option",
                    entry.words[0],
                    f"{self._name}: owner_ignore_adverts is for priority 255, and is ignored, as in keepalived",
                )
            return False
        return owner and bool(entry.value if entry is not None else self._defaults.owner_ignore_adverts or self._strict)

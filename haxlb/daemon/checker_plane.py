"""The checker's side of the forwarder: what was asked of it, what it took, and when to ask again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from haxlb.daemon.checker_ports import CheckerReportPort
from haxlb.daemon.ports import ForwarderPort
from haxlb.forwarding.wanted import Counters, WantedTable
from haxlb.model.errors import HostError
from haxlb.model.facts import AlarmCleared, AlarmRaised
from haxlb.model.status import DataPlaneStatus, LinkStatus
from haxlb.model.units import SECOND_US
from haxlb.model.virtual_server import FlowTimeouts

FIRST_RETRY_US = SECOND_US
LAST_RETRY_US = 30 * SECOND_US
"""A forwarder that refuses is asked again after 1, 2, 4 … 30 s, and at every change."""
ALARM = "forwarder/problem"
END_EVERY_US = SECOND_US
"""How often it is looked whether a stateless service's change is over."""
LOOK_EVERY_US = 5 * SECOND_US
"""How often it is looked whether the program is still attached: an interface that was made anew carries none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Which program is wanted where."""

    program: str
    """Path of its pin."""
    interfaces: tuple[str, ...]
    mode: str


class DataPlane:
    """Carries out what is wanted, once per change; a refusal is a problem that is shown and tried again, no crash."""

    def __init__(self, forwarder: ForwarderPort, reports: CheckerReportPort) -> None:
        self._forwarder = forwarder
        self._reports = reports
        self._table: WantedTable | None = None
        self._applied: WantedTable | None = None
        self._attachment: Attachment | None = None
        self._attached: Attachment | None = None
        self._carriers: frozenset[str] = frozenset()
        """Where it was attached: of a VLAN, the interface below."""
        self.lifetime_s = FlowTimeouts().tcp_s
        """Of an established flow without packets."""
        self._end_at = 0
        self._look_at: int | None = None
        self._retry_at: int | None = None
        self._pause_us = FIRST_RETRY_US
        self._answers: list[str] = []
        self._swapping = False
        self.swaps = 0
        self.renewals = 0
        """How often its pins may have become other ones: what is kept beside them is to be written again."""
        self.problem = ""
        self._unpinned = ""
        """Why what somebody had removed could not be pinned again."""

    def want_table(self, table: WantedTable) -> None:
        """These are the services from now on; carried out by `settle`."""
        if table != self._table:
            self._table = table
            self._try_soon()

    def want_attachment(self, attachment: Attachment) -> None:
        """This program on these interfaces from now on; carried out by `settle`."""
        if attachment != self._attachment:
            self._attachment = attachment
            self._try_soon()

    def swap(self, program: str) -> None:
        """Attach this program where the former one is, also when its path is the same: another is pinned there."""
        if self._attachment is not None:
            self._attachment = replace(self._attachment, program=program)
            self._swapping = True
            self._try_soon()

    def interfaces_changed(self, now: int) -> None:
        """One has another MAC, or is new: the program must know its own MACs, and a new interface carries none."""
        self._applied = None
        if self._look_at is not None:
            self._look_at = now
        self._try_soon()

    def answer(self, of: str) -> None:
        """Report `ready` for this message once `settle` has tried."""
        self._answers.append(of)

    @property
    def waiting(self) -> bool:
        """Whether `settle` has something to do at the next opportunity."""
        pending = self._swapping or self._table != self._applied or self._attachment != self._attached
        return bool(self._answers) or (pending and self._retry_at is None)

    def next_deadline(self) -> int | None:
        """When to `settle` again: after a refusal, or to look whether all is still as it was made."""
        if self._retry_at is not None:
            return self._retry_at
        ends = None if self._applied is None else self._end_at
        return min((each for each in (self._look_at, ends) if each is not None), default=None)

    def settle(self, now: int) -> None:
        """Write the tables, then attach: a program must never see a packet before its tables are there."""
        if self._look_at is not None and now >= self._look_at:
            self._look(now)
        if self._retry_at is None or now >= self._retry_at:
            self._retry_at = None
            self._work(now)
        if self._applied is not None and now >= self._end_at:
            self._end(now)
        for of in self._answers:
            self._reports.ready(of, self.problem)
        self._answers.clear()

    def counters(self) -> Counters:
        """The forwarder's counters; empty ones when it cannot be read."""
        try:
            return self._forwarder.counters()
        except HostError:
            return Counters()

    def status(self, counters: Counters, *, needed: bool) -> DataPlaneStatus:
        """The forwarder as it is now; without a program it is a problem where one is needed."""
        problem = self.problem
        links: tuple[LinkStatus, ...] = ()
        try:
            links = self._forwarder.links()
        except HostError as refusal:
            problem = problem or str(refusal)
        if needed and not problem and not links:
            problem = "no program is attached: nothing is forwarded"
        return DataPlaneStatus(links=links, swaps=self.swaps, verdicts=counters.verdicts, problem=problem)

    def _work(self, now: int) -> None:
        problems: list[str] = []
        attached, wanted = self._attached, self._attachment
        if attached is not None and wanted is not None and wanted.program != attached.program and not self._swapping:
            # A reload that needs another program: that one can do what this one does, not the other way round.
            problems += self._attach(wanted, now)
        if not problems and self._table is not None and self._table != self._applied:
            try:
                self._forwarder.apply(self._table)
                self._applied = self._table
            except HostError as refusal:
                # What was written before the refusal is not known: the next attempt starts from the maps.
                self._applied = None
                problems.append(str(refusal))
        # Not beside a table that was refused: a program that reads half of it would lose traffic.
        if not problems and self._attachment is not None and (self._swapping or self._attachment != self._attached):
            problems += self._attach(self._attachment, now)
        self._note(" · ".join(dict.fromkeys(problems)), now)

    def _end(self, now: int) -> None:
        self._end_at = now + END_EVERY_US
        try:
            self._forwarder.settle(now // SECOND_US, self.lifetime_s)
        except HostError as refusal:
            self._applied = None
            self._note(str(refusal), now)

    def _look(self, now: int) -> None:
        self._look_at = now + LOOK_EVERY_US
        if self._attached is None:
            return
        try:
            there = {each.interface for each in self._forwarder.links()}
        except HostError:
            # Somebody has taken the pins away, and with them the program off the interfaces: to do it again is
            # the way to find out, and to say, why it cannot be done.
            self._applied = self._attached = None
            self.renewals += 1
            return
        missing = self._carriers - there
        if missing:
            self._reports.log("warning", "program_missing", interfaces=" ".join(sorted(missing)))
            self._attached = None
        self._repin()

    def _repin(self) -> None:
        restored: tuple[str, ...] = ()
        refusal = ""
        try:
            restored = self._forwarder.repin()
        except HostError as problem:
            refusal = str(problem)
        if restored:
            self.renewals += 1
            self._reports.log(
                "warning",
                "pins_restored",
                pins=" ".join(restored),
                reason="somebody had removed them",
                consequence="none: they are pinned again",
                remedy="leave them to haxlb; once it is stopped, `haxlb detach` removes them",
            )
        if refusal and refusal != self._unpinned:
            self._reports.log(
                "warning",
                "pins_not_restored",
                reason=refusal,
                consequence="the data plane may refuse new flows once the checker ends",
                remedy="see that the bpffs can be written",
            )
        self._unpinned = refusal

    def _attach(self, wanted: Attachment, now: int) -> list[str]:
        try:
            links = self._forwarder.attach(wanted.program, wanted.interfaces, wanted.mode)
        except HostError as refusal:
            # The tables may be new ones, made where somebody had removed ours: never attach before they are full.
            self._applied = None
            return [str(refusal)]
        if self._attached is not None and (self._swapping or self._attached.program != wanted.program):
            self.swaps += 1
        self._swapping = False
        self._attached = wanted
        self._carriers = frozenset(each.interface for each in links)
        self._look_at = now + LOOK_EVERY_US
        return []

    def _note(self, problem: str, now: int) -> None:
        if problem:
            self._retry_at = now + self._pause_us
            self._pause_us = min(2 * self._pause_us, LAST_RETRY_US)
        else:
            self._pause_us = FIRST_RETRY_US
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._reports.log("error", "data_plane_problem", problem=problem)
            self._reports.report(
                AlarmRaised(
                    key=ALARM,
                    severity="critical",
                    summary="the forwarder is not as it should be: traffic may be lost, or reach dead servers",
                    evidence=(problem,),
                    at_us=now,
                )
            )
        else:
            # Perhaps with tables that were made anew.
            self.renewals += 1
            self._reports.log("info", "data_plane_restored")
            self._reports.report(AlarmCleared(key=ALARM, reason="the forwarder is as wanted", at_us=now))

    def _try_soon(self) -> None:
        self._retry_at = None
        self._pause_us = FIRST_RETRY_US

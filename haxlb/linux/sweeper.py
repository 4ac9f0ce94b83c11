"""SweepPort on Linux: runs the pinned sweep-<tag> (bpf/sweep.c), and corrects the counts of connections.

The program is run by BPF_PROG_TEST_RUN with as many repetitions as a portion has; between two of them the kernel lets
others on this CPU (bpf_test_timer_continue of net/bpf/test_run.c). Counts are corrected by the program, too: packets
add to them while we look.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from haxlb.daemon.checker_sweeps import Corrected
from haxlb.forwarding.layout import INDEX, LOAD_BYTES, SWEEP_BUCKETS, TALLY_BYTES, sum_tallies
from haxlb.forwarding.sweep_order import NOTHING_ELSE, SweepOrder, pack_sweep_order
from haxlb.linux import bpf
from haxlb.linux.maps import Maps
from haxlb.model.errors import HostError

PORTION_BUCKETS: Final = 1 << 16
"""About a millisecond."""
_SWEEP: Final = struct.Struct("=I4xQ")
_WORDS: Final = LOAD_BYTES // 4
_ACTIVE, _INACTIVE, _COUNTED_ACTIVE, _COUNTED_INACTIVE = 0, 1, 4, 5
_INCARNATION: Final = 1
"""Offset in struct backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What is known of one server before a count and after it."""

    active: int
    inactive: int
    incarnation: int
    begun: int
    """Flows that it was ever given."""

    @property
    def total(self) -> int:
        return self.active + self.inactive


class Sweeper:
    """Sweeps the flow tables that are pinned in one directory; what is pinned there is opened when it changes."""

    def __init__(self) -> None:
        self._directory = Path()
        self._pin: tuple[Path, int, int] | None = None
        self._program: int | None = None
        self._maps: Maps | None = None
        self._loads: mmap.mmap | None = None
        self._what = NOTHING_ELSE
        self._before: list[tuple[int, int]] = []
        self._suspects: dict[int, _Reading] = {}
        """By the index of the server: what was read of it before the count that is to confirm what differs."""

    def use(self, directory: Path) -> None:
        """Sweep the tables that are pinned here from now on."""
        if directory != self._directory:
            self.close()
            self._directory = directory

    def close(self) -> None:
        """Let go of what is open; what is pinned stays."""
        if self._program is not None:
            os.close(self._program)
        if self._loads is not None:
            self._loads.close()
        if self._maps is not None:
            self._maps.close()
        self._pin = self._program = self._maps = self._loads = None
        self._suspects = {}

    def begin(self, *, counting: bool) -> int:
        """SweepPort. Raises HostError."""
        self._open()
        self._what = SweepOrder.COUNTING if counting else NOTHING_ELSE
        self._run(pack_sweep_order(what=SweepOrder.RESTART), 1)
        if counting:
            self._prepare_count()
        return -(-self._buckets // PORTION_BUCKETS)

    def sweep(self) -> None:
        """SweepPort: one portion. Raises HostError."""
        first, _ = self._cursor()
        buckets = min(PORTION_BUCKETS, self._buckets - first)
        if buckets > 0:
            self._run(pack_sweep_order(what=self._what), buckets // SWEEP_BUCKETS)

    @property
    def expired(self) -> int:
        """Flows that sweeps have freed since the tables were made. Raises HostError."""
        self._open()
        return self._cursor()[1]

    def compare(self) -> Corrected | None:
        """SweepPort: a difference counts when a second count, which knows what has happened meanwhile, confirms it.

        A table that packets change all the time is never seen whole. But what a count may come to has bounds: it can
        have missed flows that ended meanwhile, and not more than began may have come. Raises HostError.
        """
        words = self._words()
        if not self._suspects:
            return self._suspect(words)
        confirmed = {index: self._difference(index, before, words) for index, before in self._suspects.items()}
        self._suspects = {}
        wrong = {index: change for index, change in confirmed.items() if any(change)}
        for index, (active, inactive) in wrong.items():
            self._run(pack_sweep_order(backend=index, active=active, inactive=inactive), 1)
        return Corrected(
            servers=len(wrong),
            active=sum(active for active, _ in wrong.values()),
            inactive=sum(inactive for _, inactive in wrong.values()),
        )

    def _suspect(self, words: memoryview) -> Corrected | None:
        after = zip(*(words[each::_WORDS].tolist() for each in (_ACTIVE, _INACTIVE)), strict=True)
        counted = zip(*(words[each::_WORDS].tolist() for each in (_COUNTED_ACTIVE, _COUNTED_INACTIVE)), strict=True)
        suspects = [
            index
            for index, (then, now, found) in enumerate(zip(self._before, after, counted, strict=True))
            if (then != found or now != found)
            and not all(min(a, b) <= c <= max(a, b) for a, b, c in zip(then, now, found, strict=True))
        ]
        self._suspects = {index: self._reading(index, words) for index in suspects}
        return None if suspects else Corrected()

    def _prepare_count(self) -> None:
        words = self._words()
        none = memoryview(bytes(4 * len(words) // _WORDS)).cast("I")
        words[_COUNTED_ACTIVE::_WORDS] = none
        words[_COUNTED_INACTIVE::_WORDS] = none
        self._before = list(zip(words[_ACTIVE::_WORDS].tolist(), words[_INACTIVE::_WORDS].tolist(), strict=True))
        self._suspects = {index: self._reading(index, words) for index in self._suspects}

    def _reading(self, index: int, words: memoryview) -> _Reading:
        key = INDEX.pack(index)
        tallies = self._maps_open.read("backend_tallies", key) or bytes(TALLY_BYTES)
        record = self._maps_open.read("backends", key) or bytes(2)
        return _Reading(
            active=_signed(words[index * _WORDS + _ACTIVE]),
            inactive=_signed(words[index * _WORDS + _INACTIVE]),
            incarnation=record[_INCARNATION],
            begun=sum_tallies(tallies).flows,
        )

    def _difference(self, index: int, before: _Reading, words: memoryview) -> tuple[int, int]:
        """What is surely wrong with the counts of this server, as what is to be added to them."""
        after = self._reading(index, words)
        if after.incarnation != before.incarnation:
            return (0, 0)
        active, inactive = words[index * _WORDS + _COUNTED_ACTIVE], words[index * _WORDS + _COUNTED_INACTIVE]
        if after == before:
            return (active - after.active, inactive - after.inactive)
        counted, begun = active + inactive, after.begun - before.begun
        surely = counted - min(max(counted, after.total - begun), before.total + begun)
        of_active = max(surely, -after.active) if after.active >= 0 else surely
        return (of_active, surely - of_active)

    @property
    def _buckets(self) -> int:
        sizes = self._maps_open.sizes
        return (
            sizes.flow_buckets
            + sizes.overflow_buckets
            + sizes.wide_flow_buckets
            + sizes.wide_overflow_buckets
        )  # fmt: skip

    @property
    def _maps_open(self) -> Maps:
        if self._maps is None:
            raise HostError("the flow tables are not open", remedy="`haxlb swap` builds them anew")
        return self._maps

    def _words(self) -> memoryview:
        if self._loads is None:
            raise HostError("the flow tables are not open", remedy="`haxlb swap` builds them anew")
        return memoryview(self._loads).cast("B").cast("I")

    def _cursor(self) -> tuple[int, int]:
        first, expired = _SWEEP.unpack(self._maps_open.read("sweeps", INDEX.pack(0)) or bytes(_SWEEP.size))
        return first, expired

    def _run(self, order: bytes, repetitions: int) -> None:
        if self._program is None:
            raise HostError("the sweep is not open", remedy="`haxlb swap` builds it anew")
        bpf.prog_test_run(self._program, order, repeat=repetitions)

    def _open(self) -> None:
        """Open the youngest sweep, that of the configuration in force, and the maps beside it. Raises HostError."""
        try:
            pins = [(status.st_mtime_ns, status.st_ino, pin) for pin in self._directory.glob("sweep-*")
                    if (status := pin.stat())]  # fmt: skip
        except OSError as problem:
            self.close()
            raise HostError(f"cannot look into {self._directory}: {problem.strerror}") from problem
        if not pins:
            self.close()
            raise HostError(f"no sweep is pinned in {self._directory}", remedy="`haxlb swap` builds it anew")
        made, inode, pin = max(pins)
        if self._pin == (pin, inode, made):
            return
        self.close()
        try:
            self._program = bpf.obj_get(pin)
            self._maps = Maps.open(self._directory)
            self._loads = mmap.mmap(self._maps.fds["loads"], self._maps.sizes.backends * LOAD_BYTES)
        except (HostError, OSError) as problem:
            self.close()
            if isinstance(problem, HostError):
                raise
            raise HostError(f"cannot map the loads of {self._directory}: {problem.strerror}") from problem
        self._pin = (pin, inode, made)


def _signed(word: int) -> int:
    """A count that was decreased too often."""
    return word - (1 << 32) if word >> 31 else word

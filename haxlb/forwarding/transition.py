"""How a stateless service gets from one ring to the next without moving a flow.

Its flows are on no record: the ring says where they are. So slots that a new ring moves are marked as exceptions
before it comes into force. Packets of those look into the flow tables first; an unknown one that begins no flow is of
the time of the former ring, goes where that says, and is recorded. When so much time has passed that every flow of then
has sent a packet or is no more, the former ring is given up, and when no flow of the service is on record any more, the
marks are.

A second change meanwhile leaves the former ring what it is: in slots that were not marked the two agree, and in those
that were, unknown flows are of the time before both; later ones are on record. docs/adr/0013-state-is-the-exception.md
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from haxlb.forwarding.layout import EXCEPTION_BYTES, EXCEPTION_ELEMENTS
from haxlb.forwarding.ledger import Ledger
from haxlb.forwarding.records import FORMER_NONE, SELECT_EXCEPTIONS, SELECT_FORMER, SELECT_FORMER_SHIFT, ServiceRecord
from haxlb.forwarding.ring import elements_of
from haxlb.forwarding.steps import Fill, Phase, Plan, write_at
from haxlb.forwarding.wanted import Load

_SAME_OR_NOT: Final = b"0" + b"1" * 255


def moved(before: bytes | memoryview, after: bytes) -> int:
    """Which slots of two rings of the same length name different backends: bit n for slot n."""
    different = int.from_bytes(before, "little") ^ int.from_bytes(after, "little")
    # Either byte of a slot, in its lower one.
    either = (different | different >> 8).to_bytes(len(after), "little")[0::2]
    # Python reads a text of binary digits in one go; bit by bit 16,384 slots would take milliseconds.
    return int(either.translate(_SAME_OR_NOT)[::-1], 2) if either else 0


def all_slots(length: int) -> int:
    """Every slot."""
    return (1 << length) - 1


def resized(bits: int, before: int, after: int) -> int:
    """The same marks for a ring of another length (both powers of two): of all hashes that had a marked slot."""
    while before < after:
        bits |= bits << before
        before *= 2
    while before > after:
        before //= 2
        bits = bits >> before | bits & all_slots(before)
    return bits


def resized_slots(slots: bytes | memoryview, after: int) -> bytes:
    """A ring (two bytes for each slot) that sends every hash where it did, with more slots."""
    return bytes(slots) * (2 * after // len(slots))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A ring in force and the one to come."""

    length: int
    """Slots of the one to come."""
    content: bytes
    """Two bytes for each."""
    comparable: bool
    """Both hash the same of a packet."""


def exceptions_after(ledger: Ledger, index: int, record: ServiceRecord, change: Change, *, unknown: bool) -> int:
    """Slots of the ring to come whose flows may be elsewhere; `unknown`: nothing is known of the flows there are."""
    before = record.generation.length
    if unknown or not change.comparable or not before:
        return all_slots(change.length)
    marked = 0
    if record.select & SELECT_EXCEPTIONS:
        marked = int.from_bytes(ledger.exception_bits(index, before), "little") & all_slots(before)
    present = ledger.slots(record.generation)
    if before <= change.length:
        different = moved(resized_slots(present, change.length), change.content)
        return resized(marked, before, change.length) | different
    different = moved(present, resized_slots(change.content, before))
    return resized(marked | different, before, change.length)


def mark(index: int, bits: int, length: int) -> Fill:
    """Write the marks of a ring of so many slots."""
    size = -(-length // 8 // EXCEPTION_BYTES) * EXCEPTION_BYTES or EXCEPTION_BYTES
    return Fill("exceptions", index * EXCEPTION_ELEMENTS, bits.to_bytes(size, "little"))


def settle(ledger: Ledger, now_s: int, lifetime_s: int, load_of: Callable[[int], Load]) -> Plan:
    """What of the transitions under way is over. `now_s`: CLOCK_MONOTONIC; `lifetime_s`: of an established flow without
    packets; `load_of`: the flows on record for a backend.
    """
    steps = []
    for index in sorted(ledger.in_transition):
        record = ledger.services[index]
        settled = record
        if record.former is not None and now_s - record.changed_s >= lifetime_s:
            settled = without_former(ledger, index, record)
        if settled.former is None and settled.select & SELECT_EXCEPTIONS:
            loads = map(load_of, ledger.members.get(index, ()))
            if not any(load.active or load.inactive for load in loads):
                settled = replace(settled, select=settled.select & ~SELECT_EXCEPTIONS)
                _note_recent(ledger, ("exceptions", index, 0))
        if settled is not record:
            ledger.services[index] = settled
            if not settled.in_transition:
                ledger.in_transition.discard(index)
            steps.append(write_at("services", index, settled.pack()))
    return Plan(phases=(Phase(steps=tuple(steps)),) if steps else ())


def without_former(ledger: Ledger, index: int, record: ServiceRecord) -> ServiceRecord:
    """The former ring is looked into no more; its elements rest until packets that do are through."""
    former = record.former
    if former is not None and former != record.current:
        generation = record.generations[former]
        ledger.arena.give_back(generation.first, elements_of(generation.length))
        _note_recent(ledger, ("generation", index, former))
    return replace(record, select=record.select & ~SELECT_FORMER | FORMER_NONE << SELECT_FORMER_SHIFT)


def _note_recent(ledger: Ledger, thing: tuple[str, int, int]) -> None:
    if ledger.recent is not None:
        ledger.recent.add(thing)

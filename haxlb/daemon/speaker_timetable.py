"""When which instance wants to be woken."""

from __future__ import annotations

import heapq

from haxlb.daemon.speaker_member import Member


class Timetable:
    """No later than the deadline of each router; that a deadline has moved on is found when the earlier one has passed.

    An advert puts off a deadline thousands of times before it is reached: only what comes earlier is entered anew.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Member]] = []
        """A heap; those that are not what their member is armed for count no more."""

    def enlist(self, member: Member) -> None:
        """Its deadline may be another one now."""
        deadline = member.router.next_deadline()
        if deadline is not None and (member.armed is None or deadline < member.armed):
            member.armed = deadline
            heapq.heappush(self._entries, (deadline, member.serial, member))

    def pop_due(self, now: int) -> Member | None:
        """The next one whose deadline has passed, which is not enlisted then; None = no more."""
        while self._entries and self._entries[0][0] <= now:
            at, _, member = heapq.heappop(self._entries)
            if member.armed != at:
                continue
            member.armed = None
            deadline = member.router.next_deadline()
            if deadline is not None and deadline <= now:
                return member
            self.enlist(member)
        return None

    @property
    def next_at(self) -> int | None:
        """When `pop_due` is wanted, monotonic µs."""
        entries = self._entries
        while entries and entries[0][2].armed != entries[0][0]:
            heapq.heappop(entries)
        return entries[0][0] if entries else None

    def clear(self) -> None:
        """Nobody wants to be woken."""
        self._entries.clear()

"""What an instance has become, when and why: the present role's reason and the last twenty changes."""

from __future__ import annotations

from collections import deque

from haxlb.model.node import SECOND_US, Role
from haxlb.model.status import TransitionStatus

_REMEMBERED = 20


class Transitions:
    """The changes of role of one instance."""

    def __init__(self) -> None:
        self.since = 0
        """Monotonic µs."""
        self.reason = "not started"
        """Why it is in its role; FAULT's changes with its cause."""
        self.count = 0
        self._latest: deque[tuple[int, Role, Role, str]] = deque(maxlen=_REMEMBERED)

    def note(self, before: Role, after: Role, reason: str, now: int) -> None:
        """A change has happened."""
        self.since, self.reason = now, reason
        self.count += 1
        self._latest.append((now, before, after, reason))

    def resume(self, since: int, reason: str) -> None:
        """No change: another process was in this role before, since then and for this reason."""
        self.since, self.reason = since, reason

    def statuses(self, epoch_offset_us: int) -> tuple[TransitionStatus, ...]:
        """The last twenty, newest last."""
        return tuple(
            TransitionStatus(at=(at + epoch_offset_us) / SECOND_US, before=before, after=after, reason=reason)
            for at, before, after, reason in self._latest
        )

"""What an instance has become, when and why: the present role's reason and the last twenty changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from haxlb.model.instance import Role
from haxlb.model.status import TransitionStatus
from haxlb.model.units import SECOND_US

_REMEMBERED = 20


class Transitions:
    """The changes of role of one instance."""

    def __init__(self) -> None:
        self.since = 0
        """Monotonic µs."""
        self.reason = "not started"
        """Why it is in its role; FAULT's changes with its cause, BACKUP's with what is heard."""
        self._cause: Hashable = None
        """What the reason was made of, since the last change of role; None = of the change."""
        self.count = 0
        self._latest: deque[tuple[int, Role, Role, str]] = deque(maxlen=_REMEMBERED)

    def note(self, before: Role, after: Role, reason: str, now: int) -> None:
        """A change has happened."""
        self.since, self.reason, self._cause = now, reason, None
        self.count += 1
        self._latest.append((now, before, after, reason))

    def explain(self, cause: Hashable, words: Callable[[], str]) -> None:
        """No change, but another reason to stay; put into words only where the cause differs from the last one."""
        if cause != self._cause:
            self._cause, self.reason = cause, words()

    def doubt(self) -> None:
        """Other settings: the next cause is put into words even if it is the last one."""
        self._cause = None

    def resume(self, since: int, reason: str) -> None:
        """No change: another process was in this role before, since then and for this reason."""
        self.since, self.reason, self._cause = since, reason, None

    def statuses(self, epoch_offset_us: int) -> tuple[TransitionStatus, ...]:
        """The last twenty, newest last."""
        return tuple(
            TransitionStatus(at=(at + epoch_offset_us) / SECOND_US, before=before, after=after, reason=reason)
            for at, before, after, reason in self._latest
        )

"""Whether a `vrrp_track_process` has its quorum: a number of processes, and how long a change must last to count.

As in keepalived, what counts is the direction in which the number has moved: a process that ended is given
`terminate_delay` to be replaced, one that was started `fork_delay` to stay.
"""

from __future__ import annotations

from haxlb.model.tracking import TrackProcess


class QuorumWatch:
    """Follows one number. The first one counts at once."""

    def __init__(self, process: TrackProcess, *, known: int | None = None) -> None:
        """`known` is the verdict of an earlier watch, which a first number that disagrees changes at once."""
        self._process = process
        self._count: int | None = None
        self._value = known
        self._deadline: int | None = None

    @property
    def value(self) -> int | None:
        """1 = it has its quorum, 0 = it has not, None = not counted yet."""
        return self._value

    @property
    def count(self) -> int | None:
        """The last number."""
        return self._count

    def next_deadline(self) -> int | None:
        """When a change that has begun counts, in µs."""
        return self._deadline

    def handle(self, count: int, now: int) -> bool:
        """So many there are; whether the verdict is another one now."""
        former, self._count = self._count, count
        if self._met(count) == self._value:
            self._deadline = None
            return False
        if former is None:
            return self._settle()
        if count != former:
            delay = self._process.fork_delay_us if count > former else self._process.terminate_delay_us
            # A change that has begun already is not put off by the next one.
            due = now + delay
            self._deadline = due if self._deadline is None else min(self._deadline, due)
        return self.handle_timer(now)

    def handle_timer(self, now: int) -> bool:
        """Time has passed; whether the verdict is another one now."""
        if self._deadline is None or now < self._deadline:
            return False
        return self._settle()

    def _settle(self) -> bool:
        assert self._count is not None
        self._deadline = None
        before, self._value = self._value, self._met(self._count)
        return self._value != before

    def _met(self, count: int) -> int:
        most = self._process.quorum_max
        return int(count >= self._process.quorum and (most is None or count <= most))

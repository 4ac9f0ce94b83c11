"""What the runs of a `vrrp_script` come to: `rise` successes in a row make it well, `fall` failures in a row end that.

One counter from 0 to rise + fall - 1, keepalived's: from `rise` on the script is well. The very first run decides
alone, whatever `rise` and `fall` are, so that a director that starts knows where it stands.
"""

from __future__ import annotations

from haxlb.model.tracking import TrackScript


class ScriptCounter:
    """The counter of one script."""

    def __init__(self, script: TrackScript, *, known: int | None = None) -> None:
        """`known` is the verdict of an earlier counter: 1 well, 0 not, None = there is none."""
        self._script = script
        self._first = known is None and not script.init_fail
        if known is not None:
            self._result = self._best if known else 0
        else:
            self._result = 0 if script.init_fail else script.rise - 1

    @property
    def value(self) -> int | None:
        """1 well, 0 not well, None = it has not run yet."""
        return None if self._first else int(self._result >= self._script.rise)

    @property
    def progress(self) -> str:
        """How far a change has come, `2 of 3 failures`; empty when none has begun."""
        if self._first:
            return ""
        if self._result >= self._script.rise:
            failures = self._best - self._result
            return f"{failures} of {self._script.fall} failures" if failures else ""
        return f"{self._result} of {self._script.rise} successes" if self._result else ""

    def take(self, *, well: bool) -> bool:
        """Count one run; whether the verdict is another one now."""
        before = self.value
        self._first = False
        if well:
            self._result = self._result + 1 if self._result < self._script.rise - 1 else self._best
        else:
            self._result = self._result - 1 if self._result > self._script.rise else 0
        return self.value != before

    @property
    def _best(self) -> int:
        return self._script.rise + self._script.fall - 1

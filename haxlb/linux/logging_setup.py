"""LogPort: structlog on stderr. Readable on a terminal, JSON lines elsewhere, with priorities under journald.

A log must not be able to stop the daemon: where stderr is a pipe that nobody reads, lines are counted and left out.
"""

from __future__ import annotations

import os
import select
import sys
from typing import IO, Any

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_PIECE = 1024
"""Characters, at most 4096 bytes: a pipe that is writable takes PIPE_BUF bytes at once (pipe(7)), a longer line not."""
_SYSLOG = {"debug": 7, "info": 6, "warning": 4, "error": 3}
"""sd-daemon(3): `<N>` at the start of a line is its priority."""


class Log:
    """Events with fields; the only writer of haxlb's log."""

    def __init__(self, level: str = "info", style: str = "auto", stream: IO[str] | None = None) -> None:
        """`style` is auto, console or json."""
        # structlog.dev imports rich when it is there, 3 MB that only its tracebacks would use.
        unwanted = "rich" not in sys.modules
        if unwanted:
            sys.modules["rich"] = None  # type: ignore[assignment]
        try:
            import structlog
        finally:
            if unwanted:
                del sys.modules["rich"]
        self._stream = stream or sys.stderr
        console = style == "console" or (style == "auto" and self._stream.isatty())
        self.for_people = console
        """Lines of text, not JSON."""
        journal = not console and "JOURNAL_STREAM" in os.environ
        self._lost = 0
        self._unfinished = False
        """The last line was cut off."""
        processors: list[Any] = [structlog.processors.add_log_level]
        if not journal:  # journald stamps by itself
            processors.append(structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"))
        processors.append(_sort)
        if console:
            colours = self._stream.isatty() and "NO_COLOR" not in os.environ
            processors.append(structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=24, sort_keys=False))
        else:
            processors.append(structlog.processors.JSONRenderer(default=str))
        if journal:
            processors.append(_prefix)
        self._logger = structlog.wrap_logger(
            _Writer(self),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
            cache_logger_on_first_use=True,
        )

    def log(self, level: str, event: str, /, **fields: object) -> None:
        """Write one line."""
        if level not in LEVELS:  # a child's word for it
            fields, level = {**fields, "level_given": level}, "warning"
        fields = {f"{key}_" if key in ("event", "level", "timestamp") else key: value for key, value in fields.items()}
        getattr(self._logger, level)(event, **fields)

    def __call__(self, level: str, event: str, **fields: object) -> None:
        """The same, for adapters that want a function."""
        self.log(level, event, **fields)

    def write(self, line: str) -> None:
        """Put a finished line out, or count it as lost: what of it did not fit is left out."""
        text = f"\n{line}\n" if self._unfinished else f"{line}\n"
        try:
            for start in range(0, len(text), _PIECE):
                if not self._ready():
                    self._lost += 1
                    return
                self._stream.write(text[start : start + _PIECE])
                self._stream.flush()
                self._unfinished = start + _PIECE < len(text)
        except OSError:  # the reader is gone; the daemon is not
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self.log("warning", "log_lines_lost", count=lost)

    def _ready(self) -> bool:
        try:
            return bool(select.select([], [self._stream], [], 0)[1])
        except (OSError, ValueError):  # a stream without a descriptor: a test's, or a closed one
            return True


class _Writer:
    """What structlog calls a logger."""

    def __init__(self, log: Log) -> None:
        self.debug = self.info = self.warning = self.error = log.write


def _sort(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """What every line has comes first: logs are read by people, too."""
    leading: dict[str, Any] = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return {**leading, **event}


def _prefix(_logger: object, method: str, line: str) -> str:
    return f"<{_SYSLOG[method]}>{line}"

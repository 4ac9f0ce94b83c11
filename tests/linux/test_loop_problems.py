"""What the supervisor's loop does with what nobody has caught."""

from __future__ import annotations

import asyncio
import errno
from typing import Any, cast

import pytest

from haxlb.linux.log import Complaints
from haxlb.linux.supervisor_main import log_bug

Line = tuple[str, str, dict[str, object]]


class Clock:
    def now(self) -> int:
        return 0


def told(*problems: dict[str, Any]) -> list[Line]:
    lines: list[Line] = []

    def log(level: str, event: str, **fields: object) -> None:
        lines.append((level, event, fields))

    handler = log_bug(cast("Any", log), Complaints(log, Clock()))
    loop = asyncio.new_event_loop()
    for each in problems:
        handler(loop, each)
    loop.close()
    return lines


def test_a_lack_that_asyncio_tells_of_a_hundred_times_is_one_line_and_no_bug() -> None:
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "Too many open files"),
    }
    ((level, event, fields),) = told(*[context] * 100)
    assert (level, event) == ("warning", "resources_lacking")
    assert fields["reason"] == "Too many open files"
    assert "limits" in str(fields["remedy"])


def test_a_bug_is_said_with_its_place() -> None:
    def callback() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError) as caught:
        callback()
    ((level, event, fields),) = told({"message": "in a callback", "exception": caught.value})
    assert (level, event) == ("error", "bug")
    assert fields["reason"] == "KeyError('x')"
    assert str(fields["place"]).startswith(f"{__file__}:")


def test_what_comes_without_an_exception_is_said_too() -> None:
    ((_, event, fields),) = told({"message": "a task was destroyed"})
    assert event == "bug"
    assert fields["message"] == "a task was destroyed"

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from haxlb.linux.logging_setup import Log


def written(style="json", level="info", *entries):
    stream = io.StringIO()
    log = Log(level, style, stream)
    for at, event, fields in entries:
        log.log(at, event, **fields)
    return stream.getvalue()


def test_json_lines_begin_with_what_every_line_has(monkeypatch):
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    line = written("json", "info", ("info", "role_changed", {"instance": "VI_1", "to": "MASTER", "vrid": 51}))
    entry = json.loads(line)
    assert list(entry) == ["timestamp", "level", "event", "instance", "to", "vrid"]
    assert entry["timestamp"].endswith("Z")
    assert line.count("\n") == 1


def test_journald_gets_priorities_and_no_time(monkeypatch):
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    line = written("auto", "info", ("error", "alarm_raised", {"key": "split-brain/VI_1"}))
    assert line == '<3>{"level": "error", "event": "alarm_raised", "key": "split-brain/VI_1"}\n'


def test_console_is_for_people(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    line = written("console", "info", ("info", "started", {"version": "0.1.0"}))
    assert "started" in line
    assert "version=0.1.0" in line
    assert "\x1b" not in line


def test_fields_are_in_the_order_in_which_they_were_told_on_a_console_too(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    fields = {"instance": "VI_1", "from": "INIT", "to": "BACKUP", "reason": "started"}
    line = written("console", "info", ("info", "role_changed", fields))
    assert line.rstrip().endswith("instance=VI_1 from=INIT to=BACKUP reason=started")


def test_levels_are_filtered():
    text = written("json", "warning", ("debug", "a", {}), ("info", "b", {}), ("warning", "c", {}), ("error", "d", {}))
    assert [json.loads(line)["event"] for line in text.splitlines()] == ["c", "d"]


@pytest.mark.parametrize("name", ["event", "level", "timestamp"])
def test_a_field_cannot_pose_as_the_lines_own(name):
    entry = json.loads(written("json", "info", ("info", "peer_said", {name: "forged"})))
    assert entry["event"] == "peer_said"
    assert entry[f"{name}_"] == "forged"


def test_an_unknown_level_is_a_warning_and_any_value_can_be_written():
    entry = json.loads(written("json", "info", ("shout", "x", {"value": object(), "bytes": b"\xff", "bad": "\ud800"})))
    assert entry["level"] == "warning"
    assert entry["level_given"] == "shout"


def test_a_log_that_nobody_reads_stops_nothing_and_says_what_was_lost():
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "w", buffering=1) as stream:
            log = Log("info", "json", stream)
            for number in range(5000):
                log.log("info", "line", number=number)
            received = os.read(reading, 1 << 20)
            log.log("info", "read_again")
            received += os.read(reading, 1 << 20)
    finally:
        os.close(reading)
    events = [json.loads(line) for line in received.decode().splitlines()]
    assert events[-2]["event"] == "read_again"
    lost = events[-1]
    assert lost["event"] == "log_lines_lost"
    assert lost["count"] + sum(each["event"] == "line" for each in events) == 5000


def test_a_line_longer_than_what_a_full_pipe_takes_stops_nothing():
    """A pipe may have room for some bytes of a traceback, and not for all."""
    code = (
        "import os, sys\nfrom haxlb.linux.logging_setup import Log\n"
        "log = Log('info', 'json', os.fdopen(int(sys.argv[1]), 'w'))\n"
        "for number in range(100):\n    log.log('info', 'crash', text='\\u00e4' * (number * 613 % 9000))\n"
        "print('on')\nsys.stdin.read()\nlog.log('info', 'again')\n"
    )
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(writing)],
            pass_fds=(writing,),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        os.close(writing)
        with process:
            assert process.stdout.readline() == b"on\n", "it was not held up"
            received = os.read(reading, 1 << 20)
            process.stdin.close()
            while more := os.read(reading, 1 << 20):
                received += more
    finally:
        os.close(reading)
    *lines, again, lost = received.decode(errors="replace").splitlines()
    assert json.loads(again)["event"] == "again", "on a line of its own"
    whole = len(lines) - 1  # the last one was cut off
    assert json.loads(lost)["count"] == 100 - whole


def test_a_closed_reader_stops_nothing():
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", buffering=1)
    log = Log("info", "json", stream)
    log.log("info", "into the void")
    log.log("info", "again")
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_rich_is_not_imported_for_the_log():
    code = (
        "import sys\nfrom haxlb.linux.logging_setup import Log\n"
        "Log('info', 'console').log('info', 'x')\nassert 'rich' not in sys.modules\nimport rich\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL)

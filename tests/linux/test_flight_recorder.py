from __future__ import annotations

import os
import signal

import pytest

from haxlb.linux.flight_recorder import ROOM, FlightRecorder, Recording
from haxlb.model.errors import HostError

ONE, TWO, THREE = ("eth0", 51), ("eth0", 52), ("eth1", 51)


@pytest.fixture
def recording():
    made = Recording()
    yield made
    made.close()


@pytest.fixture
def recorder(recording):
    made = FlightRecorder(os.dup(recording.fd))
    yield made
    made.close()


def test_the_other_side_sees_what_was_written(recording, recorder):
    recorder.configure([ONE, TWO])
    recorder.sent(ONE, 123)
    recorder.sent(TWO, 2**63)
    assert recording.read()[:3] == (123, 2**63, 0)
    recorder.left(ONE)
    assert recording.read()[:3] == (0, 2**63, 0)


def test_another_order_keeps_what_is_known(recording, recorder):
    recorder.configure([ONE, TWO, THREE])
    for key, at in ((ONE, 1), (TWO, 2), (THREE, 3)):
        recorder.sent(key, at)
    recorder.configure([THREE, ONE, ("eth9", 1)])
    assert recording.read()[:3] == (3, 1, 0)


def test_whom_nobody_has_named_is_not_recorded(recording, recorder):
    recorder.configure([ONE])
    recorder.sent(TWO, 5)
    recorder.left(TWO)
    assert recording.read() == (0,) * ROOM


def test_more_than_there_is_room_for(recording, recorder):
    keys = [("eth0", number) for number in range(ROOM + 5)]
    recorder.configure(keys)
    for key in keys:
        recorder.sent(key, 7)
    assert recording.read() == (7,) * ROOM


def test_what_a_killed_process_wrote_last_is_there(recording):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        recorder = FlightRecorder(recording.fd)
        recorder.configure([ONE])
        at = 0
        while True:
            at += 1
            recorder.sent(ONE, at << 32 | at)
            if at == 1000:
                os.write(write, b"x")
    os.read(read, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    word = recording.read()[0]
    assert word >> 32 == word & 0xFFFFFFFF >= 1000, "never half a time"


def test_what_is_no_page_of_ours_is_refused():
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(HostError, match="no flight recorder"):
        FlightRecorder(read)

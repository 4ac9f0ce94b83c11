"""Whole directors, one of which tracks a BFD session with a third host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Host

from haxlb.daemon.messages import ConfigureTracker, encode
from haxlb.model.instance import Role
from haxlb.model.tracking import BfdSession
from tests.netns.site import Director
from tests.netns.standin import LIMIT_S, eventually
from tests.netns.test_tracker import Pair, configuration, only, tracked

pytestmark = pytest.mark.netns

NEIGHBOR = "10.8.0.20"
TRACKS = "    track_bfd {\n        rt\n    }\n"


def definition(more: str = "", interval_ms: int = 30) -> str:
    return f"""
bfd_instance rt {{
    neighbor_ip {NEIGHBOR}
    source_ip 10.8.0.1
    min_rx {interval_ms}
    min_tx {interval_ms}
    multiplier 20
    {more}
}}
"""


class Neighbor:
    """A tracker process alone, on a host of its own, that holds the other end."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def start(self) -> None:
        self._socket, theirs = socket.socketpair()
        argv = (sys.executable, "-m", "haxlb.linux.tracker_main", "--fd", str(theirs.fileno()))
        self._process: subprocess.Popen[Any] = self._host.start(*argv, pass_fds=(theirs.fileno(),))
        theirs.close()
        session = BfdSession(
            name="lb1", neighbor="10.8.0.1", source=NEIGHBOR, min_rx_us=30_000, min_tx_us=30_000, multiplier=20
        )
        self._socket.sendall(encode(ConfigureTracker(bfd_sessions=(session,))))

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(LIMIT_S)
        self._socket.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


@pytest.fixture
def neighbor(pair: Pair) -> Iterator[Neighbor]:
    made = Neighbor(pair.lab.host("rt", f"{NEIGHBOR}/24"))
    made.start()
    yield made
    made.end(signal.SIGKILL)


def value(director: Director) -> int | None:
    found = tracked(director, "rt")
    return found.value if found is not None else None


def settled(director: Director) -> None:
    """The neighbour has told its interval of a session that is Up."""
    eventually(
        lambda: (found := tracked(director, "rt")) and "detects in 600 ms" in found.detail, "the intervals have settled"
    )


def transitions(director: Director) -> int:
    status = director.status()
    assert status is not None
    return status.instances[0].transitions


def tracker_pid(director: Director, other_than: int = 0) -> int:
    status = director.status()
    pids = [each.pid for each in status.processes if each.name == "tracker"] if status else []
    return pids[0] if pids and pids[0] != other_than else 0


def test_an_unweighted_session_is_a_fault_while_it_is_down(pair: Pair, neighbor: Neighbor) -> None:
    one, two = pair.tracker(150, definition(), TRACKS), pair.tracker(100)
    one.becomes(Role.MASTER)
    only(one, two)
    settled(one)
    neighbor.end(signal.SIGKILL)
    one.becomes(Role.FAULT)
    only(two, one)
    status = one.status()
    assert status is not None
    assert "BFD session rt is down" in status.instances[0].reason
    found = tracked(one, "rt")
    assert found is not None
    assert "nothing heard of the neighbour for 600 ms" in found.detail
    neighbor.start()
    one.becomes(Role.MASTER)
    only(one, two)


def test_what_must_not_cost_the_role(pair: Pair, neighbor: Neighbor) -> None:
    one, two = pair.tracker(150, definition(), TRACKS), pair.tracker(100)
    one.becomes(Role.MASTER)
    only(one, two)
    before = transitions(one)

    former = tracker_pid(one)
    os.kill(former, signal.SIGKILL)
    eventually(lambda: tracker_pid(one, former), "another tracker")
    eventually(
        lambda: (found := tracked(one, "rt")) and f"{NEIGHBOR} Up" in found.detail, "its session is Up", limit_s=90
    )
    assert (value(one), transitions(one)) == (1, before), "the tracker's death"

    one.config.write_text(configuration("lb1", 150, definition(interval_ms=60), TRACKS))
    assert one.cli("reload").returncode == 0
    eventually(lambda: (found := tracked(one, "rt")) and "sends every 60 ms" in found.detail, "the new interval")
    assert (value(one), transitions(one)) == (1, before), "a reload"

    neighbor.end(signal.SIGTERM)
    eventually(lambda: (found := tracked(one, "rt")) and "AdminDown" in found.detail, "taken down by the neighbour")
    assert (value(one), transitions(one)) == (1, before), "the neighbour's orderly stop"
    only(one, two)


def test_a_weighted_session_moves_the_vip(pair: Pair, neighbor: Neighbor) -> None:
    one, two = pair.tracker(150, definition("weight -60"), TRACKS), pair.tracker(100)
    one.becomes(Role.MASTER)
    eventually(lambda: value(one) == 1, "Up")
    only(one, two)
    settled(one)
    neighbor.end(signal.SIGKILL)
    one.becomes(Role.BACKUP)
    only(two, one)
    status = one.status()
    assert status is not None
    assert status.instances[0].priority == 90

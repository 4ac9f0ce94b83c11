"""The scheduling of the speaker's process, tried in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

from haxlb.model.settings import SpeakerSettings

SCRIPT = """
import json, os, resource, sys
from haxlb.linux.realtime import Scheduling
from haxlb.model.settings import SpeakerSettings

said = []
def locked():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmLck"))
    return int(line.split()[1]) > 0

def look():
    policy = os.sched_getscheduler(0)
    fork = os.fork()
    if not fork:
        os._exit(os.getpriority(os.PRIO_PROCESS, 0) + 20 if os.sched_getscheduler(0) == os.SCHED_OTHER else 99)
    child = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    return {
        "realtime": policy == os.SCHED_RR | os.SCHED_RESET_ON_FORK,
        "priority": os.sched_getparam(0).sched_priority,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "child_nice": child - 20,
        "locked": locked(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "runaway": resource.getrlimit(resource.RLIMIT_RTTIME)[0],
        "said": [event for _, event in said],
    }

scheduling = Scheduling(lambda level, event, **_: said.append((level, event)))
out = []
for settings in json.loads(sys.argv[1]):
    settings["cpus"] = tuple(settings.get("cpus", ()))
    scheduling.apply(SpeakerSettings(**settings))
    out.append(look())
print(json.dumps(out))
"""
ALL = sorted(os.sched_getaffinity(0))
INHERITED = os.getpriority(os.PRIO_PROCESS, 0)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real-time class, locked memory")


def apply(*settings, drop=""):
    command = [sys.executable, "-c", SCRIPT, json.dumps(settings)]
    if drop:
        command = ["setpriv", f"--bounding-set=-{drop}", f"--inh-caps=-{drop}", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_as_it_is_configured():
    (state,) = apply({})
    assert state == {
        "realtime": True,
        "priority": SpeakerSettings().realtime_priority,
        "nice": INHERITED,
        "child_nice": 0,
        "locked": True,
        "cpus": ALL,
        "runaway": 2_000_000,
        "said": [],
    }
    (state,) = apply({"realtime_priority": 50, "cpus": [ALL[-1]], "runaway_us": 300_000, "lock_memory": False})
    assert (state["priority"], state["cpus"], state["runaway"], state["locked"]) == (50, [ALL[-1]], 300_000, False)


def test_the_normal_class_and_its_nice_value_is_not_inherited():
    (state,) = apply({"realtime_priority": 0, "nice": -7})
    assert (state["realtime"], state["priority"], state["nice"], state["child_nice"]) == (False, 0, -7, 0)


def test_a_reload_changes_it():
    one, two, three, four = apply(
        {"realtime_priority": 30, "cpus": [ALL[0]]},
        {"realtime_priority": 0, "nice": -3, "lock_memory": False},
        {"realtime_priority": 40, "runaway_us": 500_000},
        {"realtime_priority": 40, "runaway_us": 600_000},
    )
    assert (one["priority"], one["cpus"], one["locked"]) == (30, [ALL[0]], True)
    assert (two["realtime"], two["nice"], two["cpus"], two["locked"]) == (False, -3, ALL, False)
    assert (three["realtime"], three["priority"], three["locked"], three["runaway"]) == (True, 40, True, 500_000)
    assert four["runaway"] == 600_000


@pytest.mark.parametrize("cpus", [[4095], [10**9]])
def test_cpus_that_are_not_there(cpus):
    (state,) = apply({"cpus": cpus})
    assert (state["cpus"], state["said"]) == (ALL, ["no_cpu_affinity"])


def test_without_the_capability_it_runs_on_and_says_so_once():
    first, second = apply({"lock_memory": False}, {"lock_memory": False}, drop="sys_nice")
    # RLIMIT_RTPRIO may allow it all the same.
    if resource.getrlimit(resource.RLIMIT_RTPRIO)[0] == 0:
        assert (first["realtime"], first["said"]) == (False, ["no_realtime_class"])
        assert second["said"] == ["no_realtime_class"]
    (state,) = apply({"realtime_priority": 0, "nice": -5, "lock_memory": False}, drop="sys_nice")
    if resource.getrlimit(resource.RLIMIT_NICE)[0] == 0:
        assert (state["nice"], state["said"]) == (INHERITED, ["no_priority"])


BUFFERS = """
import resource, socket, sys
from haxlb.linux.realtime import lock_memory
lock_memory(print)
one, two = socket.socketpair()
faults = []
for _ in range(20):
    one.send(b"an answer")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    two.recv(1 << 18)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(faults[-10:])[5])  # the kernel may have moved a page once
"""


def test_a_large_buffer_is_got_from_the_kernel_only_once():
    done = subprocess.run([sys.executable, "-c", BUFFERS], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"

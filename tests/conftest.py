"""What all tests share: those that need root say so when they are skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.build_cache.place import close_place, open_place

NEEDS_ROOT = ("netns", "bpf", "interop")
WAITING = ("netns", "interop")
"""Directories whose tests wait most of their time."""
SHORT = 2
NICENESS = os.getpriority(os.PRIO_PROCESS, 0)

# How fast the machine is, what else it does, and luck decide nothing: every run tries the same inputs.
settings.register_profile(
    "gate", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("gate")


def pytest_configure(config: pytest.Config) -> None:
    # The workers of `make test` find it in their environment.
    if (place := open_place()) is not None:
        config.add_cleanup(lambda: close_place(place))


def pytest_runtest_teardown() -> None:
    # `haxlb run` hurries: where a test has called it in this process, the next one is as before.
    if os.getpriority(os.PRIO_PROCESS, 0) != NICENESS:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_turns(items)
    reason = _why_not()
    if not reason:
        return
    for item in items:
        marks = [mark for mark in NEEDS_ROOT if item.get_closest_marker(mark)]
        if marks:
            item.add_marker(pytest.mark.skip(reason=f"{marks[0]} test: {reason}"))


def in_turns(items: list[pytest.Item]) -> None:
    """The order in which `make test` deals files to its workers.

    Long ones first, of those that wait for daemons and those that compute as many at any time; short ones fill the gaps
    in the end.
    """
    kinds: dict[Path, int] = {}
    for item in items:
        kinds[item.path] = min(_kind(item), kinds.get(item.path, SHORT))
    turns: dict[Path, tuple[bool, float]] = {}
    for kind in range(3):
        files = [path for path in kinds if kinds[path] == kind]
        turns |= {path: (kind == SHORT, at / len(files)) for at, path in enumerate(files)}
    items.sort(key=lambda item: turns[item.path])


def _kind(item: pytest.Item) -> int:
    if item.path.parent.name in WAITING:
        return 0
    return 1 if any(item.get_closest_marker(mark) for mark in NEEDS_ROOT) else SHORT


def _why_not() -> str:
    if os.geteuid() != 0:
        return "needs root (network namespaces, raw sockets, BPF): run `sudo make test`"
    if not Path("/run/netns").exists() and not os.access("/run", os.W_OK):
        return "needs a writable /run for network namespaces"
    return ""

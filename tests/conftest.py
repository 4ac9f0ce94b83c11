"""What all tests share: those that need root say so when they are skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.build_cache.place import close_place, open_place

NEEDS_ROOT = ("netns", "bpf", "interop")

# How fast the machine is, and what else it does, decides nothing; what fails can be repeated.
settings.register_profile("gate", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("gate")


def pytest_configure(config: pytest.Config) -> None:
    # The workers of `make test` find it in their environment.
    if (place := open_place()) is not None:
        config.add_cleanup(lambda: close_place(place))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # `make test` deals files to two workers: those that wait long come first, those that fill every gap come last.
    items.sort(key=lambda item: not any(item.get_closest_marker(mark) for mark in NEEDS_ROOT))
    reason = _why_not()
    if not reason:
        return
    for item in items:
        marks = [mark for mark in NEEDS_ROOT if item.get_closest_marker(mark)]
        if marks:
            item.add_marker(pytest.mark.skip(reason=f"{marks[0]} test: {reason}"))


def _why_not() -> str:
    if os.geteuid() != 0:
        return "needs root (network namespaces, raw sockets, BPF): run `sudo make test`"
    if not Path("/run/netns").exists() and not os.access("/run", os.W_OK):
        return "needs a writable /run for network namespaces"
    return ""

"""The program against the oracle: whatever comes, in any order, whatever is configured meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haxlb.forwarding.features import ALL
from haxlb.forwarding.layout import INDEX, pack_virtual_mac
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.specimen import LOOPBACK, specimen
from tests.bpf import slow_clock
from tests.bpf.books import expect_books
from tests.bpf.plane import Plane
from tests.bpf.sentences import PAUSES, VIRTUAL_MAC, changed, changes, frames, tables

pytestmark = [pytest.mark.bpf, pytest.mark.timeout(900)]

WORDS = st.one_of(frames(), frames(), frames(), frames(), frames(), frames(), tables(), changes(), PAUSES)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.lists(WORDS, min_size=10, max_size=80))
def test_any_sentence(plane: Plane, beginning: WantedTable, sentence: list[object]) -> None:
    tell(plane, beginning, sentence)


@pytest.fixture(scope="module")
def lean() -> Iterator[Plane]:
    """Without thresholds most flows are placed by the part that decides."""
    features = replace(ALL, thresholds=False, tunnel=False, nat=False)
    with specimen(WantedTable(), flow_buckets_log2=12, features=features, python=slow_clock.PYTHON) as made:
        yield Plane(made)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.lists(WORDS, min_size=10, max_size=80))
def test_any_sentence_without_thresholds(lean: Plane, beginning: WantedTable, sentence: list[object]) -> None:
    tell(lean, unlimited(beginning), [unlimited(word) if isinstance(word, WantedTable) else word for word in sentence])


def unlimited(table: WantedTable) -> WantedTable:
    services = tuple(
        replace(
            service,
            servers=tuple(replace(server, upper_threshold=0, lower_threshold=0) for server in service.servers),
        )
        for service in table.services
    )
    return replace(table, services=services)


def tell(plane: Plane, beginning: WantedTable, sentence: list[object]) -> None:
    """Whatever comes, the program and the oracle do the same, and in the end their books agree."""
    plane.reset()
    plane.maps.write("virtual_macs", pack_virtual_mac(LOOPBACK, VIRTUAL_MAC), INDEX.pack(LOOPBACK))
    plane.oracle.virtual_macs = {(LOOPBACK, bytes.fromhex(VIRTUAL_MAC.replace(":", "")))}
    table = beginning
    plane.apply(table)
    for word in sentence:
        match word:
            case bytes():
                plane.expect(word)
            case WantedTable():
                table = word
                plane.apply(table)
            case tuple():
                table = changed(table, word)
                plane.apply(table)
            case float():
                plane.age(word)
    expect_books(plane)

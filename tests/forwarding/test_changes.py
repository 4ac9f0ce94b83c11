"""Any tables one after another, interrupted anywhere: what the maps say in the end, what packets find meanwhile."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.forwarding.layout import Sizes
from haxlb.forwarding.wanted import WantedTable
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import Scheduler
from tests.forwarding.kernel import Kernel
from tests.forwarding.tables import DNS, PEER, WEB, mac, server, service

SIZES = Sizes(services=3, frontends=8, backends=24, rings=1 << 13, flow_buckets_log2=1)
OTHER = Endpoint(address=WEB.address, port=443, protocol=Protocol.TCP)
SERVERS = st.lists(
    st.builds(
        server,
        st.integers(1, 3),
        weight=st.sampled_from([0, 1, 3]),
        alive=st.sampled_from([True, True, False]),
        destination_mac=st.sampled_from([mac(1), mac(2)]),
    ),
    max_size=3,
    unique_by=lambda each: each.address,
)
SERVICES = st.tuples(
    st.builds(lambda servers, **options: ("a", servers, options), SERVERS, scheduler=st.sampled_from(
        [Scheduler.RR, Scheduler.WRR, Scheduler.WLC, Scheduler.MH, Scheduler.SH]
    ), peer=st.sampled_from([None, PEER]), hash_port=st.booleans(), endpoints=st.sampled_from([(WEB,), (WEB, OTHER)])),
    st.builds(lambda servers, **options: ("b", servers, options), SERVERS, scheduler=st.sampled_from(
        [Scheduler.RR, Scheduler.LC, Scheduler.MH, Scheduler.DH]
    ), endpoints=st.just((DNS,)), persistence_s=st.sampled_from([0, 60])),
    st.sampled_from([(0,), (1,), (0, 1), ()]),
)  # fmt: skip
STEP = st.integers(0, 30)


def wanted_of(drawn: tuple[Any, Any, tuple[int, ...]]) -> WantedTable:
    both = [service(*servers, name=name, **options) for name, servers, options in drawn[:2]]
    return WantedTable(services=tuple(both[at] for at in drawn[2]))


def serving(wanted: WantedTable) -> set[str]:
    """Names of services that have a server to give."""
    return {each.name for each in wanted.services if any(s.gets_packets and s.weight for s in each.servers)}


def packets_find_servers(kernel: Kernel, names: set[str], wanted: WantedTable) -> None:
    """Of services that serve before and after a change every slot leads to a live server of its own."""
    frontends, services, backends = kernel.frontends(), kernel.services(), kernel.backends()
    for each in wanted.services:
        if each.name not in names:
            continue
        for endpoint in each.endpoints:
            if endpoint not in frontends:
                continue
            index = frontends[endpoint].service
            slots = kernel.slots(services[index].generation)
            assert slots
            living = [slot for slot in slots if backends[slot].alive]
            assert living
            assert all(backends[slot].service == index for slot in living)


@settings(max_examples=80, deadline=None)
@given(st.lists(SERVICES, min_size=2, max_size=5))
def test_whatever_is_wanted_is_said_and_packets_find_servers_meanwhile(wishes: list[Any]) -> None:
    kernel = Kernel(SIZES)
    former = WantedTable()
    for wish in wishes:
        wanted = wanted_of(wish)
        both = serving(former) & serving(wanted)
        for phase in kernel.phases(wanted):
            if phase.wait:
                kernel.wait()
            for step in phase.steps:
                kernel.step(step)
                packets_find_servers(kernel, both, wanted)
        kernel.check_ledger()
        kernel.says(wanted)
        former = wanted


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(SERVICES, STEP), min_size=2, max_size=5))
def test_interrupted_anywhere_the_next_planner_goes_on_from_the_maps(wishes: list[tuple[Any, int]]) -> None:
    kernel = Kernel(SIZES)
    for wish, lasts in wishes:
        interrupt(kernel, wanted_of(wish), lasts)
        # Who is no more is not interrupted by its own past: what it may have been writing, packets may be reading.
        kernel.restart()
        kernel.apply(wanted_of(wish))
        kernel.says(wanted_of(wish))
        kernel.restart()
        assert kernel.apply(wanted_of(wish)) == []


def interrupt(kernel: Kernel, wanted: WantedTable, lasts: int) -> None:
    """Carry out so many steps of a change."""
    for phase in kernel.phases(wanted):
        if phase.wait:
            kernel.wait()
        for step in phase.steps:
            if not lasts:
                return
            kernel.step(step)
            lasts -= 1


@settings(max_examples=40, deadline=None)
@given(st.lists(SERVICES, min_size=1, max_size=4))
def test_two_directors_with_the_same_wish_have_the_same_slots_whatever_was_before(wishes: list[Any]) -> None:
    old, new = Kernel(SIZES), Kernel(SIZES)
    for wish in wishes:
        old.apply(wanted_of(wish))
    wanted = wanted_of(wishes[-1])
    new.apply(wanted)
    for each in wanted.services:
        for endpoint in each.endpoints:
            assert old.ring(endpoint) == new.ring(endpoint)

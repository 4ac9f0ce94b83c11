"""Room in the flow tables: who makes way for whom, and what a flood can do."""

from __future__ import annotations

import time
from collections import Counter
from ipaddress import IPv4Address
from itertools import islice

import pytest

from haxlb.forwarding.flows import FlowState
from haxlb.forwarding.hashing import flow_hash
from haxlb.forwarding.layout import FLOW_WAYS, INDEX, MapKind
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.maps import possible_cpus
from haxlb.model.virtual_server import Scheduler
from tests.bpf.assembly import relay
from tests.bpf.books import counted, entries, loads
from tests.bpf.conftest import Crowd
from tests.bpf.frames import Stamp, client, tcp, udp
from tests.bpf.plane import Plane
from tests.bpf.slow_clock import KERNEL_TICKS_PER_SECOND
from tests.bpf.wire import counted as counted_runs
from tests.bpf.wire import counter
from tests.forwarding.tables import DNS, PEER, PEER_MAC, WEB, server, service

pytestmark = pytest.mark.bpf

LATE_S = 0.15
"""Less than what tells a kernel of 250 ticks from one of 300."""


def serve(plane: Plane, **options: object) -> None:
    servers = [server(number) for number in range(1, 6)]
    plane.apply(WantedTable(services=(service(*servers, **options), service(*servers, endpoint=DNS))))
    ledger = plane.forwarder._read()
    assert {endpoint: record.index for endpoint, record in ledger.frontends.items()} == {WEB: 1, DNS: 2}


def ports(plane: Plane, table: str) -> set[int]:
    return {flow.source_port for flow in entries(plane, table)}


def establish(plane: Plane, one: dict[str, object]) -> bytes:
    plane.send(tcp(**one))
    return plane.send(tcp("A", **one)).frame[:6]


def expect_exact(plane: Plane) -> None:
    assert loads(plane) == counted(plane)


def test_a_flow_is_established_with_its_second_packet(plane: Plane) -> None:
    serve(plane)
    states = []
    # A retransmitted SYN is no second packet.
    for flags in ("S", "S", "A", "S"):
        plane.send(tcp(flags))
        (entry,) = entries(plane, "flows")
        states.append(entry.state)
    assert states == [FlowState.TCP_NEW, FlowState.TCP_NEW, FlowState.TCP_ESTABLISHED, FlowState.TCP_ESTABLISHED]
    assert ports(plane, "overflow") == set()
    expect_exact(plane)


def test_a_full_bucket_keeps_its_handshakes_for_three_seconds(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    *first, late = crowd(5)
    for one in first:
        assert plane.send(tcp(**one)).reason == "new_flow"
    answer = plane.send(tcp(**late))
    assert answer.reason == "table_full"
    # Unrecorded, it still goes where its SYN went, and evicts nobody.
    assert {plane.send(tcp("A", **late)).frame[:6] for _ in range(3)} == {answer.frame[:6]}
    assert ports(plane, "flows") == {one["port"] for one in first}
    assert ports(plane, "overflow") == set()
    plane.age(2.9)
    assert plane.send(tcp(**late)).reason == "table_full"
    plane.age(0.2)
    assert plane.send(tcp(**late)).reason == "new_flow"
    expect_exact(plane)


def test_the_longest_due_makes_way_first(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    first, second, third, closed, *late = crowd(7)
    plane.send(tcp(**closed))
    plane.send(tcp("R", **closed))
    for one in (first, second, third):
        plane.send(tcp(**one))
        plane.age(0.7)
    # The closed one is older, and has been due for less long: it keeps its place for two seconds more.
    plane.age(2.9)
    for newcomer, gone in zip(late, (first, second, third), strict=True):
        assert gone["port"] in ports(plane, "flows")
        assert plane.send(tcp(**newcomer)).reason == "new_flow"
        assert gone["port"] not in ports(plane, "flows")
    assert closed["port"] in ports(plane, "flows")
    expect_exact(plane)


def test_a_closing_flow_makes_way_after_five_seconds(plane: Plane, crowd: Crowd) -> None:
    """One closed on the client's side alone may still be served: its ACKs keep it."""
    serve(plane)
    *others, closed, late, later = crowd(6)
    for one in (*others, closed):
        establish(plane, one)
    plane.send(tcp("FA", **closed))
    for _ in range(2):
        plane.age(4.9)
        plane.send(tcp("A", **closed))
    assert plane.send(tcp(**late)).reason == "new_flow"
    assert ports(plane, "overflow") == {late["port"]}
    plane.age(5.1)
    assert plane.send(tcp(**later)).reason == "new_flow"
    assert ports(plane, "flows") == {one["port"] for one in (*others, later)}
    expect_exact(plane)


def test_where_established_flows_fill_a_bucket_the_next_one_is_as_safe_in_the_overflow(
    plane: Plane, crowd: Crowd
) -> None:
    serve(plane)
    *first, late, forged = crowd(6)
    servers = [establish(plane, one) for one in first]
    reached = establish(plane, late)
    assert ports(plane, "flows") == {one["port"] for one in first}
    assert [flow.state for flow in entries(plane, "overflow")] == [FlowState.TCP_ESTABLISHED]
    plane.age(800)
    plane.send(tcp(**forged))
    assert plane.send(tcp("A", **late)).frame[:6] == reached
    assert [plane.send(tcp("A", **one)).frame[:6] for one in first] == servers
    # It stays there when there is room in its bucket, whatever takes that.
    for one in first:
        plane.send(tcp("R", **one))
    plane.age(6)
    for one in first:
        assert plane.send(tcp(**one)).reason == "new_flow"
        assert plane.send(tcp("A", **late)).frame[:6] == reached
    assert late["port"] in ports(plane, "overflow")
    expect_exact(plane)


def test_no_flood_gets_into_the_overflow(plane: Plane, crowd: Crowd) -> None:
    """A bucket that half-open flows help to fill is full."""
    serve(plane)
    *first, forged, late = crowd(5)
    for one in first:
        establish(plane, one)
    assert plane.send(tcp(**forged)).reason == "new_flow"
    assert plane.send(tcp(**late)).reason == "table_full"
    assert ports(plane, "overflow") == set()
    expect_exact(plane)


@pytest.mark.parametrize("flags", ["R", "FA"])
def test_what_ends_with_its_first_packet_does_not_get_there_either(plane: Plane, crowd: Crowd, flags: str) -> None:
    serve(plane)
    *first, forged, late = crowd(6)
    for one in first:
        assert plane.send(tcp(flags, **one)).reason == "unknown_flow"
    assert plane.send(tcp(flags, **forged)).reason == "table_full"
    assert ports(plane, "overflow") == set()
    assert plane.send(tcp(**late)).reason == "new_flow"
    assert ports(plane, "overflow") == {late["port"]}
    expect_exact(plane)


def test_an_expired_flow_makes_way(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    old, *others, late = crowd(5)
    establish(plane, old)
    plane.age(880)
    for one in others:
        establish(plane, one)
    plane.age(21)
    establish(plane, late)
    assert ports(plane, "flows") == {one["port"] for one in (*others, late)}
    expect_exact(plane)


def test_without_room_the_peer_is_asked_only_for_what_has_begun(plane: Plane, crowd: Crowd) -> None:
    serve(plane, peer=PEER)
    *first, late = crowd(5)
    for one in first:
        plane.send(tcp(**one))
    assert plane.send(tcp(**late)).reason == "table_full"
    assert plane.send(tcp("A", **late)).reason == "asked_peer"
    assert plane.send(tcp("A", by=PEER_MAC, **late)).reason == "table_full"


def test_single_udp_packets_make_way_and_conversations_do_not(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    talking, *single = crowd(9, which=2)
    plane.send(udp(**talking))
    plane.send(udp(**talking))
    for one in single:
        plane.send(udp(**one))
        plane.age(1)
    assert ports(plane, "flows") == {one["port"] for one in (talking, *single[-3:])}
    assert ports(plane, "overflow") == set()
    assert plane.send(udp(**talking)).reason == "forwarded"
    expect_exact(plane)


def test_a_claim_that_was_never_finished_is_taken_over(plane: Plane, crowd: Crowd) -> None:
    """A program that ends between claim and record (it cannot, but a table is forever) blocks a way for a second."""
    serve(plane)
    *clients, newcomer = crowd(5)
    for one in clients:
        plane.send(tcp(**one))
    with plane.table("flows") as flows:
        for at in range(0, len(flows), 16):
            if any(flows[at : at + 16]):
                flows[at + 8 : at + 12] = bytes([0, 0, 0, FlowState.CLAIMED])
    assert plane.send(tcp(**newcomer)).reason == "table_full"
    plane.age(1.5)
    assert plane.send(tcp(**newcomer)).reason == "new_flow"


def test_flows_of_an_earlier_server_of_an_index_are_unknown(plane: Plane) -> None:
    serve(plane)
    first = plane.send(tcp())
    plane.send(tcp("A"))
    with plane.table("flows") as flows:
        at = next(at for at in range(0, len(flows), 16) if any(flows[at : at + 16]))
        flows[at + 10] += 1
    answer = plane.send(tcp("A"))
    assert (first.reason, answer.reason) == ("new_flow", "unknown_flow")
    assert plane.send(tcp("A")).frame == answer.frame


def test_a_stamp_of_the_next_tick_is_no_age(plane: Plane, crowd: Crowd) -> None:
    """A CPU that read the clock a moment later has touched the flow: it is fresh, not as old as can be."""
    serve(plane)
    *first, late = crowd(5)
    for one in first:
        plane.send(tcp(**one))
    plane.age(-0.9)
    assert plane.send(tcp(**late)).reason == "table_full"


def test_stamps_count_the_ticks_that_lifetimes_are_computed_with(plane: Plane) -> None:
    serve(plane)
    before_first = time.monotonic()
    plane.send(tcp(port=1024))
    after_first = time.monotonic()
    time.sleep(1)  # what is measured: the kernel's ticks in it
    before_second = time.monotonic()
    plane.send(tcp(port=1025))
    after_second = time.monotonic()
    first, second = sorted(plane.flows(), key=lambda flow: flow.source_port)
    ticks = second.stamp - first.stamp
    # The kernel counts them up late where a virtual machine gets no CPU for a while.
    assert (before_second - after_first - LATE_S) * KERNEL_TICKS_PER_SECOND <= ticks
    assert ticks <= (after_second - before_first + LATE_S) * KERNEL_TICKS_PER_SECOND


SYN, ACK = Stamp(tcp("S")), Stamp(tcp("A"))
FLOOD, CHUNK, HANDSHAKES = 1_000_000, 100_000, 100


def flood(plane: Plane, count: int) -> int:
    """SYNs from anywhere.

    Returns how many: more where a signal interrupts the run (also one that cannot be caught), which begins anew then.
    """
    with closing(bpf.map_create(MapKind.PROG_ARRAY, 4, 4, 1)) as jumps, closing(counter("flooded")) as flooded:
        bpf.map_update(jumps, INDEX.pack(0), INDEX.pack(plane.program))
        code = relay(jumps, tcp()[:12], clients=0, counter=flooded)
        with closing(bpf.prog_load(code, name="relay")) as program:
            bpf.prog_test_run(program, tcp(), repeat=count)
        return counted_runs(flooded, possible_cpus())


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.WLC])
def test_a_flood_evicts_neither_established_flows_nor_young_handshakes(plane: Plane, scheduler: Scheduler) -> None:
    """Sixty spoofed SYNs for each place in the table."""
    serve(plane, scheduler=scheduler)
    # More would not all find room in a table as small as this one.
    established = [client(number) for number in range(1000)]
    servers = []
    for one in established:
        plane.server(SYN.of(*one))
        servers.append(plane.server(ACK.of(*one)))
    # On record, all of them: now and then two meet in a bucket that three of the established have.
    awaited: dict[tuple[int, int], str] = {}
    for one in (client(number) for number in range(5000, 5200)):
        recorded = plane.verdicts()["new_flow"]
        reached = plane.server(SYN.of(*one))
        if plane.verdicts()["new_flow"] > recorded:
            awaited[one] = reached
        if len(awaited) == HANDSHAKES:
            break
    assert len(awaited) == HANDSHAKES
    before = plane.verdicts()
    flooded = flood(plane, FLOOD)
    assert flooded >= FLOOD
    looked = {name: count - before[name] for name, count in plane.verdicts().items() if count != before[name]}
    assert sum(looked.values()) == flooded
    # By chance two have the same source.
    assert looked["new_flow"] + looked["table_full"] > flooded - 100
    assert looked["new_flow"] <= 4 * plane.maps.sizes.flow_buckets
    # Where four of the established have met, and nothing else helps to fill the bucket: SYNs are evicted by SYNs there.
    assert looked["table_full"] > flooded // 2
    assert len(ports(plane, "overflow")) < 4 * 12
    known = plane.verdicts()["forwarded"]
    assert {one: plane.server(ACK.of(*one)) for one in awaited} == awaited
    assert [plane.server(ACK.of(*one)) for one in established] == servers
    assert plane.verdicts()["forwarded"] - known == len(established) + len(awaited)
    expect_exact(plane)


class Room:
    """Of a persistent service: clients of whom, and of whose flows, no five meet in a bucket."""

    def __init__(self, plane: Plane, seed: int) -> None:
        self._frontend = plane.forwarder._read().frontends[WEB]
        self._buckets = plane.maps.sizes.flow_buckets
        self._seed = seed
        self._taken: Counter[int] = Counter()
        self._known: set[int] = set()

    def has(self, source: int, *ports: int) -> bool:
        """If so, it is theirs."""
        places = [self._bucket(source, port, self._frontend.index) for port in ports]
        if source not in self._known:
            places.append(self._bucket(source, 0, self._frontend.service))
        taken = self._taken + Counter(places)
        if max(taken.values()) > FLOW_WAYS:
            return False
        self._taken = taken
        self._known.add(source)
        return True

    def _bucket(self, source: int, port: int, number: int) -> int:
        return flow_hash(IPv4Address(source), port, number, seed=self._seed) % self._buckets


def test_forged_clients_of_a_persistent_service_make_room(plane: Plane, seed: int) -> None:
    """The server of a client that has sent more than a SYN stays; those of a flood are not in the way."""
    plane.apply(WantedTable(services=(service(*map(server, range(1, 6)), persistence_s=300),)))
    room = Room(plane, seed)
    some = ((source, port) for source, port in map(client, range(400)) if room.has(source, port, port ^ 1))
    clients = list(islice(some, 200))
    others = ((source, 40000) for source in range(int(IPv4Address("192.0.2.0")), 1 << 32) if room.has(source, 40000))
    newcomers = list(islice(others, 200))
    assert len(clients) == 200
    kept = []
    for one in clients:
        plane.server(SYN.of(*one))
        kept.append(plane.server(ACK.of(*one)))
    flood(plane, CHUNK)
    full = plane.verdicts()["table_full"]
    assert full
    plane.age(6)
    assert [plane.server(ACK.of(*one)) for one in clients] == kept
    # Another flow of each of them, and ones of others.
    assert [plane.server(SYN.of(source, port ^ 1)) for source, port in clients] == kept
    for one in newcomers:
        plane.server(SYN.of(*one))
    assert plane.verdicts()["table_full"] == full
    states = [entry.state for entry in entries(plane, "flows") if entry.state.of_client]
    assert states.count(FlowState.TEMPLATE) == len({source for source, _ in clients})
    assert states.count(FlowState.TEMPLATE_NEW) > 1000
    expect_exact(plane)

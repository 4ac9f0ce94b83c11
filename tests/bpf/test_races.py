"""Two CPUs, one flow: whoever wins, no packet goes astray and every count is exact in the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from ipaddress import IPv4Address

import pytest

from haxlb.forwarding.flows import FlowState
from haxlb.forwarding.hashing import flow_hash
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux import bpf
from haxlb.model.virtual_server import Scheduler
from tests.bpf.books import counted, entries, loads
from tests.bpf.frames import Stamp, client, tcp, udp
from tests.bpf.plane import FLOW_TABLES, Plane
from tests.forwarding.tables import DNS, WEB, server, service, table

pytestmark = [
    pytest.mark.bpf,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]

ROUNDS = 1500


def side_by_side(*works: Callable[[int], None]) -> None:
    """The n-th call of each at the same time, each on a CPU of its own."""
    meet = threading.Barrier(len(works))
    problems: list[BaseException] = []

    def run(cpu: int, work: Callable[[int], None]) -> None:
        try:
            os.sched_setaffinity(0, {cpu})
            for number in range(ROUNDS):
                meet.wait(60)
                work(number)
        except BaseException as problem:  # noqa: BLE001 - told below
            problems.append(problem)
            meet.abort()

    cpus = sorted(os.sched_getaffinity(0))[: len(works)]
    threads = [threading.Thread(target=run, args=pair) for pair in zip(cpus, works, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]


def expect_exact(plane: Plane) -> None:
    assert loads(plane) == counted(plane)
    assert not [entry for entry in entries(plane, *FLOW_TABLES) if entry.state is FlowState.CLAIMED]


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.WLC])
def test_counts_are_exact_when_two_cpus_handle_the_packets_of_each_flow(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(*map(server, range(1, 6)), scheduler=scheduler))
    frames = [Stamp(tcp(flags)) for flags in ("S", "A", "FA", "S", "R")]

    def talk(number: int) -> None:
        for frame in frames:
            bpf.prog_test_run(plane.program, frame.of(*client(number)))

    side_by_side(talk, talk)
    expect_exact(plane)


def test_a_flow_whose_second_packets_come_on_two_cpus_keeps_its_server(plane: Plane) -> None:
    """The SYN was one packet; its successors come on two CPUs at once, and again later."""
    plane.apply(table(*map(server, range(1, 6))))
    syn, ack = Stamp(tcp("S")), Stamp(tcp("A"))
    first = {number: plane.server(syn.of(*client(number))) for number in range(ROUNDS)}
    recorded = {(entry.source, entry.source_port) for entry in entries(plane, "flows", "overflow")}
    # A few have found no room for a record in a table as small as this one.
    assert len(recorded) > ROUNDS * 9 // 10
    strayed: list[int] = []

    def go_on(number: int) -> None:
        reached = [plane.server(ack.of(*client(number))) for _ in range(3)]
        strayed.extend(number for each in reached if each != first[number])

    side_by_side(go_on, go_on)
    assert strayed == []
    assert {number: plane.server(ack.of(*client(number))) for number in first} == first
    places = [(entry.source, entry.source_port) for entry in entries(plane, "flows", "overflow")]
    assert {place: places.count(place) for place in recorded} == dict.fromkeys(recorded, 1)
    expect_exact(plane)


def test_counts_are_exact_while_one_cpu_closes_what_the_other_opens_anew(plane: Plane) -> None:
    plane.apply(WantedTable(services=(service(*map(server, range(1, 4))), service(server(1), endpoint=DNS))))
    syn, ack, end, query = Stamp(tcp("S")), Stamp(tcp("A")), Stamp(tcp("R")), Stamp(udp())

    def opens(number: int) -> None:
        for frame in (syn, ack, query):
            bpf.prog_test_run(plane.program, frame.of(*client(number // 4)))

    def closes(number: int) -> None:
        for frame in (end, query, end):
            bpf.prog_test_run(plane.program, frame.of(*client(number // 4)))

    side_by_side(opens, closes)
    expect_exact(plane)


def apart(plane: Plane, seed: int, count: int) -> list[tuple[int, int]]:
    """Clients each of whom has a bucket to itself."""
    frontend, buckets = plane.forwarder._read().frontends[WEB].index, plane.maps.sizes.flow_buckets
    found: dict[int, tuple[int, int]] = {}
    for source, port in map(client, range(100_000)):
        found.setdefault(flow_hash(IPv4Address(source), port, frontend, seed=seed) % buckets, (source, port))
        if len(found) == count:
            break
    return list(found.values())


def test_turns_are_shared_exactly_among_cpus(plane: Plane, seed: int) -> None:
    plane.apply(table(server(1, weight=3), server(2, weight=1), scheduler=Scheduler.WRR))
    # What finds no room takes no turn: two that begin at the same time in a bucket where three have been.
    clients = apart(plane, seed, 2 * ROUNDS)
    served: list[str] = []

    def opens(those: list[tuple[int, int]]) -> Callable[[int], None]:
        syn, end = Stamp(tcp("S")), Stamp(tcp("R"))

        def work(number: int) -> None:
            served.append(plane.server(syn.of(*those[number])))
            plane.server(end.of(*those[number]))

        return work

    side_by_side(opens(clients[:ROUNDS]), opens(clients[ROUNDS:]))
    shares = {server: served.count(server) for server in set(served)}
    assert sorted(shares.values()) == [ROUNDS // 2, 3 * ROUNDS // 2]

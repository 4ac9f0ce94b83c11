"""Each scheduler over ten thousand connections, as its formula says for the counts at each moment."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from haxlb.forwarding.features import Features
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.specimen import PORT, VIP, Specimen, specimen
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import Scheduler
from tests.bpf import slow_clock
from tests.bpf.books import counted, expect_books, loads
from tests.bpf.conftest import Crowd
from tests.bpf.frames import Stamp, client, tcp
from tests.bpf.plane import Plane
from tests.forwarding.tables import mac, server, service, table

pytestmark = pytest.mark.bpf

CONNECTIONS = 10_000
NEEDED = replace(Features.parse("none"), stateless=True, stateful=True, list=True, shared=True)
SYN, ACK, FIN = Stamp(tcp("S")), Stamp(tcp("A")), Stamp(tcp("FA"))
COMPARING = [Scheduler.LC, Scheduler.WLC, Scheduler.SED, Scheduler.NQ, Scheduler.FO, Scheduler.OVF, Scheduler.TWOS]
LOCAL = [Scheduler.LBLC, Scheduler.LBLCR]
SERVERS = [server(1, weight=5), server(2, weight=1), server(3, weight=2), server(4, weight=2), server(5, weight=100)]


@pytest.fixture(scope="module")
def loaded() -> Iterator[Specimen]:
    """So large that no bucket is full of ten thousand flows."""
    with specimen(WantedTable(), flow_buckets_log2=18, features=NEEDED, python=slow_clock.PYTHON) as made:
        yield made


def shares(plane: Plane, first: int, count: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(first, first + count):
        found[plane.server(SYN.of(*client(number)))] += 1
        # Settled, it takes no room of those that come after.
        plane.server(ACK.of(*client(number)))
    return found


@pytest.mark.parametrize("weights", [(5, 1, 2), (1, 1, 1), (7, 3, 11), (100, 1, 1)])
def test_wrr_is_exact_in_every_round(plane: Plane, weights: tuple[int, ...]) -> None:
    servers = [server(number, weight=weight) for number, weight in enumerate(weights, 1)]
    plane.apply(table(*servers, scheduler=Scheduler.WRR))
    turns = sum(weights)
    for first in range(0, CONNECTIONS // turns * turns, turns):
        assert shares(plane, first, turns) == {mac(0x100 + number): weight for number, weight in enumerate(weights, 1)}


def test_rr_is_exact_whatever_the_weights(plane: Plane) -> None:
    plane.apply(table(*SERVERS, scheduler=Scheduler.RR))
    assert set(shares(plane, 0, CONNECTIONS).values()) == {CONNECTIONS // len(SERVERS)}


@pytest.mark.parametrize("scheduler", [Scheduler.SH, Scheduler.MH])
def test_hash_schedulers_share_as_the_weights_say(plane: Plane, scheduler: Scheduler) -> None:
    servers = [server(number, weight=number) for number in range(1, 5)]
    plane.apply(table(*servers, scheduler=scheduler))
    found = shares(plane, 0, CONNECTIONS)
    for number in range(1, 5):
        assert abs(found[mac(0x100 + number)] / CONNECTIONS - number / 10) < 0.02


@pytest.mark.parametrize("scheduler", COMPARING)
def test_each_connection_goes_where_the_formula_says(plane: Plane, scheduler: Scheduler) -> None:
    """Connections come and go in any order; the oracle counts with the program."""
    plane.apply(table(*SERVERS, scheduler=scheduler))
    chance = random.Random(scheduler.value)
    live: list[int] = []
    for number in range(CONNECTIONS):
        answer = plane.expect(SYN.of(*client(number)))
        assert answer.reason in ("new_flow", "no_server")
        if answer.reason == "new_flow":
            live.append(number)
            plane.expect(ACK.of(*client(number)))
        if chance.random() < 0.45 and live:
            plane.expect(FIN.of(*client(live.pop(chance.randrange(len(live))))))
    expect_books(plane)
    assert loads(plane) == counted(plane)


def test_fo_gives_all_to_the_highest_weight_that_lives(plane: Plane) -> None:
    plane.apply(table(*SERVERS, scheduler=Scheduler.FO))
    assert shares(plane, 0, 100) == {mac(0x105): 100}
    plane.apply(table(*SERVERS[:-1], replace(SERVERS[-1], alive=False), scheduler=Scheduler.FO))
    assert shares(plane, 100, 100) == {mac(0x101): 100}


def test_ovf_overflows_with_one_more_than_the_weight(plane: Plane) -> None:
    """ip_vs_ovf.c skips a server with more active connections than weight."""
    plane.apply(table(server(1, weight=3), server(2, weight=2), scheduler=Scheduler.OVF))
    reached = [plane.expect(SYN.of(*client(number))) for number in range(8)]
    assert [answer.frame[:6].hex(":") for answer in reached[:7]] == [mac(0x101)] * 4 + [mac(0x102)] * 3
    assert reached[7].reason == "no_server"


def test_nq_fills_idle_servers_first_and_sed_does_not(plane: Plane) -> None:
    plane.apply(table(server(1, weight=10), server(2, weight=1), scheduler=Scheduler.NQ))
    assert [plane.server(SYN.of(*client(number))) for number in range(3)] == [mac(0x101), mac(0x102), mac(0x101)]
    plane.reset()
    plane.apply(table(server(1, weight=10), server(2, weight=1), scheduler=Scheduler.SED))
    assert shares(plane, 0, 10) == {mac(0x101): 10}


def test_closing_connections_weigh_a_256th(plane: Plane) -> None:
    plane.apply(table(server(1), server(2), scheduler=Scheduler.LC))
    for number in range(20):
        plane.expect(SYN.of(*client(number)))
    # All of one server's end: now the other one has ten active connections, this one ten that close.
    for number in range(0, 20, 2):
        plane.expect(FIN.of(*client(number)))
    assert shares(plane, 100, 10) == {mac(0x101): 10}


@pytest.mark.parametrize("scheduler", LOCAL)
def test_a_destination_keeps_its_server_until_that_is_busy(plane: Plane, scheduler: Scheduler) -> None:
    endpoints = tuple(Endpoint(address=VIP + number, port=PORT, protocol=Protocol.TCP) for number in range(6))
    servers = [server(1, weight=20), server(2, weight=10), server(3, weight=40)]
    wanted = service(*servers, endpoints=endpoints, scheduler=scheduler, name="caches")
    plane.apply(WantedTable(services=(wanted,)))
    syns, acks, fins = ([Stamp(tcp(flags, vip=str(each.address))) for each in endpoints] for flags in ("S", "A", "FA"))
    chance = random.Random(scheduler.value)
    live: list[tuple[int, int]] = []
    reached: dict[int, set[bytes]] = {number: set() for number in range(6)}
    for number in range(3000):
        which = chance.choice([0, 0, 0, 1, 2, 3, 4, 5])
        reached[which].add(plane.expect(syns[which].of(*client(number))).frame[:6])
        plane.expect(acks[which].of(*client(number)))
        live.append((which, number))
        if number < 5:
            assert len(reached[which]) == 1
        if chance.random() < 0.97:
            gone, ends = live.pop(chance.randrange(len(live)))
            plane.expect(fins[gone].of(*client(ends)))
    assert len(reached[0]) > 1
    expect_books(plane)


def test_two_hundred_and_fifty_six_servers_are_compared(plane: Plane) -> None:
    servers = [server(number) for number in range(1, 257)]
    plane.apply(table(*servers, scheduler=Scheduler.LC))
    assert set(shares(plane, 0, 512).values()) == {2}


@pytest.mark.parametrize("scheduler", [each for each in Scheduler if not each.hashes])
def test_what_nobody_knows_is_placed_by_hash_and_takes_no_turn(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(*SERVERS, scheduler=scheduler))
    for number in range(200):
        assert plane.expect(ACK.of(*client(number))).reason == "unknown_flow"
    for number in range(1000, 1020):
        assert plane.expect(SYN.of(*client(number))).reason == "new_flow"
    expect_books(plane)


def test_without_room_a_flow_goes_where_the_ring_of_before_sends_its_next_packets(plane: Plane, crowd: Crowd) -> None:
    """Its SYN, too: while a virtual server that kept no records begins to, unknown packets are of that time."""
    plane.apply(table(*SERVERS, scheduler=Scheduler.MH))
    plane.apply(table(*SERVERS, scheduler=Scheduler.RR))
    *first, a, b, c, d, e, f = crowd(10)
    for one in first:
        assert plane.send(tcp(**one)).reason == "new_flow"
    for one in (a, b, c, d, e, f):
        answers = [plane.send(tcp(flags, **one)) for flags in ("S", "A")]
        assert [answer.reason for answer in answers] == ["table_full"] * 2
        assert answers[0].frame[:6] == answers[1].frame[:6]

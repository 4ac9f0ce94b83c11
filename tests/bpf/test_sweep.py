"""The sweep: what it frees, what it leaves, and that nothing is counted twice while packets do the same."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.flows import FlowEntry, FlowState
from haxlb.forwarding.records import BackendRecord
from haxlb.forwarding.replies import REPLY_BYTES, Answer
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.sweeper import PORTION_BUCKETS, Sweeper
from haxlb.model.addresses import Protocol
from haxlb.model.errors import HostError
from haxlb.model.virtual_server import ForwardingMethod
from tests.bpf.flow_tables import FRONTEND, INCARNATION, OWN_MAC, TABLES, VIP, FlowTables, flow_tables, now

pytestmark = pytest.mark.bpf

TICKS = round(1 / time.clock_getres(6))
LIFETIMES = {
    FlowState.CLAIMED: 1,
    FlowState.TCP_NEW: 60,
    FlowState.TCP_ESTABLISHED: 400,
    FlowState.TCP_CLOSING: 30,
    FlowState.UDP_NEW: 70,
    FlowState.UDP: 70,
    FlowState.TEMPLATE: 50,
}
"""Seconds, as the tables below are built; a template's is its service's."""
LONGEST_RACE_S = 200.0
CLIENTS = 12_000
ENOUGH = 10_000
"""Flows that sweeps have freed."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlowTables]:
    lifetimes = ("--lifetime-established=400", "--lifetime-closing=30", "--lifetime-udp=70")
    with flow_tables(tmp_path_factory.mktemp("sweep"), "--flow-buckets-log2=17", *lifetimes) as made:
        yield made


@pytest.fixture
def tables(built: FlowTables) -> FlowTables:
    built.clear()
    return built


@pytest.fixture
def sweeper(built: FlowTables) -> Iterator[Sweeper]:
    one = Sweeper()
    one.use(built.program.parent)
    yield one
    one.close()


def sweep(sweeper: Sweeper, *, counting: bool = False) -> None:
    for _ in range(sweeper.begin(counting=counting)):
        sweeper.sweep()


def flow(
    number: int, state: FlowState, age_s: float, *, wide: bool = False, incarnation: int = INCARNATION
) -> FlowEntry:
    source = IPv6Address("2001:db8::") + number if wide else IPv4Address("198.51.100.0") + number
    stamp = (now() - round(age_s * TICKS)) & 0xFFFFFFFF
    return FlowEntry(
        source=source,
        source_port=1024 + number,
        frontend=FRONTEND,
        backend=1 + number % 4,
        incarnation=incarnation,
        state=state,
        stamp=stamp,
    )


def last_way(tables: FlowTables, table: str) -> int:
    return tables.maps.shape(table).entries * layout.FLOW_WAYS - 1


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("state", LIFETIMES)
def test_what_is_over_goes_and_what_is_not_stays(
    tables: FlowTables, sweeper: Sweeper, table: str, state: FlowState
) -> None:
    wide = table.startswith("wide")
    tables.put(table, 0, flow(0, state, LIFETIMES[state] + 1, wide=wide))
    tables.put(table, last_way(tables, table), flow(1, state, LIFETIMES[state] + 1, wide=wide))
    young = flow(2, state, LIFETIMES[state] / 2, wide=wide)
    tables.put(table, 5, young)
    before = sweeper.expired
    sweep(sweeper)
    assert tables.table(table) == ([] if state is FlowState.CLAIMED else [young])
    assert sweeper.expired - before == (0 if state is FlowState.CLAIMED else 2)


def test_the_last_way_of_the_last_portion_is_swept_too(tables: FlowTables, sweeper: Sweeper) -> None:
    portions = sweeper.begin(counting=False)
    assert portions == -(-sum(tables.maps.shape(each).entries for each in TABLES) // PORTION_BUCKETS)
    assert portions > 1
    tables.put("wide_overflow", last_way(tables, "wide_overflow"), flow(0, FlowState.UDP, 71, wide=True))
    for _ in range(portions - 1):
        sweeper.sweep()
    assert len(tables.flows()) == 1
    sweeper.sweep()
    assert tables.flows() == []
    sweeper.sweep()  # one too many does no harm


def test_a_flow_that_goes_is_counted_out_as_what_it_was(tables: FlowTables, sweeper: Sweeper) -> None:
    for backend in (1, 2):
        tables.poke("loads", backend * layout.LOAD_BYTES, struct.pack("=II", 10, 20))
    tables.put("flows", 0, flow(0, FlowState.TCP_ESTABLISHED, 500))
    tables.put("flows", 1, flow(0, FlowState.TCP_CLOSING, 500))
    tables.put("flows", 2, flow(0, FlowState.TEMPLATE, 500))
    tables.put("flows", 3, flow(1, FlowState.UDP, 500, incarnation=INCARNATION - 1))
    sweep(sweeper)
    assert tables.flows() == []
    assert (tables.load(1).active, tables.load(1).inactive) == (9, 19)
    assert (tables.load(2).active, tables.load(2).inactive) == (10, 20)


def test_a_template_of_a_server_that_is_gone_goes_at_once(tables: FlowTables, sweeper: Sweeper) -> None:
    tables.put("flows", 0, flow(0, FlowState.TEMPLATE, 1, incarnation=INCARNATION - 1))
    sweep(sweeper)
    assert tables.flows() == []


def test_a_stamp_of_the_future_is_young(tables: FlowTables, sweeper: Sweeper) -> None:
    """Another CPU has read the clock after the sweep did."""
    entry = flow(0, FlowState.TCP_NEW, -0.5)
    tables.put("overflow", 0, entry)
    sweep(sweeper)
    assert tables.flows() == [entry]


def test_wrong_counts_are_corrected_when_a_second_count_confirms_it(tables: FlowTables, sweeper: Sweeper) -> None:
    for way in range(8):
        tables.put("flows", way, flow(way, FlowState.TCP_CLOSING if way == 2 else FlowState.UDP, 1))
    tables.poke("loads", 1 * layout.LOAD_BYTES, struct.pack("=iI", -3, 7))
    sweep(sweeper, counting=True)
    assert sweeper.compare() is None
    assert tables.load(2).active == 0  # not yet
    sweep(sweeper, counting=True)
    corrected = sweeper.compare()
    assert corrected is not None
    assert (corrected.servers, corrected.active, corrected.inactive) == (4, 2 + 3 + 2 + 1 + 2, -7 + 1)
    assert tables.counted() == tables.recount() == {1: (2, 0), 2: (2, 0), 3: (1, 1), 4: (2, 0)}
    sweep(sweeper, counting=True)
    assert not sweeper.compare()


def test_right_counts_are_left(tables: FlowTables, sweeper: Sweeper) -> None:
    tables.put("flows", 0, flow(0, FlowState.UDP, 1))
    tables.poke("loads", layout.LOAD_BYTES, struct.pack("=II", 1, 0))
    sweep(sweeper, counting=True)
    corrected = sweeper.compare()
    assert corrected is not None
    assert not corrected


def test_without_a_sweep_it_is_said(tmp_path: Path) -> None:
    one = Sweeper()
    one.use(tmp_path)
    with pytest.raises(HostError, match="no sweep is pinned") as caught:
        one.begin(counting=False)
    assert "haxlb swap" in caught.value.remedy


def test_what_a_server_would_answer_goes_with_its_flow(tmp_path: Path) -> None:
    with flow_tables(tmp_path, "--flow-buckets-log2=8", "--features=stateful,nat") as tables:
        raw = tables.maps.read("backends", layout.INDEX.pack(1))
        assert raw is not None
        record = replace(BackendRecord.unpack(raw), method=ForwardingMethod.NAT)
        tables.maps.write("backends", layout.INDEX.pack(1), record.pack())
        young, old = flow(0, FlowState.TCP_ESTABLISHED, 1), flow(4, FlowState.TCP_ESTABLISHED, 2000)
        for way, entry in enumerate((young, old)):
            tables.put("flows", way, entry)
            tables.maps.write("replies", _answer(entry, record).pack(), bytes(REPLY_BYTES))
        one = Sweeper()
        one.use(tables.program.parent)
        sweep(one)
        one.close()
        assert tables.flows() == [young]
        assert tables.maps.read("replies", _answer(young, record).pack()) is not None
        assert tables.maps.read("replies", _answer(old, record).pack()) is None


def _answer(entry: FlowEntry, server: BackendRecord) -> Answer:
    return Answer(
        client=entry.source,
        client_port=entry.source_port,
        server=server.address,
        server_port=server.port,
        protocol=Protocol.TCP,
    )


def _frame(source: int, port: int, protocol: int, flags: int) -> bytes:
    ethernet = bytes.fromhex(OWN_MAC.replace(":", "")) + bytes.fromhex("0200000000cc0800")
    transport = struct.pack(">HHIIBBHHH", port, 80, 0, 0, 0x50, flags, 0, 0, 0)
    if protocol == 17:
        transport = struct.pack(">HHHH", port, 80, 20, 0) + bytes(12)
    source_address = (IPv4Address("198.18.0.0") + source).packed
    return (
        ethernet
        + struct.pack(">BBHHHBBH", 0x45, 0, 40, 0, 0, 64, protocol, 0)
        + source_address
        + VIP.packed
        + transport
    )


def test_counts_are_exact_after_a_race_of_packets_and_sweeps(tmp_path: Path) -> None:
    """Flows of a second's life: opened, closed and opened again by packets of two threads while two sweep."""
    lifetimes = ("--lifetime-established=1", "--lifetime-closing=1", "--lifetime-udp=1")
    with flow_tables(tmp_path, "--flow-buckets-log2=12", "--features=stateful", *lifetimes) as tables:
        ended = threading.Event()
        problems: list[BaseException] = []

        def packets(protocol: int) -> None:
            with closing(bpf.obj_get(tables.program)) as program:
                while not ended.is_set():
                    # A client rests while the others have their turns: long enough for its flow to end.
                    for source in range(CLIENTS):
                        for flags in (2, 16, 16, 17) if source % 3 else (2, 16):
                            bpf.prog_test_run(program, _frame(source, 1000 + source, protocol, flags))

        def sweeps() -> None:
            with_it = Sweeper()
            with_it.use(tables.program.parent)
            while not ended.is_set():
                sweep(with_it)
            with_it.close()

        def guarded(work: object, *arguments: object) -> None:
            try:
                work(*arguments)  # type: ignore[operator]
            except BaseException as problem:  # noqa: BLE001 - it is raised below
                problems.append(problem)
                ended.set()

        works = [(packets, 6), (packets, 17), (sweeps,), (sweeps,)]
        threads = [threading.Thread(target=guarded, args=each) for each in works]
        for each in threads:
            each.start()
        watching = Sweeper()
        watching.use(tables.program.parent)
        deadline = time.monotonic() + LONGEST_RACE_S
        while watching.expired < ENOUGH and time.monotonic() < deadline and not problems:
            ended.wait(0.05)
        ended.set()
        for each in threads:
            each.join()
        freed = watching.expired
        watching.close()
        assert not problems
        assert freed >= ENOUGH
        assert tables.counted() == tables.recount()
        assert sum(map(sum, tables.recount().values())) > 0

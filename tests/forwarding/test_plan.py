"""Plans, carried out step by step on maps of dictionaries."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.forwarding import layout
from haxlb.forwarding.layout import INDEX, BackendRecord, Half, ServiceRecord, Sizes
from haxlb.forwarding.plan import Actual, Delete, Step, Write, WriteRing, deaths, plan
from haxlb.forwarding.wanted import WantedTable
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.errors import HostError
from haxlb.model.node import Scheduler
from tests.forwarding.tables import DNS, PEER, VIP, WEB, mac, server, service, table, unreachable

SIZES = Sizes(services=3, backends=8, flow_buckets_log2=1)


class Maps:
    """What the kernel would hold."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        self.sizes = sizes
        self.maps: dict[str, dict[bytes, bytes]] = {shape.name: {} for shape in layout.shapes(sizes)}
        self.rings: dict[tuple[int, int], bytes] = {}
        self.actual = Actual(sizes=sizes)

    def apply(self, wanted: WantedTable) -> tuple[Step, ...]:
        planned = plan(wanted, self.actual)
        for step in planned.steps:
            self.carry_out(step)
        self.actual = planned.after
        if not planned.complete:
            return (*planned.steps, *self.apply(wanted))
        assert replace(self.read(), recipes=self.actual.recipes) == self.actual
        assert plan(wanted, self.actual).steps == ()
        return planned.steps

    def carry_out(self, step: Step) -> None:
        match step:
            case Write():
                self.maps[step.map][step.key] = step.value
            case Delete():
                del self.maps[step.map][step.key]
            case WriteRing():
                record = self.services().get(step.service)
                assert record is None or record.half != step.half or step.service not in self.published()
                self.rings[step.service, step.half] = step.content

    def published(self) -> dict[int, Endpoint]:
        return {INDEX.unpack(value)[0]: layout.unpack_endpoint(key) for key, value in self.maps["endpoints"].items()}

    def services(self) -> dict[int, ServiceRecord]:
        return {INDEX.unpack(key)[0]: ServiceRecord.unpack(raw) for key, raw in self.maps["services"].items()}

    def backends(self) -> dict[int, BackendRecord]:
        return {INDEX.unpack(key)[0]: BackendRecord.unpack(raw) for key, raw in self.maps["backends"].items()}

    def read(self) -> Actual:
        services = self.services()
        return Actual(
            sizes=self.sizes,
            endpoints={endpoint: index for index, endpoint in self.published().items()},
            services=services,
            backends=self.backends(),
            rings={index: self.ring(index, record) for index, record in services.items()},
        )

    def ring(self, index: int, record: ServiceRecord) -> bytes:
        elements = -(-record.halves[record.half].length // layout.RING_SLOTS_PER_ELEMENT)
        return self.rings.get((index, record.half), b"")[: 64 * elements]

    def slots(self, index: int) -> list[int]:
        record = self.services()[index]
        return list(array("H", self.ring(index, record))[: record.halves[record.half].length])

    def restart(self) -> None:
        self.actual = self.read()

    def index_of(self, number: int) -> int:
        address = server(number).address
        (index,) = (i for i, record in self.backends().items() if record.address == address and not record.retired)
        return index

    def shares(self, endpoint: Endpoint = WEB) -> Counter[str]:
        """Slots in force by server."""
        (index,) = (each for each, found in self.published().items() if found == endpoint)
        backends = self.backends()
        return Counter(str(backends[slot].address) for slot in self.slots(index))


def test_a_fresh_table_says_what_is_wanted() -> None:
    maps = Maps()
    maps.apply(table(server(1), server(2, weight=2), server(3, weight=0), scheduler=Scheduler.WRR, peer=PEER))
    assert maps.published() == {1: WEB}
    assert maps.services()[1].peer == PEER
    assert maps.shares() == {"10.0.0.1": 1, "10.0.0.2": 2}
    assert maps.backends()[maps.index_of(3)].alive


def test_the_same_again_writes_nothing() -> None:
    maps = Maps()
    wanted = table(*map(server, range(1, 4)), scheduler=Scheduler.MH, peer=PEER)
    maps.apply(wanted)
    assert maps.apply(wanted) == ()
    maps.restart()
    assert maps.apply(wanted) == ()


def test_a_new_server_gets_an_index_and_the_others_keep_theirs() -> None:
    maps = Maps()
    maps.apply(table(server(2), server(3)))
    before = {number: maps.index_of(number) for number in (2, 3)}
    maps.apply(table(server(1), server(2), server(3)))
    assert {number: maps.index_of(number) for number in (2, 3)} == before


@pytest.mark.parametrize("gone", [server(1, alive=False), unreachable(1)])
def test_a_dead_server_leaves_the_ring_before_it_dies(gone: object) -> None:
    maps = Maps()
    maps.apply(table(server(1), server(2)))
    steps = maps.apply(table(gone, server(2)))
    kinds = [step.map if isinstance(step, Write) else type(step).__name__ for step in steps]
    assert kinds == ["services", "WriteRing", "services", "backends"]
    assert maps.shares() == {"10.0.0.2": 1}
    assert not maps.backends()[maps.index_of(1)].alive


@pytest.mark.parametrize("gone", [server(1, alive=False), unreachable(1)])
def test_a_server_dies_by_one_byte_before_a_ring_is_computed(gone: object) -> None:
    maps = Maps()
    maps.apply(table(server(1), server(2)))
    index, wanted = maps.index_of(1), table(gone, server(2))
    before = maps.backends()[index].pack()
    early = deaths(wanted, maps.actual)
    (step,) = early.steps
    assert isinstance(step, Write)
    assert (step.map, step.key) == ("backends", INDEX.pack(index))
    assert [at for at, byte in enumerate(step.value) if byte != before[at]] == [0]
    maps.carry_out(step)
    maps.actual = early.after
    assert replace(maps.read(), recipes=maps.actual.recipes) == maps.actual
    assert deaths(wanted, maps.actual).steps == ()
    kinds = [step.map if isinstance(step, Write) else type(step).__name__ for step in maps.apply(wanted)]
    assert kinds == ["services", "WriteRing", "services"]
    assert maps.shares() == {"10.0.0.2": 1}


@pytest.mark.parametrize(
    "others",
    [
        [server(2, alive=False)],
        [unreachable(2)],
        [server(2, weight=0)],
        [server(2, alive=False), server(3)],  # a sorry server that has not served yet
        [],
    ],
)
def test_the_last_server_lives_until_the_ring_says_what_comes_instead(others: list[object]) -> None:
    maps = Maps()
    maps.apply(table(server(1), server(2)))
    assert deaths(table(server(1, alive=False), *others), maps.actual).steps == ()


def test_servers_that_leave_the_configuration_leave_the_ring_first() -> None:
    maps = Maps()
    maps.apply(table(server(1), server(2)))
    assert deaths(table(server(2)), maps.actual).steps == ()
    assert deaths(WantedTable(services=(service(server(1, alive=False), endpoint=DNS),)), maps.actual).steps == ()


def test_rr_does_not_know_weights() -> None:
    maps = Maps()
    maps.apply(table(server(1, weight=9), server(2, weight=1), scheduler=Scheduler.RR))
    assert maps.shares() == {"10.0.0.1": 1, "10.0.0.2": 1}


def test_a_changed_mac_touches_nothing_but_its_server() -> None:
    maps = Maps()
    maps.apply(table(server(1), server(2)))
    steps = maps.apply(table(server(1, destination_mac=mac(5)), server(2)))
    assert [(step.map, INDEX.unpack(step.key)) for step in steps if isinstance(step, Write)] == [
        ("backends", (maps.index_of(1),))
    ] * 2
    assert maps.backends()[maps.index_of(1)].hop == server(1, destination_mac=mac(5)).next_hop


def test_a_server_that_returns_finds_its_index() -> None:
    maps = Maps()
    maps.apply(table(server(1), server(2)))
    index = maps.index_of(1)
    maps.apply(table(server(2)))
    maps.apply(table(server(2), server(3)))
    maps.restart()
    maps.apply(table(server(1), server(2), server(3)))
    assert maps.index_of(1) == index
    assert maps.backends()[index].incarnation == 0


def test_the_longest_retired_index_is_given_away_first_with_a_new_incarnation() -> None:
    maps = Maps()
    maps.apply(table(*map(server, range(1, 8))))
    first, second = maps.index_of(3), maps.index_of(5)
    maps.apply(table(*map(server, [1, 2, 4, 5, 6, 7])))
    maps.apply(table(*map(server, [1, 2, 4, 6, 7])))
    maps.apply(table(*map(server, [1, 2, 4, 6, 7, 8])))
    assert maps.index_of(8) == first
    assert maps.backends()[first].incarnation == 1
    maps.apply(table(*map(server, [1, 2, 4, 6, 7, 8, 9])))
    assert maps.index_of(9) == second


def test_an_index_that_is_being_retired_is_given_away_by_a_second_plan() -> None:
    maps = Maps()
    maps.apply(table(*map(server, range(1, 8))))
    leaving, wanted = maps.index_of(1), table(*map(server, range(2, 9)))
    first = plan(wanted, maps.actual)
    assert not first.complete
    assert first.after.backends[leaving].address == server(1).address
    assert first.after.backends[leaving].retired
    maps.apply(wanted)
    assert maps.index_of(8) == leaving
    assert maps.backends()[leaving].incarnation == 1
    assert maps.shares() == {f"10.0.0.{number}": 1 for number in range(2, 9)}


def test_all_servers_are_exchanged_in_a_full_table_and_the_flows_of_the_former_are_unknown() -> None:
    maps = Maps()
    for turn in range(20):
        maps.apply(table(*map(server, range(1 + 7 * turn, 8 + 7 * turn))))
        assert len(maps.shares()) == 7
        assert {record.incarnation for record in maps.backends().values()} == {turn}


def test_too_many_servers() -> None:
    maps = Maps()
    with pytest.raises(HostError, match="8 real servers are wanted, the forwarder has room for 7") as caught:
        maps.apply(table(*map(server, range(1, 9))))
    assert "haxlb detach" in caught.value.remedy


def test_too_many_services() -> None:
    maps = Maps()
    with pytest.raises(HostError, match="room for 3 virtual servers") as caught:
        maps.apply(WantedTable(services=tuple(service(endpoint=endpoint(n)) for n in range(4))))
    assert "max_services" in caught.value.remedy


def endpoint(number: int) -> Endpoint:
    return Endpoint(address=VIP, port=8000 + number, protocol=Protocol.TCP)


def test_services_come_and_go_in_a_full_table() -> None:
    maps = Maps()
    maps.apply(WantedTable(services=tuple(service(server(1), endpoint=endpoint(n)) for n in (1, 2, 3))))
    maps.apply(WantedTable(services=tuple(service(server(1), endpoint=endpoint(n)) for n in (1, 4, 3))))
    assert sorted(maps.published().items()) == [(1, endpoint(1)), (2, endpoint(4)), (3, endpoint(3))]
    assert maps.shares(endpoint(4)) == {"10.0.0.1": 1}


def test_a_service_that_gets_the_index_of_another_has_none_of_its_servers() -> None:
    """The same machine on the same port: neither its counters nor its flows are the new service's."""
    maps = Maps()
    maps.apply(WantedTable(services=tuple(service(server(1), endpoint=endpoint(n)) for n in (1, 2, 3))))
    index = next(at for at, record in maps.backends().items() if record.service == 2)
    maps.maps["backend_tallies"][INDEX.pack(index)] = b"\x01" * layout.TALLY_BYTES
    maps.apply(WantedTable(services=tuple(service(server(1), endpoint=endpoint(n)) for n in (1, 4, 3))))
    record = maps.backends()[index]
    assert (record.service, record.incarnation, record.alive) == (2, 1, True)
    assert maps.maps["backend_tallies"][INDEX.pack(index)] == bytes(layout.TALLY_BYTES)


def test_a_removed_service_is_withdrawn_before_anything_else() -> None:
    maps = Maps()
    maps.apply(WantedTable(services=(service(server(1)), service(server(2), endpoint=DNS))))
    steps = maps.apply(table(server(1)))
    assert isinstance(steps[0], Delete)
    assert maps.published() == {1: WEB}


def test_changing_the_scheduler_changes_the_way_to_read_the_ring_with_the_ring() -> None:
    maps = Maps()
    maps.apply(table(server(1), server(2)))
    before = maps.services()[1]
    maps.apply(table(server(1), server(2), scheduler=Scheduler.SH, hash_port=False))
    after = maps.services()[1]
    assert before.half != after.half
    assert after.halves[before.half] == Half(length=2, flags=layout.HALF_SEQUENCE | layout.HALF_HASH_PORT)
    assert after.halves[after.half] == Half(length=layout.RING_SLOTS, flags=0)


def test_the_same_machines_get_the_same_clients_on_other_ports() -> None:
    maps = Maps()
    https = endpoint(443)
    maps.apply(
        WantedTable(
            services=(
                service(*(server(n) for n in (1, 2, 3)), scheduler=Scheduler.SH),
                service(*(server(n, port=8443) for n in (1, 2, 3)), scheduler=Scheduler.SH, endpoint=https),
            )
        )
    )
    backends = maps.backends()
    web, other = ([backends[slot].address for slot in maps.slots(index)] for index in (1, 2))
    assert web == other


SERVERS = st.lists(
    st.builds(
        server,
        st.integers(1, 3),
        weight=st.sampled_from([0, 1, 3]),
        alive=st.sampled_from([True, True, False]),
        destination_mac=st.sampled_from([mac(1), mac(2)]),
    ),
    max_size=3,
    unique_by=lambda each: each.key,
)
SERVICES = st.lists(
    st.builds(
        lambda servers, at, scheduler, peer: service(*servers, endpoint=at, scheduler=scheduler, peer=peer),
        SERVERS,
        st.sampled_from([WEB, DNS]),
        st.sampled_from([Scheduler.RR, Scheduler.WRR]),
        st.sampled_from([None, PEER]),
    ),
    max_size=2,
    unique_by=lambda each: each.endpoint,
)


def serves(wanted: WantedTable, at: Endpoint) -> bool:
    return any(
        each.endpoint == at and any(s.alive and s.next_hop and s.weight for s in each.servers)
        for each in wanted.services
    )


@given(st.lists(SERVICES, min_size=2, max_size=6))
def test_between_any_two_writes_every_slot_leads_to_a_live_server(wishes: list[list[object]]) -> None:
    maps = Maps(Sizes(services=3, backends=16, flow_buckets_log2=1))
    former = WantedTable()
    for wish in wishes:
        wanted = WantedTable(services=tuple(wish))
        planned = plan(wanted, maps.actual)
        for step in planned.steps:
            maps.carry_out(step)
            backends = maps.backends()
            for index, at in maps.published().items():
                slots = maps.slots(index)
                if serves(former, at) and serves(wanted, at):
                    assert slots
                # What dies last may still be found only where the wish leaves no server at all.
                if serves(wanted, at):
                    assert all(backends[slot].alive and backends[slot].service == index for slot in slots)
        maps.actual = planned.after
        assert replace(maps.read(), recipes=maps.actual.recipes) == maps.actual
        former = wanted

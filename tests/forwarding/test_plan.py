"""Plans, carried out step by step on maps of dictionaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.layout import INDEX, Sizes
from haxlb.forwarding.plan import deaths, plan
from haxlb.forwarding.records import COMPARES, FrontendFlag, Generation, GenerationFlag
from haxlb.forwarding.ring import recipe_of
from haxlb.forwarding.steps import Delete, Fill, Step, Write
from haxlb.forwarding.wanted import WantedService, WantedTable
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.errors import HostError
from haxlb.model.virtual_server import ForwardingMethod, Scheduler, TunnelKind
from tests.forwarding.kernel import SIZES, Kernel
from tests.forwarding.tables import DNS, PEER, VIP, WEB, mac, server, server6, service, table, unreachable


def endpoint(number: int, protocol: Protocol = Protocol.TCP) -> Endpoint:
    return Endpoint(address=VIP, port=8000 + number, protocol=protocol)


def several(*services: WantedService) -> WantedTable:
    return WantedTable(services=services)


def kinds(steps: list[Step]) -> list[str]:
    return [step.map if isinstance(step, Write | Fill) else "delete" for step in steps]


def test_a_fresh_table_says_what_is_wanted() -> None:
    kernel = Kernel()
    wanted = table(server(1), server(2, weight=2), server(3, weight=0), scheduler=Scheduler.WRR, peer=PEER)
    kernel.apply(wanted)
    kernel.says(wanted)
    assert kernel.record().peer == PEER
    assert kernel.shares() == {"10.0.0.1": 1, "10.0.0.2": 2}
    assert kernel.backends()[kernel.index_of(3)].alive


def test_the_same_again_writes_nothing() -> None:
    kernel = Kernel()
    wanted = table(*map(server, range(1, 4)), scheduler=Scheduler.MH)
    kernel.apply(wanted)
    assert kernel.apply(wanted) == []
    assert kernel.apply(replace(wanted, services=tuple(map(replace, wanted.services)))) == []
    kernel.restart()
    assert kernel.apply(wanted) == []


def test_a_new_server_gets_an_index_and_the_others_keep_theirs() -> None:
    kernel = Kernel()
    kernel.apply(table(server(2), server(3)))
    before = {number: kernel.index_of(number) for number in (2, 3)}
    kernel.apply(table(server(1), server(2), server(3)))
    assert {number: kernel.index_of(number) for number in (2, 3)} == before


@pytest.mark.parametrize("gone", [server(1, alive=False), unreachable(1)])
def test_a_server_dies_by_one_byte_before_a_ring_is_computed(gone: Any) -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2)))
    index, wanted = kernel.index_of(1), table(gone, server(2))
    before = kernel.backends()[index].pack()
    (step, *rest) = kernel.apply(wanted)
    assert isinstance(step, Write)
    assert (step.map, step.key) == ("backends", INDEX.pack(index))
    assert [at for at, byte in enumerate(step.value) if byte != before[at]] == [0]
    assert kinds(rest) == ["rings", "services", "services"]
    assert kernel.shares() == {"10.0.0.2": 1}


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
def test_the_last_server_lives_until_the_ring_says_what_comes_instead(others: list[Any]) -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2)))
    wanted = table(server(1, alive=False), *others)
    assert deaths(wanted, kernel.ledger).phases == ()
    first = kernel.index_of(1)
    steps = kernel.apply(wanted)
    died = [at for at, step in enumerate(steps) if step.map == "backends" and step.key == INDEX.pack(first)]
    assert died[-1] >= max(at for at, step in enumerate(steps) if step.map == "services")
    kernel.says(wanted)


def test_rr_does_not_know_weights() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1, weight=9), server(2, weight=1)))
    assert kernel.shares() == {"10.0.0.1": 1, "10.0.0.2": 1}


def test_a_changed_mac_touches_nothing_but_its_server() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2)))
    steps = kernel.apply(table(server(1, destination_mac=mac(5)), server(2)))
    assert [(step.map, step.key) for step in steps if isinstance(step, Write)] == [
        ("backends", INDEX.pack(kernel.index_of(1)))
    ] * len(steps)
    assert kernel.backends()[kernel.index_of(1)].hop == server(1, destination_mac=mac(5)).next_hop


def test_everything_about_the_way_to_a_server_is_written() -> None:
    kernel = Kernel()
    wanted = replace(
        server(1, vlan=7, source=VIP, mtu=9000),
        method=ForwardingMethod.TUN,
        tunnel=TunnelKind.GUE,
        tunnel_port=6080,
        tunnel_checksum=True,
        upper_threshold=100,
        lower_threshold=50,
    )
    kernel.apply(table(wanted, scheduler=Scheduler.WLC))
    record = kernel.backends()[kernel.index_of(1)]
    assert record.hop == wanted.next_hop
    assert (record.method, record.tunnel, record.tunnel_port, record.tunnel_flags) == (
        ForwardingMethod.TUN,
        TunnelKind.GUE,
        6080,
        1,
    )
    assert (record.upper, record.lower) == (100, 50)
    assert kernel.record().scheduler == COMPARES[Scheduler.WLC]
    assert kernel.record().generation.flags == GenerationFlag.LIST


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, FrontendFlag(0)),
        ({"scheduler": Scheduler.MH}, FrontendFlag.STATELESS),
        ({"scheduler": Scheduler.MH, "persistence_s": 60}, FrontendFlag.PERSISTENT),
        ({"one_packet": True, "endpoint": DNS}, FrontendFlag.ONE_PACKET),
        ({"endpoint": replace(WEB, port=0)}, FrontendFlag.ANY_PORT),
    ],
)
def test_flags_of_frontends(options: dict[str, Any], flags: FrontendFlag) -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), **options))
    assert [record.flags for record in kernel.frontends().values()] == [flags]


def test_packets_are_told_once_of_an_address_of_which_all_ports_are_a_services() -> None:
    """That they are told before its endpoint is there, the kernel sees to at every step."""
    kernel = Kernel()
    kernel.apply(table(server(1)))
    assert not any(kernel.any_port_bits())
    everything = table(server(1), endpoint=replace(WEB, port=0))
    assert "any_port_bits" in kinds(kernel.apply(everything))
    told = kernel.any_port_bits()
    assert told.count(0) == len(told) - 1
    kernel.restart()
    kernel.apply(table(server(1)))
    assert "any_port_bits" not in kinds(kernel.apply(everything))
    assert kernel.any_port_bits() == told
    six = replace(
        everything.services[0],
        name="six",
        endpoints=(Endpoint(address=server6(99).address, port=0, protocol=Protocol.TCP),),
    )
    kernel.apply(several(*everything.services, replace(six, servers=(server6(1),))))
    assert kernel.any_port_bits().count(0) == len(told) - 2


def test_the_directors_that_serve_themselves_say_so() -> None:
    here = server(1, destination_mac=PEER.source_mac)
    kernel = Kernel()
    kernel.apply(table(here, server(2), peer=PEER))
    assert kernel.frontends()[WEB].flags == FrontendFlag.SHARED
    assert kernel.backends()[kernel.index_of(1)].state & 4


def test_ipv6_beside_ipv4_behind_one_set_of_servers() -> None:
    six = Endpoint(address=server6(99).address, port=80, protocol=Protocol.TCP)
    kernel = Kernel()
    wanted = table(server6(1), server6(2), endpoints=(WEB, six), name="group web tcp")
    kernel.apply(wanted)
    kernel.says(wanted)
    assert len({record.index for record in kernel.frontends().values()}) == 2
    assert (len(kernel.maps["endpoints"]), len(kernel.maps["endpoints6"])) == (1, 1)


def test_a_server_that_returns_finds_its_index() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2)))
    index = kernel.index_of(1)
    kernel.apply(table(server(2)))
    kernel.apply(table(server(2), server(3)))
    kernel.restart()
    kernel.apply(table(server(1), server(2), server(3)))
    assert kernel.index_of(1) == index
    assert kernel.backends()[index].incarnation == 0


def test_the_longest_retired_index_is_given_away_first_with_a_new_incarnation() -> None:
    kernel = Kernel()
    kernel.apply(table(*map(server, range(1, 8))))
    first, second = kernel.index_of(3), kernel.index_of(5)
    kernel.apply(table(*map(server, [1, 2, 4, 5, 6, 7])))
    kernel.apply(table(*map(server, [1, 2, 4, 6, 7])))
    kernel.apply(table(*map(server, [1, 2, 4, 6, 7, 8])))
    assert kernel.index_of(8) == first
    assert kernel.backends()[first].incarnation == 1
    kernel.apply(table(*map(server, [1, 2, 4, 6, 7, 8, 9])))
    assert kernel.index_of(9) == second


def test_what_was_counted_for_the_former_owner_goes_after_its_incarnation() -> None:
    kernel = Kernel()
    kernel.apply(table(*map(server, range(1, 8))))
    kernel.apply(table(*map(server, range(1, 7))))
    index = kernel.index_of(6) + 1
    planned = plan(table(*map(server, [1, 2, 3, 4, 5, 6, 8])), kernel.ledger, kernel.now_s)
    renamed, cleared = planned.phases[:2]
    assert [step.key for step in renamed.steps] == [INDEX.pack(index)]
    assert planned.renamed == {index}
    # A packet that has read the former incarnation would still count for it.
    assert cleared.wait
    assert {step.map for step in cleared.steps} == {"loads", "backend_tallies"}


def test_an_index_that_is_being_retired_is_given_away_by_a_second_plan() -> None:
    kernel = Kernel()
    kernel.apply(table(*map(server, range(1, 8))))
    leaving, wanted = kernel.index_of(1), table(*map(server, range(2, 9)))
    kernel.apply(wanted)
    assert kernel.index_of(8) == leaving
    assert kernel.backends()[leaving].incarnation == 1
    assert kernel.shares() == {f"10.0.0.{number}": 1 for number in range(2, 9)}


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.MH])
def test_all_servers_are_exchanged_in_a_full_table_and_the_flows_of_the_former_are_unknown(
    scheduler: Scheduler,
) -> None:
    kernel = Kernel()
    for turn in range(12):
        kernel.apply(table(*map(server, range(1 + 7 * turn, 8 + 7 * turn)), scheduler=scheduler))
        assert len(kernel.shares()) == 7
        assert {record.incarnation for record in kernel.backends().values()} == {turn}


def test_too_many_servers() -> None:
    kernel = Kernel()
    with pytest.raises(HostError, match="8 real servers are wanted, the forwarder has room for 7") as caught:
        kernel.apply(table(*map(server, range(1, 9))))
    assert "haxlb detach" in caught.value.remedy


def test_too_many_services() -> None:
    kernel = Kernel()
    with pytest.raises(HostError, match="room for 3 virtual servers") as caught:
        kernel.apply(several(*(service(endpoint=endpoint(n)) for n in range(4))))
    assert "max_services" in caught.value.remedy


def test_too_many_endpoints() -> None:
    kernel = Kernel()
    wanted = table(server(1), name="group a tcp", endpoints=tuple(map(endpoint, range(7))))
    with pytest.raises(HostError, match="room for 6 addresses and ports"):
        kernel.apply(wanted)


def test_too_many_slots() -> None:
    kernel = Kernel(Sizes(services=3, frontends=6, backends=8, rings=1024, flow_buckets_log2=1))
    with pytest.raises(HostError, match="no room for the slots"):
        kernel.apply(
            several(*(service(server(1), server(2), endpoint=endpoint(n), scheduler=Scheduler.MH) for n in range(3)))
        )


def test_a_list_that_is_too_long() -> None:
    kernel = Kernel(Sizes(services=3, frontends=6, backends=300, rings=1 << 13, flow_buckets_log2=1))
    with pytest.raises(HostError, match="wlc compares 256 real servers at most, 257 are configured"):
        kernel.apply(table(*map(server, range(257)), scheduler=Scheduler.WLC))


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.MH])
def test_more_servers_than_slots(scheduler: Scheduler) -> None:
    wanted = service(*(server(1, port=1 + n) for n in range(16385)), scheduler=scheduler)
    with pytest.raises(HostError, match="16384 real servers at most have a turn, 16385 are configured"):
        recipe_of(wanted, range(16385))


def test_services_come_and_go_in_a_full_table() -> None:
    kernel = Kernel()
    kernel.apply(several(*(service(server(1), endpoint=endpoint(n)) for n in (1, 2, 3))))
    wanted = several(*(service(server(1), endpoint=endpoint(n)) for n in (1, 4, 3)))
    kernel.apply(wanted)
    kernel.says(wanted)
    assert kernel.service_at(endpoint(4)) == 2


def test_a_service_that_gets_the_index_of_another_has_none_of_its_servers() -> None:
    """The same machine on the same port: neither its counters nor its flows are the new service's."""
    kernel = Kernel()
    kernel.apply(several(*(service(server(1), endpoint=endpoint(n)) for n in (1, 2, 3))))
    index = next(at for at, record in kernel.backends().items() if record.service == 2)
    kernel.maps["backend_tallies"][INDEX.pack(index)] = b"\x01" * layout.TALLY_BYTES
    kernel.apply(several(*(service(server(1), endpoint=endpoint(n)) for n in (1, 4, 3))))
    record = kernel.backends()[index]
    assert (record.service, record.incarnation, record.alive) == (2, 1, True)
    assert kernel.maps["backend_tallies"][INDEX.pack(index)] == bytes(layout.TALLY_BYTES)


def test_a_removed_service_is_withdrawn_before_anything_else() -> None:
    kernel = Kernel()
    kernel.apply(several(service(server(1)), service(server(2), endpoint=DNS)))
    steps = kernel.apply(table(server(1)))
    assert isinstance(steps[1], Delete)
    assert set(kernel.frontends()) == {WEB}


def test_a_service_that_returns_has_its_flows() -> None:
    kernel = Kernel()
    both = several(service(server(1)), service(server(2), endpoint=DNS, scheduler=Scheduler.MH))
    kernel.apply(both)
    before = (kernel.frontends(), kernel.index_of(2), kernel.service_at(DNS))
    kernel.apply(table(server(1)))
    kernel.restart()
    kernel.apply(both)
    kernel.says(both)
    assert (kernel.frontends(), kernel.index_of(2), kernel.service_at(DNS)) == before


def test_an_endpoint_that_returns_has_its_index_and_another_one_never_gets_it_from_the_same_service() -> None:
    kernel = Kernel()
    group = {"name": "group a tcp"}
    kernel.apply(table(server(1), endpoints=tuple(map(endpoint, range(6))), **group))
    before = kernel.frontends()[endpoint(5)].index
    kernel.apply(table(server(1), endpoints=tuple(map(endpoint, range(5))), **group))
    kernel.restart()
    other = table(server(1), endpoints=(*map(endpoint, range(5)), endpoint(9)), **group)
    with pytest.raises(HostError, match="room for 6"):
        kernel.apply(other)
    # Another service may have it: its servers are others to a flow on record.
    kernel.restart()
    elsewhere = replace(
        other,
        services=(*table(server(1), endpoints=tuple(map(endpoint, range(5))), **group).services, service(server(2))),
    )
    kernel.apply(elsewhere)
    kernel.says(elsewhere)
    assert kernel.frontends()[WEB].index == before


def test_an_index_of_the_same_service_is_free_when_no_flow_of_its_time_can_be_on_record() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), name="a", endpoints=tuple(map(endpoint, range(6)))))
    before = kernel.frontends()[endpoint(5)].index
    kernel.apply(table(server(1), name="a", endpoints=tuple(map(endpoint, range(5)))))
    kernel.now_s += 2 * 0xFFFF
    kernel.restart()
    kernel.apply(table(server(1), name="a", endpoints=(*map(endpoint, range(5)), endpoint(9))))
    assert kernel.frontends()[endpoint(9)].index == before
    assert kernel.frontends("withdrawn") == {}


def test_an_endpoint_goes_over_to_another_service() -> None:
    kernel = Kernel()
    kernel.apply(several(service(server(1)), service(server(2), endpoint=DNS)))
    wanted = several(service(server(3), name="group a tcp", endpoint=WEB), service(server(2), endpoint=DNS))
    steps = kernel.apply(wanted)
    assert not any(isinstance(step, Delete) for step in steps)
    kernel.says(wanted)


def test_packets_without_ports_where_one_service_has_them_all() -> None:
    kernel = Kernel()
    whole = several(service(server(1), endpoint=DNS, scheduler=Scheduler.SH, hash_port=False))
    kernel.apply(whole)
    (record,) = kernel.frontends("portless").values()
    assert (record.service, record.flags) == (kernel.service_at(DNS), FrontendFlag.STATELESS)
    kernel.apply(several(*whole.services, service(server(2), endpoint=endpoint(1, Protocol.UDP))))
    assert kernel.frontends("portless") == {}
    kernel.apply(whole)
    assert len(kernel.frontends("portless")) == 1


def test_the_peer_changes_by_one_byte() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), peer=PEER))
    other = replace(PEER, destination_mac=mac(0xBC))
    for peer in (other, None, PEER):
        kernel.apply(table(server(1), peer=peer))
        assert kernel.record().peer == peer


def test_a_failure_waits_for_no_packet_when_all_is_quiet() -> None:
    kernel = Kernel()
    for scheduler in (Scheduler.RR, Scheduler.WLC, Scheduler.MH):
        kernel.apply(table(server(1), server(2), server(3), scheduler=scheduler))
        kernel.settle()
        wanted = table(server(1, alive=False), server(2), server(3), scheduler=scheduler)
        assert not any(phase.wait for phase in kernel.phases(wanted))
        kernel = Kernel()


def test_the_same_machines_get_the_same_clients_on_other_ports() -> None:
    kernel = Kernel()
    kernel.apply(
        several(
            service(*(server(n) for n in (1, 2, 3)), scheduler=Scheduler.SH),
            service(*(server(n, port=8443) for n in (1, 2, 3)), scheduler=Scheduler.SH, endpoint=endpoint(443)),
        )
    )
    assert kernel.ring() == kernel.ring(endpoint(443))


def test_no_server_no_slots() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2), scheduler=Scheduler.MH))
    kernel.apply(table(server(1, alive=False), server(2, alive=False), scheduler=Scheduler.MH))
    assert kernel.record().generation == Generation(flags=GenerationFlag.HASH_PORT)
    assert not any(record.alive for record in kernel.backends().values())
    kernel.apply(table(server(1), server(2), scheduler=Scheduler.MH))
    assert len(kernel.ring()) == layout.RING_SLOTS


def test_an_apply_fails_for_want_of_room_and_the_next_one_starts_from_the_maps() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1)))
    with pytest.raises(HostError):
        kernel.apply(several(*(service(endpoint=endpoint(n)) for n in range(SIZES.services + 1))))
    kernel.restart()
    kernel.apply(table(server(1)))
    kernel.says(table(server(1)))

"""What a configuration needs of program and tables, and when a program that is there will do."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from haxlb.linux.forwarder_needs import excess, least, needs, roomy
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.node import NodeConfig
from haxlb.model.virtual_server import FlowTimeouts, RealServer, Scheduler, VirtualServer


def config(*schedulers: Scheduler, servers: int = 3) -> NodeConfig:
    return NodeConfig(
        node="a",
        virtual_servers=tuple(
            VirtualServer(
                endpoint=Endpoint(address=IPv4Address("192.0.2.1"), port=80 + number, protocol=Protocol.TCP),
                scheduler=scheduler,
                real_servers=tuple(
                    RealServer(address=IPv4Address("10.0.0.1") + each, port=80, weight=1 + each)
                    for each in range(servers)
                ),
            )
            for number, scheduler in enumerate(schedulers)
        ),
    )


def test_what_is_not_used_is_not_needed() -> None:
    assert needs(config(Scheduler.MH)).features.text == "stateless"
    assert needs(config(Scheduler.RR)).features.text == "stateful"
    assert needs(config(Scheduler.WLC, Scheduler.SH)).features.text == "stateless,stateful,list"


def test_a_program_that_can_do_more_will_do_and_one_that_counts_other_seconds_will_not() -> None:
    both, one = needs(config(Scheduler.MH, Scheduler.RR)), needs(config(Scheduler.RR))
    assert one.met_by(both)
    assert not both.met_by(one)
    other = needs(replace(config(Scheduler.RR), timeouts=FlowTimeouts(tcp_s=60)))
    assert not other.met_by(one)


def test_a_program_for_the_time_of_a_change_can_do_what_both_need_and_counts_as_the_new_one() -> None:
    before, after = needs(config(Scheduler.MH)), needs(replace(config(Scheduler.RR), timeouts=FlowTimeouts(tcp_s=60)))
    between = after.beside(before)
    assert between.features.text == "stateless,stateful"
    assert between.lifetimes.established == 60
    assert after.met_by(between)


@pytest.mark.parametrize(
    ("scheduler", "elements"),
    [(Scheduler.MH, 512), (Scheduler.RR, 1), (Scheduler.WRR, 1), (Scheduler.LC, 8)],
)
def test_slots(scheduler: Scheduler, elements: int) -> None:
    assert least(config(scheduler)).rings == elements


def test_tables_of_a_first_start_have_room_for_changes_and_for_every_generation() -> None:
    many = config(*[Scheduler.MH] * 200, servers=20)
    room, needed = roomy(many), least(many)
    assert room.rings >= 4 * needed.rings
    assert room.backends >= 2 * needed.backends
    assert room.frontends >= 2 * needed.frontends
    assert excess(many, room) == ""


def test_what_does_not_fit_is_named() -> None:
    room = roomy(config(Scheduler.RR))
    assert (
        excess(config(*[Scheduler.RR] * 65), room) == "65 virtual servers are configured, the forwarder has room for 64"
    )
    assert "real servers are configured, the forwarder has room for 4095" in excess(
        config(Scheduler.RR, servers=4096), room
    )
    assert "elements of slots" in excess(config(*[Scheduler.MH] * 64), room)

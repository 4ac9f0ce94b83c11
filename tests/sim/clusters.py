"""Configurations for drills, and the shortest way to play one."""

from __future__ import annotations

from ipaddress import IPv4Address

from haxlb.model.addresses import Vip
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.sim import SCENARIOS, Nature, Run, Scenario, play
from haxlb.sim.topology import Station, plan

MASTER_ADDRESS = IPv4Address("198.18.0.1")


def vips(*addresses: str, interface: str = "eth0") -> tuple[Vip, ...]:
    return tuple(Vip(address=IPv4Address(each), prefix_length=24, interface=interface) for each in addresses)


PAIR = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=51,
    priority=150,
    initial_role=Role.MASTER,
    auth_pass="secret",
    vips=vips("192.168.10.100"),
)
FAST = VrrpInstance(
    name="VI_F",
    interface="eth1",
    vrid=7,
    version=3,
    priority=200,
    advert_interval_us=100_000,
    nopreempt=True,
    vips=vips("10.0.0.1", interface="eth1"),
)


def node(*instances: VrrpInstance, name: str = "lb1") -> NodeConfig:
    return NodeConfig(node=name, instances=instances)


def pair(*instances: VrrpInstance, nodes: int | None = None) -> tuple[Station, ...]:
    return plan(node(*(instances or (PAIR,))), nodes=nodes)


def scenario(name: str) -> Scenario:
    return next(each for each in SCENARIOS if each.name == name)


def drill(name: str, seed: int = 1, stations: tuple[Station, ...] | None = None, nature: Nature | None = None) -> Run:
    return play(stations or pair(), seed, scenario(name), nature or Nature(broker=True))


def story(run: Run) -> list[tuple[float, str, str]]:
    """The timeline after the fault: seconds since, who, what."""
    return [
        (round((each.at_us - run.begun_us) / 1e6, 3), each.who, each.what)
        for each in run.timeline
        if each.at_us >= run.begun_us
    ]

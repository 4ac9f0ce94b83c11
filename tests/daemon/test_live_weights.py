"""Weights set on a running daemon: how servers are named, what the checker is told, what ends them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from haxlb.daemon.control import Reload, SetWeight
from haxlb.daemon.live_weights import LiveWeights, NoSuchServer, find, find_status
from haxlb.daemon.messages import ConfigureChecker
from haxlb.daemon.supervisor_ports import Loaded
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.node import NodeConfig
from haxlb.model.status import RealServerStatus, VirtualServerStatus
from haxlb.model.virtual_server import RealServer, VirtualServer

FIRST = RealServer(address=IPv4Address("192.168.10.21"), port=80, weight=5)
SECOND = RealServer(address=IPv4Address("192.168.10.22"), port=80)
SIX = RealServer(address=IPv6Address("2001:db8::21"), port=80)
TWICE = RealServer(address=IPv4Address("192.168.10.21"), port=81)


def endpoint(address: str, port: int, protocol: Protocol = Protocol.TCP) -> Endpoint:
    family = IPv6Address if ":" in address else IPv4Address
    return Endpoint(address=family(address), port=port, protocol=protocol)


WEB = VirtualServer(endpoint=endpoint("10.0.0.1", 80), real_servers=(FIRST, SECOND), sorry_server=replace(SIX, port=8))
DNS_TCP = VirtualServer(endpoint=endpoint("10.0.0.1", 53), real_servers=(FIRST, TWICE))
DNS_UDP = VirtualServer(endpoint=endpoint("10.0.0.1", 53, Protocol.UDP), real_servers=(FIRST,))
WEB6 = VirtualServer(endpoint=endpoint("2001:db8::1", 80), real_servers=(SIX,))
GROUP = VirtualServer(
    endpoint=endpoint("10.0.0.5", 443),
    more_endpoints=(endpoint("10.0.0.6", 443),),
    group="shop",
    real_servers=(SECOND,),
)
MARK = VirtualServer(endpoint=endpoint("10.0.0.7", 0), group="all", fwmark=7, real_servers=(SECOND,))
CONFIG = NodeConfig(node="lb1", virtual_servers=(WEB, DNS_TCP, DNS_UDP, WEB6, GROUP, MARK))


def status_of(virtual_server: VirtualServer) -> VirtualServerStatus:
    return VirtualServerStatus(
        address=virtual_server.endpoint.address,
        port=virtual_server.endpoint.port,
        protocol=virtual_server.endpoint.protocol.value,
        scheduler="wrr",
        quorum_up=True,
        sorry=False,
        name=virtual_server.name,
        endpoints=tuple(map(str, virtual_server.endpoints)),
        real_servers=tuple(
            RealServerStatus(
                address=each.address, port=each.port, weight=0, up=True, in_pool=True, reason="", since_at=0, mac=None
            )
            for each in virtual_server.real_servers
        ),
    )


@pytest.mark.parametrize(
    ("called", "server", "found"),
    [
        ("10.0.0.1:80", "192.168.10.21:80", (WEB, FIRST)),
        ("10.0.0.1:80", "192.168.10.22", (WEB, SECOND)),
        ("TCP 10.0.0.1:53", "192.168.10.21:81", (DNS_TCP, TWICE)),
        ("udp  10.0.0.1:53", "192.168.10.21", (DNS_UDP, FIRST)),
        ("[10.0.0.1]:udp:53", "192.168.10.21:80", (DNS_UDP, FIRST)),
        ("[2001:db8::1]:80", "[2001:db8::21]:80", (WEB6, SIX)),
        ("[2001:db8::1]:tcp:80", "2001:db8::21", (WEB6, SIX)),
        ("shop", "192.168.10.22:80", (GROUP, SECOND)),
        ("group shop", "192.168.10.22:80", (GROUP, SECOND)),
        ("10.0.0.6:443", "192.168.10.22:80", (GROUP, SECOND)),
        ("fwmark 7", "192.168.10.22:80", (MARK, SECOND)),
        ("FWM  7", "192.168.10.22:80", (MARK, SECOND)),
        ("fwmark 7 tcp", "192.168.10.22:80", (MARK, SECOND)),
    ],
)
def test_names(called: str, server: str, found: tuple[VirtualServer, RealServer]) -> None:
    assert find(CONFIG, called, server) == found
    shown = find_status(map(status_of, CONFIG.virtual_servers), called, server)
    assert shown is not None
    assert shown.key == found[1].key


@pytest.mark.parametrize(
    ("called", "server", "words"),
    [
        ("10.0.0.1:81", "192.168.10.21:80", "no virtual server is called 10.0.0.1:81 (did you mean `10.0.0.1:80`?)"),
        ("zzz", "192.168.10.21:80", "no virtual server is called zzz (there are: [10.0.0.1]:tcp:80, "),
        ("10.0.0.1:53", "192.168.10.21", "several virtual servers (name one: [10.0.0.1]:tcp:53, [10.0.0.1]:udp:53)"),
        ("10.0.0.1:80", "192.168.10.23:80", "has no real server 192.168.10.23:80 (did you mean `192.168.10.2"),
        ("TCP 10.0.0.1:53", "192.168.10.21", "has no real server 192.168.10.21 (did you mean `192.168.10.21:8"),
        ("10.0.0.1:80", "[2001:db8::21]:8", "is the sorry server of [10.0.0.1]:tcp:80: it has no weight"),
        ("TCP 10.0.0.1:80", "2001:db8::21", "is the sorry server of [10.0.0.1]:tcp:80: it has no weight"),
        ("", "", "no virtual server is called  (there are: "),
    ],
)
def test_what_is_not_there(called: str, server: str, words: str) -> None:
    with pytest.raises(NoSuchServer) as caught:
        find(CONFIG, called, server)
    assert words in str(caught.value)


def test_of_no_virtual_servers() -> None:
    with pytest.raises(NoSuchServer, match="there are none"):
        find(NodeConfig(node="lb1"), "10.0.0.1:80", "192.168.10.21")


def test_one_weight_changes_one_server() -> None:
    weights = LiveWeights()
    assert weights.applied(CONFIG) is CONFIG
    weights.set(WEB, FIRST, 0)
    applied = weights.applied(CONFIG)
    assert applied.virtual_servers[0] == replace(WEB, real_servers=(replace(FIRST, weight=0), SECOND))
    assert applied.virtual_servers[1:] == CONFIG.virtual_servers[1:]
    weights.set(WEB, FIRST, None)
    assert weights.applied(CONFIG) is CONFIG


def test_what_left_the_configuration_is_forgotten() -> None:
    weights = LiveWeights()
    weights.set(WEB, FIRST, 3)
    weights.set(DNS_UDP, FIRST, 4)
    weights.keep(replace(CONFIG, virtual_servers=(replace(WEB, real_servers=(SECOND,)), DNS_UDP)))
    weights.keep(CONFIG)
    assert (weights.get(WEB, FIRST), weights.get(DNS_UDP, FIRST)) == (None, 4)


def test_what_was_set_is_marked() -> None:
    weights = LiveWeights()
    statuses = (status_of(WEB), status_of(DNS_UDP))
    assert weights.marked(statuses, CONFIG) is statuses
    weights.set(WEB, FIRST, 0)
    marked = weights.marked(statuses, CONFIG)
    assert [each.configured_weight for each in marked[0].real_servers] == [5, None]
    assert marked[1] == statuses[1]


def weight_told(world) -> list[list[int]]:
    return [
        [server.weight for server in each.config.virtual_servers[0].real_servers]
        for each in world.messages("checker", ConfigureChecker)
    ]


def test_the_checker_is_told_at_once_and_a_new_one_too(play, kit):
    answers = []

    async def scene(world):
        for weight in (2, 2, None, None, 70_000, 0):
            request = SetWeight(virtual_server="192.168.10.100:80", real_server="192.168.10.21:80", weight=weight)
            answers.append(await world.supervisor.command(request, lambda _: None))
        world.exit("checker", -9)
        await asyncio.sleep(0.1)

    world = play(scene, kit.node(servers=(kit.virtual_server(80, FIRST, SECOND),)))
    assert weight_told(world) == [[5, 1], [2, 1], [5, 1], [0, 1], [0, 1]]
    assert [(each.ok, each.message.partition(": ")[2]) for each in answers] == [
        (True, "weight 5 -> 2 (configured: 5)"),
        (True, "its weight is 2 already"),
        (True, "weight 2 -> 5, as configured"),
        (True, "its weight is the configured one already"),
        (False, ""),
        (True, "weight 5 -> 0 (configured: 5)"),
    ]
    assert answers[4].message == "a weight is a number from 0 to 65535, not 70000"
    logged = [fields for _, event, fields in world.logged if event == "weight_set"]
    assert [each["weight"] for each in logged] == [2, 5, 0]
    assert all("problem" not in each for each in logged)


def test_a_reload_keeps_it_until_the_server_goes(play, kit):
    async def scene(world):
        request = SetWeight(virtual_server="192.168.10.100:80", real_server="192.168.10.21:80", weight=0)
        await world.supervisor.command(request, lambda _: None)
        for servers in ((replace(FIRST, weight=9), SECOND), (SECOND,), (FIRST, SECOND)):
            world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(80, *servers),)))
            assert (await world.supervisor.command(Reload(), lambda _: None)).ok

    world = play(scene, kit.node(servers=(kit.virtual_server(80, FIRST, SECOND),)))
    assert weight_told(world) == [[5, 1], [0, 1], [0, 1], [1], [5, 1]]


def test_a_wrong_name_is_an_answer(play, kit):
    async def scene(world):
        request = SetWeight(virtual_server="192.168.10.100:81", real_server="192.168.10.21:80", weight=0)
        answer = await world.supervisor.command(request, lambda _: None)
        assert (answer.ok, answer.exit_code) == (False, 1)
        assert answer.remedy == "did you mean `192.168.10.100:80`?"
        (told,) = [each for each in world.logged if each[1].startswith("command_")]
        assert (told[:2], told[2]["command"]) == (("info", "command_refused"), "drain")

    world = play(scene, kit.node(servers=(kit.virtual_server(80, FIRST, SECOND),)))
    assert weight_told(world) == [[5, 1]]


def test_what_is_not_in_force_is_said_and_stays_wanted(play, kit):
    async def scene(world):
        world.forwarding_after_s = None
        request = SetWeight(virtual_server="192.168.10.100:80", real_server="192.168.10.21:80", weight=0)
        answer = await world.supervisor.command(request, lambda _: None)
        assert (answer.ok, answer.exit_code) == (False, 1)
        assert "but it is not in force" in answer.message

    world = play(scene, kit.node(servers=(kit.virtual_server(80, FIRST, SECOND),)))
    assert weight_told(world)[-1] == [0, 1]

from __future__ import annotations

from ipaddress import IPv4Address
from random import Random

import pytest

from haxlb.daemon.ports import Datagram
from haxlb.sim.broker import LATENCY_US, Broker, Claim
from haxlb.sim.lan import Lan, Nic, Wire
from haxlb.sim.ledger import Ledger, Spans
from haxlb.sim.loop import VirtualLoop
from haxlb.splitbrain.watch import LAST_WILL_US

GROUP = IPv4Address("224.0.0.18")
VIP = IPv4Address("192.168.10.100")


class Host:
    """Remembers what it gets, with the time."""

    def __init__(self, lan: Lan, loop: VirtualLoop, name: str, number: int, segment: str = "eth0") -> None:
        self.loop = loop
        self.address = IPv4Address(f"10.0.0.{number}")
        self.nic = Nic(
            host=name, interface="eth0", segment=segment, mac=f"m{number}", addresses=(self.address,), receiver=self
        )
        self.got: list[tuple[int, bytes]] = []
        self.announced: list[tuple[str, tuple[IPv4Address, ...]]] = []
        self.has: set[IPv4Address] = set()
        lan.plug(self.nic)

    def answers(self, nic: Nic, address: IPv4Address) -> bool:
        return address in self.has

    def on_frame(self, nic: Nic, datagram: Datagram) -> None:
        self.got.append((self.loop.now_us, datagram.payload))

    def on_announcement(self, nic: Nic, sender: Nic, vips: tuple[IPv4Address, ...]) -> None:
        self.announced.append((sender.host, vips))

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.got]


class Net:
    def __init__(self, wire: Wire | None = None) -> None:
        self.loop = VirtualLoop()
        self.lan = Lan(self.loop, Random(1), wire or Wire(), Ledger(self.loop))
        self.a, self.b, self.c = (Host(self.lan, self.loop, name, n) for n, name in enumerate("abc", 1))

    def send(self, sender: Host, payload: bytes, destination: IPv4Address = GROUP) -> None:
        datagram = Datagram(
            interface="eth0", source=sender.address, destination=destination, ttl=255, payload=payload, at_us=0
        )
        self.lan.send(sender.nic, datagram)


@pytest.fixture
def net() -> Net:
    return Net()


def test_multicast_reaches_all_others_of_the_segment_and_not_the_sender(net: Net) -> None:
    stranger = Host(net.lan, net.loop, "d", 4, segment="eth1")
    net.send(net.a, b"x")
    net.loop.run_until(1_000)
    assert [each.payloads for each in (net.a, net.b, net.c, stranger)] == [[], [b"x"], [b"x"], []]
    assert all(100 <= at <= 200 for at, _ in net.b.got)


def test_unicast_reaches_the_holder_of_the_address(net: Net) -> None:
    net.send(net.a, b"x", net.c.address)
    net.loop.run_until(1_000)
    assert (net.b.payloads, net.c.payloads) == ([], [b"x"])


def test_a_cut_is_one_way(net: Net) -> None:
    net.lan.cut("a", "b")
    net.send(net.a, b"x")
    net.send(net.b, b"y")
    net.loop.run_until(1_000)
    assert (net.a.payloads, net.b.payloads, net.c.payloads) == ([b"y"], [], [b"x", b"y"])
    net.lan.heal("a", "b")
    net.send(net.a, b"z")
    net.loop.run_until(2_000)
    assert net.b.payloads == [b"z"]


def test_a_frame_under_way_is_lost_with_its_direction_but_survives_its_sender(net: Net) -> None:
    net.send(net.a, b"x")
    net.lan.cut("a", "b")
    net.a.nic.carrier = False
    net.loop.run_until(1_000)
    assert (net.b.payloads, net.c.payloads) == ([], [b"x"])


def test_without_carrier_nothing_is_sent_or_received(net: Net) -> None:
    net.a.nic.carrier = False
    net.send(net.a, b"x")
    net.send(net.b, b"y")
    net.loop.run_until(1_000)
    assert (net.a.payloads, net.b.payloads, net.c.payloads) == ([], [], [b"y"])


def test_one_direction_never_reorders() -> None:
    net = Net(Wire(latency_us=100, jitter_us=5_000))
    for number in range(200):
        net.loop.at(number * 10, lambda number=number: net.send(net.a, bytes([number])))  # type: ignore[misc]
    net.loop.run_until(100_000)
    assert net.b.payloads == [bytes([number]) for number in range(200)]


def test_loss_takes_its_share() -> None:
    net = Net(Wire(loss=0.25))
    for _ in range(2_000):
        net.send(net.a, b"x")
    net.loop.run_until(10_000)
    assert 1_350 < len(net.b.got) < 1_650
    assert net.lan.lost + net.lan.carried == 4_000


def test_who_has_an_address_is_answered_by_its_holders(net: Net) -> None:
    heard: list[str] = []
    net.b.has, net.c.has = {VIP}, {VIP}
    net.lan.cut("c", "a")
    net.lan.ask(net.a.nic, VIP, lambda nic, _: heard.append(nic.host))
    net.loop.run_until(10_000)
    assert heard == ["b"]


def test_gratuitous_arp_reaches_the_segment(net: Net) -> None:
    net.lan.announce(net.a.nic, [VIP])
    net.loop.run_until(1_000)
    assert (net.a.announced, net.b.announced) == ([], [("a", (VIP,))])


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, bool]] = []

    def __call__(self, node: str, claim: Claim, master: bool) -> None:  # noqa: FBT001 - the broker's callback
        self.heard.append((node, claim[0], master))


def test_claims_are_retained_for_those_who_come_later() -> None:
    loop, early, late = VirtualLoop(), Listener(), Listener()
    broker = Broker(loop)
    broker.connect("a", early)
    broker.publish("a", (51, "VI_1"), master=True)
    loop.run_until(LATENCY_US)
    broker.connect("b", late)
    loop.run_until(2 * LATENCY_US)
    assert (early.heard, late.heard) == ([], [("a", 51, True)])


def test_a_closed_connection_withdraws_at_once_a_silent_one_with_the_last_will() -> None:
    loop, listener = VirtualLoop(), Listener()
    broker = Broker(loop)
    for name in "abc":
        broker.connect(name, listener if name == "c" else Listener())
    for name in "ab":
        broker.publish(name, (51, "VI_1"), master=True)
    loop.run_until(LATENCY_US)
    listener.heard.clear()
    broker.close("a")
    broker.fall_silent("b")
    loop.run_until(2 * LATENCY_US)
    assert listener.heard == [("a", 51, False)]
    loop.run_until(LATENCY_US + LAST_WILL_US - 1)
    assert listener.heard == [("a", 51, False)]
    loop.run_until(2 * LATENCY_US + LAST_WILL_US)
    assert listener.heard == [("a", 51, False), ("b", 51, False)]
    assert not broker.speak_again("b")


def test_a_client_that_comes_back_in_time_keeps_its_session() -> None:
    loop, listener = VirtualLoop(), Listener()
    broker = Broker(loop)
    broker.connect("a", Listener())
    broker.connect("b", listener)
    broker.publish("a", (51, "VI_1"), master=True)
    broker.fall_silent("a")
    loop.run_until(LAST_WILL_US - 1)
    assert broker.speak_again("a")
    loop.run_until(10 * LAST_WILL_US)
    assert listener.heard == [("a", 51, True)]


def test_spans_are_cut_to_the_bounds_that_are_asked_for() -> None:
    spans = Spans()
    spans.set("x", 10, so=True)
    spans.set("x", 15, so=True)
    spans.set("x", 20, so=False)
    spans.set("x", 30, so=True)
    assert spans.of("x", 0, 40) == [(10, 20), (30, 40)]
    assert spans.of("x", 15, 35) == [(15, 20), (30, 35)]
    assert spans.of("x", 20, 30) == []
    assert spans.of("y", 0, 40) == []


def test_a_bad_wire_delivers_twice_and_out_of_order_within_its_bound() -> None:
    net = Net(Wire(duplicates=0.25, disorder_us=2_000))
    for number in range(200):
        net.loop.at(number * 100, lambda number=number: net.send(net.a, bytes([number])))  # type: ignore[misc]
    net.loop.run_until(100_000)
    assert sorted(set(net.b.payloads)) == [bytes([number]) for number in range(200)]
    assert 220 < len(net.b.payloads) < 280
    assert net.b.payloads != sorted(net.b.payloads)
    assert all(100 <= at - 100 * payload[0] <= net.lan.longest_latency_us for at, payload in net.b.got)


def test_a_better_wire_later_does_not_shorten_what_laws_allow() -> None:
    net = Net(Wire(disorder_us=2_000))
    net.lan.wire = Wire()
    assert net.lan.longest_latency_us == 2_200


def test_it_is_known_between_whom_a_frame_was_lost_and_when() -> None:
    net = Net(Wire(loss=1.0))
    assert net.lan.lost_at("a", "b") == -1
    net.loop.run_until(5_000)
    net.send(net.a, b"x", net.b.address)
    assert net.lan.lost_at("b", "a") == 5_000
    assert net.lan.lost_at("a", "c") == -1


def test_a_host_that_is_suspended_gets_and_answers_nothing() -> None:
    net = Net()
    net.b.has = {VIP}
    net.b.nic.asleep = True
    heard: list[str] = []
    net.send(net.a, b"x")
    net.lan.ask(net.a.nic, VIP, lambda nic, _: heard.append(nic.host))
    net.loop.run_until(10_000)
    assert (net.b.payloads, heard) == ([], [])
    assert net.c.payloads == [b"x"]


def test_a_macvlan_sends_and_answers_and_its_base_receives() -> None:
    net = Net()
    virtual = Nic(host="a", interface="vrrp.1", segment="eth0", mac="v", addresses=(), receiver=net.a, base=net.a.nic)
    net.lan.plug(virtual)
    net.a.has = {VIP}
    heard: list[tuple[str, str]] = []
    net.send(net.b, b"x")
    datagram = Datagram(interface="vrrp.1", source=net.a.address, destination=GROUP, ttl=255, payload=b"y", at_us=0)
    net.lan.send(virtual, datagram)
    net.lan.ask(net.c.nic, VIP, lambda nic, _: heard.append((nic.host, nic.interface)))
    net.loop.run_until(10_000)
    assert net.a.payloads == [b"x"]
    assert net.b.payloads == [b"y"]
    assert sorted(heard) == [("a", "eth0"), ("a", "vrrp.1")]

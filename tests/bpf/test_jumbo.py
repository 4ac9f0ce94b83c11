"""Frames of several buffers: forwarded whole, by an interface of MTU 9000 and without one."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Self

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.forwarding.layout import INDEX
from haxlb.forwarding.wanted import NextHop, WantedServer
from haxlb.linux import bpf, xdp
from haxlb.linux.bpf_call import BpfError, closing
from haxlb.linux.interface_mtu import LARGEST_OF_ONE_BUFFER, interface_mtu, needs_several_buffers
from haxlb.model.addresses import Protocol
from haxlb.model.virtual_server import Scheduler
from tests.bpf.assembly import instruction
from tests.bpf.hand_filled import OWN_MAC, HandFilled, hand_filled, hop
from tests.bpf.related_frames import CLIENTS, CLIENTS6, DNS, HASHED, WEB, WEB6, fragments, servers, service, whole
from tests.bpf.test_tags import TAG, tagged
from tests.bpf.wire import Wire

pytestmark = [pytest.mark.bpf, pytest.mark.netns]
CLIENT, CLIENT6 = CLIENTS[0], CLIENTS6[0]
MTU = 9000
TCP_DATA, UDP_DATA = bytes(range(250)) * 36, bytes(range(250)) * 36
FEATURES = Features(
    list=False,
    thresholds=False,
    persistence=False,
    one_packet=False,
    any_port=False,
    shared=False,
    tunnel=False,
    nat=False,
)
PASS = instruction(0xB7, 0, 0, 0, bpf.XDP_PASS) + instruction(0x95)
PATIENCE_S = 60.0


def large_tcp(client=CLIENT, vip=WEB, flags="A"):
    return whole(client, vip, 4000, flags=flags, data=TCP_DATA[: MTU - (60 if ":" in client else 40)])


def large_udp(client=CLIENT):
    return whole(client, DNS, 4000, protocol=Protocol.UDP, vport=53, data=UDP_DATA[: MTU - 28])


@pytest.fixture(scope="module")
def loaded() -> Iterator[HandFilled]:
    with hand_filled(FEATURES, frags=True) as made:
        yield made


@pytest.fixture
def plane(loaded: HandFilled) -> HandFilled:
    loaded.reset()
    return loaded


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as made:
        made.ip(f"link set near mtu {MTU}")
        made.ip(f"link set far mtu {MTU}")
        yield made


def everything(those=None):
    return (
        service(WEB, 80, those=those),
        service(DNS, 53, protocol=Protocol.UDP, those=those),
        service(HASHED, 80, scheduler=Scheduler.MH, those=those),
    )


@pytest.mark.parametrize(
    "sent",
    [
        large_tcp(),
        large_udp(),
        large_tcp(vip=HASHED),
        whole(CLIENT, WEB, 4000, data=bytes(4096 - 54)),
        whole(CLIENT, WEB, 4000, data=bytes(60000)),
    ],
    ids=("tcp", "udp", "ring", "a page", "64 KB"),
)
def test_a_frame_larger_than_a_page_is_forwarded_whole(plane, sent):
    plane.apply(*everything())
    answer = plane.expect(sent)
    assert answer.frame[12:] == sent[12:]
    assert answer.to.startswith("02:00:00:00:01:")


def test_of_ipv6_likewise(plane):
    plane.apply(service(WEB6, 80))
    plane.expect(large_tcp(CLIENT6, WEB6, flags="S"), "new_flow")
    plane.expect(large_tcp(CLIENT6, WEB6), "forwarded")


def test_its_bytes_are_counted_wherever_they_lie(plane):
    plane.apply(*everything())
    plane.expect(large_tcp(flags="S"), "new_flow")
    tallies = plane.tallies()[0]
    before = tallies[everything()[0].name]
    plane.expect(large_tcp(), "forwarded")
    after = plane.tallies()[0][everything()[0].name]
    assert (after[0] - before[0], after[1] - before[1]) == (1, MTU)


def test_a_packet_that_ends_in_a_later_buffer_before_its_length_is_malformed(plane):
    plane.apply(*everything())
    plane.expect(large_tcp()[:-1], "malformed")
    plane.expect(large_tcp() + bytes(3), "unknown_flow")


def test_fragments_larger_than_a_page(plane):
    plane.apply(*everything())
    first, *later = fragments(CLIENT, DNS, 4000, size=8000, count=3)
    to = plane.expect(first, "new_flow").to
    assert {plane.expect(each, "later_fragment").to for each in later} == {to}


@pytest.mark.parametrize("before", [(), ((TAG, 0x6014),), ((b"\x88\xa8", 5), (TAG, 0x6014))])
@pytest.mark.parametrize("vlan", [0, 10])
def test_tags_are_changed_in_the_first_buffer(plane, before, vlan):
    server = WantedServer(
        address=ip_address("10.0.1.1"), port=0, weight=1, alive=True, next_hop=hop("02:00:00:00:01:01", vlan=vlan)
    )
    plane.apply(*everything((server,)))
    assert plane.expect(tagged(large_tcp(flags="S"), *before), "new_flow").frame[-MTU:] == large_tcp(flags="S")[-MTU:]


class Ear:
    """What arrives at an interface."""

    def __init__(self, wire: Wire, interface: str) -> None:
        every_kind = 0x0003
        self._socket = wire.inside(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every_kind)))
        self._socket.bind((interface, every_kind))
        self._socket.settimeout(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, frame: bytes) -> None:
        self._socket.send(frame)

    def hear(self, mac: str) -> bytes:
        """The next frame that is addressed to this one."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            frame, (_, _, kind, *_) = self._socket.recvfrom(65536)
            if kind != socket.PACKET_OUTGOING and frame[:6].hex(":") == mac:
                return frame
        raise AssertionError(f"nothing for {mac}")


@pytest.mark.parametrize("sent", [large_tcp(flags="S"), large_udp()], ids=("tcp", "udp"))
@pytest.mark.parametrize("out", ["near", "other"])
def test_through_an_interface_of_mtu_9000(plane, wire, sent, out):
    """Natively; back by the same interface, and out of another one."""
    wire.ip("link add other type veth peer name beyond")
    for each in ("other", "beyond"):
        wire.ip(f"link set {each} mtu {MTU} up")
    near, leaves, listens = wire.index("near"), wire.index(out), "far" if out == "near" else "beyond"
    way = NextHop(interface_index=leaves, source_mac=OWN_MAC, destination_mac="02:00:00:00:01:01")
    server = WantedServer(address=ip_address("10.0.1.1"), port=0, weight=1, alive=True, next_hop=way)
    plane.apply(*everything((server,)))
    plane.maps.write("interfaces", INDEX.pack(near), layout.pack_own_mac(OWN_MAC))
    with (
        closing(bpf.prog_load(PASS, name="pass", flags=bpf.F_XDP_HAS_FRAGS)) as receiver,
        # A veth takes redirected frames only where its other end has a program (or GRO).
        closing(wire.inside(lambda: bpf.link_create(receiver, wire.index(listens), flags=xdp.FLAGS_DRV_MODE))),
        closing(wire.inside(lambda: bpf.link_create(plane.program, near, flags=xdp.FLAGS_DRV_MODE))),
        Ear(wire, "far") as mouth,
        Ear(wire, listens) as ear,
    ):
        assert wire.attachment("near").mode == "native"
        mouth.say(sent)
        heard = ear.hear("02:00:00:00:01:01")
    assert len(sent) == MTU + 14
    assert heard[12:] == sent[12:]


def test_a_program_for_one_buffer_fits_just_as_far_as_is_said(wire):
    far = wire.index("far")

    def attach(mtu, flags):
        # The largest frame comes from the other end.
        wire.ip(f"link set near mtu {mtu}")
        with (
            closing(bpf.prog_load(PASS, name="pass", flags=flags)) as program,
            closing(wire.inside(lambda: bpf.link_create(program, far, flags=xdp.FLAGS_DRV_MODE))),
        ):
            return wire.inside(lambda: needs_several_buffers(("near",)))

    two_tags = 8
    assert not attach(LARGEST_OF_ONE_BUFFER, 0)
    assert attach(LARGEST_OF_ONE_BUFFER + two_tags, 0)
    with pytest.raises(BpfError):
        attach(LARGEST_OF_ONE_BUFFER + two_tags + 1, 0)
    assert attach(LARGEST_OF_ONE_BUFFER + two_tags + 1, bpf.F_XDP_HAS_FRAGS)
    assert attach(MTU, bpf.F_XDP_HAS_FRAGS)


def test_an_interfaces_mtu(wire):
    assert wire.inside(lambda: interface_mtu("near")) == MTU
    assert wire.inside(lambda: interface_mtu("nowhere")) is None
    assert wire.inside(lambda: interface_mtu("a-name-that-is-much-too-long-for-any")) is None
    assert not wire.inside(lambda: needs_several_buffers(("nowhere",)))
    assert not needs_several_buffers(())


def test_small_frames_do_as_before(plane):
    plane.apply(*everything(servers(3)))
    plane.expect(whole(CLIENT, WEB, 4000), "new_flow")
    plane.expect(whole(CLIENT, WEB, 4000, flags="A"), "forwarded")
    plane.expect(whole(CLIENT, WEB, 4000, flags="A", data=b"x" * 20)[:-3], "malformed")

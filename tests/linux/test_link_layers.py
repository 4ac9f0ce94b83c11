"""Interfaces from rtnetlink's bytes, those that this kernel cannot make included; and what carries whose frames."""

from __future__ import annotations

import socket
import struct

import pytest

from haxlb.linux.link_layers import Carrier, LinkLayer, carrier, carrier_of, read_link
from haxlb.linux.rtnetlink import RTM_DELLINK, RTM_NEWLINK, attach, request
from haxlb.model.errors import HostError

MAC = "02:00:00:00:00:07"


def message(
    kind: int = RTM_NEWLINK, *, family: int = socket.AF_UNSPEC, flags: int = 1, attributes: bytes = b""
) -> bytes:
    return request(kind, 0, struct.pack("=BxHiII", family, 1, 7, flags, 0) + attributes)


def named(name: str = "eth0.100", mac: str = MAC, mtu: int = 1496, below: int | None = 2) -> bytes:
    out = attach(3, name.encode() + b"\0") + attach(1, bytes.fromhex(mac.replace(":", ""))) + attach(4, number(mtu))
    return out if below is None else out + attach(5, number(below))


def number(value: int) -> bytes:
    return struct.pack("=I", value)


def vlan(identity: int = 100, protocol: int = 0x8100, nest: int = 0) -> bytes:
    """IFLA_LINKINFO; `nest` is NLA_F_NESTED, which some kernels set."""
    data = attach(5, struct.pack("!H", protocol)) + attach(1, struct.pack("=H", identity)) + attach(2, bytes(8))
    return attach(18 | nest, attach(1, b"vlan\0") + attach(2 | nest, data))


@pytest.mark.parametrize("nest", [0, 1 << 15], ids=["plain", "NLA_F_NESTED"])
def test_a_vlan_device(nest: int) -> None:
    assert read_link(RTM_NEWLINK, message(attributes=named() + vlan(nest=nest))) == LinkLayer(
        index=7, name="eth0.100", mac=MAC, mtu=1496, kind="vlan", below=2, vlan=100, vlan_protocol=0x8100
    )


def test_a_device_a_loopback_and_one_without_a_mac() -> None:
    device = read_link(RTM_NEWLINK, message(attributes=named("eth0", below=None)))
    assert device == LinkLayer(index=7, name="eth0", mac=MAC, mtu=1496)
    loopback = read_link(RTM_NEWLINK, message(flags=9, attributes=named("lo", mac="00:00:00:00:00:00", below=None)))
    assert loopback is not None
    assert (loopback.loopback, loopback.mac) == (True, "")
    bare = read_link(RTM_DELLINK, message(RTM_DELLINK, flags=0))
    assert bare == LinkLayer(index=7, name="", mac="", up=False, mtu=0, exists=False)


def test_what_is_below_in_another_namespace_is_not_below_here() -> None:
    """A container's macvlan: its IFLA_LINK is the number of the host's interface."""
    link = read_link(RTM_NEWLINK, message(attributes=named() + attach(37, number(0)) + vlan()))
    assert link is not None
    assert link.below == 0


def test_a_bridges_word_on_its_port_is_not_about_the_interface() -> None:
    assert read_link(RTM_DELLINK, message(RTM_DELLINK, family=socket.AF_BRIDGE)) is None


@pytest.mark.parametrize("length", [0, 3, 5])
def test_attributes_that_are_cut_off_are_as_none(length: int) -> None:
    data = attach(18, attach(1, b"vlan\0") + attach(2, attach(1, bytes(length))))
    link = read_link(RTM_NEWLINK, message(attributes=named() + data))
    assert link is not None
    assert (link.kind, link.vlan) == ("vlan", 0)


def links(*listed: LinkLayer) -> dict[int, LinkLayer]:
    return {each.index: each for each in listed}


def layer(index: int, kind: str = "", below: int = 0, identity: int = 0, protocol: int = 0x8100) -> LinkLayer:
    return LinkLayer(
        index=index, name=f"if{index}", mac=MAC, kind=kind, below=below, vlan=identity, vlan_protocol=protocol
    )


ETH0 = layer(2)


@pytest.mark.parametrize(
    ("present", "index", "found"),
    [
        ((ETH0,), 2, Carrier(index=2)),
        ((ETH0, layer(7, "vlan", 2, 100)), 7, Carrier(index=2, vlan=100)),
        ((ETH0, layer(7, "vlan", 2, 100), layer(8, "macvlan", 7)), 8, Carrier(index=2, vlan=100)),
        ((ETH0, layer(7, "macvlan", 2), layer(8, "vlan", 7, 5)), 8, Carrier(index=2, vlan=5)),
        ((ETH0, layer(7, "ipvlan", 2)), 7, Carrier(index=2)),
        ((layer(3, "veth", 4), layer(4, "veth", 3)), 3, Carrier(index=3)),
        ((layer(9, "bridge"), layer(7, "vlan", 9, 3)), 7, Carrier(index=9, vlan=3)),
        ((layer(7, "macvlan", 0),), 7, Carrier(index=7)),
        ((layer(7, "vlan", 2, 100),), 7, Carrier(index=7)),
    ],
    ids=[
        "a device",
        "a VLAN",
        "a macvlan on a VLAN",
        "a VLAN on a macvlan",
        "an ipvlan",
        "a veth, whose link is its peer",
        "a VLAN on a bridge",
        "a macvlan of another namespace's interface",
        "a VLAN whose device is not there",
    ],
)
def test_what_carries_the_frames(present: tuple[LinkLayer, ...], index: int, found: Carrier) -> None:
    assert carrier(links(*present), index) == found


def test_two_tags_and_other_tags_are_said_not_to_do() -> None:
    two = carrier(links(ETH0, layer(7, "vlan", 2, 100), layer(8, "vlan", 7, 5)), 8)
    assert two.problem == "if7 is a VLAN below another one: one tag is all it can be"
    provider = carrier(links(ETH0, layer(7, "vlan", 2, 100, 0x88A8)), 7)
    assert provider.problem == "if7 has tags of type 0x88a8, not 802.1Q"


def test_a_circle_ends() -> None:
    carrier(links(layer(3, "macvlan", 4), layer(4, "macvlan", 3)), 3)


def test_the_loopback_carries_itself_and_what_is_not_there_is_named() -> None:
    assert carrier_of("lo") == ("lo", 0)
    with pytest.raises(HostError, match="there is no interface hxnone"):
        carrier_of("hxnone")

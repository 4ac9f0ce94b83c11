"""What frames must be addressed to, written in two places, of which the second is right for all interfaces."""

from __future__ import annotations

import pytest

from haxlb.forwarding.layout import INDEX, NEAR_INTERFACES, pack_near_interface, pack_own_mac
from haxlb.linux import own_macs
from haxlb.linux.specimen import LOOPBACK, OWN_MAC
from tests.bpf.frames import tcp
from tests.bpf.plane import Plane
from tests.forwarding.tables import mac, server, table

pytestmark = pytest.mark.bpf

FAR = LOOPBACK + NEAR_INTERFACES
"""Another interface at the same place."""


@pytest.fixture(autouse=True)
def served(plane: Plane) -> None:
    plane.apply(table(server(1)))
    own_macs.forget(plane.maps, LOOPBACK)


def near(plane: Plane) -> bytes | None:
    return plane.maps.read("near_interfaces", INDEX.pack(LOOPBACK))


def test_a_mac_is_known_once_it_is_noted_and_until_it_is_forgotten(plane: Plane) -> None:
    assert plane.send(tcp()).reason == "not_for_us"
    own_macs.note(plane.maps, LOOPBACK, OWN_MAC)
    assert near(plane) == pack_near_interface(LOOPBACK, OWN_MAC)
    assert plane.send(tcp()).reason == "new_flow"
    assert plane.send(tcp(to=mac(9), port=40001)).reason == "not_for_us"
    own_macs.note(plane.maps, LOOPBACK, mac(9))
    assert plane.send(tcp(to=mac(9), port=40001)).reason == "new_flow"
    assert plane.send(tcp(port=40002)).reason == "not_for_us"
    own_macs.forget(plane.maps, LOOPBACK)
    assert near(plane) == bytes(12)
    assert plane.send(tcp(to=mac(9), port=40003)).reason == "not_for_us"


def test_two_interfaces_with_the_same_lower_bits_do_not_hide_each_other(plane: Plane) -> None:
    own_macs.note(plane.maps, LOOPBACK, OWN_MAC)
    own_macs.note(plane.maps, FAR, mac(8))
    assert near(plane) == pack_near_interface(FAR, mac(8))
    assert plane.send(tcp()).reason == "new_flow"
    assert plane.send(tcp(to=mac(8), port=40001)).reason == "not_for_us"
    # The one that goes takes the place with it only where that is its own.
    own_macs.note(plane.maps, LOOPBACK, OWN_MAC)
    own_macs.forget(plane.maps, FAR)
    assert near(plane) == pack_near_interface(LOOPBACK, OWN_MAC)
    assert plane.maps.read("interfaces", INDEX.pack(FAR)) is None
    assert plane.maps.read("interfaces", INDEX.pack(LOOPBACK)) == pack_own_mac(OWN_MAC)

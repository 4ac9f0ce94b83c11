"""VLAN tags: a frame leaves with the one tag of the way to its server, or with none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from scapy.layers.l2 import Ether

from haxlb.forwarding.features import Features
from haxlb.forwarding.reference_tags import retag
from haxlb.model.addresses import Protocol
from haxlb.model.virtual_server import Scheduler
from tests.bpf.hand_filled import HandFilled, hand_filled, hop
from tests.bpf.related_frames import (
    CLIENTS,
    CLIENTS6,
    DNS,
    HASHED,
    WEB,
    WEB6,
    about,
    fragments,
    servers,
    service,
    whole,
)

pytestmark = pytest.mark.bpf
CLIENT, CLIENT6 = CLIENTS[0], CLIENTS6[0]
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
TAG, SERVICE_TAG = b"\x81\x00", b"\x88\xa8"


@pytest.fixture(scope="module")
def loaded() -> Iterator[HandFilled]:
    with hand_filled(FEATURES) as made:
        yield made


@pytest.fixture
def plane(loaded: HandFilled) -> HandFilled:
    loaded.reset()
    return loaded


def tagged(frame: bytes, *tags: tuple[bytes, int]) -> bytes:
    return frame[:12] + b"".join(kind + control.to_bytes(2, "big") for kind, control in tags) + frame[12:]


def reached_by(vlan, count=1, interface=1, **more):
    network = "fd01::" if more.pop("six", False) else "10.0.1.0"
    return tuple(
        replace(each, next_hop=hop(f"02:00:00:00:01:{number:02x}", vlan=vlan, interface=interface))
        for number, each in enumerate(servers(count, network=network), 1)
    )


WAYS = [
    ((), 10, ((TAG, 10),)),
    (((TAG, 0x600A),), 10, ((TAG, 0x600A),)),
    (((TAG, 0xB014),), 10, ((TAG, 0xB00A),)),
    (((TAG, 0xE00A),), 0, ()),
    (((TAG, 0x6000),), 0, ((TAG, 0x6000),)),
    (((TAG, 0x6000),), 10, ((TAG, 0x600A),)),
    (((SERVICE_TAG, 0x6014),), 10, ((SERVICE_TAG, 0x600A),)),
    (((SERVICE_TAG, 0x600A), (TAG, 0x2014)), 10, ((TAG, 0x600A),)),
    (((SERVICE_TAG, 0x600A), (TAG, 0x2014)), 0, ()),
    (((TAG, 0x1FFF),), 4094, ((TAG, 0x1FFE),)),
]


@pytest.mark.parametrize(("before", "vlan", "after"), WAYS)
@pytest.mark.parametrize("flags", ["S", "A"])
def test_a_frame_gets_the_tag_of_its_way(plane, before, vlan, after, flags):
    plane.apply(service(WEB, 80, those=reached_by(vlan)))
    sent = whole(CLIENT, WEB, 4000, flags=flags, data=b"data")
    answer = plane.expect(tagged(sent, *before), "new_flow" if flags == "S" else "unknown_flow")
    assert answer.frame[12:] == tagged(sent, *after)[12:]
    again = whole(CLIENT, WEB, 4000, flags="A", data=b"more")
    assert plane.expect(tagged(again, *before), "forwarded").frame[12:] == tagged(again, *after)[12:]


@pytest.mark.parametrize(("before", "vlan", "after"), WAYS)
def test_of_ipv6_and_of_a_ring_likewise(plane, before, vlan, after):
    plane.apply(
        service(WEB6, 80, those=reached_by(vlan, six=True)),
        service(HASHED, 80, scheduler=Scheduler.MH, those=reached_by(vlan)),
    )
    for sent in (whole(CLIENT6, WEB6, 4000), whole(CLIENT, HASHED, 4000)):
        assert plane.expect(tagged(sent, *before)).frame[12:] == tagged(sent, *after)[12:]


@pytest.mark.parametrize("before", [(), ((TAG, 0x6014),)])
def test_fragments_and_errors_likewise(plane, before):
    plane.apply(service(DNS, 53, protocol=Protocol.UDP, those=reached_by(10)))
    control = 0x600A if before else 10
    first, later, *_ = fragments(CLIENT, DNS, 4000)
    error = about(DNS, CLIENT, 4000, vport=53, protocol=Protocol.UDP)
    for sent, reason in ((first, "new_flow"), (later, "later_fragment"), (error, "icmp_error")):
        assert plane.expect(tagged(sent, *before), reason).frame[12:] == tagged(sent, (TAG, control))[12:]


def test_a_frame_that_leaves_by_another_interface(plane):
    plane.apply(service(WEB, 80, those=reached_by(10, interface=77)))
    answer = plane.expect(whole(CLIENT, WEB, 4000), "new_flow")
    assert answer.redirected
    assert answer.frame[12:16] == TAG + b"\x00\x0a"


def test_a_way_that_changes_its_tag(plane):
    sent = whole(CLIENT, WEB, 4000)
    for vlan in (0, 10, 11, 0):
        plane.apply(service(WEB, 80, those=reached_by(vlan)))
        assert plane.expect(sent).frame[12:] == retag(sent, vlan)[12:]


def test_a_frame_that_stays_in_its_vlan_is_not_moved(plane):
    plane.apply(service(WEB, 80, those=reached_by(10)))
    sent = tagged(whole(CLIENT, WEB, 4000), (TAG, 0x700A))
    answer = plane.expect(sent, "new_flow")
    assert answer.frame[12:] == sent[12:]


def test_what_the_kernel_gets_keeps_its_tags(plane):
    plane.apply(service(WEB, 80, those=reached_by(10)))
    sent = tagged(whole(CLIENT, "10.9.9.9", 4000), (SERVICE_TAG, 5), (TAG, 6))
    assert plane.expect(sent, "no_service").frame == sent


@pytest.mark.parametrize("cut", [14, 16, 17])
def test_a_frame_that_ends_within_its_tag_is_malformed(plane, cut):
    plane.apply(service(WEB, 80, those=reached_by(10)))
    plane.expect(tagged(whole(CLIENT, WEB, 4000), (TAG, 6))[:cut], "malformed")


def test_three_tags_are_not_looked_through(plane):
    plane.apply(service(WEB, 80, those=reached_by(10)))
    plane.expect(tagged(whole(CLIENT, WEB, 4000), (SERVICE_TAG, 5), (TAG, 6), (TAG, 7)), "not_ip")


@pytest.mark.parametrize("seed", range(3))
def test_program_and_oracle_agree_on_any_tags(plane, seed):
    chance = random.Random(seed)
    plane.apply(
        *(
            service(vip, 80, scheduler=scheduler, those=tuple(
                replace(each, next_hop=hop(f"02:00:00:00:01:{number:02x}", vlan=vlan, interface=interface))
                for number, (each, vlan, interface) in enumerate(
                    zip(servers(4), (0, 10, 20, 0), (1, 1, 77, 77), strict=True), 1
                )
            ))
            for vip, scheduler in ((WEB, Scheduler.RR), (HASHED, Scheduler.MH))
        )
    )  # fmt: skip
    for _ in range(300):
        tags = [(chance.choice((TAG, SERVICE_TAG)), chance.getrandbits(16)) for _ in range(chance.choice((0, 1, 1, 2)))]
        tags = [(kind, chance.choice((control, control & 0xF000 | 10, control & 0xF000))) for kind, control in tags]
        sent = whole(CLIENT, chance.choice((WEB, HASHED)), chance.randrange(4000, 4020), flags=chance.choice("SA"))
        plane.expect(tagged(sent, *tags))


def test_scapy_reads_what_leaves(plane):
    plane.apply(service(WEB, 80, those=reached_by(10)))
    left = Ether(plane.expect(tagged(whole(CLIENT, WEB, 4000), (TAG, 0xB014))).frame)
    assert (left["Dot1Q"].vlan, left["Dot1Q"].prio, left["Dot1Q"].dei) == (10, 5, 1)
    assert left["IP"].dst == WEB

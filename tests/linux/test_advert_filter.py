"""The filter of advert sockets, run by the kernel: on a pair of UNIX sockets, whose datagrams it sees whole."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from haxlb.daemon.speaker_frames import datagrams, sign
from haxlb.linux.advert_filter import (
    CALM,
    FIXED_BYTES,
    KNOWN_SENDERS,
    MAX_INSTRUCTIONS,
    SAMPLE,
    THIN,
    THINNED,
    Kind,
    Signature,
    attach,
    program,
)
from haxlb.linux.ip_packets import packet_of
from haxlb.model.addresses import Vip
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import Expected

US = IPv4Address("192.0.2.1")
PASS = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=51,
    auth_pass="secret",
    vips=tuple(Vip(address=IPv4Address(f"192.0.2.{n}"), prefix_length=24, interface="eth0") for n in (100, 101)),
)
PLAIN = replace(PASS, auth_pass=None)
V3 = replace(PLAIN, version=3, vrid=53)
V6 = replace(V3, family=6, vips=(Vip(address=IPv6Address("fd00::1"), prefix_length=64, interface="eth0"),), vrid=61)
AH = replace(PASS, auth_ah=True, vrid=54)
MULTICAST = Kind()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    there.setblocking(False)
    yield here, there
    here.close()
    there.close()


def passes(pair: tuple[socket.socket, socket.socket], message: bytes) -> bool:
    """Whether it arrives; tried eight times, since one in a thousand does by chance."""
    here, there = pair
    arrived = 0
    for _ in range(8):
        try:
            here.send(message)
            arrived += there.recv(65536) == message
        except (BlockingIOError, PermissionError):  # a UNIX socket tells its sender of the filter (EPERM)
            continue
    assert arrived in (0, 1, 2, 3, 8)
    return arrived == 8


def frame(instance: VrrpInstance, **changes: object) -> bytes:
    (made,) = datagrams(replace(instance, **changes), US, 100)  # type: ignore[arg-type]
    key = Expected.of(instance).key
    return packet_of(sign([made], key, 1)[0] if key else made)


def wanted(*instances: VrrpInstance) -> dict[int, Signature]:
    return {each.vrid: Signature.of(each) for each in instances}


def test_only_the_vrids_of_instances(pair):
    attach(pair[1], program(MULTICAST, wanted(PASS, V3)))
    assert passes(pair, frame(PASS))
    assert passes(pair, frame(V3))
    assert passes(pair, frame(PASS, auth_pass="other")), "user space judges, and counts"
    assert not passes(pair, frame(PASS, vrid=52))
    assert not passes(pair, b"")
    assert not passes(pair, frame(PASS)[:21])


def test_ip_options(pair):
    attach(pair[1], program(MULTICAST, wanted(V3)))
    packet = frame(V3)
    assert passes(pair, b"\x46" + packet[1:20] + bytes(4) + packet[20:])


def test_a_socket_without_instances_hears_nothing(pair):
    attach(pair[1], program(MULTICAST, {}))
    assert not passes(pair, frame(PASS))


def test_strangers_where_they_are_asked_for(pair):
    attach(pair[1], program(MULTICAST, wanted(PASS), strangers=True))
    assert passes(pair, frame(PASS, vrid=52))
    attach(pair[1], program(MULTICAST, {}, strangers=True))
    assert passes(pair, frame(PASS, vrid=52))
    attach(pair[1], program(MULTICAST, wanted(PASS), strangers=True, stage=FIXED_BYTES))
    assert not passes(pair, frame(PASS, vrid=52)), "not in a flood"


TIGHT = {
    "other password": frame(PASS, auth_pass="secreT"),
    "no password": frame(PASS, auth_pass=None),
    "other interval": frame(PASS, advert_interval_us=2_000_000),
    "version 3": frame(PASS, version=3, auth_pass=None),
    "type 2": frame(PASS).replace(b"\x21\x33", b"\x22\x33"),
    "through a router": frame(PASS, peers=(IPv4Address("192.0.2.2"),), unicast_ttl=254),
    "other VRID": frame(PASS, vrid=52),
    "password cut off": frame(PASS)[:-4],
    "version 2 of a version 3": frame(V3, version=2),
}


@pytest.mark.parametrize("case", TIGHT)
def test_in_a_flood_only_what_may_be_good(pair, case):
    attach(pair[1], program(MULTICAST, wanted(PASS, V3), stage=FIXED_BYTES))
    assert not passes(pair, TIGHT[case])


def test_in_a_flood_what_is_good_passes(pair):
    attach(pair[1], program(MULTICAST, wanted(PASS, replace(PLAIN, vrid=52), V3), stage=FIXED_BYTES))
    for good in (frame(PASS), frame(PASS, vips=()), frame(PLAIN, vrid=52), frame(V3), frame(V3, priority=0)):
        assert passes(pair, good)


def test_then_only_from_whom_was_heard_before(pair):
    attach(pair[1], program(MULTICAST, wanted(PASS), stage=KNOWN_SENDERS, known=[IPv4Address("192.0.2.9"), US]))
    assert passes(pair, frame(PASS))
    attach(pair[1], program(MULTICAST, wanted(PASS), stage=KNOWN_SENDERS, known=[IPv4Address("192.0.2.9")]))
    assert not passes(pair, frame(PASS))
    attach(pair[1], program(MULTICAST, wanted(PASS), stage=KNOWN_SENDERS))
    assert not passes(pair, frame(PASS)), "nobody was"


def arriving(pair: tuple[socket.socket, socket.socket], message: bytes, times: int) -> int:
    here, there = pair
    arrived = 0
    for _ in range(times):
        try:
            here.send(message)
            arrived += len(there.recv(65536)) > 0
        except (BlockingIOError, PermissionError):
            continue
    return arrived


def test_in_the_end_a_few_of_those(pair):
    attach(pair[1], program(MULTICAST, wanted(PASS), stage=THINNED, known=[US]))
    assert 20 <= arriving(pair, frame(PASS), 100 * THIN) <= 200, "100 are expected"


def test_behind_an_authentication_header(pair):
    for stage in (CALM, FIXED_BYTES):
        attach(pair[1], program(Kind(ah=True), wanted(AH, PASS), stage=stage))
        assert passes(pair, frame(AH))
        assert not passes(pair, frame(AH, vrid=9))
        assert not passes(pair, frame(AH)[:20] + b"\x06" + frame(AH)[21:]), "for TCP"


def test_messages_of_ipv6_come_without_their_header(pair):
    (good,) = datagrams(V6, IPv6Address("fe80::1"), 100)
    for stage in (CALM, FIXED_BYTES):
        attach(pair[1], program(Kind(family=6), wanted(V6), stage=stage))
        assert passes(pair, good.payload)
        assert not passes(pair, good.payload[:1] + b"\x09" + good.payload[2:])


def test_a_sample_of_the_unwanted_passes(pair):
    attach(pair[1], program(MULTICAST, wanted(PASS)))
    assert 1 <= arriving(pair, frame(PASS, vrid=99), 20 * SAMPLE) <= 60, "20 are expected"


@pytest.mark.parametrize("stage", [CALM, FIXED_BYTES, KNOWN_SENDERS])
def test_as_many_instances_as_there_are_vrids_fit(pair, stage):
    many = [replace(PASS, vrid=vrid, auth_pass=f"s{vrid}") for vrid in range(1, 256)]
    made = program(MULTICAST, wanted(*many), stage=stage, known=[US])
    assert len(made) <= MAX_INSTRUCTIONS
    attach(pair[1], made)
    assert all(passes(pair, frame(each)) for each in many[::50])
    assert not passes(pair, frame(many[0], vrid=0))


def test_the_password_is_not_shown():
    assert "secret" not in repr(Signature.of(PASS))

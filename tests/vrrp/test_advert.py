"""The codec against frames of Debian's keepalived 2.2.7, against scapy, and against damage of every kind."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.addresses import Vip
from haxlb.model.errors import PeerError
from haxlb.model.node import VrrpInstance
from haxlb.vrrp.advert import MULTICAST_GROUP, Advert, Expected, advert_of, decode, encode

US = IPv4Address("192.0.2.1")
PEER = IPv4Address("192.0.2.2")

# Captured on a veth from keepalived: (destination, message, what it says).
GOLDEN = {
    "v2 with PASS": (
        MULTICAST_GROUP,
        "21339602010186b2c0000264c00002657365637265740000",
        Advert(
            version=2,
            vrid=51,
            priority=150,
            interval_us=1_000_000,
            addresses=(IPv4Address("192.0.2.100"), IPv4Address("192.0.2.101")),
            auth_type=1,
            auth_data=b"secret\0\0",
        ),
    ),
    "v2 resigning": (
        MULTICAST_GROUP,
        "2133000201011cb3c0000264c00002657365637265740000",
        Advert(
            version=2,
            vrid=51,
            priority=0,
            interval_us=1_000_000,
            addresses=(IPv4Address("192.0.2.100"), IPv4Address("192.0.2.101")),
            auth_type=1,
            auth_data=b"secret\0\0",
        ),
    ),
    "v3 multicast": (
        MULTICAST_GROUP,
        "313565010032049fc0000267",
        Advert(version=3, vrid=53, priority=101, interval_us=500_000, addresses=(IPv4Address("192.0.2.103"),)),
    ),
    "v3 unicast": (
        PEER,
        "3136660300649c9cc0000268c0000269c000026a",
        Advert(
            version=3,
            vrid=54,
            priority=102,
            interval_us=1_000_000,
            addresses=tuple(IPv4Address(f"192.0.2.{host}") for host in (104, 105, 106)),
        ),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_frames_of_keepalived(name):
    destination, message, says = GOLDEN[name]
    assert decode(bytes.fromhex(message), US, destination) == says
    assert encode(says, US, destination).hex() == message


def _scapy(advert: Advert, source: IPv4Address, destination: IPv4Address) -> bytes:
    from scapy.layers.inet import IP
    from scapy.layers.vrrp import VRRP, VRRPv3

    head = IP(src=str(source), dst=str(destination), ttl=255, proto=112)
    addresses = [str(each) for each in advert.addresses]
    if advert.version == 3:
        body = VRRPv3(vrid=advert.vrid, priority=advert.priority, adv=advert.interval_us // 10_000, addrlist=addresses)
    else:
        auth = advert.auth_data.ljust(8, b"\0")
        body = VRRP(
            vrid=advert.vrid,
            priority=advert.priority,
            adv=advert.interval_us // 1_000_000,
            authtype=advert.auth_type,
            addrlist=addresses,
            auth1=int.from_bytes(auth[:4]),
            auth2=int.from_bytes(auth[4:]),
        )
    return bytes(head / body)[20:]


ADDRESSES = st.integers(1, 0xDFFFFFFF).map(IPv4Address)


@st.composite
def adverts(draw: st.DrawFn) -> Advert:
    version = draw(st.sampled_from((2, 3)))
    password = draw(st.none() | st.binary(min_size=8, max_size=8)) if version == 2 else None
    return Advert(
        version=version,
        vrid=draw(st.integers(1, 255)),
        priority=draw(st.integers(0, 255)),
        interval_us=draw(st.integers(1, 255)) * 1_000_000 if version == 2 else draw(st.integers(1, 4095)) * 10_000,
        addresses=tuple(draw(st.lists(ADDRESSES, max_size=20))),
        auth_type=0 if password is None else 1,
        auth_data=password or b"",
    )


@settings(derandomize=True, deadline=None, max_examples=150)
@given(advert=adverts(), source=ADDRESSES, destination=ADDRESSES | st.just(MULTICAST_GROUP))
def test_there_and_back_and_scapy_agrees(advert, source, destination):
    message = encode(advert, source, destination)
    assert decode(message, source, destination) == advert
    assert message == _scapy(advert, source, destination)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(advert=adverts(), data=st.data())
def test_any_flipped_bit_is_noticed(advert, data):
    """Version 3's checksum covers everything; so does version 2's."""
    message = bytearray(encode(advert, US, MULTICAST_GROUP))
    bit = data.draw(st.integers(0, len(message) * 8 - 1))
    message[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PeerError):
        decode(bytes(message), US, MULTICAST_GROUP)


def _instance(**changes: object) -> VrrpInstance:
    base = VrrpInstance(
        name="VI_1",
        interface="eth0",
        vrid=51,
        auth_pass="secret",
        vips=(Vip(address=IPv4Address("192.0.2.100"), prefix_length=24, interface="eth0"),),
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


V2, V3 = _instance(), _instance(version=3, auth_pass=None)
UNICAST = _instance(version=3, auth_pass=None, peers=(PEER,))


def _damage(message: bytes, at: int, value: int) -> bytes:
    return message[:at] + bytes((value,)) + message[at + 1 :]


def _message(instance: VrrpInstance, **changes: object) -> bytes:
    advert = dataclasses.replace(advert_of(instance, 100), **changes)  # type: ignore[arg-type]
    return encode(advert, US, MULTICAST_GROUP)


GOOD2, GOOD3 = _message(V2), _message(V3)

REJECTED = {
    "empty": (V2, b"", {}, "packet_len_err"),
    "cut in the header": (V2, GOOD2[:7], {}, "packet_len_err"),
    "cut in the addresses": (V2, GOOD2[:-1], {}, "packet_len_err"),
    "too long": (V2, GOOD2 + b"\0", {}, "packet_len_err"),
    "count too high": (V2, _damage(GOOD2, 3, 9), {}, "packet_len_err"),
    "v2 without its authentication bytes": (V2, GOOD2[:-8], {}, "packet_len_err"),
    "through a router": (V2, GOOD2, {"ttl": 254}, "ip_ttl_err"),
    "version 4": (V2, _damage(GOOD2, 0, 0x41), {}, "vers_err"),
    "version 3 for a version 2": (V2, GOOD3, {}, "vers_err"),
    "version 2 for a version 3": (V3, GOOD2, {}, "vers_err"),
    "authentication type 7": (V2, _damage(GOOD2, 4, 7), {}, "invalid_authtype"),
    "no authentication": (V2, _message(_instance(auth_pass=None)), {}, "authtype_mismatch"),
    "unexpected authentication": (_instance(auth_pass=None), GOOD2, {}, "authtype_mismatch"),
    "authentication header": (V2, _damage(GOOD2, 4, 2), {}, "authtype_mismatch"),
    "other password": (V2, _message(_instance(auth_pass="secre")), {}, "auth_failure"),
    "v2, other interval": (V2, _message(V2, interval_us=2_000_000), {}, "advert_interval_err"),
    "v3, interval 0": (V3, _message(V3, interval_us=0), {}, "advert_interval_err"),
    "type 2": (V2, _damage(GOOD2, 0, 0x22), {}, "invalid_type_rcvd"),
    "v2, checksum": (V2, _damage(GOOD2, 6, GOOD2[6] ^ 1), {}, "chk_err"),
    "v3, checksum": (V3, _damage(GOOD3, 6, GOOD3[6] ^ 1), {}, "chk_err"),
    "v3, other source in the IP header": (V3, GOOD3, {"source": IPv4Address("192.0.2.9")}, "chk_err"),
    "unicast for multicast": (
        V3,
        encode(advert_of(V3, 100), US, PEER),
        {"destination": PEER},
        "addr_list_err",
    ),
    "multicast for unicast": (UNICAST, GOOD3, {}, "addr_list_err"),
    # The order is keepalived's: what comes first in it names the reason.
    "length before version": (V3, GOOD2[:-1], {}, "packet_len_err"),
    "TTL before version": (V3, GOOD2, {"ttl": 1}, "ip_ttl_err"),
    "version before password": (V3, _message(_instance(auth_pass="wrong")), {}, "vers_err"),
    "password before interval": (
        V2,
        _message(_instance(auth_pass="wrong"), interval_us=2_000_000),
        {},
        "auth_failure",
    ),
    "interval before type": (V2, _damage(_message(V2, interval_us=2_000_000), 0, 0x22), {}, "advert_interval_err"),
    "type before checksum": (V3, _damage(GOOD3, 0, 0x32), {}, "invalid_type_rcvd"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_rejected(case):
    instance, message, envelope, reason = REJECTED[case]
    arguments = {"source": US, "destination": MULTICAST_GROUP, "ttl": 255, **envelope}
    source, destination = arguments.pop("source"), arguments.pop("destination")
    with pytest.raises(PeerError) as caught:
        decode(message, source, destination, expected=Expected.of(instance), **arguments)
    assert caught.value.reason == reason


def test_accepted_as_configured():
    assert decode(GOOD2, US, MULTICAST_GROUP, expected=Expected.of(V2)).priority == 100
    assert decode(GOOD3, US, MULTICAST_GROUP, expected=Expected.of(V3)).priority == 100


def test_version_3_takes_another_interval():
    message = _message(V3, interval_us=250_000)
    assert decode(message, US, MULTICAST_GROUP, expected=Expected.of(V3)).interval_us == 250_000


def test_unicast_may_come_through_routers():
    message = encode(advert_of(UNICAST, 100), US, PEER)
    assert decode(message, US, PEER, ttl=60, expected=Expected.of(UNICAST)).vrid == 51


def test_unicast_takes_the_checksum_of_older_keepalived():
    """It was computed over the multicast group whatever the destination."""
    message = encode(advert_of(UNICAST, 100), US, MULTICAST_GROUP)
    assert decode(message, US, PEER, expected=Expected.of(UNICAST)).vrid == 51


def test_a_long_password_is_cut_to_eight_bytes():
    assert advert_of(_instance(auth_pass="0123456789"), 1).auth_data == b"01234567"


def test_the_password_is_not_shown():
    advert = advert_of(V2, 100)
    assert "secret" not in repr(advert)
    assert "secret" not in repr(Expected.of(V2))
    with pytest.raises(PeerError) as caught:
        decode(_message(_instance(auth_pass="hunter2")), US, MULTICAST_GROUP, expected=Expected.of(V2))
    assert "hunter2" not in str(caught.value)
    assert "secret" not in str(caught.value)

"""The codec against frames of Debian's keepalived 2.2.7, against scapy, and against damage of every kind.

The authentication header has tests of its own (test_authentication_header.py).
"""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.addresses import IPAddress, TtlLimits, Vip
from haxlb.model.errors import PeerError
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import MULTICAST_GROUP, MULTICAST_GROUP6, Advert, Expected, advert_of, decode, encode

US = IPv4Address("192.0.2.1")
PEER = IPv4Address("192.0.2.2")
US6 = IPv6Address("fe80::283b:9dff:fe5b:3b42")
PEER6 = IPv6Address("fe80::2")

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


# The same over IPv6, from US6 to the group. Version 2 has no password there, whatever is configured.
GOLDEN6 = {
    "v2": (
        "2133960100014d6e" + "fd000000000000000000000000000064",
        Advert(version=2, vrid=51, priority=150, interval_us=1_000_000, addresses=(IPv6Address("fd00::64"),)),
    ),
    "v2, configured with PASS": (
        "2137960101014c68" + "fd000000000000000000000000000066",
        Advert(
            version=2, vrid=55, priority=150, interval_us=1_000_000, addresses=(IPv6Address("fd00::66"),), auth_type=1
        ),
    ),
    "v3": (
        "3135960200643e12" + "fe800000000000000000000000000064" + "fd000000000000000000000000000065",
        Advert(
            version=3,
            vrid=53,
            priority=150,
            interval_us=1_000_000,
            addresses=(IPv6Address("fe80::64"), IPv6Address("fd00::65")),
        ),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_frames_of_keepalived(name):
    destination, message, says = GOLDEN[name]
    assert decode(bytes.fromhex(message), US, destination) == says
    assert encode(says, US, destination).hex() == message


@pytest.mark.parametrize("name", GOLDEN6)
def test_frames_of_keepalived_over_ipv6(name):
    message, says = GOLDEN6[name]
    assert decode(bytes.fromhex(message), US6, MULTICAST_GROUP6) == says
    assert encode(says, US6, MULTICAST_GROUP6).hex() == message


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


ADDRESSES6 = st.integers(1, 2**120).map(IPv6Address)


@st.composite
def adverts6(draw: st.DrawFn) -> Advert:
    version = draw(st.sampled_from((2, 3)))
    return Advert(
        version=version,
        vrid=draw(st.integers(1, 255)),
        priority=draw(st.integers(0, 255)),
        interval_us=draw(st.integers(1, 255)) * 1_000_000 if version == 2 else draw(st.integers(1, 4095)) * 10_000,
        addresses=tuple(draw(st.lists(ADDRESSES6, max_size=20))),
    )


@settings(derandomize=True, deadline=None, max_examples=150)
@given(advert=adverts6(), source=ADDRESSES6, destination=ADDRESSES6 | st.just(MULTICAST_GROUP6))
def test_there_and_back_over_ipv6_and_scapy_agrees(advert, source, destination):
    from scapy.layers.inet6 import IPv6, in6_chksum

    message = encode(advert, source, destination)
    assert decode(message, source, destination) == advert
    without = message[:6] + b"\0\0" + message[8:]
    assert in6_chksum(112, IPv6(src=str(source), dst=str(destination)), without).to_bytes(2) == message[6:8]


@settings(derandomize=True, deadline=None, max_examples=300)
@given(advert=adverts() | adverts6(), data=st.data())
def test_any_flipped_bit_is_noticed(advert, data):
    """Version 3's checksum covers everything; so does version 2's."""
    over6 = any(each.version == 6 for each in advert.addresses)
    ends = (US6, MULTICAST_GROUP6) if over6 else (US, MULTICAST_GROUP)
    message = bytearray(encode(advert, *ends))
    bit = data.draw(st.integers(0, len(message) * 8 - 1))
    message[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PeerError):
        decode(bytes(message), *ends)


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
V6 = _instance(
    version=3,
    family=6,
    auth_pass=None,
    vips=(Vip(address=IPv6Address("fd00::64"), prefix_length=64, interface="eth0"),),
)
V26 = dataclasses.replace(V6, version=2, auth_pass="secret")
UNICAST6 = dataclasses.replace(V6, peers=(PEER6,))
CHOOSY = dataclasses.replace(UNICAST, check_unicast_src=True)
LIMITED = dataclasses.replace(UNICAST, ttl_limits=(TtlLimits(peer=US, lowest=250, highest=254),))
OWNER = dataclasses.replace(V3, priority=255, owner_ignore_adverts=True)


def _damage(message: bytes, at: int, value: int) -> bytes:
    return message[:at] + bytes((value,)) + message[at + 1 :]


def _message(instance: VrrpInstance, destination: IPAddress | None = None, **changes: object) -> bytes:
    advert = dataclasses.replace(advert_of(instance, 100), **changes)  # type: ignore[arg-type]
    if instance.family == 6:
        return encode(advert, US6, destination or MULTICAST_GROUP6)
    return encode(advert, US, destination or MULTICAST_GROUP)


def _with_reserved_bits() -> bytes:
    """A receiver ignores them (RFC 9568 section 5.2.6); they stand above the interval, in the checksum's words."""
    good = _message(V3)
    return (
        good[:4]
        + bytes((good[4] | 0xF0, good[5]))
        + ((int.from_bytes(good[6:8]) - 0xF000) % 0xFFFF).to_bytes(2)
        + good[8:]
    )


GOOD2, GOOD3, GOOD6, GOOD26 = _message(V2), _message(V3), _message(V6), _message(V26)
TO_PEER = {"destination": PEER}

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
    "authentication header announced": (V2, _damage(GOOD2, 4, 2), {}, "authtype_mismatch"),
    "authentication header present": (V2, GOOD2, {"ah": bytes(24)}, "authtype_mismatch"),
    "v3 behind an authentication header": (V3, GOOD3, {"ah": bytes(24)}, "authtype_mismatch"),
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
    "unicast, no peer of ours": (
        CHOOSY,
        encode(advert_of(UNICAST, 100), US, PEER),
        {"destination": PEER},
        "unicast_src_err",
    ),
    "unicast, TTL too low": (LIMITED, _message(UNICAST, PEER), {**TO_PEER, "ttl": 249}, "ip_ttl_err"),
    "unicast, TTL too high": (LIMITED, _message(UNICAST, PEER), {**TO_PEER, "ttl": 255}, "ip_ttl_err"),
    "unicast, checksum of nobody": (UNICAST, _damage(_message(UNICAST, PEER), 7, 0xAA), TO_PEER, "chk_err"),
    "unicast, checksum of older keepalived when that is never": (
        dataclasses.replace(UNICAST, old_unicast_checksum="never"),
        GOOD3,
        TO_PEER,
        "chk_err",
    ),
    "multicast has no older checksum": (V3, encode(advert_of(V3, 100), US, PEER), {}, "chk_err"),
    "unicast instance that has no peers yet": (
        dataclasses.replace(V3, unicast_fault_no_peer=True),
        GOOD3,
        {},
        "addr_list_err",
    ),
    "to an owner that ignores others": (OWNER, GOOD3, {}, "owner_ignores"),
    "v3, no addresses, strict": (
        dataclasses.replace(V3, strict=True),
        _message(V3, addresses=()),
        {},
        "addr_list_err",
    ),
    "IPv6, cut in an address": (V6, GOOD6[:-4], {}, "packet_len_err"),
    "IPv6, IPv4 addresses": (V6, GOOD3, {}, "packet_len_err"),
    "IPv4, IPv6 addresses": (V3, GOOD6, {}, "packet_len_err"),
    "IPv6, v2 with authentication bytes": (V26, GOOD26 + bytes(8), {}, "packet_len_err"),
    "IPv6, authentication type 3": (V26, _damage(GOOD26, 4, 3), {}, "invalid_authtype"),
    "IPv6, through a router": (V6, GOOD6, {"ttl": 64}, "ip_ttl_err"),
    "IPv6, no hop limit known": (V6, GOOD6, {"ttl": -1}, "ip_ttl_err"),
    "IPv6, version 2 for a version 3": (V6, GOOD26, {}, "vers_err"),
    "IPv6, checksum": (V6, _damage(GOOD6, 6, GOOD6[6] ^ 1), {}, "chk_err"),
    "IPv6, v2, checksum": (V26, _damage(GOOD26, 6, GOOD26[6] ^ 1), {}, "chk_err"),
    "IPv6, other source in the IP header": (V6, GOOD6, {"source": PEER6}, "chk_err"),
    "IPv6, type 0": (V6, _damage(GOOD6, 0, 0x30), {}, "invalid_type_rcvd"),
    "IPv6, interval 0": (V6, _message(V6, interval_us=0), {}, "advert_interval_err"),
    "IPv6, v2, other interval": (V26, _message(V26, interval_us=3_000_000), {}, "advert_interval_err"),
    "IPv6, multicast for unicast": (UNICAST6, GOOD6, {}, "addr_list_err"),
    "IPv6, unicast for multicast": (V6, _message(V6, PEER6), {"destination": PEER6}, "addr_list_err"),
    "IPv6, unicast has no older checksum": (UNICAST6, GOOD6, {"destination": PEER6}, "chk_err"),
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
    "header before length": (V2, GOOD2[:-1], {"ah": bytes(24)}, "authtype_mismatch"),
    "checksum before cast": (V3, encode(advert_of(V3, 100), US, PEER)[:-1] + b"\1", TO_PEER, "chk_err"),
    "cast before owner": (OWNER, _message(V3, PEER), TO_PEER, "addr_list_err"),
    "sender before TTL limits": (
        dataclasses.replace(LIMITED, check_unicast_src=True),
        _message(UNICAST, PEER),
        {**TO_PEER, "ttl": 1},
        "unicast_src_err",
    ),
}


@pytest.mark.parametrize("case", REJECTED)
def test_rejected(case):
    instance, message, envelope, reason = REJECTED[case]
    ends = {"source": US6, "destination": MULTICAST_GROUP6} if instance.family == 6 else {"source": US}
    arguments = {"destination": MULTICAST_GROUP, "ttl": 255, **ends, **envelope}
    source, destination = arguments.pop("source"), arguments.pop("destination")
    with pytest.raises(PeerError) as caught:
        decode(message, source, destination, expected=Expected.of(instance), **arguments)
    assert caught.value.reason == reason


ACCEPTED = {
    "unicast from a stranger": (UNICAST, _message(UNICAST, PEER), TO_PEER),
    "unicast from a peer of ours": (
        dataclasses.replace(CHOOSY, peers=(US,)),
        _message(UNICAST, PEER),
        TO_PEER,
    ),
    "unicast, the lowest TTL of its limits": (LIMITED, _message(UNICAST, PEER), {**TO_PEER, "ttl": 250}),
    "unicast, the highest TTL of its limits": (LIMITED, _message(UNICAST, PEER), {**TO_PEER, "ttl": 254}),
    "unicast, another's limits": (
        dataclasses.replace(UNICAST, ttl_limits=(TtlLimits(peer=PEER, lowest=255),)),
        _message(UNICAST, PEER),
        {**TO_PEER, "ttl": 1},
    ),
    "no lower limit": (
        dataclasses.replace(UNICAST, ttl_limits=(TtlLimits(peer=US, highest=9),)),
        _message(UNICAST, PEER),
        {**TO_PEER, "ttl": 0},
    ),
    "v3, no addresses": (V3, _message(V3, addresses=()), {}),
    "v3, reserved bits": (V3, _with_reserved_bits(), {}),
    "v2, no addresses, strict": (dataclasses.replace(V2, strict=True), _message(V2, addresses=()), {}),
    "an owner that does listen": (dataclasses.replace(V3, priority=255), GOOD3, {}),
    "ignores others as owner only": (dataclasses.replace(V3, owner_ignore_adverts=True), GOOD3, {}),
    "IPv6": (V6, GOOD6, {}),
    "IPv6, v2, where nothing authenticates": (V26, _message(V26, auth_type=1), {}),
    "IPv6, unicast": (UNICAST6, _message(V6, PEER6), {"destination": PEER6, "ttl": 3}),
    "checksum as in v2": (
        dataclasses.replace(V3, checksum_as_v2=True),
        encode(advert_of(V3, 100), US, MULTICAST_GROUP, checksum_as_v2=True),
        {},
    ),
    "checksum as in v2: none is judged": (
        dataclasses.replace(V3, checksum_as_v2=True),
        _damage(GOOD3, 6, GOOD3[6] ^ 1),
        {},
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case):
    instance, message, envelope = ACCEPTED[case]
    ends = {"source": US6, "destination": MULTICAST_GROUP6} if instance.family == 6 else {"source": US}
    arguments = {"destination": MULTICAST_GROUP, "ttl": 255, **ends, **envelope}
    source, destination = arguments.pop("source"), arguments.pop("destination")
    assert decode(message, source, destination, expected=Expected.of(instance), **arguments).priority == 100


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
    assert decode(message, US, PEER, expected=Expected.of(UNICAST)).old_checksum
    assert not decode(_message(UNICAST, PEER), US, PEER, expected=Expected.of(UNICAST)).old_checksum


def test_the_older_checksum_is_of_the_configured_group():
    group = IPv4Address("239.1.2.3")
    message = encode(advert_of(UNICAST, 100), US, group)
    expected = Expected.of(dataclasses.replace(UNICAST, multicast_group=group))
    assert decode(message, US, PEER, expected=expected).old_checksum


def test_version_3_without_the_pseudo_header():
    message = encode(advert_of(V3, 100), US, MULTICAST_GROUP, checksum_as_v2=True)
    assert message == encode(advert_of(V3, 100), PEER, MULTICAST_GROUP, checksum_as_v2=True)
    with pytest.raises(PeerError):
        decode(message, US, MULTICAST_GROUP)


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

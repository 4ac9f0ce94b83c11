"""A message in all its envelopes, every fault with its place, and agreement with the codec that the speaker uses."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.errors import PeerError
from haxlb.vrrp.advert import MULTICAST_GROUP, Advert, decode, encode
from haxlb.vrrp.advert_checksum import checksum, is_good, pseudo_header
from haxlb.vrrp.authentication_header import Key
from haxlb.vrrp.dissect import Form, dissect
from haxlb.vrrp.envelope import Envelope, Layer, guess, unwrap
from tests.vrrp.frames import OTHER, SOURCE, VIP, ah, ethernet, ipv4, ipv6, message
from tests.vrrp.frames import total as sum_of


def findings(data: bytes, layer: Layer = Layer.ETHERNET) -> list[tuple[int, str]]:
    return [(each.offset, each.reason) for each in dissection(data, layer).findings]


def dissection(data: bytes, layer: Layer = Layer.ETHERNET):
    envelope = unwrap(data, layer)
    assert envelope is not None
    return dissect(envelope)


# -- envelopes


@pytest.mark.parametrize(
    ("data", "layer", "offset"),
    [
        (ethernet(ipv4(message(2))), Layer.ETHERNET, 34),
        (ethernet(ipv4(message(2)), vlans=(7,)), Layer.ETHERNET, 38),
        (ethernet(ipv4(message(2)), vlans=(5, 7)), Layer.ETHERNET, 42),
        (ethernet(ipv4(ah(message(2, auth_type=2)), protocol=51)), Layer.ETHERNET, 58),
        (ethernet(ipv6(message(3, family=6))), Layer.ETHERNET, 54),
        (ipv4(message(2)), Layer.IP, 20),
        (ipv4(message(2), options=bytes((0x94, 4, 0, 0))), Layer.IP, 24),
        (ipv6(message(3, family=6)), Layer.IP, 40),
        (ipv6(bytes((112, 0, 5, 2, 0, 0, 1, 0)) + message(3, family=6), following=0), Layer.IP, 48),
        (message(2), Layer.VRRP, 0),
        (b"\0\0\0\1\0\6" + b"\2\0\0\0\0\1" + b"\0\0\x08\0" + ipv4(message(2)), Layer.SLL, 36),
        (b"\x08\0\0\0\0\0\0\2\0\1\0\6\2\0\0\0\0\1\0\0" + ipv4(message(2)), Layer.SLL2, 40),
        (b"\2\0\0\0" + ipv4(message(2)), Layer.NULL, 24),
    ],
)
def test_every_envelope(data, layer, offset):
    found = dissection(data, layer)
    assert found.findings == ()
    assert found.envelope.offset == offset
    assert (found.vrid, found.priority, found.interval_us) == (51, 150, 1_000_000)
    assert not found.dropped
    assert found.legible
    if layer in (Layer.ETHERNET, Layer.IP, Layer.VRRP):
        assert guess(data) is layer


def test_what_an_envelope_says():
    envelope = unwrap(ethernet(ipv4(ah(message(2, auth_type=2)), protocol=51), vlans=(5, 7)), Layer.ETHERNET)
    assert envelope is not None
    assert (envelope.source, envelope.destination, envelope.ttl) == (SOURCE, MULTICAST_GROUP, 255)
    assert (envelope.source_mac, envelope.destination_mac) == ("02:00:00:00:00:01", "01:00:5e:00:00:12")
    assert envelope.vlans == (5, 7)
    assert envelope.auth is not None
    assert (envelope.auth.spi, envelope.auth.sequence, len(envelope.auth.icv)) == (0x0A090001, 9, 12)
    assert envelope.multicast


def test_padding_of_ethernet_is_not_the_message():
    assert findings(ethernet(ipv4(message(3, addresses=()))) + bytes(18)) == [(37, "addr_list_err")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(60),
        ethernet(ipv4(message(2), protocol=17)),
        ethernet(ipv6(message(3, family=6), following=58)),
        ethernet(b"\0\1\x08\0\6\4\0\1", ethertype=0x0806),
        ethernet(ipv4(message(2)), ethertype=0x86DD),
        ethernet(ipv4(ah(message(2), following=50), protocol=51)),
        ethernet(ipv4(b"\x70\4", protocol=51)),
        ethernet(ipv4(message(2)))[:20],
    ],
)
def test_what_is_not_vrrp(data):
    assert unwrap(data, Layer.ETHERNET) is None
    assert guess(data) is Layer.VRRP


# -- faults


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


FRAME2, FRAME3 = ethernet(ipv4(message(2))), ethernet(ipv4(message(3)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (ethernet(ipv4(message(2), ttl=254)), [(22, "ip_ttl_err")]),
        (ethernet(ipv6(message(3, family=6), hop_limit=64)), [(21, "ip_ttl_err")]),
        (ethernet(ipv4(message(2, version=4))), [(34, "vers_err")]),
        (ethernet(ipv4(message(2, kind=3))), [(34, "invalid_type_rcvd")]),
        (ethernet(ipv4(message(2, auth_type=7))), [(38, "invalid_authtype")]),
        (ethernet(ipv4(message(2, auth_type=2))), [(38, "authtype_mismatch")]),
        (ethernet(ipv4(ah(message(2)), protocol=51)), [(34, "authtype_mismatch")]),
        (ethernet(ipv4(message(2, interval=0))), [(39, "advert_interval_err")]),
        (ethernet(ipv4(message(3, interval=0))), [(38, "advert_interval_err")]),
        (ethernet(ipv4(message(2, count=2))), [(54, "packet_len_err")]),
        (ethernet(ipv4(message(2, count=0))), [(37, "addr_list_err"), (50, "packet_len_err")]),
        (ethernet(ipv4(message(2)[:7])), [(34, "packet_len_err")]),
        (patched(FRAME2, 40, b"\0\0"), [(40, "chk_err")]),
        (patched(FRAME3, 40, b"\0\0"), [(40, "chk_err")]),
        (ethernet(ipv4(message(3, form=Form.BARE))), [(40, "chk_err")]),
        (
            ethernet(ipv4(message(3, destination=OTHER, form=Form.OLD_UNICAST), destination=OTHER)),
            [(40, "old_checksum")],
        ),
        (ethernet(ipv4(message(3, reserved=5))), [(38, "reserved")]),
        (ethernet(ipv4(message(2, vrid=0))), [(35, "vrid")]),
        (ethernet(ipv4(message(2, addresses=()))), [(37, "addr_list_err")]),
        (ethernet(ipv4(message(2, addresses=(VIP, VIP)))), [(46, "addr_list_err")]),
        (ethernet(ipv4(message(2, addresses=(IPv4Address(0),)))), [(42, "addr_list_err")]),
        (ethernet(ipv4(message(2, auth_data=b"secret\0\0"))), [(46, "auth_data")]),
        (ethernet(ipv4(message(2)), source_mac="00:00:5e:00:01:34"), [(6, "mac")]),
        (ethernet(ipv4(message(2)), source_mac="00:00:5e:00:01:33"), []),
        (patched(FRAME2, 24, b"\0\0"), [(24, "ip_chk_err")]),
        (ethernet(ipv4(message(2), fragment=0x2000)), [(20, "fragment")]),
        (FRAME2[:-4], [(16, "packet_len_err"), (50, "packet_len_err")]),
        (ethernet(ipv4(message(2), first=0x4F)), [(14, "packet_len_err")]),
        (ethernet(ipv6(message(3, family=6, addresses=(IPv6Address("2001:db8::1"),)))), [(62, "addr_list_err")]),
        (
            ethernet(ipv6(message(3, family=6, source=IPv6Address("2001:db8::9")), source=IPv6Address("2001:db8::9"))),
            [(22, "source")],
        ),
        (ethernet(ipv6(message(2, family=6))), [(54, "version")]),
    ],
)
def test_every_fault_has_its_place(data, expected):
    assert findings(data) == sorted(expected)


def test_a_unicast_advert_may_have_any_ttl():
    unicast = message(3, destination=OTHER)
    assert findings(ethernet(ipv4(unicast, destination=OTHER, ttl=9))) == []


def test_a_bare_message_of_version_3_cannot_be_judged_but_its_family_can():
    four, six = dissection(message(3), Layer.VRRP), dissection(message(3, family=6), Layer.VRRP)
    assert (four.form, six.form) == (Form.UNKNOWN, Form.UNKNOWN)
    assert (four.family, six.family) == (4, 6)
    assert four.addresses == (VIP,)
    assert six.addresses == (IPv6Address("fe80::100"),)
    assert dissection(patched(message(2), 6, b"\0\0"), Layer.VRRP).form is Form.WRONG


def test_what_is_not_to_be_believed():
    assert not dissection(patched(FRAME2, 40, b"\0\0")).legible
    assert not dissection(FRAME2[:-4]).legible
    assert dissection(ethernet(ipv4(message(3, form=Form.BARE)))).legible
    assert dissection(ethernet(ipv4(message(2), ttl=254))).legible


def test_a_password_is_not_in_a_repr():
    found = dissection(ethernet(ipv4(message(2, auth_type=1, auth_data=b"hushhush"))))
    assert found.auth_data == b"hushhush"
    assert "hush" not in repr(found).replace(repr(found.envelope), "")


# -- with the key


def signed(key: bytes) -> bytes:
    payload = message(2, auth_type=2)
    header, authentication = Key(key).sign(SOURCE, MULTICAST_GROUP, 255, payload, 77)
    # The kernel fills in the header's checksum.
    sum_ = struct.pack("!H", checksum(header[:10] + b"\0\0" + header[12:]))
    return ethernet(header[:10] + sum_ + header[12:] + authentication + payload)


def judged(data: bytes, auth_pass: str) -> list[tuple[int, str]]:
    envelope = unwrap(data, Layer.ETHERNET)
    assert envelope is not None
    return [(each.offset, each.reason) for each in dissect(envelope, auth_pass).findings]


def test_the_check_value_of_an_authentication_header():
    frame = signed(b"secret\0\0")
    assert judged(frame, "secret") == []
    assert judged(frame, "hidden") == [(34, "auth_failure")]
    assert judged(patched(frame, 60, b"\x63"), "secret") == [(34, "auth_failure"), (64, "chk_err")]


def test_a_password():
    frame = ethernet(ipv4(message(2, auth_type=1, auth_data=b"secret\0\0")))
    assert judged(frame, "secret") == []
    assert judged(frame, "secre") == [(46, "auth_failure")]
    assert judged(FRAME2, "secret") == [], "that it has none is for its receivers to judge"


# -- agreement with the codec


VALID = [
    encode(
        Advert(version=version, vrid=51, priority=100, interval_us=1_000_000, addresses=(VIP,) * count),
        SOURCE,
        MULTICAST_GROUP,
    )
    for version in (2, 3)
    for count in (1, 20)
]


@st.composite
def nearly_valid(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@settings(derandomize=True, deadline=None, max_examples=800)
@given(
    payload=nearly_valid(),
    destination=st.sampled_from((MULTICAST_GROUP, OTHER)),
    ttl=st.sampled_from((1, 255)),
    fix=st.booleans(),
)
def test_what_the_codec_refuses_is_found_here_and_nothing_else_is_fatal(payload, destination, ttl, fix):
    if fix and len(payload) >= 8:
        cover = b"" if payload[0] >> 4 == 2 else pseudo_header(SOURCE, destination, len(payload))
        blank = payload[:6] + b"\0\0" + payload[8:]
        payload = payload[:6] + struct.pack("!H", 0xFFFF ^ sum_of(cover + blank)) + payload[8:]
    found = dissect(Envelope(payload=payload, offset=0, source=SOURCE, destination=destination, ttl=ttl, ttl_offset=8))
    fatal = {each.reason for each in found.findings if each.fatal}
    try:
        advert = decode(payload, SOURCE, destination, ttl=ttl)
    except PeerError as problem:
        refused = problem.reason
    else:
        refused = ""
    if refused:
        assert refused in fatal
        return
    # That AH's own header is missing is not for the codec of the message to see.
    assert fatal <= {"authtype_mismatch"}
    assert (advert.vrid, advert.priority, advert.interval_us) == (found.vrid, found.priority, found.interval_us)
    assert advert.addresses == found.addresses
    assert payload[0] >> 4 == 3 or is_good(payload)


@settings(derandomize=True, deadline=None, max_examples=1500)
@given(
    data=st.binary(max_size=120)
    | st.builds(
        lambda frame, at, new, end: patched(frame, at % len(frame), new)[: end or None],
        st.sampled_from(
            (
                FRAME2,
                FRAME3,
                ethernet(ipv6(message(3, family=6)), vlans=(4,)),
                ethernet(ipv4(ah(message(2, auth_type=2)), protocol=51)),
                ipv4(message(2)),
            )
        ),
        st.integers(0, 200),
        st.binary(min_size=1, max_size=6),
        st.integers(0, 90),
    ),
    layer=st.sampled_from(tuple(Layer)),
)
def test_any_bytes_are_read_or_are_not_vrrp_and_findings_lie_within(data, layer):
    guess(data)
    envelope = unwrap(data, layer)
    if envelope is None:
        return
    found = dissect(envelope)
    assert data[envelope.offset : envelope.offset + len(envelope.payload)] == envelope.payload
    for each in found.findings:
        assert 0 <= each.offset <= len(data)
        assert each.message

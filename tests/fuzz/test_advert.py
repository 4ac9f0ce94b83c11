"""Whatever comes off the wire: `decode` answers with an Advert or a PeerError, never with anything else.

So does a speaker's `Member`, with all that it remembers, and the parser of IP headers answers with a Datagram or None.
"""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker_frames import datagrams, sign
from haxlb.daemon.speaker_member import Member
from haxlb.linux.ip_packets import packet_of, parse_ip_packet
from haxlb.model.addresses import TtlLimits, Vip
from haxlb.model.errors import PeerError
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import MULTICAST_GROUP, MULTICAST_GROUP6, Advert, Expected, decode, encode

REASONS = {
    "packet_len_err",
    "ip_ttl_err",
    "vers_err",
    "invalid_authtype",
    "authtype_mismatch",
    "auth_failure",
    "advert_interval_err",
    "invalid_type_rcvd",
    "chk_err",
    "addr_list_err",
    "unicast_src_err",
    "owner_ignores",
}
SOURCE = IPv4Address("192.0.2.1")
VALID = [
    encode(
        Advert(
            version=version,
            vrid=51,
            priority=100,
            interval_us=1_000_000,
            addresses=tuple(IPv4Address(f"192.0.2.{host}") for host in range(count)),
        ),
        SOURCE,
        MULTICAST_GROUP,
    )
    for version in (2, 3)
    for count in (0, 1, 20, 255)
]
SOURCE6 = IPv6Address("fe80::1")
PEER, PEER6 = IPv4Address("192.0.2.2"), IPv6Address("fe80::2")
VALID6 = [
    encode(
        Advert(
            version=version,
            vrid=51,
            priority=100,
            interval_us=1_000_000,
            addresses=tuple(IPv6Address(host) for host in range(count)),
        ),
        SOURCE6,
        MULTICAST_GROUP6,
    )
    for version in (2, 3)
    for count in (0, 1, 20, 255)
]


@st.composite
def nearly_valid(draw: st.DrawFn, valid: list[bytes]) -> bytes:
    """A valid message with bytes overwritten, cut out or put in."""
    message = bytearray(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(message)))
        kind = draw(st.sampled_from(("overwrite", "cut", "insert")))
        if kind == "overwrite":
            message[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "cut":
            del message[at : at + draw(st.integers(1, 12))]
        else:
            message[at:at] = draw(st.binary(max_size=12))
    return bytes(message)


def expectations(family: int) -> st.SearchStrategy[Expected | None]:
    source, peer = (SOURCE, PEER) if family == 4 else (SOURCE6, PEER6)
    return st.none() | st.builds(
        Expected,
        version=st.sampled_from((2, 3)),
        interval_us=st.sampled_from((10_000, 1_000_000)),
        auth_pass=st.none() | st.just(b"secret\0\0"),
        auth_ah=st.booleans(),
        family=st.just(family),
        unicast=st.booleans(),
        old_checksum=st.booleans(),
        checksum_as_v2=st.booleans(),
        peers=st.sampled_from((frozenset(), frozenset((source,)), frozenset((peer,)))),
        ttl_limits=st.sampled_from(({}, {source: TtlLimits(peer=source, lowest=1, highest=254)})),
        deaf=st.booleans(),
        strict=st.booleans(),
    )


def judge(payload: bytes, source: IPv4Address | IPv6Address, destination: IPv4Address | IPv6Address, **rest) -> None:
    try:
        answer = decode(payload, source, destination, **rest)
    except PeerError as problem:
        answer = problem
    if isinstance(answer, PeerError):
        assert answer.reason in REASONS
        assert answer.message
        return
    assert answer.version in (2, 3)
    assert answer.interval_us > 0
    assert len(answer.addresses) == payload[3]


@settings(derandomize=True, deadline=None, max_examples=1500)
@given(
    payload=st.binary(max_size=80) | nearly_valid(VALID),
    destination=st.sampled_from((MULTICAST_GROUP, PEER)),
    ttl=st.sampled_from((0, 1, 255)),
    expected=expectations(4),
    headers=st.tuples(st.just(b"") | st.binary(max_size=30), st.binary(max_size=24)),
)
def test_an_advert_or_a_peer_error(payload, destination, ttl, expected, headers):
    judge(payload, SOURCE, destination, ttl=ttl, expected=expected, ah=headers[0], ip_header=headers[1])


@settings(derandomize=True, deadline=None, max_examples=1000)
@given(
    payload=st.binary(max_size=120) | nearly_valid(VALID6),
    destination=st.sampled_from((MULTICAST_GROUP6, PEER6)),
    ttl=st.sampled_from((-1, 0, 1, 255)),
    expected=expectations(6),
)
def test_an_advert_or_a_peer_error_over_ipv6(payload, destination, ttl, expected):
    judge(payload, SOURCE6, destination, ttl=ttl, expected=expected)


AH = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=51,
    auth_pass="secret",
    auth_ah=True,
    vips=(Vip(address=IPv4Address("192.0.2.100"), prefix_length=24, interface="eth0"),),
)
SIGNER = Expected.of(AH).key
assert SIGNER is not None
SIGNED = [packet_of(each) for n in (1, 2, 3) for each in sign(datagrams(AH, SOURCE, 100), SIGNER, n)]
PLAIN = [packet_of(each) for each in datagrams(dataclasses.replace(AH, auth_ah=False), SOURCE, 100)]


@settings(derandomize=True, deadline=None, max_examples=1500)
@given(packets=st.lists(st.binary(max_size=80) | nearly_valid(SIGNED + PLAIN), max_size=8), ah=st.booleans())
def test_packets_are_heard_refused_or_no_packets(packets, ah):
    """Whatever came before: what is remembered of one message never lets another pass."""
    instance = dataclasses.replace(AH, auth_ah=ah)
    member = Member(instance, 0)
    member.link_input(Link(interface="eth0", up=True, mac="", address=PEER))
    numbers: list[int] = []
    reasons: set[str] = set()
    for packet in packets:
        datagram = parse_ip_packet(packet, "eth0", 0)
        if datagram is None:
            continue
        assert isinstance(datagram, Datagram)
        try:
            heard = member.hear(datagram)
        except PeerError as problem:
            reasons.add(problem.reason)
            continue
        assert heard is not None
        assert bool(datagram.ah) == ah
        assert heard.what.advert.vrid == datagram.payload[1]
        if ah:
            numbers.append(int.from_bytes(datagram.ah[8:12]))
    assert numbers == sorted(set(numbers))
    assert reasons <= REASONS

"""Whatever comes off the wire: `decode` answers with an Advert or a PeerError, never with anything else."""

from __future__ import annotations

from ipaddress import IPv4Address

from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.errors import PeerError
from haxlb.vrrp.advert import MULTICAST_GROUP, Advert, Expected, decode, encode

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


@st.composite
def nearly_valid(draw: st.DrawFn) -> bytes:
    """A valid message with bytes overwritten, cut out or put in."""
    message = bytearray(draw(st.sampled_from(VALID)))
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


EXPECTED = st.none() | st.builds(
    Expected,
    version=st.sampled_from((2, 3)),
    interval_us=st.sampled_from((10_000, 1_000_000)),
    auth_pass=st.none() | st.just(b"secret\0\0"),
    unicast=st.booleans(),
)


@settings(derandomize=True, deadline=None, max_examples=1500)
@given(
    payload=st.binary(max_size=80) | nearly_valid(),
    destination=st.sampled_from((MULTICAST_GROUP, IPv4Address("192.0.2.2"))),
    ttl=st.sampled_from((0, 1, 255)),
    expected=EXPECTED,
)
def test_an_advert_or_a_peer_error(payload, destination, ttl, expected):
    try:
        answer = decode(payload, SOURCE, destination, ttl=ttl, expected=expected)
    except PeerError as problem:
        answer = problem
    if isinstance(answer, PeerError):
        assert answer.reason in REASONS
        assert answer.message
        return
    assert answer.version in (2, 3)
    assert answer.interval_us > 0
    assert len(answer.addresses) == payload[3]

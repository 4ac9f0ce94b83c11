"""The authentication header against frames of Debian's keepalived 2.2.7, and against damage and replays."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.addresses import Vip
from haxlb.model.errors import PeerError
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import MULTICAST_GROUP, Expected, advert_of, decode, encode
from haxlb.vrrp.authentication_header import AH_LENGTH, Key, Sequence, clock_sequence

US, PEER = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")
KEY = Key(b"secret\0\0")

# IP packets captured on a veth from keepalived, auth_pass "secret"; the first two of each kind.
GOLDEN = {
    "multicast": (
        MULTICAST_GROUP,
        """
        45c0004000010000ff33d0ad0a090001e0000012 700400000a0900010000000105277d670299eeb11331fa25
        2134960102013c5c0a0900640000000000000000
        45c0004000020000ff33d0ac0a090001e0000012 700400000a090001000000027b0b730983b9e40077b1c71e
        2134960102013c5c0a0900640000000000000000
        """,
    ),
    "unicast": (
        PEER,
        """
        45c0004000010000ff33a6b50a0900010a090002 700400000a09000100000001084590c939de646ee4604877
        2136960102013c560a0900680000000000000000
        45c0004000020000ff33a6b40a0900010a090002 700400000a090001000000027d01186343b284a62b0667d2
        2136960102013c560a0900680000000000000000
        """,
    ),
}
INSTANCE = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=0x34,
    priority=150,
    auth_pass="secret",
    auth_ah=True,
    vips=(Vip(address=IPv4Address("10.9.0.100"), prefix_length=24, interface="eth0"),),
)


def _golden(name: str, which: int) -> tuple[IPv4Address, bytes, bytes, bytes]:
    """Destination, IP header, authentication header and message."""
    destination, packets = GOLDEN[name]
    packet = bytes.fromhex(packets)[64 * which :][:64]
    return destination, packet[:20], packet[20 : 20 + AH_LENGTH], packet[20 + AH_LENGTH :]


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("which", [0, 1])
def test_packets_of_keepalived(name, which):
    destination, ip_header, ah, payload = _golden(name, which)
    assert KEY.verify(ip_header, ah, payload) == which + 1
    # Ours are the same but for the header's checksum, which the kernel fills in.
    header, signed = KEY.sign(US, destination, 255, payload, which + 1)
    assert signed == ah
    assert header == ip_header[:10] + b"\0\0" + ip_header[12:]


def test_the_message_is_keepalives_too():
    payload = _golden("multicast", 0)[-1]
    assert encode(advert_of(INSTANCE, 150), US, MULTICAST_GROUP) == payload


def _signed(sequence: int = 7, destination: IPv4Address = MULTICAST_GROUP) -> tuple[bytes, bytes, bytes]:
    payload = encode(advert_of(INSTANCE, 100), US, destination)
    return (*KEY.sign(US, destination, 255, payload, sequence), payload)


def _decode(ip_header: bytes, ah: bytes, payload: bytes, instance: VrrpInstance = INSTANCE) -> int:
    return decode(payload, US, MULTICAST_GROUP, expected=Expected.of(instance), ah=ah, ip_header=ip_header).priority


def test_what_routers_change_is_not_covered():
    ip_header, ah, payload = _signed()
    changed = bytearray(ip_header)
    changed[1] = 0  # TOS
    changed[6:8] = b"\x40\0"  # do not fragment
    changed[10:12] = b"\xab\xcd"  # checksum
    assert _decode(bytes(changed), ah, payload) == 100
    unicast, ah, payload = _signed(destination=PEER)
    assert KEY.verify(unicast[:8] + b"\x40" + unicast[9:], ah, payload) == 7, "TTL of unicast"


BAD = {
    "none": (lambda ip, ah, vrrp: (ip, b"", vrrp), "authtype_mismatch"),
    "cut": (lambda ip, ah, vrrp: (ip, ah[:-4], vrrp), "auth_failure"),
    "longer": (lambda ip, ah, vrrp: (ip, ah + bytes(4), vrrp), "auth_failure"),
    "no IP header": (lambda ip, ah, vrrp: (b"", ah, vrrp), "auth_failure"),
    "other value": (lambda ip, ah, vrrp: (ip, ah[:-1] + bytes((ah[-1] ^ 1,)), vrrp), "auth_failure"),
    "other sequence": (lambda ip, ah, vrrp: (ip, ah[:11] + b"\x63" + ah[12:], vrrp), "auth_failure"),
    "other source": (lambda ip, ah, vrrp: (ip[:15] + b"\x09" + ip[16:], ah, vrrp), "auth_failure"),
    "other identification": (lambda ip, ah, vrrp: (ip[:5] + b"\x63" + ip[6:], ah, vrrp), "auth_failure"),
    "TTL of multicast": (lambda ip, ah, vrrp: (ip[:8] + b"\x40" + ip[9:], ah, vrrp), "auth_failure"),
    "other priority": (lambda ip, ah, vrrp: (ip, ah, vrrp[:2] + b"\xff" + vrrp[3:]), "auth_failure"),
    "type NONE inside": (lambda ip, ah, vrrp: (ip, ah, vrrp[:4] + b"\0" + vrrp[5:]), "authtype_mismatch"),
    "signed, SPI of another": (
        lambda ip, ah, vrrp: (ip[:12] + PEER.packed + ip[16:], KEY.sign(US, PEER, 255, vrrp, 1)[1], vrrp),
        "auth_failure",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    damage, reason = BAD[case]
    with pytest.raises(PeerError) as caught:
        _decode(*damage(*_signed()))
    assert caught.value.reason == reason


def test_the_spi_is_the_address_also_where_the_value_is_right():
    header, _, payload = _signed()
    forged = Key(b"secret\0\0")
    spi = b"\x70\x04\0\0" + PEER.packed + (7).to_bytes(4)
    ah = spi + forged._icv(header, spi + bytes(12), payload)  # whoever has the key can sign anything
    with pytest.raises(PeerError, match="SPI"):
        KEY.verify(header, ah, payload)


def test_another_key():
    with pytest.raises(PeerError) as caught:
        _decode(*_signed(), replace(INSTANCE, auth_pass="hunter2"))
    assert caught.value.reason == "auth_failure"
    assert "hunter2" not in str(caught.value)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(ip_header=st.binary(max_size=64), ah=st.binary(max_size=64), payload=st.binary(max_size=64))
def test_anything_is_an_advert_or_a_peer_error(ip_header, ah, payload):
    with pytest.raises(PeerError):
        KEY.verify(ip_header, ah, payload)


# -- sequence numbers


class Clock:
    """The time in µs since 1970."""

    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.us


def test_each_advert_has_a_higher_number_and_none_below_the_clocks():
    clock = Clock()
    sequence = Sequence(clock)
    first = sequence.next()
    assert first == clock_sequence(clock.us)
    assert sequence.next() == first + 1
    clock.us += 3_000_000
    assert sequence.next() == first + 12
    clock.us -= 3600_000_000  # the clock was put back
    assert sequence.next() == first + 13


def test_a_speaker_that_was_restarted_is_above_the_former_one():
    clock = Clock()
    former = Sequence(clock)
    for _ in range(100):
        last = former.next()
        clock.us += 1_000_000
    assert Sequence(clock).next() > last


def test_whoever_takes_over_goes_on_above_what_it_heard():
    clock = Clock()
    sequence = Sequence(clock)
    ahead = clock_sequence(clock.us) + 10_000  # the peer's clock is ahead
    sequence.take(PEER, ahead)
    assert sequence.next() == ahead + 1


def test_a_replay_is_refused():
    sequence = Sequence(Clock())
    sequence.take(PEER, 5)
    sequence.take(PEER, 9)
    for old in (9, 8, 5, 0):
        with pytest.raises(PeerError, match="replay") as caught:
            sequence.take(PEER, old)
        assert caught.value.reason == "auth_failure"
    sequence.take(PEER, 10)
    sequence.take(IPv4Address("10.9.0.3"), 2), "another sender has numbers of its own"


def test_a_keepalived_that_was_restarted_is_believed_once_it_has_heard_us():
    """It begins at 1, and takes over the number of whomever it hears, as we do."""
    clock = Clock()
    sequence = Sequence(clock)
    sequence.take(PEER, sequence.next() + 1)
    with pytest.raises(PeerError, match="replay"):
        sequence.take(PEER, 1)
    ours = sequence.next()
    sequence.take(PEER, ours + 1)


def test_many_senders_cost_no_memory():
    sequence = Sequence(Clock())
    for number in range(1000):
        sequence.take(IPv4Address(number), 5)
    assert len(sequence._heard) <= 16


@pytest.mark.parametrize("epoch_us", [0, -1, 1_704_067_200_000_000, 10**20])
def test_the_clocks_number_fits_into_the_field(epoch_us):
    assert 1 <= clock_sequence(epoch_us) <= 0xFFFFFFFF
    assert Sequence(lambda: epoch_us).next() <= 0xFFFFFFFF

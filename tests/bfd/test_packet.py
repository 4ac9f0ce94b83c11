from __future__ import annotations

import pytest

from haxlb.bfd.packet import ControlPacket, Diagnostic, State, decode, diagnostic_words, encode
from haxlb.model.errors import PeerError

UP = ControlPacket(
    state=State.UP,
    diagnostic=Diagnostic.NONE,
    poll=True,
    detect_mult=5,
    my_discriminator=0x01020304,
    your_discriminator=0x0A0B0C0D,
    desired_min_tx_us=10_000,
    required_min_rx_us=20_000,
)
BYTES = bytes.fromhex("20e00518 01020304 0a0b0c0d 00002710 00004e20 00000000")


def altered(at: int, value: int) -> bytes:
    return BYTES[:at] + bytes([value]) + BYTES[at + 1 :]


def test_the_layout_is_that_of_the_rfc() -> None:
    assert encode(UP) == BYTES
    assert decode(BYTES) == UP


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("flag", ["poll", "final", "control_plane_independent", "demand"])
def test_every_state_and_flag_goes_there_and_back(state: State, flag: str) -> None:
    packet = ControlPacket(
        state=state,
        diagnostic=31,
        detect_mult=255,
        my_discriminator=0xFFFFFFFF,
        your_discriminator=1,
        desired_min_tx_us=0xFFFFFFFF,
        required_min_rx_us=0,
        required_min_echo_rx_us=7,
        **{flag: True},  # type: ignore[arg-type]
    )
    assert decode(encode(packet)) == packet


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "length"),
        (BYTES[:-1], "length"),
        (altered(0, 0x00), "version"),
        (altered(0, 0x40), "version"),
        (altered(3, 23), "length"),
        (altered(3, 25), "length"),
        (altered(3, 255), "length"),
        (altered(2, 0), "detect_mult"),
        (altered(1, 0xC1), "multipoint"),
        (BYTES[:4] + bytes(4) + BYTES[8:], "my_discriminator"),
        (BYTES[:8] + bytes(4) + BYTES[12:], "your_discriminator"),
        (bytes([0x20, 0x80]) + BYTES[2:8] + bytes(4) + BYTES[12:], "your_discriminator"),
        (altered(1, 0xC4), "length"),
        (bytes([0x20, 0xC4, 5, 28]) + BYTES[4:] + bytes.fromhex("01040141"), "authentication"),
    ],
)
def test_what_the_rfc_forbids_is_refused_by_name(payload: bytes, reason: str) -> None:
    with pytest.raises(PeerError) as caught:
        decode(payload)
    assert caught.value.reason == reason


@pytest.mark.parametrize("flags", [0x00, 0x40])
def test_only_down_and_admin_down_may_not_know_our_discriminator(flags: int) -> None:
    payload = bytes([0x20, flags]) + BYTES[2:8] + bytes(4) + BYTES[12:]
    assert decode(payload).your_discriminator == 0


def test_what_follows_the_packet_is_not_looked_at() -> None:
    """RFC 5880 section 6.8.6 discards a length that is greater than the payload, not one that is less."""
    assert decode(BYTES + b"trailer") == UP


def test_reserved_diagnostics_have_a_number_for_a_name() -> None:
    assert diagnostic_words(1) == "control detection time expired"
    assert diagnostic_words(9) == "diagnostic 9"

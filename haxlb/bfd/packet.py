"""The BFD Control packet on the wire (RFC 5880 section 4.1): bytes in, values out.

`decode` raises nothing but PeerError, and looks at a packet in the order of RFC 5880 section 6.8.6.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from haxlb.model.errors import PeerError

SINGLE_HOP_PORT = 3784
"""RFC 5881 section 4."""
MULTIHOP_PORT = 4784
"""RFC 5883 section 5."""
FIRST_SOURCE_PORT = 49152
LAST_SOURCE_PORT = 65535
"""Source ports of a session (RFC 5881 section 4)."""

_VERSION = 1
_LENGTH = 24
_LENGTH_WITH_AUTHENTICATION = 26
_LAYOUT = struct.Struct("!BBBBIIIII")
_POLL, _FINAL, _INDEPENDENT, _AUTHENTICATION, _DEMAND, _MULTIPOINT = 0x20, 0x10, 0x08, 0x04, 0x02, 0x01


class State(IntEnum):
    """bfd.SessionState, with the numbers of the wire."""

    ADMIN_DOWN = 0
    DOWN = 1
    INIT = 2
    UP = 3

    def __str__(self) -> str:
        return _STATE_NAMES[self]


class Diagnostic(IntEnum):
    """Why the sender last left Up (RFC 5880 section 4.1)."""

    NONE = 0
    DETECTION_TIME_EXPIRED = 1
    ECHO_FAILED = 2
    NEIGHBOR_SIGNALED_DOWN = 3
    FORWARDING_PLANE_RESET = 4
    PATH_DOWN = 5
    CONCATENATED_PATH_DOWN = 6
    ADMINISTRATIVELY_DOWN = 7
    REVERSE_CONCATENATED_PATH_DOWN = 8


_STATE_NAMES = {State.ADMIN_DOWN: "AdminDown", State.DOWN: "Down", State.INIT: "Init", State.UP: "Up"}
_DIAGNOSTIC_WORDS: dict[int, str] = {
    Diagnostic.NONE: "no diagnostic",
    Diagnostic.DETECTION_TIME_EXPIRED: "control detection time expired",
    Diagnostic.ECHO_FAILED: "echo function failed",
    Diagnostic.NEIGHBOR_SIGNALED_DOWN: "neighbor signaled session down",
    Diagnostic.FORWARDING_PLANE_RESET: "forwarding plane reset",
    Diagnostic.PATH_DOWN: "path down",
    Diagnostic.CONCATENATED_PATH_DOWN: "concatenated path down",
    Diagnostic.ADMINISTRATIVELY_DOWN: "administratively down",
    Diagnostic.REVERSE_CONCATENATED_PATH_DOWN: "reverse concatenated path down",
}


def diagnostic_words(diagnostic: int) -> str:
    """The name of a diagnostic; those from 9 to 31 are reserved (RFC 5880 section 4.1)."""
    return _DIAGNOSTIC_WORDS.get(diagnostic, f"diagnostic {diagnostic}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPacket:
    """One BFD Control packet without authentication."""

    state: State
    diagnostic: int = Diagnostic.NONE
    """0 to 31; a `Diagnostic` where it is one that the RFC names."""
    poll: bool = False
    final: bool = False
    control_plane_independent: bool = False
    demand: bool = False
    detect_mult: int
    """1 to 255."""
    my_discriminator: int
    """Never 0."""
    your_discriminator: int = 0
    """0 = the sender does not know it (yet): only in Down and AdminDown."""
    desired_min_tx_us: int
    required_min_rx_us: int
    """0 = the sender wants no periodic packets."""
    required_min_echo_rx_us: int = 0
    """0 = the sender takes no echo packets."""


def encode(packet: ControlPacket) -> bytes:
    """The UDP payload."""
    flags = (
        (_POLL if packet.poll else 0)
        | (_FINAL if packet.final else 0)
        | (_INDEPENDENT if packet.control_plane_independent else 0)
        | (_DEMAND if packet.demand else 0)
    )
    return _LAYOUT.pack(
        _VERSION << 5 | packet.diagnostic,
        packet.state << 6 | flags,
        packet.detect_mult,
        _LENGTH,
        packet.my_discriminator,
        packet.your_discriminator,
        packet.desired_min_tx_us,
        packet.required_min_rx_us,
        packet.required_min_echo_rx_us,
    )


def decode(payload: bytes) -> ControlPacket:
    """Read and check one packet. Raises PeerError."""
    if len(payload) < _LENGTH:
        raise PeerError("length", f"{len(payload)} bytes are too short for a BFD Control packet")
    first, second, detect_mult, length, mine, yours, desired_tx, required_rx, required_echo = _LAYOUT.unpack_from(
        payload
    )
    if first >> 5 != _VERSION:
        raise PeerError("version", f"version {first >> 5} is not 1")
    shortest = _LENGTH_WITH_AUTHENTICATION if second & _AUTHENTICATION else _LENGTH
    if not shortest <= length <= len(payload):
        raise PeerError("length", f"it says that it has {length} bytes; there are {len(payload)}")
    if detect_mult == 0:
        raise PeerError("detect_mult", "its detection multiplier is 0")
    if second & _MULTIPOINT:
        raise PeerError("multipoint", "its multipoint bit is set")
    if mine == 0:
        raise PeerError("my_discriminator", "its own discriminator is 0")
    state = State(second >> 6)
    if yours == 0 and state in (State.INIT, State.UP):
        raise PeerError("your_discriminator", f"it is {state} and does not name our discriminator")
    if second & _AUTHENTICATION:
        raise PeerError("authentication", "it is authenticated, which no session here is")
    return ControlPacket(
        state=state,
        diagnostic=first & 0x1F,
        poll=bool(second & _POLL),
        final=bool(second & _FINAL),
        control_plane_independent=bool(second & _INDEPENDENT),
        demand=bool(second & _DEMAND),
        detect_mult=detect_mult,
        my_discriminator=mine,
        your_discriminator=yours,
        desired_min_tx_us=desired_tx,
        required_min_rx_us=required_rx,
        required_min_echo_rx_us=required_echo,
    )

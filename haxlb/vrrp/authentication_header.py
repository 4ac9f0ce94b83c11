"""auth_type AH: an IPsec authentication header in front of the message (RFC 2402, RFC 2338 section 5.3.6.3).

IPv4 and version 2 only. What RFC 2402 leaves open is done as keepalived does it, or the two would not believe each
other: the SPI is the sender's address; the integrity check value is HMAC-MD5-96 (RFC 2403) over IP header,
authentication header and message, with TOS, fragment field and header checksum as zeros, and the TTL as zero only for
unicast: of multicast it must be 255, and so may be covered.

The sequence number is one of the virtual router rather than of a sender: whoever becomes MASTER goes on above the
highest that it has heard. A receiver refuses what is not above the last of the same sender (a replay).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from ipaddress import IPv4Address

from haxlb.model.addresses import IPAddress
from haxlb.model.errors import PeerError
from haxlb.vrrp.advert_checksum import PROTOCOL_NUMBER

AH_PROTOCOL_NUMBER = 51
"""IP protocol of the authentication header (IANA)."""
AH_LENGTH = 24

_IPV4_HEADER = struct.Struct("!BBHHHBBH4s4s")
_AH = struct.Struct("!BBHII12s")
_LENGTH_FIELD = AH_LENGTH // 4 - 2
"""In 32-bit words less two (RFC 2402 section 2.2)."""
_ICV_LENGTH = 12
_NO_ICV = bytes(_ICV_LENGTH)
_MD5_BLOCK = 64
_TOS_INTERNETWORK_CONTROL = 0xC0

_TICK_US = 250_000
_TICKS_SINCE_US = 1_704_067_200_000_000
"""2024-01-01 UTC: with four ticks a second, 32 bits last until 2058."""
_MAX_SEQUENCE = 0xFFFFFFFF
_MAX_SENDERS = 16


class Key:
    """The shared key of an instance, made ready for signing."""

    def __init__(self, key: bytes) -> None:
        padded = key.ljust(_MD5_BLOCK, b"\0")
        # By hand, not by hmac: hosts in FIPS mode refuse MD5 there, and this way the key's block is digested once.
        self._inner = hashlib.md5(bytes(each ^ 0x36 for each in padded), usedforsecurity=False)
        self._outer = hashlib.md5(bytes(each ^ 0x5C for each in padded), usedforsecurity=False)

    def sign(
        self, source: IPAddress, destination: IPAddress, ttl: int, payload: bytes, sequence: int
    ) -> tuple[bytes, bytes]:
        """IP header and authentication header for this message."""
        length = _IPV4_HEADER.size + AH_LENGTH + len(payload)
        # The identification is covered, so it may not be left to the kernel, which fills in zeros (raw(7)).
        identification = sequence & 0xFFFF or 1
        ends = (AH_PROTOCOL_NUMBER, 0, source.packed, destination.packed)
        header = _IPV4_HEADER.pack(0x45, _TOS_INTERNETWORK_CONTROL, length, identification, 0, ttl, *ends)
        spi = int.from_bytes(source.packed)
        fields = (PROTOCOL_NUMBER, _LENGTH_FIELD, 0, spi, sequence)
        return header, _AH.pack(*fields, self._icv(header, _AH.pack(*fields, _NO_ICV), payload))

    def verify(self, ip_header: bytes, ah: bytes, payload: bytes) -> int:
        """The sequence number of a received message. Raises PeerError (`auth_failure`) unless it was signed so."""
        if len(ah) != AH_LENGTH or len(ip_header) < _IPV4_HEADER.size:
            raise PeerError("auth_failure", f"its authentication header has {len(ah)} bytes instead of {AH_LENGTH}")
        *fields, icv = _AH.unpack(ah)
        if not hmac.compare_digest(icv, self._icv(ip_header, ah[:-_ICV_LENGTH] + _NO_ICV, payload)):
            raise PeerError("auth_failure", "its integrity check value is wrong: another key, or it was altered")
        spi, sequence = fields[3:]
        if spi != int.from_bytes(ip_header[12:16]):
            raise PeerError("auth_failure", f"its SPI {IPv4Address(spi)} is not the address that it came from")
        return int(sequence)

    def _icv(self, ip_header: bytes, ah: bytes, payload: bytes) -> bytes:
        still = bytearray(ip_header)
        still[1] = 0
        still[6:8] = still[10:12] = b"\0\0"
        if still[16] >> 4 != 0xE:  # not multicast: routers may have counted the TTL down  # noqa: PLR2004
            still[8] = 0
        inner = self._inner.copy()
        inner.update(bytes(still) + ah + payload)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()[:_ICV_LENGTH]


class Sequence:
    """The sequence numbers of one virtual router, as one speaker sees them."""

    def __init__(self, epoch_us: Callable[[], int]) -> None:
        self._epoch_us = epoch_us
        self._last = 0
        self._heard: dict[IPAddress, int] = {}

    def next(self) -> int:
        """For the next advert of ours: never below the clock's, so that a speaker that was restarted is believed."""
        self._last = min(_MAX_SEQUENCE, max(self._last + 1, clock_sequence(self._epoch_us())))
        return self._last

    def take(self, source: IPAddress, sequence: int) -> None:
        """Note what an authentic advert had. Raises PeerError (`auth_failure`) for a replay.

        A sender that begins anew from zero, as keepalived does, is not believed until it has heard somebody else:
        from then on it counts above that.
        """
        former = self._heard.pop(source, -1)
        self._heard[source] = max(former, sequence)
        if sequence <= former:
            raise PeerError("auth_failure", f"its sequence number {sequence} is not above {former}, the last: a replay")
        self._last = max(self._last, sequence)
        if len(self._heard) > _MAX_SENDERS:
            del self._heard[next(iter(self._heard))]


def clock_sequence(epoch_us: int) -> int:
    """The least sequence number to send at this time (µs since 1970).

    It grows by four a second: faster than the adverts of version 2, which are a second apart, so that whoever speaks
    for a dead speaker needs nothing but a clock to be above it.
    """
    return min(_MAX_SEQUENCE, max(1, (epoch_us - _TICKS_SINCE_US) // _TICK_US))

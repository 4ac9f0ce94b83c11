"""The VRRP advertisement on the wire: version 2 (RFC 3768) and version 3 (RFC 9568), over IPv4 and IPv6.

Bytes in, values out. `decode` raises nothing but PeerError, whose reason is the name of keepalived's counter, and
looks at a message in keepalived's order, so that a mixed pair counts the same fault under the same name.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from haxlb.model.addresses import IPAddress
from haxlb.model.errors import PeerError
from haxlb.model.instance import VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.vrrp.advert_checks import (
    ADVERT_TTL,
    AUTH_HEADER,
    AUTH_LENGTH,
    AUTH_NONE,
    AUTH_PASS,
    MULTICAST_GROUP,
    MULTICAST_GROUP6,
    Expected,
    auth_type_of,
    check_auth_type,
    check_ttl,
    group_of,
    has_old_checksum,
    is_unicast,
    padded_password,
)
from haxlb.vrrp.advert_checksum import PROTOCOL_NUMBER, checksum, pseudo_header

__all__ = [
    "ADVERT_TTL",
    "AUTH_HEADER",
    "AUTH_NONE",
    "AUTH_PASS",
    "MULTICAST_GROUP",
    "MULTICAST_GROUP6",
    "PROTOCOL_NUMBER",
    "Advert",
    "Expected",
    "advert_of",
    "advertised",
    "decode",
    "encode",
    "group_of",
    "is_unicast",
    "padded_password",
]

_TYPE_ADVERTISEMENT = 1
_HEADER_LENGTH = 8
_CENTISECOND_US = 10_000
_MAX_ADDRESSES = {4: 255, 6: 90}
"""What the count can say, and of IPv6 what fits into 1500 bytes: a raw socket does not fragment (EMSGSIZE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advert:
    """One ADVERTISEMENT."""

    version: int
    vrid: int
    priority: int
    """0 = the sender gives up MASTER."""
    interval_us: int
    """Whole seconds in version 2, hundredths of a second in version 3."""
    addresses: tuple[IPAddress, ...] = ()
    auth_type: int = AUTH_NONE
    auth_data: bytes = field(default=b"", repr=False)
    """At most 8 bytes; version 2 only."""
    old_checksum: bool = field(default=False, compare=False)
    """It came with the checksum that older keepalived gives unicast."""


def advertised(instance: VrrpInstance) -> tuple[IPAddress, ...]:
    """The addresses that its adverts name: the first ones, as many as fit."""
    return tuple(vip.address for vip in instance.vips[: _MAX_ADDRESSES[instance.family]])


def advert_of(instance: VrrpInstance, priority: int) -> Advert:
    """What an instance sends, with this priority (0 to resign)."""
    auth_type = auth_type_of(instance)
    return Advert(
        version=instance.version,
        vrid=instance.vrid,
        priority=priority,
        interval_us=instance.advert_interval_us,
        addresses=advertised(instance),
        auth_type=auth_type,
        auth_data=padded_password(instance.auth_pass or "") if auth_type == AUTH_PASS else b"",
    )


def encode(advert: Advert, source: IPAddress, destination: IPAddress, *, checksum_as_v2: bool = False) -> bytes:
    """The message as it goes into the IP packet.

    The checksum of version 3, and of IPv6, covers both addresses of that packet; `checksum_as_v2` leaves them out.
    """
    addresses = b"".join(each.packed for each in advert.addresses)
    trailer = b""
    if advert.version == 2:  # noqa: PLR2004
        timing = bytes((advert.auth_type, advert.interval_us // SECOND_US))
        if source.version == 4:  # noqa: PLR2004
            trailer = advert.auth_data.ljust(AUTH_LENGTH, b"\0")
    else:
        timing = struct.pack("!H", advert.interval_us // _CENTISECOND_US & 0x0FFF)
    covered = b""
    # Over IPv6 the sum is the kernel's in keepalived (IPV6_CHECKSUM), whatever the version.
    if source.version != 4 or (advert.version != 2 and not checksum_as_v2):  # noqa: PLR2004
        covered = pseudo_header(source, destination, _HEADER_LENGTH + len(addresses))
    first = advert.version << 4 | _TYPE_ADVERTISEMENT
    head = bytes((first, advert.vrid, advert.priority, len(advert.addresses))) + timing
    return head + struct.pack("!H", checksum(covered + head + b"\0\0" + addresses + trailer)) + addresses + trailer


def decode(
    payload: bytes,
    source: IPAddress,
    destination: IPAddress,
    *,
    ttl: int = ADVERT_TTL,
    expected: Expected | None = None,
    ah: bytes = b"",
    ip_header: bytes = b"",
) -> Advert:
    """Read and check one message; without `expected` only against itself.

    The order is that of keepalived's vrrp_check_packet, but for the version: a message of a version that we do not
    speak has no known length, so the version is judged first. Raises PeerError. The sequence number of an
    authentication header (`ah`, behind `ip_header`) is for `authentication_header.Sequence` to judge.
    """
    if expected is not None:
        expected.check_header(ah)
    size = 4 if source.version == 4 else 16  # noqa: PLR2004
    end = _end_of_addresses(payload, source, size)
    version, kind = payload[0] >> 4, payload[0] & 0x0F
    check_ttl(ttl, destination)
    if expected is not None:
        expected.check_version(version)
    auth_type, auth_data = AUTH_NONE, b""
    if version == 2:  # noqa: PLR2004
        auth_type, auth_data = payload[4], payload[end:]
        interval_us = payload[5] * SECOND_US
        check_auth_type(auth_type)
        if expected is not None:
            expected.check_auth(auth_type, auth_data, ip_header, ah, payload)
    else:
        interval_us = (int.from_bytes(payload[4:6]) & 0x0FFF) * _CENTISECOND_US
    _check_interval(version, interval_us, expected)
    if kind != _TYPE_ADVERTISEMENT:
        raise PeerError("invalid_type_rcvd", f"type {kind} is not an advertisement")
    old_checksum = has_old_checksum(payload, version, source, destination, expected)
    if expected is not None:
        expected.check_cast(destination)
        expected.check_sender(source, ttl)
        expected.check_addresses(version, payload[3])
    family = IPv4Address if source.version == 4 else IPv6Address  # noqa: PLR2004
    return Advert(
        version=version,
        vrid=payload[1],
        priority=payload[2],
        interval_us=interval_us,
        addresses=tuple(family(payload[at : at + size]) for at in range(_HEADER_LENGTH, end, size)),
        auth_type=auth_type,
        auth_data=auth_data if auth_type == AUTH_PASS else b"",
        old_checksum=old_checksum,
    )


def _end_of_addresses(payload: bytes, source: IPAddress, size: int) -> int:
    if len(payload) < _HEADER_LENGTH:
        raise PeerError("packet_len_err", f"{len(payload)} bytes are too short for a VRRP message")
    version, count = payload[0] >> 4, payload[3]
    if version not in (2, 3):
        raise PeerError("vers_err", f"version {version} is neither 2 nor 3")
    end = _HEADER_LENGTH + count * size
    # Exact: Linux trims Ethernet's padding from an IP packet before a raw socket sees it (ip_rcv, net/ipv4/ip_input.c).
    wanted = end + (AUTH_LENGTH if version == 2 and source.version == 4 else 0)  # noqa: PLR2004
    if len(payload) != wanted:
        raise PeerError("packet_len_err", f"{len(payload)} bytes, but its {count} addresses need {wanted}")
    return end


def _check_interval(version: int, interval_us: int, expected: Expected | None) -> None:
    # A learned interval of 0 would make every BACKUP promote itself at once.
    if interval_us == 0:
        raise PeerError("advert_interval_err", "its advertisement interval is 0")
    if expected is not None:
        expected.check_interval(version, interval_us)

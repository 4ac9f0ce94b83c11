"""The VRRP advertisement on the wire: version 2 (RFC 3768) and version 3 over IPv4 (RFC 9568).

Bytes in, values out. `decode` raises nothing but PeerError, whose reason is the name of keepalived's counter, and
looks at a message in keepalived's order, so that a mixed pair counts the same fault under the same name.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from haxlb.model.errors import PeerError
from haxlb.model.node import SECOND_US, VrrpInstance

MULTICAST_GROUP = IPv4Address("224.0.0.18")
PROTOCOL_NUMBER = 112
"""IP protocol of VRRP (IANA)."""
ADVERT_TTL = 255
"""A receiver of multicast drops anything else: it came through a router (RFC 9568 section 5.1.1.3)."""

AUTH_NONE = 0
AUTH_PASS = 1
AUTH_HEADER = 2

_TYPE_ADVERTISEMENT = 1
_HEADER_LENGTH = 8
_ADDRESS_LENGTH = 4
_AUTH_LENGTH = 8
"""Version 2 always carries this many bytes behind the addresses, zeros without authentication (RFC 3768 5.3.10)."""
_CENTISECOND_US = 10_000
_MAX_ADDRESSES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Advert:
    """One ADVERTISEMENT."""

    version: int
    vrid: int
    priority: int
    """0 = the sender gives up MASTER."""
    interval_us: int
    """Whole seconds in version 2, hundredths of a second in version 3."""
    addresses: tuple[IPv4Address, ...] = ()
    auth_type: int = AUTH_NONE
    auth_data: bytes = field(default=b"", repr=False)
    """At most 8 bytes; version 2 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an instance demands of a message before it believes it."""

    version: int
    interval_us: int
    auth_pass: bytes | None = field(repr=False)
    unicast: bool

    @classmethod
    def of(cls, instance: VrrpInstance) -> Expected:
        """The demands of a configured instance."""
        return cls(
            version=instance.version,
            interval_us=instance.advert_interval_us,
            auth_pass=None if instance.auth_pass is None else padded_password(instance.auth_pass),
            unicast=bool(instance.peers),
        )


def padded_password(text: str) -> bytes:
    """The eight bytes that stand on the wire for `auth_pass`."""
    return text.encode()[:_AUTH_LENGTH].ljust(_AUTH_LENGTH, b"\0")


def advert_of(instance: VrrpInstance, priority: int) -> Advert:
    """What an instance sends, with this priority (0 to resign)."""
    with_password = instance.version == 2 and instance.auth_pass is not None  # noqa: PLR2004 - the version's number
    return Advert(
        version=instance.version,
        vrid=instance.vrid,
        priority=priority,
        interval_us=instance.advert_interval_us,
        addresses=tuple(vip.address for vip in instance.vips[:_MAX_ADDRESSES]),
        auth_type=AUTH_PASS if with_password else AUTH_NONE,
        auth_data=padded_password(instance.auth_pass or "") if with_password else b"",
    )


def encode(advert: Advert, source: IPv4Address, destination: IPv4Address) -> bytes:
    """The message as it goes into the IP packet; version 3's checksum covers both addresses of that packet."""
    addresses = b"".join(each.packed for each in advert.addresses)
    count = len(advert.addresses)
    if advert.version == 2:  # noqa: PLR2004
        timing = bytes((advert.auth_type, advert.interval_us // SECOND_US))
        trailer = advert.auth_data.ljust(_AUTH_LENGTH, b"\0")
        covered = b""
    else:
        timing = struct.pack("!H", advert.interval_us // _CENTISECOND_US & 0x0FFF)
        trailer = b""
        covered = _pseudo_header(source, destination, _HEADER_LENGTH + len(addresses))
    head = bytes((advert.version << 4 | _TYPE_ADVERTISEMENT, advert.vrid, advert.priority, count)) + timing
    checksum = 0xFFFF ^ _ones_sum(covered + head + b"\0\0" + addresses + trailer)
    return head + struct.pack("!H", checksum) + addresses + trailer


def decode(
    payload: bytes,
    source: IPv4Address,
    destination: IPv4Address,
    *,
    ttl: int = ADVERT_TTL,
    expected: Expected | None = None,
) -> Advert:
    """Read and check one message; without `expected` only against itself.

    The order is that of keepalived's vrrp_check_packet, but for the version: a message of a version that we do not
    speak has no known length, so the version is judged first. Raises PeerError.
    """
    if len(payload) < _HEADER_LENGTH:
        raise PeerError("packet_len_err", f"{len(payload)} bytes are too short for a VRRP message")
    version, kind = payload[0] >> 4, payload[0] & 0x0F
    _check_envelope(payload, version, ttl, destination, expected)
    _vrid, priority, count = payload[1:4]
    end = _HEADER_LENGTH + count * _ADDRESS_LENGTH
    if version == 2:  # noqa: PLR2004
        auth_type, auth_data = payload[4], payload[end:]
        interval_us = payload[5] * SECOND_US
        _check_auth(auth_type, auth_data, expected)
    else:
        auth_type, auth_data = AUTH_NONE, b""
        interval_us = (struct.unpack("!H", payload[4:6])[0] & 0x0FFF) * _CENTISECOND_US
    _check_interval(version, interval_us, expected)
    if kind != _TYPE_ADVERTISEMENT:
        raise PeerError("invalid_type_rcvd", f"type {kind} is not an advertisement")
    _check_checksum(payload, version, source, destination)
    if expected is not None and destination.is_multicast == expected.unicast:
        raise PeerError("addr_list_err", _wrong_cast(destination))
    return Advert(
        version=version,
        vrid=payload[1],
        priority=priority,
        interval_us=interval_us,
        addresses=tuple(IPv4Address(payload[at : at + 4]) for at in range(_HEADER_LENGTH, end, _ADDRESS_LENGTH)),
        auth_type=auth_type,
        auth_data=auth_data if auth_type == AUTH_PASS else b"",
    )


def _check_envelope(
    payload: bytes, version: int, ttl: int, destination: IPv4Address, expected: Expected | None
) -> None:
    if version not in (2, 3):
        raise PeerError("vers_err", f"version {version} is neither 2 nor 3")
    # Exact: Linux trims Ethernet's padding from an IP packet before a raw socket sees it (ip_rcv, net/ipv4/ip_input.c).
    wanted = _HEADER_LENGTH + payload[3] * _ADDRESS_LENGTH + (_AUTH_LENGTH if version == 2 else 0)  # noqa: PLR2004
    if len(payload) != wanted:
        raise PeerError("packet_len_err", f"{len(payload)} bytes, but its {payload[3]} addresses need {wanted}")
    if ttl != ADVERT_TTL and destination.is_multicast:
        raise PeerError("ip_ttl_err", f"TTL {ttl} instead of {ADVERT_TTL}: it came through a router")
    if expected is not None and version != expected.version:
        raise PeerError("vers_err", f"version {version}, ours is {expected.version}")


def _check_auth(auth_type: int, auth_data: bytes, expected: Expected | None) -> None:
    if auth_type not in (AUTH_NONE, AUTH_PASS, AUTH_HEADER):
        raise PeerError("invalid_authtype", f"authentication type {auth_type} does not exist")
    if expected is None:
        return
    own = AUTH_NONE if expected.auth_pass is None else AUTH_PASS
    if auth_type != own:
        raise PeerError("authtype_mismatch", f"authentication type {auth_type}, ours is {own}")
    if expected.auth_pass is not None and not hmac.compare_digest(auth_data, expected.auth_pass):
        raise PeerError("auth_failure", "its password is not ours")


def _check_interval(version: int, interval_us: int, expected: Expected | None) -> None:
    # A learned interval of 0 would make every BACKUP promote itself at once.
    if interval_us == 0:
        raise PeerError("advert_interval_err", "its advertisement interval is 0")
    # Version 2 demands equality (RFC 3768 section 7.1); version 3 learns the MASTER's interval instead.
    if version == 2 and expected is not None and interval_us != expected.interval_us:  # noqa: PLR2004
        raise PeerError(
            "advert_interval_err",
            f"it advertises every {interval_us // SECOND_US} s, we every {expected.interval_us // SECOND_US} s",
        )


def _check_checksum(payload: bytes, version: int, source: IPv4Address, destination: IPv4Address) -> None:
    if version == 2:  # noqa: PLR2004
        good = _ones_sum(payload) == 0xFFFF  # noqa: PLR2004
    else:
        good = _ones_sum(_pseudo_header(source, destination, len(payload)) + payload) == 0xFFFF  # noqa: PLR2004
        if not good and not destination.is_multicast:
            # Older keepalived computes unicast's checksum over the multicast group.
            good = _ones_sum(_pseudo_header(source, MULTICAST_GROUP, len(payload)) + payload) == 0xFFFF  # noqa: PLR2004
    if not good:
        raise PeerError("chk_err", "its checksum is wrong")


def _wrong_cast(destination: IPv4Address) -> str:
    if destination.is_multicast:
        return "a multicast advert for an instance with unicast peers"
    return "a unicast advert for an instance without unicast peers"


def _pseudo_header(source: IPv4Address, destination: IPv4Address, length: int) -> bytes:
    return source.packed + destination.packed + struct.pack("!BBH", 0, PROTOCOL_NUMBER, length)


def _ones_sum(data: bytes) -> int:
    """Ones' complement sum of 16-bit words (RFC 1071); every VRRP message has an even length."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16)

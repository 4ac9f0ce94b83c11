"""One VRRP message, field by field, with everything that is wrong with it; `advert.decode` stops at the first fault.

Both judge alike: what `decode` refuses has a fatal finding of the same reason here (a test holds them together).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import IPv6Address, ip_address

from haxlb.model.addresses import IPAddress
from haxlb.model.errors import PeerError
from haxlb.model.units import SECOND_US
from haxlb.vrrp.advert import ADVERT_TTL, AUTH_HEADER, AUTH_NONE, AUTH_PASS, MULTICAST_GROUP, padded_password
from haxlb.vrrp.advert_checksum import is_good, pseudo_header
from haxlb.vrrp.authentication_header import Key
from haxlb.vrrp.envelope import Envelope, Finding

_HEADER_LENGTH = 8
_AUTH_LENGTH = 8
_LENGTHS = {4: 4, 6: 16}
"""Bytes of an address by family."""
_CENTISECOND_US = 10_000
_VIRTUAL_MACS = {4: "00:00:5e:00:01:", 6: "00:00:5e:00:02:"}
"""RFC 9568 section 7.3; the VRID follows."""


class Form(Enum):
    """Over what a checksum was computed."""

    GOOD = "good"
    OLD_UNICAST = "over the multicast group's pseudo-header"
    """Unicast version 3 of old keepaliveds."""
    BARE = "without the pseudo-header"
    """Version 3 under v3_checksum_as_v2."""
    WRONG = "wrong"
    UNKNOWN = "not judged"
    """Without the IP header of a version 3 message nobody can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dissection:
    """What a message says; fields that it is too short for are 0 or empty."""

    envelope: Envelope
    family: int
    """4 or 6: of the addresses in it."""
    version: int = 0
    kind: int = 0
    """1 = ADVERTISEMENT."""
    vrid: int = 0
    priority: int = 0
    count: int = 0
    """Addresses that it says it has."""
    interval_us: int = 0
    auth_type: int = AUTH_NONE
    auth_data: bytes = field(default=b"", repr=False)
    """Version 2's last eight bytes; a password in clear: compared, never shown."""
    checksum: int = 0
    form: Form = Form.UNKNOWN
    addresses: tuple[IPAddress, ...] = ()
    findings: tuple[Finding, ...] = ()
    """The envelope's, too; by offset."""

    @property
    def wanted_length(self) -> int:
        """Bytes that a message of this version has with so many addresses."""
        # keepalived sends version 2 over IPv6, too, and leaves the authentication data out.
        trailer = _AUTH_LENGTH if (self.version, self.family) == (2, 4) else 0
        return _HEADER_LENGTH + self.count * _LENGTHS[self.family] + trailer

    @property
    def dropped(self) -> bool:
        """Whether every receiver drops it."""
        return any(each.fatal for each in self.findings)

    @property
    def legible(self) -> bool:
        """Whether its fields can be believed: it is whole, of a known version, and its checksum is not simply wrong."""
        unbelievable = {"packet_len_err", "vers_err", "invalid_type_rcvd", "fragment"}
        return self.form is not Form.WRONG and not any(each.reason in unbelievable for each in self.findings)


def dissect(envelope: Envelope, auth_pass: str | None = None) -> Dissection:
    """Read all that is there; raises nothing. With `auth_pass`, authentication is judged, too."""
    message = envelope.payload
    if len(message) < _HEADER_LENGTH:
        finding = _finding(envelope, 0, "packet_len_err", f"{len(message)} bytes are too short for a VRRP message")
        family = 6 if isinstance(envelope.source, IPv6Address) else 4
        return Dissection(envelope=envelope, family=family, findings=_sorted((*envelope.findings, finding)))
    version, count = message[0] >> 4, message[3]
    family = _family(envelope, version, count)
    end = _HEADER_LENGTH + count * _LENGTHS[family]
    two = version == 2  # noqa: PLR2004 - the version's number
    interval = message[5] * SECOND_US if two else (int.from_bytes(message[4:6]) & 0x0FFF) * _CENTISECOND_US
    read = Dissection(
        envelope=envelope,
        family=family,
        version=version,
        kind=message[0] & 0x0F,
        vrid=message[1],
        priority=message[2],
        count=count,
        interval_us=interval,
        auth_type=message[4] if two else AUTH_NONE,
        auth_data=message[end : end + _AUTH_LENGTH] if two and family == 4 else b"",  # noqa: PLR2004
        checksum=int.from_bytes(message[6:8]),
        form=_form(envelope, version, family),
        addresses=tuple(_addresses(message, end, _LENGTHS[family])),
    )
    findings = (*envelope.findings, *_faults(read), *_oddities(read))
    if auth_pass is not None:
        findings += tuple(_judge_authentication(read, auth_pass))
    return replace(read, findings=_sorted(findings))


def _family(envelope: Envelope, version: int, count: int) -> int:
    if envelope.source is not None:
        return envelope.source.version
    six = version in (2, 3) and count and len(envelope.payload) == _HEADER_LENGTH + count * _LENGTHS[6]
    return 6 if six else 4


def _addresses(message: bytes, end: int, length: int) -> Iterator[IPAddress]:
    for at in range(_HEADER_LENGTH, min(end, len(message) - length + 1), length):
        yield ip_address(message[at : at + length])


def _form(envelope: Envelope, version: int, family: int) -> Form:
    source, destination, size = envelope.source, envelope.destination, len(envelope.payload)
    message = envelope.payload + bytes(size % 2)  # one that is cut off may end within a word
    bare = is_good(message)
    if version == 2 and family == 4:  # noqa: PLR2004
        return Form.GOOD if bare else Form.WRONG
    if source is None or destination is None:
        return Form.UNKNOWN
    if is_good(pseudo_header(source, destination, size) + message):
        return Form.GOOD
    if family == 4:  # noqa: PLR2004
        if not destination.is_multicast and is_good(pseudo_header(source, MULTICAST_GROUP, size) + message):
            return Form.OLD_UNICAST
        if bare:
            return Form.BARE
    return Form.WRONG


def _faults(read: Dissection) -> Iterator[Finding]:
    """For what receivers drop it."""
    envelope, size = read.envelope, len(read.envelope.payload)
    if read.version not in (2, 3):
        yield _finding(envelope, 0, "vers_err", f"version {read.version} is neither 2 nor 3")
        return
    two = read.version == 2  # noqa: PLR2004
    if size != read.wanted_length:
        what = f"{size} bytes, but its {read.count} addresses need {read.wanted_length}"
        yield _finding(envelope, min(size, read.wanted_length), "packet_len_err", what)
    if envelope.multicast and envelope.ttl != ADVERT_TTL:
        yield Finding(
            offset=envelope.ttl_offset,
            reason="ip_ttl_err",
            message=f"TTL {envelope.ttl} instead of {ADVERT_TTL}: it came through a router",
        )
    if read.kind != 1:
        yield _finding(envelope, 0, "invalid_type_rcvd", f"type {read.kind} is not an advertisement")
    yield from _auth_faults(read)
    if read.interval_us == 0:
        yield _finding(envelope, 5 if two else 4, "advert_interval_err", "its advertisement interval is 0")
    if read.form is Form.WRONG:
        yield _finding(envelope, 6, "chk_err", f"its checksum 0x{read.checksum:04x} is wrong")
    elif read.form is Form.BARE:
        what = "its checksum is without the pseudo-header: only receivers with v3_checksum_as_v2 take it"
        yield _finding(envelope, 6, "chk_err", what)


def _auth_faults(read: Dissection) -> Iterator[Finding]:
    envelope = read.envelope
    if read.auth_type not in (AUTH_NONE, AUTH_PASS, AUTH_HEADER):
        yield _finding(envelope, 4, "invalid_authtype", f"authentication type {read.auth_type} does not exist")
    elif envelope.auth is not None and read.auth_type != AUTH_HEADER:
        what = f"an authentication header, although its authentication type is {read.auth_type}"
        yield Finding(offset=envelope.auth.offset, reason="authtype_mismatch", message=what)
    elif envelope.auth is None and read.auth_type == AUTH_HEADER and envelope.source is not None:
        yield _finding(envelope, 4, "authtype_mismatch", "authentication type 2 without an authentication header")


def _judge_authentication(read: Dissection, auth_pass: str) -> Iterator[Finding]:
    """Whether it is the password, or the key, of the sender."""
    password, auth = padded_password(auth_pass), read.envelope.auth
    if read.auth_type == AUTH_PASS and not hmac.compare_digest(read.auth_data, password):
        at = read.wanted_length - _AUTH_LENGTH
        yield _finding(
            read.envelope, min(at, len(read.envelope.payload)), "auth_failure", "its password is another one"
        )
    elif auth is not None and auth.ip_header:
        try:
            Key(password).verify(auth.ip_header, auth.raw, read.envelope.payload)
        except PeerError as problem:
            yield Finding(offset=auth.offset, reason=problem.reason, message=problem.message)


def _oddities(read: Dissection) -> Iterator[Finding]:
    """What receivers take, and what somebody should look at."""
    envelope = read.envelope
    if read.version not in (2, 3):
        return
    if (read.version, read.family) == (2, 6):
        yield _odd(envelope, 0, "version", "version 2 over IPv6, which RFC 3768 does not have")
    if read.vrid == 0:
        yield _odd(envelope, 1, "vrid", "VRID 0 does not exist")
    if read.count == 0:
        yield _odd(envelope, 3, "addr_list_err", "it names no address")
    if read.version == 3 and envelope.payload[4] >> 4:  # noqa: PLR2004
        yield _odd(envelope, 4, "reserved", f"reserved bits are 0x{envelope.payload[4] >> 4:x} instead of 0")
    if read.form is Form.OLD_UNICAST:
        what = "its checksum is over the multicast group's pseudo-header, as old keepaliveds compute it for unicast"
        yield _odd(envelope, 6, "old_checksum", what)
    if len(envelope.payload) == read.wanted_length:
        # Else what stands behind the header is anybody's guess.
        yield from _odd_body(read)
    yield from _odd_envelope(read)


def _odd_body(read: Dissection) -> Iterator[Finding]:
    if read.version == 2 and read.auth_type == AUTH_NONE and any(read.auth_data):  # noqa: PLR2004
        what = "authentication data, although its authentication type is 0"
        yield _odd(read.envelope, read.wanted_length - _AUTH_LENGTH, "auth_data", what)
    seen: set[IPAddress] = set()
    for number, address in enumerate(read.addresses):
        offset = _HEADER_LENGTH + number * _LENGTHS[read.family]
        if address in seen:
            yield _odd(read.envelope, offset, "addr_list_err", f"{address} a second time")
        elif address.is_multicast or address.is_unspecified:
            yield _odd(read.envelope, offset, "addr_list_err", f"{address} is not the address of a host")
        elif number == 0 and isinstance(address, IPv6Address) and not address.is_link_local:
            # RFC 9568 section 5.2.9
            yield _odd(read.envelope, offset, "addr_list_err", f"its first address {address} is not link-local")
        seen.add(address)


def _odd_envelope(read: Dissection) -> Iterator[Finding]:
    envelope = read.envelope
    prefix = _VIRTUAL_MACS[read.family]
    if envelope.source_mac.startswith(prefix) and envelope.source_mac != f"{prefix}{read.vrid:02x}":
        offset = 6
        what = f"it comes from the virtual MAC {envelope.source_mac}, that of VRID {int(envelope.source_mac[-2:], 16)}"
        yield Finding(offset=offset, reason="mac", message=what, fatal=False)
    if isinstance(envelope.source, IPv6Address) and envelope.multicast and not envelope.source.is_link_local:
        # RFC 9568 section 5.1.2.1
        what = f"its source {envelope.source} is not link-local"
        yield Finding(offset=envelope.ttl_offset + 1, reason="source", message=what, fatal=False)


def _finding(envelope: Envelope, at: int, reason: str, message: str) -> Finding:
    return Finding(offset=envelope.offset + at, reason=reason, message=message)


def _odd(envelope: Envelope, at: int, reason: str, message: str) -> Finding:
    return Finding(offset=envelope.offset + at, reason=reason, message=message, fatal=False)


def _sorted(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda each: (each.offset, not each.fatal, each.reason)))

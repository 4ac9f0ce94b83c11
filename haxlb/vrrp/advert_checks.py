"""What an instance demands of a message before it believes it, check by check.

The reasons are the names of keepalived's counters, where it has one: a mixed pair counts the same fault under the same
name.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address

from haxlb.model.addresses import IPAddress, TtlLimits
from haxlb.model.errors import PeerError
from haxlb.model.instance import VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.vrrp.advert_checksum import is_good, pseudo_header
from haxlb.vrrp.authentication_header import Key

MULTICAST_GROUP = IPv4Address("224.0.0.18")
MULTICAST_GROUP6 = IPv6Address("ff02::12")
ADVERT_TTL = 255
"""A receiver of multicast drops anything else: it came through a router (RFC 9568 section 5.1.1.3)."""
OWNER_PRIORITY = 255

AUTH_NONE = 0
AUTH_PASS = 1
AUTH_HEADER = 2
AUTH_LENGTH = 8
"""Version 2 over IPv4 always carries this many bytes behind the addresses (RFC 3768 section 5.3.10)."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The demands of one instance."""

    version: int
    interval_us: int
    auth_pass: bytes | None = field(repr=False)
    """Eight bytes: the password, or with `auth_ah` the key of the authentication header."""
    unicast: bool
    auth_ah: bool = False
    family: int = 4
    group: IPAddress = MULTICAST_GROUP
    old_checksum: bool = True
    """Unicast version 3 with the pseudo-header of the group is good, too."""
    checksum_as_v2: bool = False
    peers: frozenset[IPAddress] = frozenset()
    """Unicast from anybody else is refused; empty = from nobody."""
    ttl_limits: Mapping[IPAddress, TtlLimits] = field(default_factory=dict)
    deaf: bool = False
    """An owner that ignores the adverts of others."""
    strict: bool = False

    @classmethod
    def of(cls, instance: VrrpInstance) -> Expected:
        """The demands of a configured instance."""
        auth_type = auth_type_of(instance)
        return cls(
            version=instance.version,
            interval_us=instance.advert_interval_us,
            auth_pass=None if auth_type == AUTH_NONE else padded_password(instance.auth_pass or ""),
            auth_ah=auth_type == AUTH_HEADER,
            unicast=is_unicast(instance),
            family=instance.family,
            group=group_of(instance),
            old_checksum=instance.old_unicast_checksum != "never",
            checksum_as_v2=instance.checksum_as_v2,
            peers=frozenset(instance.peers) if instance.check_unicast_src else frozenset(),
            ttl_limits={each.peer: each for each in instance.ttl_limits},
            deaf=instance.owner_ignore_adverts and instance.priority == OWNER_PRIORITY,
            strict=instance.strict,
        )

    @cached_property
    def key(self) -> Key | None:
        """What signs the authentication header, None without one."""
        return Key(self.auth_pass) if self.auth_ah and self.auth_pass is not None else None

    def check_header(self, ah: bytes) -> None:
        """There is an authentication header exactly if we use them (IPv4)."""
        if bool(ah) != self.auth_ah:
            detail = "it has no authentication header, ours do" if self.auth_ah else "an authentication header"
            raise PeerError("authtype_mismatch", f"{detail}; we use {_AUTHENTICATION[self._auth_type]}")

    def check_version(self, version: int) -> None:
        """No more and no less than ours."""
        if version != self.version:
            raise PeerError("vers_err", f"version {version}, ours is {self.version}")

    def check_auth(self, auth_type: int, auth_data: bytes, ip_header: bytes, ah: bytes, payload: bytes) -> None:
        """Version 2: the same kind of authentication, and the same password or key."""
        if self.family != 4:  # noqa: PLR2004
            return  # over IPv6 nothing authenticates: keepalived sends the type, but no password
        if auth_type != self._auth_type:
            raise PeerError(
                "authtype_mismatch",
                f"authentication type {auth_type} ({_AUTHENTICATION[auth_type]}), "
                f"ours is {self._auth_type} ({_AUTHENTICATION[self._auth_type]})",
            )
        if self.key is not None:
            self.key.verify(ip_header, ah, payload)
        elif self.auth_pass is not None and not hmac.compare_digest(auth_data, self.auth_pass):
            raise PeerError("auth_failure", "its password is not ours")

    def check_interval(self, version: int, interval_us: int) -> None:
        """Version 2 demands equality (RFC 3768 section 7.1); version 3 learns the MASTER's interval instead."""
        if version == 2 and interval_us != self.interval_us:  # noqa: PLR2004
            raise PeerError(
                "advert_interval_err",
                f"it advertises every {interval_us // SECOND_US} s, we every {self.interval_us // SECOND_US} s",
            )

    def check_cast(self, destination: IPAddress) -> None:
        """Multicast to an instance that speaks multicast, unicast to one that speaks unicast."""
        if destination.is_multicast != self.unicast:
            return
        if destination.is_multicast:
            raise PeerError("addr_list_err", "a multicast advert for an instance with unicast peers")
        raise PeerError("addr_list_err", "a unicast advert for an instance without unicast peers")

    def check_sender(self, source: IPAddress, ttl: int) -> None:
        """Who sent it, and from how far away."""
        if self.deaf:
            raise PeerError("owner_ignores", "we own the addresses (priority 255) and ignore the adverts of others")
        if not self.unicast:
            return
        if self.peers and source not in self.peers:
            raise PeerError("unicast_src_err", f"{source} is not one of our unicast peers")
        limits = self.ttl_limits.get(source)
        if limits is None:
            return
        lowest = 0 if limits.lowest is None else limits.lowest
        highest = ADVERT_TTL if limits.highest is None else limits.highest
        if not lowest <= ttl <= highest:
            raise PeerError("ip_ttl_err", f"TTL {ttl}, but {source} may have {lowest} to {highest}")

    def check_addresses(self, version: int, count: int) -> None:
        """RFC 9568 section 5.2.5 wants at least one address; only `vrrp_strict` refuses an advert without.

        keepalived sends and takes such adverts (all its addresses may be in virtual_ipaddress_excluded), and refusing
        them would make two MASTERs. That they differ from ours is counted like any other difference.
        """
        if self.strict and version == 3 and count == 0:  # noqa: PLR2004
            raise PeerError("addr_list_err", "it names no address, which RFC 9568 forbids")

    @property
    def _auth_type(self) -> int:
        if self.auth_pass is None:
            return AUTH_NONE
        return AUTH_HEADER if self.auth_ah else AUTH_PASS


_AUTHENTICATION = {AUTH_NONE: "none", AUTH_PASS: "PASS", AUTH_HEADER: "AH"}


def check_ttl(ttl: int, destination: IPAddress) -> None:
    """Multicast must not have come through a router."""
    if ttl != ADVERT_TTL and destination.is_multicast:
        word = "TTL" if destination.version == 4 else "hop limit"  # noqa: PLR2004
        raise PeerError("ip_ttl_err", f"{word} {ttl} instead of {ADVERT_TTL}: it came through a router")


def check_auth_type(auth_type: int) -> None:
    """Version 2 knows three."""
    if auth_type not in _AUTHENTICATION:
        raise PeerError("invalid_authtype", f"authentication type {auth_type} does not exist")


def has_old_checksum(
    payload: bytes, version: int, source: IPAddress, destination: IPAddress, expected: Expected | None
) -> bool:
    """Judge the checksum: false for a good one, true for one as older keepalived makes it for unicast.

    Raises PeerError (`chk_err`) for any other. With `checksum_as_v2` none of version 3 is judged, as in keepalived.
    """
    if source.version == 4:  # noqa: PLR2004
        if version == 2:  # noqa: PLR2004
            if is_good(payload):
                return False
            raise PeerError("chk_err", "its checksum is wrong")
        if expected is not None and expected.checksum_as_v2:
            return False
    if is_good(pseudo_header(source, destination, len(payload)) + payload):
        return False
    if source.version == 4 and not destination.is_multicast and (expected is None or expected.old_checksum):  # noqa: PLR2004
        group = MULTICAST_GROUP if expected is None else expected.group
        if is_good(pseudo_header(source, group, len(payload)) + payload):
            return True
    raise PeerError("chk_err", "its checksum is wrong")


def padded_password(text: str) -> bytes:
    """The eight bytes that stand on the wire for `auth_pass`, or are the key of the authentication header."""
    return text.encode()[:AUTH_LENGTH].ljust(AUTH_LENGTH, b"\0")


def auth_type_of(instance: VrrpInstance) -> int:
    """How an instance authenticates its adverts: version 2 over IPv4 only."""
    if instance.version != 2 or instance.family != 4 or instance.auth_pass is None:  # noqa: PLR2004
        return AUTH_NONE
    return AUTH_HEADER if instance.auth_ah else AUTH_PASS


def group_of(instance: VrrpInstance) -> IPAddress:
    """The multicast group of an instance."""
    if instance.multicast_group is not None:
        return instance.multicast_group
    return MULTICAST_GROUP if instance.family == 4 else MULTICAST_GROUP6  # noqa: PLR2004


def is_unicast(instance: VrrpInstance) -> bool:
    """Whether it speaks to peers by their addresses, also while it has none."""
    return bool(instance.peers) or instance.unicast_fault_no_peer

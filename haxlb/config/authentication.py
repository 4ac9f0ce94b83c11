"""The `authentication` block of an instance."""

from __future__ import annotations

from dataclasses import dataclass

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Section
from keepalived_compat.source import Span

_V3 = 3
_INET = 4
_LONGEST_PASS = 8
"""Bytes of PASS data in an advert (RFC 2338 section 5.3.6); keepalived cuts the key of AH likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """What adverts carry."""

    usable: bool = True
    """False: the peer would refuse the adverts of an instance that has less than it is told to have."""
    password: str | None = None
    header: bool = False
    """The password is the key of an IPsec authentication header."""


def read_authentication(
    section: Section, *, instance: str, version: int, family: int, strict: bool, complaints: Complaints
) -> Authentication:
    """The authentication of the instance whose section this is."""
    if "auth_hmac" in section.refused:
        return Authentication(usable=False)
    entry = section.entry("authentication")
    block = entry.section if entry else None
    if entry is None or block is None:
        return Authentication()
    header = block.value("auth_type") == "AH"
    why = ""
    if strict:
        complaints.warning(
            "strict-conflict",
            entry.span,
            f"{instance}: under vrrp_strict there is no authentication; it is not used, as in keepalived",
            "delete vrrp_strict or the authentication, on both directors",
        )
        return Authentication()
    if version == _V3:
        why = "VRRPv3 has no authentication (RFC 9568 section 9)"
    elif family != _INET:
        why = "adverts over IPv6 have no authentication"
    if why:
        complaints.warning(
            "unused-authentication",
            entry.span,
            f"{instance}: {why}; it is not used, as in keepalived",
            "delete the block",
        )
        return Authentication()
    password = _password(block, instance, entry.span, complaints)
    return Authentication(password=password, header=header and password is not None)


def _password(block: Section, instance: str, where: Span, complaints: Complaints) -> str | None:
    found = block.entry("auth_pass")
    for name, present in (("auth_type", block.has("auth_type")), ("auth_pass", found is not None and found.value)):
        if present:
            continue
        if name not in block.refused:
            complaints.warning(
                "unused-authentication",
                where,
                f"{instance}: no {name}, so that adverts carry no password, as in keepalived",
                f"add `{name} {'PASS' if name == 'auth_type' else '…'}`",
            )
        return None
    if found is None:
        return None
    raw = str(found.value).encode(errors="replace")
    if len(raw) > _LONGEST_PASS:
        complaints.warning(
            "truncated-password",
            found.argument_span,
            f"auth_pass is cut to {_LONGEST_PASS} bytes, as keepalived does: adverts have room for no more",
            f"write {_LONGEST_PASS} characters at most",
        )
    return raw[:_LONGEST_PASS].decode(errors="ignore")

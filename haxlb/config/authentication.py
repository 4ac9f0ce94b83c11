"""The `authentication` block of an instance."""

from __future__ import annotations

from dataclasses import dataclass

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.judgement import Section
from keepalived_compat.source import Span

_V3 = 3
_LONGEST_PASS = 8
"""Bytes of PASS data in an advert (RFC 2338 section 5.3.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """What adverts carry."""

    usable: bool
    """False: the peer would refuse the adverts of an instance that has less than it is told to have."""
    password: str | None = None


def read_authentication(section: Section, *, instance: str, version: int, complaints: Complaints) -> Authentication:
    """The authentication of the instance whose section this is."""
    if "auth_hmac" in section.refused:
        return Authentication(usable=False)
    entry = section.entry("authentication")
    block = entry.section if entry else None
    if entry is None or block is None:
        return Authentication(usable=True)
    if version == _V3:
        complaints.warning(
            "unused-authentication",
            entry.span,
            f"{instance}: VRRPv3 has no authentication (RFC 9568 section 9); it is not used, as in keepalived",
            "delete the block",
        )
        return Authentication(usable=True)
    if block.value("auth_type") == "AH":
        complaints.error(
            "not-supported-yet",
            entry.span,
            f"auth_type AH is not supported yet: {instance} is left out, as its peer would refuse its adverts",
            "use PASS on both directors, or none: neither protects against a host on the same network",
        )
        return Authentication(usable=False)
    return Authentication(usable=True, password=_password(block, instance, entry.span, complaints))


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

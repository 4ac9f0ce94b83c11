"""TCP_CHECK, HTTP_GET and SSL_GET blocks to values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from haxlb.model.addresses import IPAddress
from haxlb.model.check import Check, CheckKind, HttpUrl
from haxlb.model.units import SECOND_US
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.keywords.checkers import REGEX_OPTIONS
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.section import Entry, Section

_INLINE = {"caseless": "i", "multiline": "m", "dotall": "s", "extended": "x"}
"""PCRE2 options that Python's `re` has as inline flags."""
_HARMLESS = ("utf", "ucp", "auto_callout", "no_auto_possess", "no_start_optimize", "no_dotstar_anchor", "never_ucp")
"""Options that do not change what matches, or are Python's way anyway."""
_ANY_CODE = ((200, 299),)
_DIGEST = re.compile(r"[0-9a-fA-F]{32}")
_CODES = re.compile(r"(\d{3})(?:-(\d{3}))?", re.ASCII)
_LOWEST_CODE, _HIGHEST_CODE = 100, 599


_INHERITED = frozenset({"delay_loop", "connect_timeout", "retry", "delay_before_retry", "warmup", "virtualhost"})
"""Keywords that a checker takes from its real server where it has them not, and that from its virtual server."""
Said = dict[str, Any]
"""Values of these keywords; sections that say nothing of their own share one."""
_NOTHING: Said = {}


def said(section: Section, around: Said = _NOTHING) -> Said:
    """What holds in a section: what it says itself, else what was said `around` it."""
    known = around
    for name in section.names:
        if name in _INHERITED:
            if known is around:
                known = dict(around)
            known[name] = section.value(name)
    return known


class CheckedServer(NamedTuple):
    """The real server whose checks are read: a named tuple, as a large file has tens of thousands of them."""

    section: Section
    said: Said
    """What it and its virtual server say to its checkers."""
    address: IPAddress
    port: int
    """The one written on its line, before any reset: keepalived's checkers connect to it. 0 = there is none."""


_KINDS = {each.value: each for each in CheckKind}
_TCP, _SSL = CheckKind.TCP, CheckKind.SSL
"""Python 3.11 takes longer to look a member up in its class than to compare it."""
_OPTIONS = frozenset({"bindto", "bind_port", "http_protocol"})
"""What few checks say."""


def read_checks(server: CheckedServer, complaints: Complaints) -> Iterator[Check]:
    """The checks of a real server, in file order."""
    for entry in server.section.entries:
        if entry.keyword.name in _KINDS:
            check = _check(entry, server, complaints)
            if check is not None:
                yield check


def _check(entry: Entry, server: CheckedServer, complaints: Complaints) -> Check | None:
    kind = _KINDS[entry.keyword.name]
    own = entry.section if entry.section is not None else Section(entry.keyword.name)
    known = said(own, server.said)
    urls: tuple[HttpUrl, ...] = ()
    if kind is not _TCP:
        urls = tuple(_urls(own, complaints))
        if not urls:
            complaints.error(
                "no-url",
                entry.span,
                f"{kind.value} has no usable url: the check is not made",
                "add `url { path / }`, or use TCP_CHECK",
            )
            return None
    address = own.value("connect_ip", server.address)
    port = own.value("connect_port", server.port)
    if not port:
        complaints.error(
            "missing-keyword",
            entry.span,
            f"{kind.value} of real_server {server.address}: neither it nor its virtual server names a port to connect"
            " to, and the check is not made",
            "add `connect_port PORT`",
        )
        return None
    virtualhost = known.get("virtualhost")
    return Check(
        kind=kind,
        address=address,
        port=port,
        connect_timeout_us=known.get("connect_timeout") or 5 * SECOND_US,
        delay_loop_us=known.get("delay_loop") or 60 * SECOND_US,
        warmup_us=known.get("warmup"),
        retry=known.get("retry"),
        delay_before_retry_us=known.get("delay_before_retry", SECOND_US if kind is _TCP else 3 * SECOND_US),
        urls=urls,
        virtualhost=virtualhost,
        sni=_sni(own, virtualhost) if kind is _SSL else None,
        **({} if _OPTIONS.isdisjoint(own.names) else _options(own, address, complaints)),
    )


def _options(own: Section, address: IPAddress, complaints: Complaints) -> dict[str, Any]:
    """The fields of Check that `_OPTIONS` are about."""
    return {
        "bind_address": _source(own, address, complaints),
        "bind_port": own.value("bind_port", 0),
        "http_protocol": "1.1" if own.value("http_protocol") in ("1.1", "1.1K") else "1.0",
    }


def _source(section: Section, target: IPAddress, complaints: Complaints) -> IPAddress | None:
    """bindto, unless it is of the other family than the target."""
    found = section.entry("bindto")
    if found is None:
        return None
    source: IPAddress = found.value
    if source.version != target.version:
        complaints.error(
            "mixed-family",
            found.argument_span,
            f"bindto {source} cannot connect to {target}, and is not used, as in keepalived",
            f"name an IPv{target.version} address of this host",
        )
        return None
    return source


def _sni(section: Section, virtualhost: str | None) -> str | None:
    """The name in the TLS handshake: sni_name, else with enable_sni the Host header."""
    if section.has("sni_name"):
        return str(section.value("sni_name") or virtualhost or "") or None
    return virtualhost if section.value("enable_sni", default=False) else None


def _urls(section: Section, complaints: Complaints) -> Iterator[HttpUrl]:
    for entry in section.all("url"):
        inner = entry.section if entry.section is not None else Section("url")
        path = inner.value("path")
        if not path:
            if "path" not in inner.refused:
                complaints.error("missing-keyword", entry.span, "url has no path and is not used", "add `path /`")
            continue
        if not path.startswith("/"):
            complaints.warning(
                "bad-value",
                inner.entry("path").argument_span,  # type: ignore[union-attr]
                f"path `{path}` does not begin with `/`: most servers refuse it",
                f"write `/{path}`",
            )
        yield HttpUrl(
            path=path,
            digest=_digest(inner, complaints),
            status_codes=_status_codes(inner, complaints),
            virtualhost=inner.value("virtualhost"),
            regex=_regex(inner, complaints),
            regex_no_match=inner.has("regex_no_match"),
        )


def _digest(section: Section, complaints: Complaints) -> str | None:
    found = section.entry("digest")
    if found is None:
        return None
    if _DIGEST.fullmatch(found.value) is None:
        complaints.error(
            "bad-value",
            found.argument_span,
            f"digest: `{found.value}` is not an MD5 sum, and is not looked at",
            "32 hexadecimal digits: curl -s URL | md5sum",
        )
        return None
    return str(found.value).lower()


def _status_codes(section: Section, complaints: Complaints) -> tuple[tuple[int, int], ...]:
    found = section.entry("status_code")
    if found is None:
        return _ANY_CODE
    ranges, bad = [], []
    for word in found.words[1:]:
        match = _CODES.fullmatch(word.text)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if _LOWEST_CODE <= low <= high <= _HIGHEST_CODE:
            ranges.append((low, high))
        else:
            bad.append(word)
    for word in bad:
        default = "" if ranges or word is not bad[-1] else ": 200-299 is taken, as in keepalived"
        complaints.error(
            "bad-value",
            word,
            f"status_code: `{word.text}` is no code or range and is not used{default}",
            "100 to 599, ranges as 200-299, with blanks between",
        )
    return tuple(ranges) or _ANY_CODE


def _regex(section: Section, complaints: Complaints) -> str | None:
    found = section.entry("regex")
    if found is None:
        return None
    pattern = f"{_flags(section, complaints)}{found.value}"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        complaints.error(
            "bad-value",
            found.argument_span,
            f"regex cannot be used, and is not looked at: {problem}",
            "Python's regular expressions are used; they lack some of PCRE2's constructs",
        )
        return None
    return pattern


def _flags(section: Section, complaints: Complaints) -> str:
    flags = ""
    for entry in section.all("regex_options"):
        for word in entry.words[1:]:
            if word.text in _INLINE:
                flags += _INLINE[word.text]
            elif word.text not in _HARMLESS:
                known = word.text in REGEX_OPTIONS
                lack = "supported yet" if known else "known"
                complaints.error(
                    "not-supported-yet" if known else "unknown-keyword",
                    word,
                    f"regex option `{word.text}` is not {lack}: the check may judge differently",
                    "" if known else did_you_mean(word.text, REGEX_OPTIONS),
                )
    return f"(?{''.join(dict.fromkeys(flags))})" if flags else ""

"""Judges the answer to one `url` of HTTP_GET or SSL_GET: every criterion that is given must hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from haxlb.health.outcome import Outcome, failed, passed
from haxlb.model.check import HttpUrl

Search = Callable[[re.Pattern[bytes], bytes], bool | None]
"""Whether a pattern is found in a body; None = it took too long to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """One answer, as far as its url's criteria need it (see `needs_body`)."""

    status: int
    digest: str = ""
    """md5 of the body, 32 lower-case hex digits; empty when it was not read to its end."""
    body: bytes = b""
    """Empty unless the url has a regex."""


def needs_body(url: HttpUrl) -> bool:
    """Whether the answer must be read whole, whatever its length: a digest or a regex judges the body."""
    return url.digest is not None or url.regex is not None


def accepts(url: HttpUrl, status: int) -> bool:
    """Whether the status is one that the url wants; where not, the body need not be read."""
    return any(low <= status <= high for low, high in url.status_codes)


def search_whole(pattern: re.Pattern[bytes], body: bytes) -> bool:
    """Search however long it takes."""
    return pattern.search(body) is not None


def judge(url: HttpUrl, answer: HttpAnswer, search: Search = search_whole) -> Outcome:
    """Hold an answer against the url's criteria; the first that fails gives the reason. Never raises."""
    if not accepts(url, answer.status):
        return failed(f"HTTP {answer.status}, wanted {_wanted(url.status_codes)}")
    if url.digest is not None and answer.digest != url.digest.lower():
        return failed(f"digest {answer.digest} differs from {url.digest.lower()}")
    if url.regex is not None:
        return _judge_body(url, url.regex, answer, search)
    return passed(f"HTTP {answer.status}")


def _judge_body(url: HttpUrl, regex: str, answer: HttpAnswer, search: Search) -> Outcome:
    pattern = _compiled(regex)
    if pattern is None:
        return failed(f"regex {regex!r} is not valid")
    matched = search(pattern, answer.body)
    if matched is None:
        return failed(f"regex {regex!r} takes too long on this body")
    if matched and url.regex_no_match:
        return failed(f"body matches {regex!r}, wanted no match")
    if not matched and not url.regex_no_match:
        return failed(f"body does not match {regex!r}")
    return passed(f"HTTP {answer.status}, body {'matches' if matched else 'does not match'}")


@lru_cache(maxsize=256)
def _compiled(regex: str) -> re.Pattern[bytes] | None:
    # Bytes, not text: keepalived matches what came over the wire and knows no charset.
    try:
        return re.compile(regex.encode())
    except (re.error, ValueError, OverflowError, RecursionError):
        return None


def _wanted(ranges: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges) or "none"

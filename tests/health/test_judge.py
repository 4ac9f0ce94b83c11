from __future__ import annotations

import hashlib

import pytest

from haxlb.health.judge import HttpAnswer, accepts, judge, needs_body
from haxlb.health.outcome import failed, passed
from haxlb.model.check import HttpUrl

BODY = b"<html>it works</html>"
MD5 = hashlib.md5(BODY).hexdigest()
ANSWER = HttpAnswer(status=200, digest=MD5, body=BODY)

CASES = [
    (HttpUrl(path="/"), 200, passed("HTTP 200")),
    (HttpUrl(path="/"), 299, passed("HTTP 299")),
    (HttpUrl(path="/"), 199, failed("HTTP 199, wanted 200-299")),
    (HttpUrl(path="/"), 302, failed("HTTP 302, wanted 200-299")),
    (HttpUrl(path="/", status_codes=((200, 200), (301, 302))), 302, passed("HTTP 302")),
    (HttpUrl(path="/", status_codes=((200, 200), (301, 302))), 303, failed("HTTP 303, wanted 200, 301-302")),
    (HttpUrl(path="/", digest=MD5), 200, passed("HTTP 200")),
    (HttpUrl(path="/", digest=MD5.upper()), 200, passed("HTTP 200")),
    (HttpUrl(path="/", digest="0" * 32), 200, failed(f"digest {MD5} differs from {'0' * 32}")),
    (HttpUrl(path="/", regex="it w.rks"), 200, passed("HTTP 200, body matches")),
    (HttpUrl(path="/", regex="broken"), 200, failed("body does not match 'broken'")),
    (HttpUrl(path="/", regex="broken", regex_no_match=True), 200, passed("HTTP 200, body does not match")),
    (HttpUrl(path="/", regex="it", regex_no_match=True), 200, failed("body matches 'it', wanted no match")),
    (HttpUrl(path="/", regex="("), 200, failed("regex '(' is not valid")),
    (HttpUrl(path="/", digest=MD5, regex="broken"), 200, failed("body does not match 'broken'")),
    (HttpUrl(path="/", digest=MD5, regex="it"), 500, failed("HTTP 500, wanted 200-299")),
]


@pytest.mark.parametrize(("url", "status", "expected"), CASES)
def test_every_criterion_that_is_given_must_hold(url: HttpUrl, status: int, expected: object) -> None:
    assert judge(url, HttpAnswer(status=status, digest=ANSWER.digest, body=ANSWER.body)) == expected


def test_a_regex_sees_bytes_of_any_charset() -> None:
    latin = HttpAnswer(status=200, body="über".encode("latin-1"))
    assert judge(HttpUrl(path="/", regex="ber$"), latin).finding.value == "passed"
    utf8 = HttpAnswer(status=200, body="über".encode())
    assert judge(HttpUrl(path="/", regex="^über$"), utf8).finding.value == "passed"


@pytest.mark.parametrize("no_match", [False, True])
def test_a_search_that_was_given_up_shows_nothing(no_match: bool) -> None:  # noqa: FBT001
    url = HttpUrl(path="/", regex="(a+)+$", regex_no_match=no_match)
    assert judge(url, ANSWER, lambda *_: None) == failed("regex '(a+)+$' takes too long on this body")


def test_only_a_digest_or_a_regex_needs_the_body() -> None:
    assert not needs_body(HttpUrl(path="/"))
    assert needs_body(HttpUrl(path="/", digest=MD5))
    assert needs_body(HttpUrl(path="/", regex="x"))


def test_accepts_looks_at_the_status_alone() -> None:
    url = HttpUrl(path="/", status_codes=((200, 204),), digest=MD5)
    assert accepts(url, 204)
    assert not accepts(url, 205)

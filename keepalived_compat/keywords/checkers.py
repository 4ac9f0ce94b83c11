"""The health checkers."""

from __future__ import annotations

from keepalived_compat.diagnostics import Severity
from keepalived_compat.grammar import (
    ADDRESS,
    BOOL,
    FLAG,
    MAYBE_TEXT,
    MAYBE_WORDS,
    SCRIPT,
    TEXT,
    WORDS,
    Block,
    Grammar,
    Keyword,
    block,
    choice,
    ignored,
    integer,
    not_yet,
    old_spelling,
    seconds,
    supported,
)

_POSITIVE = seconds(0.000001)
_RETRY = integer(0)
_NO_REGEX_LIMIT = "the whole body is searched"
REGEX_OPTIONS = (
    "allow_empty_class",
    "alt_bsux",
    "auto_callout",
    "caseless",
    "dollar_endonly",
    "dotall",
    "dupnames",
    "extended",
    "firstline",
    "match_unset_backref",
    "multiline",
    "never_ucp",
    "never_utf",
    "no_auto_capture",
    "no_auto_possess",
    "no_dotstar_anchor",
    "no_start_optimize",
    "ucp",
    "ungreedy",
    "utf",
    "never_backslash_c",
    "alt_circumflex",
    "alt_verbnames",
    "use_offset_limit",
)

_CONNECTION: tuple[Keyword, ...] = (
    supported("connect_ip", ADDRESS, default="the real server's"),
    supported("connect_port", integer(1, 65535, strict=True), default="the real server's"),
    supported("bindto", ADDRESS),
    supported("bind_port", integer(1, 65535, strict=True)),
    not_yet("bind_if", TEXT, Severity.ERROR, "the routing table chooses the interface"),
    supported("connect_timeout", _POSITIVE, default="5"),
    not_yet("fwmark", integer(0), Severity.ERROR, "the probe's packets carry no mark"),
)
_ALPHA = supported("alpha", BOOL, default="that of the real server")


def _timing(*, retry: str, delay: str) -> tuple[Keyword, ...]:
    return (
        supported("retry", _RETRY, default=retry),
        supported("delay_before_retry", seconds(), default=delay),
        supported("warmup", seconds(), default="delay_loop"),
        supported("delay_loop", _POSITIVE, default="that of the server, 60"),
        _ALPHA,
        ignored("log_all_failures", BOOL, "the reason of each change is logged, the last failure is shown"),
    )


def _http(*more: Keyword) -> Block:
    return block(
        *_CONNECTION,
        *_timing(retry="1", delay="3"),
        old_spelling("nb_get_retry", _RETRY, "retry"),
        supported("virtualhost", TEXT),
        supported("http_protocol", choice("1.0", "1.1", "1.0C", "1.0c", "1.1K"), default="1.0"),
        supported("enable_sni", BOOL),
        supported("sni_name", MAYBE_TEXT),
        ignored("fast_recovery", BOOL, "the URLs of a check are always probed one after the other without a pause"),
        supported("url", body="url", many=True),
        *more,
    )


_TLS_COMPLIANT = not_yet("tls_compliant", BOOL, Severity.WARNING, "a missing close_notify is no failure")

CHECKERS: Grammar = {
    "TCP_CHECK": block(
        *_CONNECTION,
        *_timing(retry="1", delay="1"),
        # Unknown to keepalived here, so that its retry falls back to 1; every HOWTO has it.
        old_spelling("nb_get_retry", _RETRY, "retry"),
    ),
    "HTTP_GET": _http(),
    "SSL_GET": _http(_TLS_COMPLIANT),
    "url": block(
        supported("path", TEXT),
        supported("digest", TEXT, first_counts=True),
        supported("status_code", WORDS, default="200-299"),
        supported("virtualhost", TEXT),
        supported("regex", TEXT),
        supported("regex_no_match"),
        supported("regex_options", WORDS, many=True),
        not_yet("regex_min_offset", integer(0), Severity.ERROR, _NO_REGEX_LIMIT),
        not_yet("regex_max_offset", integer(0), Severity.ERROR, _NO_REGEX_LIMIT),
        ignored("regex_stack", WORDS, "the regular expression needs no stack of its own"),
        _TLS_COMPLIANT,
    ),
    "SMTP_CHECK": block(
        *_CONNECTION,
        *_timing(retry="1", delay="1"),
        supported("helo_name", TEXT),
        supported("host", body="host", many=True),
        old_spelling("nb_get_retry", _RETRY, "retry"),
    ),
    "host": block(*_CONNECTION),
    "DNS_CHECK": block(
        *_CONNECTION,
        *_timing(retry="3", delay="delay_loop"),
        supported(
            "type",
            choice("A", "NS", "CNAME", "SOA", "MX", "TXT", "AAAA", "RRSIG", "DNSKEY", any_case=True),
            default="SOA",
        ),
        supported("name", TEXT, default="."),
    ),
    "MISC_CHECK": block(
        *_timing(retry="0", delay="1"),
        supported("misc_path", SCRIPT),
        supported("misc_timeout", integer(0, 4294), default="delay_loop"),
        supported("misc_dynamic", FLAG),
        supported("user", WORDS),
    ),
    "PING_CHECK": block(*_CONNECTION, *_timing(retry="1", delay="1")),
    "UDP_CHECK": block(
        *_CONNECTION,
        *_timing(retry="1", delay="1"),
        supported("payload", WORDS),
        supported("require_reply", MAYBE_WORDS),
        supported("min_reply_length", integer(0, 65535), default="0"),
        supported("max_reply_length", integer(0, 65535), default="255"),
    ),
    "BFD_CHECK": block(supported("name", TEXT), _ALPHA),
    "FILE_CHECK": block(supported("track_file", TEXT), supported("weight", WORDS)),
}

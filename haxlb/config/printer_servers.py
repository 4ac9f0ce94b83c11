"""Virtual servers as lines of keepalived.conf."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.printer_words import block, boolean, in_seconds, scripts, word
from haxlb.model.node import Check, CheckKind, HttpUrl, RealServer, Scheduler, VirtualServer


def virtual_server_lines(server: VirtualServer, *, mails: bool) -> Iterator[str]:
    """The lines in a `virtual_server` block; `mails` = there is a mail server."""
    yield f"lb_algo {server.scheduler.value}"
    yield "lb_kind DR"
    yield f"protocol {server.endpoint.protocol.value}"
    if server.mh_port:
        yield "sh-port" if server.scheduler is Scheduler.SH else "mh-port"
    if server.alpha:
        yield "alpha"
    yield f"quorum {server.quorum}"
    yield f"hysteresis {server.hysteresis}"
    yield from scripts(("quorum_up", server.quorum_up), ("quorum_down", server.quorum_down))
    yield from boolean("smtp_alert", server.smtp_alert, default=False)
    if server.sorry_server is not None:
        yield f"sorry_server {server.sorry_server.address} {server.sorry_server.port}"
    for each in server.real_servers:
        yield from block(f"real_server {each.address} {each.port}", _real_server(each, mails=mails))


def _real_server(server: RealServer, *, mails: bool) -> Iterator[str]:
    yield f"weight {server.weight}"
    if server.inhibit_on_failure:
        yield "inhibit_on_failure"
    yield from scripts(("notify_up", server.notify_up), ("notify_down", server.notify_down))
    yield from boolean("smtp_alert", server.smtp_alert, default=mails)
    for each in server.checks:
        yield from block(each.kind.value, _check(each))


def _check(check: Check) -> Iterator[str]:
    yield f"connect_ip {check.address}"
    yield f"connect_port {check.port}"
    if check.bind_address is not None:
        yield f"bindto {check.bind_address}"
    if check.bind_port:
        yield f"bind_port {check.bind_port}"
    yield f"connect_timeout {in_seconds(check.connect_timeout_us)}"
    yield f"delay_loop {in_seconds(check.delay_loop_us)}"
    if check.warmup_us is not None:
        yield f"warmup {in_seconds(check.warmup_us)}"
    if check.retry is not None:
        yield f"retry {check.retry}"
    yield f"delay_before_retry {in_seconds(check.delay_before_retry_us)}"
    if check.kind is CheckKind.TCP:
        return
    yield f"http_protocol {check.http_protocol}"
    if check.virtualhost is not None:
        yield f"virtualhost {word(check.virtualhost)}"
    if check.sni is not None:
        # keepalived knows sni_name since 2.4.4 only.
        yield "enable_sni" if check.sni == check.virtualhost else f"sni_name {word(check.sni)}"
    for each in check.urls:
        yield from block("url", _url(each))


def _url(url: HttpUrl) -> Iterator[str]:
    yield f"path {word(url.path)}"
    if url.digest is not None:
        yield f"digest {url.digest}"
    ranges = (str(low) if low == high else f"{low}-{high}" for low, high in url.status_codes)
    yield f"status_code {' '.join(ranges)}"
    if url.virtualhost is not None:
        yield f"virtualhost {word(url.virtualhost)}"
    if url.regex is not None:
        yield f"regex {word(url.regex)}"
    if url.regex_no_match:
        yield "regex_no_match"

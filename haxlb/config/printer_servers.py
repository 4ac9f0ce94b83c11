"""Virtual servers as lines of keepalived.conf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from haxlb.config.printer_words import block, boolean, in_seconds, scripts, word
from haxlb.config.server_method import Method, method_of, method_text
from haxlb.config.server_schedule import granularity
from haxlb.model.check import Check, CheckKind, HttpUrl
from haxlb.model.virtual_server import RealServer, Scheduler, VirtualServer


def virtual_server_lines(server: VirtualServer, *, mails: bool) -> Iterator[str]:
    """The lines in a `virtual_server` block; `mails` = there is a mail server."""
    yield f"lb_algo {server.scheduler.value}"
    method = _method(server)
    yield f"lb_kind {method_text(method)}"
    yield f"protocol {server.endpoint.protocol.value}"
    families = {each.address.version for each in server.endpoints}
    if server.fwmark and len(families) == 1:
        yield "ip_family inet6" if 6 in families else "ip_family inet"  # noqa: PLR2004 - the family
    if server.mh_port:
        yield "sh-port" if server.scheduler is Scheduler.SH else "mh-port"
    yield from _persistence(server)
    if server.one_packet:
        yield "ops"
    if server.alpha:
        yield "alpha"
    yield f"quorum {server.quorum}"
    yield f"hysteresis {server.hysteresis}"
    yield from scripts(("quorum_up", server.quorum_up), ("quorum_down", server.quorum_down))
    yield from boolean("smtp_alert", server.smtp_alert, default=False)
    if server.sorry_server is not None:
        yield f"sorry_server {_place(server.sorry_server)}"
        if method_of(server.sorry_server) != method:
            yield f"sorry_server_lvs_method {method_text(method_of(server.sorry_server))}"
        if server.sorry_server.inhibit_on_failure:
            yield "sorry_server_inhibit"
    for each in server.real_servers:
        yield from block(f"real_server {_place(each)}", _real_server(each, method, mails=mails))


def virtual_server_head(server: VirtualServer) -> str:
    """The line that opens the block. Groups and what a mark stands for are blocks of their own."""
    if server.fwmark:
        return f"virtual_server fwmark {server.fwmark}"
    if server.group:
        return f"virtual_server group {word(server.group)}"
    return f"virtual_server {server.endpoint.address} {server.endpoint.port}"


def _method(server: VirtualServer) -> Method:
    """That of most of its servers: only the others name their own."""
    ((method, _),) = Counter(map(method_of, server.real_servers)).most_common(1) or ((Method(), 0),)
    return method


def _place(server: RealServer) -> str:
    return f"{server.address} {server.port}" if server.port else str(server.address)


def _persistence(server: VirtualServer) -> Iterator[str]:
    yield from (f"persistence_timeout {seconds}" for seconds in (server.persistence_s,) if seconds)
    bits = server.persistence_granularity
    if bits is not None:
        yield f"persistence_granularity {granularity(bits, server.endpoint.address.version)}"


def _real_server(server: RealServer, method: Method, *, mails: bool) -> Iterator[str]:
    yield f"weight {server.weight}"
    if method_of(server) != method:
        yield f"lvs_method {method_text(method_of(server))}"
    if server.upper_threshold:
        yield f"uthreshold {server.upper_threshold}"
    if server.lower_threshold:
        yield f"lthreshold {server.lower_threshold}"
    if server.inhibit_on_failure:
        yield "inhibit_on_failure"
    if server.alpha is not None:
        yield f"alpha {'true' if server.alpha else 'false'}"
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

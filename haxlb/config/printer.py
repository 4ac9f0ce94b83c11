"""A NodeConfig as keepalived.conf: every value that counts written out, so that it loads again to the same one.

What haxlb.yml says has no place in that file and is not printed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import fields

from haxlb.config.printer_addresses import group_lines, peer_line, static_address_line, vip_line
from haxlb.config.printer_routes import route_line, rule_line
from haxlb.config.printer_words import word
from haxlb.model.addresses import StaticAddress, Vip
from haxlb.model.commands import Command
from haxlb.model.errors import ConfigError
from haxlb.model.groups import SyncGroup
from haxlb.model.node import (
    SECOND_US,
    Check,
    CheckKind,
    GarpConfig,
    HttpUrl,
    NodeConfig,
    RealServer,
    Role,
    Scheduler,
    VirtualServer,
    VrrpInstance,
)
from haxlb.model.notification import NotifyScripts
from haxlb.model.routes import Route, Rule
from haxlb.model.tracking import Track, Tracked, TrackKind, TrackScript

STARS = "********"
"""What stands for a secret that is not shown."""
_INDENT = "    "


def keepalived_conf(config: NodeConfig, *, secrets: bool = False) -> str:
    """The effective configuration as text; without `secrets` passwords are starred, and the text loads to others.

    Raises ConfigError for what the language cannot say: a double quote in a word, two values of what is one for all.
    """
    return "\n".join(_lines(config, secrets=secrets)) + "\n"


def in_seconds(microseconds: int) -> str:
    """Whole µs as decimal seconds, without needless zeros: `0.25`."""
    whole, fraction = divmod(microseconds, SECOND_US)
    return f"{whole}.{fraction:06d}".rstrip("0").rstrip(".")


def _lines(config: NodeConfig, *, secrets: bool) -> Iterator[str]:
    yield from _block("global_defs", _global_defs(config))
    for script in config.track_scripts:
        yield ""
        yield from _block(f"vrrp_script {word(script.name)}", _track_script(script))
    for thing in config.tracked:
        block, needed = _TRACKED[thing.kind]
        yield ""
        target = " ".join(map(word, thing.target))
        lines = (f"{needed} {target}", f"weight {_weight(thing)}")
        yield from _block(f"{block} {word(thing.name)}", lines)
    if config.static_addresses:
        yield from _block("static_ipaddress", map(static_address_line, config.static_addresses))
    yield from _routing("static", config.static_routes, config.static_rules)
    for group in config.sync_groups:
        yield ""
        yield from _block(f"vrrp_sync_group {word(group.name)}", _sync_group(group))
    for instance in config.instances:
        yield ""
        yield from _block(f"vrrp_instance {word(instance.name)}", _instance(instance, secrets=secrets))
    for services in config.virtual_server_groups:
        yield ""
        yield from _block(f"virtual_server_group {word(services.name)}", group_lines(services))
    for server in config.virtual_servers:
        yield ""
        endpoint = server.endpoint
        yield from _block(f"virtual_server {endpoint.address} {endpoint.port}", _virtual_server(server))


def _block(head: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"{head} {{"
    yield from (_INDENT + each for each in lines)
    yield "}"


def _script(command: Command) -> str:
    return word(" ".join(map(_argument, command.argv)))


def _argument(text: str) -> str:
    """As shlex.quote, which would put a single quote into double ones, and those cannot be said here."""
    return "\\'".join(shlex.quote(each) if each or text == "" else "" for each in text.split("'"))


_TRACKED = {
    TrackKind.FILE: ("track_file", "file"),
    TrackKind.PROCESS: ("vrrp_track_process", "process"),
    TrackKind.BFD: ("bfd_instance", "neighbor_ip"),
}


def _weight(track: Track | Tracked | TrackScript) -> str:
    return f"{track.weight} reverse" if track.reverse else str(track.weight)


def _track_script(script: TrackScript) -> Iterator[str]:
    yield f"script {_script(Command(argv=script.command))}"
    yield f"interval {in_seconds(script.interval_us)}"
    yield f"timeout {in_seconds(script.timeout_us)}"
    yield f"weight {_weight(script)}"
    yield f"rise {script.rise}"
    yield f"fall {script.fall}"
    if script.init_fail:
        yield "init_fail"


def _sync_group(group: SyncGroup) -> Iterator[str]:
    yield from _block("group", map(word, group.members))
    yield from _tracks(group.tracks)


def _routing(prefix: str, routes: tuple[Route, ...], rules: tuple[Rule, ...]) -> Iterator[str]:
    if routes:
        yield from _block(f"{prefix}_routes", map(route_line, routes))
    if rules:
        yield from _block(f"{prefix}_rules", map(rule_line, rules))


def _tracks(tracks: tuple[Track, ...]) -> Iterator[str]:
    for kind in TrackKind:
        lines = [f"{word(each.name)} weight {_weight(each)}" for each in tracks if each.kind is kind]
        if lines:
            yield from _block(kind.value, lines)


def _global_defs(config: NodeConfig) -> Iterator[str]:
    yield f"router_id {word(config.node)}"
    pauses = {each.garp.interval_us for each in config.instances}
    if len(pauses) > 1:
        raise ConfigError("keepalived.conf has one vrrp_garp_interval for all instances; these have several")
    if pause := max(pauses, default=0):
        yield f"vrrp_garp_interval {in_seconds(pause)}"


def _instance(instance: VrrpInstance, *, secrets: bool) -> Iterator[str]:
    yield f"state {'MASTER' if instance.initial_role is Role.MASTER else 'BACKUP'}"
    yield f"interface {word(instance.interface)}"
    yield f"virtual_router_id {instance.vrid}"
    yield f"priority {instance.priority}"
    yield f"version {instance.version}"
    yield f"advert_int {in_seconds(instance.advert_interval_us)}"
    if instance.nopreempt:
        yield "nopreempt"
    if instance.preempt_delay_us:
        yield f"preempt_delay {in_seconds(instance.preempt_delay_us)}"
    if instance.auth_pass is not None:
        password = word(instance.auth_pass) if secrets else STARS
        yield from _block("authentication", ("auth_type PASS", f"auth_pass {password}"))
    if instance.source is not None:
        yield f"{'unicast' if instance.peers else 'mcast'}_src_ip {instance.source}"
    if instance.peers:
        yield from _block("unicast_peer", (peer_line(peer, instance.ttl_limits) for peer in instance.peers))
    yield from _garp(instance.garp)
    yield from _addresses("virtual_ipaddress", instance.vips, instance.ipv6_vips, instance)
    yield from _addresses("virtual_ipaddress_excluded", instance.excluded_vips, instance.excluded_ipv6_vips, instance)
    yield from _tracks(instance.tracks)
    yield from _routing("virtual", instance.routes, instance.rules)
    yield from _notify(instance.notify)


def _addresses(
    block: str, vips: tuple[Vip, ...], ipv6: tuple[StaticAddress, ...], instance: VrrpInstance
) -> Iterator[str]:
    if vips or ipv6:
        lines = (vip_line(each, instance.vip_options) for each in vips)
        yield from _block(block, (*lines, *map(static_address_line, ipv6)))


def _garp(garp: GarpConfig) -> Iterator[str]:
    yield f"garp_master_repeat {garp.master_repeat}"
    yield f"garp_master_delay {garp.master_delay_us // SECOND_US}"
    yield f"garp_master_refresh {garp.master_refresh_us // SECOND_US}"
    yield f"garp_master_refresh_repeat {garp.master_refresh_repeat}"
    yield f"garp_lower_prio_repeat {garp.lower_prio_repeat}"
    yield f"garp_lower_prio_delay {garp.lower_prio_delay_us // SECOND_US}"


def _notify(scripts: NotifyScripts) -> Iterator[str]:
    for each in fields(scripts):
        command = getattr(scripts, each.name)
        if isinstance(command, Command) and command:
            yield f"{'notify' if each.name == 'any' else f'notify_{each.name}'} {_script(command)}"


def _virtual_server(server: VirtualServer) -> Iterator[str]:
    yield f"lb_algo {server.scheduler.value}"
    yield "lb_kind DR"
    yield f"protocol {server.endpoint.protocol.value}"
    if server.mh_port:
        yield "sh-port" if server.scheduler is Scheduler.SH else "mh-port"
    if server.alpha:
        yield "alpha"
    yield f"quorum {server.quorum}"
    yield f"hysteresis {server.hysteresis}"
    yield from _scripts(("quorum_up", server.quorum_up), ("quorum_down", server.quorum_down))
    if server.sorry_server is not None:
        yield f"sorry_server {server.sorry_server.address} {server.sorry_server.port}"
    for each in server.real_servers:
        yield from _block(f"real_server {each.address} {each.port}", _real_server(each))


def _scripts(*named: tuple[str, Command]) -> Iterator[str]:
    yield from (f"{name} {_script(command)}" for name, command in named if command)


def _real_server(server: RealServer) -> Iterator[str]:
    yield f"weight {server.weight}"
    if server.inhibit_on_failure:
        yield "inhibit_on_failure"
    yield from _scripts(("notify_up", server.notify_up), ("notify_down", server.notify_down))
    for each in server.checks:
        yield from _block(each.kind.value, _check(each))


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
        yield from _block("url", _url(each))


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

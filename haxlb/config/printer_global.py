"""`global_defs` and `garp_group` as lines of keepalived.conf."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.printer_words import SECOND_US, account, block, in_seconds, scripts, switches, word
from haxlb.model.errors import ConfigError
from haxlb.model.node import NodeConfig
from haxlb.model.notification import MailSettings, NotificationSettings, NotifyFifo
from haxlb.model.settings import CheckerSettings, SpeakerSettings
from haxlb.model.virtual_server import FlowTimeouts


def global_lines(config: NodeConfig) -> Iterator[str]:
    """The lines of `global_defs`. Raises ConfigError for two values of what is one for all."""
    yield f"router_id {word(config.node)}"
    alone = [each.garp for each in config.instances if not each.garp.group]
    for name, pauses in (
        ("vrrp_garp_interval", {each.interval_us for each in alone}),
        ("vrrp_gna_interval", {each.gna_interval_us for each in alone}),
    ):
        if len(pauses) > 1:
            raise ConfigError(f"keepalived.conf has one {name} for all instances; these have several")
        if pause := max(pauses, default=0):
            yield f"{name} {in_seconds(pause)}"
    if config.vmac_addr_prefix != "vrrp":
        yield f"vmac_addr_prefix {word(config.vmac_addr_prefix)}"
    yield from _speaker(config.speaker)
    yield from _process("checker", config.checker, CheckerSettings())
    yield from switches(("checker_no_swap", config.checker.lock_memory))
    yield from _timeouts(config.timeouts)
    yield from _notification(config.notification)
    servers = (each for one in config.virtual_servers for each in one.real_servers)
    yield from switches(("rs_init_notifies", any(each.notify_up_at_start for each in servers)))


def garp_group_blocks(config: NodeConfig) -> Iterator[str]:
    """The groups of interfaces that share a pause."""
    for name, garp in {each.garp.group: each.garp for each in config.instances if each.garp.group}.items():
        lines = (
            f"garp_interval {in_seconds(garp.interval_us)}",
            f"gna_interval {in_seconds(garp.gna_interval_us)}",
            *block("interfaces", map(word, name.split(" "))),
        )
        yield from ("", *block("garp_group", lines))


def link_delay_block(config: NodeConfig) -> Iterator[str]:
    """How long links must be up or down."""
    delays = config.speaker.link_delays
    if delays:
        lines = (f"{word(each.interface)} {in_seconds(each.down_us)} {in_seconds(each.up_us)}" for each in delays)
        yield from ("", *block("interface_up_down_delays", lines))


def _process(
    name: str, process: SpeakerSettings | CheckerSettings, default: SpeakerSettings | CheckerSettings
) -> Iterator[str]:
    if process.realtime_priority != default.realtime_priority:
        yield f"{name}_rt_priority {process.realtime_priority}"
    if process.nice != default.nice:
        yield f"{name}_priority {process.nice}"
    if process.cpus:
        yield f"{name}_cpu_affinity {' '.join(map(str, process.cpus))}"
    if process.runaway_us != default.runaway_us:
        yield f"{name}_rlimit_rttime {process.runaway_us}"


def _timeouts(timeouts: FlowTimeouts) -> Iterator[str]:
    default = FlowTimeouts()
    words = [
        f"{name} {seconds}"
        for name, seconds, usual in (
            ("tcp", timeouts.tcp_s, default.tcp_s),
            ("tcpfin", timeouts.tcp_fin_s, default.tcp_fin_s),
            ("udp", timeouts.udp_s, default.udp_s),
        )
        if seconds != usual
    ]
    yield from (f"lvs_timeouts {' '.join(words)}" for _ in words[:1])


def _speaker(speaker: SpeakerSettings) -> Iterator[str]:
    yield from _process("vrrp", speaker, SpeakerSettings())
    if speaker.startup_delay_us:
        yield f"vrrp_startup_delay {in_seconds(speaker.startup_delay_us)}"
    if speaker.delay_after_boot_us:
        yield f"vrrp_delay_after_boot {in_seconds(speaker.delay_after_boot_us)}"
    yield from switches(
        ("log_unknown_vrids", speaker.log_unknown_vrids), ("disable_local_igmp", speaker.disable_local_igmp)
    )


def _notification(notification: NotificationSettings) -> Iterator[str]:
    settings = notification.scripts
    if settings.user:
        yield " ".join(("script_user", *account(settings.user, settings.group)))
    yield from switches(
        ("enable_script_security", settings.security),
        ("set_supplementary_groups", settings.supplementary_groups),
        ("vrrp_notify_priority_changes", notification.priority_changes),
        ("fifo_write_vrrp_states_on_reload", notification.fifo_states_on_reload),
    )
    yield from scripts(("startup_script", settings.startup), ("shutdown_script", settings.shutdown))
    for name, timeout in (
        ("startup_script_timeout", settings.startup_timeout_us),
        ("shutdown_script_timeout", settings.shutdown_timeout_us),
    ):
        if timeout != _SCRIPT_TIMEOUT_US:
            yield f"{name} {timeout // SECOND_US}"
    for fifo in notification.fifos:
        yield from _fifo(fifo)
    if notification.mail is not None:
        yield from _mail(notification.mail)


_SCRIPT_TIMEOUT_US = 10 * SECOND_US


def _fifo(fifo: NotifyFifo) -> Iterator[str]:
    name = "notify_fifo" if fifo.vrrp and fifo.lvs else "vrrp_notify_fifo" if fifo.vrrp else "lvs_notify_fifo"
    yield " ".join((name, word(fifo.path), *account(fifo.user, fifo.group)))
    yield from scripts((f"{name}_script", fifo.script))


def _mail(mail: MailSettings) -> Iterator[str]:
    yield from block("notification_email", map(word, mail.recipients))
    if mail.sender:
        yield f"notification_email_from {word(mail.sender)}"
    yield f"smtp_server {word(mail.server)} {mail.port}"
    if mail.helo_name:
        yield f"smtp_helo_name {word(mail.helo_name)}"
    yield f"smtp_connect_timeout {mail.connect_timeout_us // SECOND_US}"
    yield from switches(("no_email_faults", not mail.faults))

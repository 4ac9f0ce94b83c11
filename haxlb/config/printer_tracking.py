"""What is tracked, and sync groups, as lines of keepalived.conf."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.printer_words import (
    account,
    argv,
    block,
    boolean,
    in_milliseconds,
    in_seconds,
    script,
    scripts,
    switches,
    word,
)
from haxlb.model.groups import SyncGroup
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotifyScripts
from haxlb.model.tracking import BfdSession, Track, TrackFile, TrackKind, TrackProcess, TrackScript


def thing_blocks(config: NodeConfig) -> Iterator[str]:
    """The blocks of everything that can be tracked."""
    for script_ in config.track_scripts:
        yield from ("", *block(f"vrrp_script {word(script_.name)}", _script(script_)))
    for file in config.track_files:
        yield from ("", *block(f"track_file {word(file.name)}", _file(file)))
    for process in config.track_processes:
        yield from ("", *block(f"vrrp_track_process {word(process.name)}", _process(process)))
    for session in config.bfd_sessions:
        yield from ("", *block(f"bfd_instance {word(session.name)}", _session(session)))


def track_lines(tracks: tuple[Track, ...]) -> Iterator[str]:
    """The track blocks of an instance or a group."""
    for kind in TrackKind:
        lines = [f"{word(each.name)} weight {_weight(each)}" for each in tracks if each.kind is kind]
        if lines:
            yield from block(kind.value, lines)


def notify_lines(scripts_: NotifyScripts) -> Iterator[str]:
    """The scripts of an instance or a group."""
    yield from scripts(
        ("notify_master", scripts_.master),
        ("notify_backup", scripts_.backup),
        ("notify_fault", scripts_.fault),
        ("notify_stop", scripts_.stop),
        ("notify_master_rx_lower_pri", scripts_.master_rx_lower_pri),
        ("notify", scripts_.any),
    )
    if scripts_.deleted:
        yield f"notify_deleted {script(scripts_.deleted)}"
    elif scripts_.tells_deleted:
        yield "notify_deleted"


def track_group_blocks(config: NodeConfig) -> Iterator[str]:
    """The groups that static entries name; keepalived wants them above those."""
    for group in config.track_groups:
        yield from ("", *block(f"track_group {word(group.name)}", block("group", map(word, group.members))))


def group_blocks(config: NodeConfig) -> Iterator[str]:
    """The sync groups."""
    for group in config.sync_groups:
        lines = _group(group, priority_changes=config.notification.priority_changes)
        yield from ("", *block(f"vrrp_sync_group {word(group.name)}", lines))


def _group(group: SyncGroup, *, priority_changes: bool) -> Iterator[str]:
    yield from block("group", map(word, group.members))
    yield from track_lines(group.tracks)
    yield from switches(("sync_group_tracking_weight", group.tracking_weight))
    yield from notify_lines(group.notify)
    yield from boolean("notify_priority_changes", group.notify_priority_changes, default=priority_changes)
    yield from boolean("smtp_alert", group.smtp_alert, default=False)


def _weight(thing: Track | TrackScript | TrackFile | TrackProcess | BfdSession) -> str:
    return f"{thing.weight} reverse" if thing.reverse else str(thing.weight)


def _script(each: TrackScript) -> Iterator[str]:
    yield f"script {argv(each.run)}"
    if each.run.user:
        yield " ".join(("user", *account(each.run.user, each.run.group)))
    yield f"interval {in_seconds(each.interval_us)}"
    yield f"timeout {in_seconds(each.timeout_us)}"
    yield f"weight {_weight(each)}"
    yield f"rise {each.rise}"
    yield f"fall {each.fall}"
    yield from switches(("init_fail", each.init_fail))


def _file(each: TrackFile) -> Iterator[str]:
    yield f"file {word(each.path)}"
    yield f"weight {_weight(each)}"
    if each.init_value is not None:
        yield f"init_file {each.init_value}{' overwrite' if each.init_overwrite else ''}"


def _process(each: TrackProcess) -> Iterator[str]:
    yield " ".join(("process", word(each.process), *map(word, each.parameters)))
    if each.match and (each.match != "exact" or not each.parameters):
        yield f"param_match {each.match}" if each.match != "exact" else "param_match"
    yield f"weight {_weight(each)}"
    if each.quorum:
        yield f"quorum {each.quorum}"
    if each.quorum_max is not None:
        yield f"quorum_max {each.quorum_max}"
    for name, delay, default in (
        ("delay", each.delay_us, 0),
        ("terminate_delay", each.terminate_delay_us, each.delay_us),
        ("fork_delay", each.fork_delay_us, each.delay_us),
    ):
        if delay != default:
            yield f"{name} {in_seconds(delay)}"
    yield from switches(("full_command", each.full_command))


def _session(each: BfdSession) -> Iterator[str]:
    yield f"neighbor_ip {each.neighbor}"
    if each.source:
        yield f"source_ip {each.source}"
    yield f"min_rx {in_milliseconds(each.min_rx_us)}"
    yield f"min_tx {in_milliseconds(each.min_tx_us)}"
    yield f"idle_tx {in_milliseconds(each.idle_tx_us)}"
    yield f"multiplier {each.multiplier}"
    yield f"ttl {each.ttl}"
    yield f"max_hops {each.max_hops}"
    yield f"weight {_weight(each)}"
    yield from switches(
        ("passive", each.passive),
        ("multihop", each.multihop),
        ("vrrp", each.vrrp and not each.checker),
        ("checker", each.checker and not each.vrrp),
    )

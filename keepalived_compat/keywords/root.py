"""Keywords outside of blocks, and the blocks that belong to nothing else."""

from __future__ import annotations

from keepalived_compat.diagnostics import Severity
from keepalived_compat.grammar import (
    FLAG,
    LINES,
    MAYBE_TEXT,
    MAYBE_WORDS,
    NAME,
    ROOT,
    TEXT,
    WORDS,
    Grammar,
    block,
    ignored,
    not_yet,
    obsolete,
    old_spelling,
    seconds,
    supported,
)

_NO_ADDRESSES = "these are not put on this host; the system's network configuration can do it"
_NO_SYNC_GROUP = "its instances fail over one by one, not together"

ROOT_BLOCKS: Grammar = {
    ROOT: block(
        supported("global_defs", body="global_defs", many=True),
        supported("vrrp_instance", NAME, body="vrrp_instance", many=True, missing=Severity.ERROR),
        supported("virtual_server", WORDS, body="virtual_server", many=True, missing=Severity.ERROR),
        not_yet("vrrp_sync_group", NAME, Severity.ERROR, _NO_SYNC_GROUP, body="vrrp_sync_group"),
        not_yet("virtual_server_group", NAME, Severity.ERROR, "virtual servers that use it are left out", body=LINES),
        not_yet("SSL", FLAG, Severity.WARNING, "SSL_GET connects without a client certificate", body="SSL"),
        not_yet("vrrp_script", NAME, Severity.WARNING, "the script is not run", body="vrrp_script"),
        not_yet("vrrp_track_process", NAME, Severity.WARNING, "the process is not watched", body="vrrp_track_process"),
        not_yet("track_file", NAME, Severity.WARNING, "the file is not watched", body="track_file"),
        not_yet("vrrp_track_file", NAME, Severity.WARNING, "the file is not watched", body="track_file"),
        not_yet("bfd_instance", NAME, Severity.WARNING, "no BFD session is kept", body="bfd_instance"),
        not_yet("track_group", NAME, Severity.ERROR, "static entries are not tied to instances", body="track_group"),
        not_yet("static_ipaddress", FLAG, Severity.ERROR, _NO_ADDRESSES, body=LINES),
        not_yet("static_routes", FLAG, Severity.ERROR, _NO_ADDRESSES, body=LINES),
        not_yet("static_rules", FLAG, Severity.ERROR, _NO_ADDRESSES, body=LINES),
        not_yet("garp_group", FLAG, Severity.WARNING, "gratuitous ARP is paced per interface only", body="garp_group"),
        not_yet("linkbeat_interfaces", FLAG, Severity.WARNING, "the kernel's link state is used", body=LINES),
        not_yet("interface_up_down_delays", FLAG, Severity.WARNING, "a change of a link counts at once", body=LINES),
        not_yet("net_namespace", TEXT, Severity.ERROR, "it runs in the namespace it is started in"),
        ignored("net_namespace_ipvs", MAYBE_TEXT, "no IPVS is used"),
        ignored("namespace_with_ipsets", FLAG, "no ipsets are used"),
        ignored("use_pid_dir", FLAG, "there are no pid files"),
        ignored("instance", TEXT, "it names pid files, and there are none"),
        ignored("child_wait_time", seconds(0, 4294967295), "the processes are stopped in order, in bounded time"),
        ignored("linkbeat_use_polling", FLAG, "the kernel's link state is used"),
        obsolete("real_server_group", "it was removed from keepalived", body=LINES),
        obsolete("local_address_group", "it belongs to a fork of keepalived, for FULLNAT", body=LINES),
        obsolete("deny_address_group", "it belongs to a fork of keepalived", body=LINES),
    ),
    "SSL": block(
        supported("password", TEXT, missing=Severity.ERROR, secret=True),
        supported("ca", TEXT, missing=Severity.ERROR),
        supported("certificate", TEXT, missing=Severity.ERROR),
        supported("key", TEXT, missing=Severity.ERROR),
    ),
    "garp_group": block(
        supported("garp_interval", seconds()),
        supported("gna_interval", seconds()),
        supported("interface", TEXT),
        supported("interfaces", body=LINES),
    ),
    "track_group": block(supported("group", body=LINES)),
    "vrrp_sync_group": block(
        supported("group", body=LINES),
        supported("track_interface", body=LINES),
        supported("track_script", body=LINES),
        supported("track_file", body=LINES),
        supported("track_process", body=LINES),
        supported("track_bfd", body=LINES),
        supported("notify_backup", MAYBE_WORDS),
        supported("notify_master", MAYBE_WORDS),
        supported("notify_fault", MAYBE_WORDS),
        supported("notify_stop", MAYBE_WORDS),
        supported("notify", MAYBE_WORDS),
        supported("smtp_alert", MAYBE_WORDS),
        old_spelling("global_tracking", FLAG, "sync_group_tracking_weight"),
        supported("sync_group_tracking_weight"),
        supported("notify_priority_changes", MAYBE_WORDS),
    ),
}

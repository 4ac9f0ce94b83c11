"""`vrrp_instance` and the blocks in it."""

from __future__ import annotations

from keepalived_compat.diagnostics import Severity
from keepalived_compat.grammar import (
    ADDRESS,
    BOOL,
    FLAG,
    LINES,
    MAYBE_SCRIPT,
    MAYBE_TEXT,
    MAYBE_WORDS,
    SCRIPT,
    TEXT,
    WORDS,
    Grammar,
    block,
    choice,
    ignored,
    integer,
    obsolete,
    old_spelling,
    refused,
    seconds,
    supported,
)

_STALL = "adverts that waited during a stall are always read before a timer counts"
_COUNT = integer(0, 2**31 - 1)
_DELAY = integer(0, 4294)

VRRP: Grammar = {
    "vrrp_instance": block(
        # Election
        supported("state", choice("MASTER", "BACKUP", "SLAVE"), default="BACKUP"),
        supported("interface", TEXT),
        supported("virtual_router_id", integer(1, 255, strict=True), bad=Severity.FATAL),
        supported("priority", integer(1, 255, strict=True), default="100"),
        supported("version", choice("2", "3")),
        supported("advert_int", seconds(0.01, 255), default="1"),
        supported("nopreempt", many=True),
        supported("preempt", many=True),
        supported("preempt_delay", seconds(0, 1000), default="0"),
        supported("down_timer_adverts", integer(1, 100), default="3"),
        supported("authentication", body="authentication"),
        refused("auth_hmac", FLAG, "adverts are not signed: the peer would refuse every one", body="auth_hmac"),
        # Addresses of adverts
        supported("mcast_src_ip", ADDRESS),
        supported("unicast_src_ip", ADDRESS),
        supported("unicast_peer", body=LINES, many=True),
        supported("mcast_dst_ip", ADDRESS, default="224.0.0.18"),
        supported("unicast_fault_no_peer"),
        supported("check_unicast_src"),
        supported("old_unicast_checksum", MAYBE_TEXT),
        supported("unicast_ttl", integer(0, 255, strict=True)),
        supported("track_src_ip"),
        supported("vrf", TEXT),
        supported("native_ipv6"),
        # Virtual addresses
        supported("virtual_ipaddress", body=LINES, many=True),
        supported("virtual_ipaddress_excluded", body=LINES, many=True),
        ignored("no_virtual_ipaddress", FLAG, "an instance without VIPs needs no permission"),
        supported("virtual_routes", body=LINES, many=True),
        supported("virtual_rules", body=LINES, many=True),
        supported("promote_secondaries"),
        supported("accept", many=True),
        supported("no_accept", many=True),
        # Gratuitous ARP
        supported("garp_master_delay", _DELAY, default="5"),
        supported("garp_master_repeat", _COUNT, default="5"),
        supported("garp_master_refresh", _DELAY, default="0"),
        supported("garp_master_refresh_repeat", _COUNT, default="1"),
        supported("garp_lower_prio_delay", _DELAY, default="garp_master_delay"),
        supported("garp_lower_prio_repeat", _COUNT, default="garp_master_repeat"),
        supported("garp_extra_if", WORDS),
        old_spelling("vmac_garp_intvl", WORDS, "garp_extra_if"),
        # Tracking
        supported("track_interface", body=LINES, many=True),
        supported("track_script", body=LINES, many=True),
        supported("track_file", body=LINES, many=True),
        supported("track_process", body=LINES, many=True),
        supported("track_bfd", body=LINES, many=True),
        supported("dont_track_primary"),
        ignored("linkbeat_use_polling", FLAG, "the kernel's link state is used"),
        # Notification
        supported("notify_master", SCRIPT, first_counts=True),
        supported("notify_backup", SCRIPT, first_counts=True),
        supported("notify_fault", SCRIPT, first_counts=True),
        supported("notify_stop", SCRIPT, first_counts=True),
        supported("notify", SCRIPT, first_counts=True),
        supported("notify_deleted", MAYBE_SCRIPT, first_counts=True),
        supported("notify_master_rx_lower_pri", SCRIPT, first_counts=True),
        supported("notify_priority_changes", BOOL),
        supported("smtp_alert", BOOL),
        # Virtual MACs
        supported("use_vmac", MAYBE_WORDS),
        supported("use_vmac_addr"),
        supported("vmac_xmit_base"),
        supported("use_ipvlan", MAYBE_WORDS, first_counts=True),
        # The rest
        ignored("skip_check_adv_addr", BOOL, "a difference of addresses never makes an advert be refused"),
        supported("strict_mode", BOOL),
        supported("v3_checksum_as_v2", BOOL),
        supported("lower_prio_no_advert", BOOL),
        supported("higher_prio_send_advert", BOOL),
        supported("owner_ignore_adverts", BOOL),
        ignored("timer_expired_backup", integer(1, 254, optional=True), _STALL),
        ignored("thread_timer_expired", integer(1, 254, optional=True), _STALL),
        ignored("kernel_rx_buf_size", integer(0), "buffers are sized by need"),
        ignored("debug", integer(0, 4, optional=True), "the log has levels of its own"),
        obsolete("lvs_sync_daemon_interface", "the directors need no synchronisation of connections"),
        obsolete("vrrp_skip_alive", "it never existed"),
    ),
    "authentication": block(
        # In another case keepalived uses none: to take it as meant would make two masters of a mixed pair.
        supported("auth_type", choice("PASS", "AH", exact_case=True), default="none"),
        supported("auth_pass", TEXT, secret=True),
    ),
    "auth_hmac": block(
        supported("key", WORDS, many=True, secret=True),
        supported("active_key", integer(1, 255)),
        supported("time_window", integer(1, 300)),
        supported("anti_replay", choice("time", "monotonic")),
        supported("mode", choice("enforce", "permissive", "receive-only")),
    ),
}

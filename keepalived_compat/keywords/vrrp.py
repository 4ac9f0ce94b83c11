"""`vrrp_instance` and the blocks in it."""

from __future__ import annotations

from keepalived_compat.diagnostics import Severity
from keepalived_compat.grammar import (
    ADDRESS,
    BOOL,
    FLAG,
    LINES,
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
    not_yet,
    obsolete,
    refused,
    seconds,
    supported,
)

_NO_VMAC = "the VIPs have the MAC of their interface"
_NO_TRACKING = "it does not change the priority or the state"
_NO_SCRIPT = "the script is not run"
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
        not_yet("unicast_fault_no_peer", FLAG, Severity.WARNING, "without peers it uses multicast"),
        not_yet("check_unicast_src", FLAG, Severity.WARNING, "adverts of every source are taken"),
        not_yet("old_unicast_checksum", MAYBE_TEXT, Severity.WARNING, "VRRPv3 checksums follow the RFC"),
        not_yet("unicast_ttl", integer(0, 255, strict=True), Severity.WARNING, "adverts are sent with TTL 255"),
        not_yet("track_src_ip", FLAG, Severity.WARNING, "the loss of the source address is no fault"),
        not_yet("vrf", TEXT, Severity.ERROR, "sockets are bound to the interface only"),
        not_yet("native_ipv6", FLAG, Severity.ERROR, "IPv6 instances are left out"),
        # Virtual addresses
        supported("virtual_ipaddress", body=LINES, many=True),
        not_yet(
            "virtual_ipaddress_excluded", FLAG, Severity.ERROR, "these addresses do not follow the master", body=LINES
        ),
        ignored("no_virtual_ipaddress", FLAG, "an instance without VIPs needs no permission"),
        not_yet("virtual_routes", FLAG, Severity.ERROR, "these routes do not follow the master", body=LINES),
        not_yet("virtual_rules", FLAG, Severity.ERROR, "these rules do not follow the master", body=LINES),
        not_yet("promote_secondaries", FLAG, Severity.WARNING, "the kernel's setting is left as it is"),
        ignored("accept", FLAG, "packets to the VIPs are always accepted"),
        not_yet("no_accept", FLAG, Severity.WARNING, "packets to the VIPs are accepted"),
        # Gratuitous ARP
        supported("garp_master_delay", _DELAY, default="5"),
        supported("garp_master_repeat", _COUNT, default="5"),
        supported("garp_master_refresh", _DELAY, default="0"),
        supported("garp_master_refresh_repeat", _COUNT, default="1"),
        supported("garp_lower_prio_delay", _DELAY, default="garp_master_delay"),
        supported("garp_lower_prio_repeat", _COUNT, default="garp_master_repeat"),
        not_yet("garp_extra_if", WORDS, Severity.WARNING, "there are no virtual MACs"),
        not_yet("vmac_garp_intvl", WORDS, Severity.WARNING, "there are no virtual MACs"),
        # Tracking
        supported("track_interface", body=LINES, many=True),
        not_yet("track_script", FLAG, Severity.ERROR, _NO_TRACKING, body=LINES),
        not_yet("track_file", FLAG, Severity.ERROR, _NO_TRACKING, body=LINES),
        not_yet("track_process", FLAG, Severity.ERROR, _NO_TRACKING, body=LINES),
        not_yet("track_bfd", FLAG, Severity.ERROR, _NO_TRACKING, body=LINES),
        not_yet("dont_track_primary", FLAG, Severity.WARNING, "the loss of the instance's own interface is a fault"),
        ignored("linkbeat_use_polling", FLAG, "the kernel's link state is used"),
        # Notification
        supported("notify_master", SCRIPT, first_counts=True),
        supported("notify_backup", SCRIPT, first_counts=True),
        supported("notify_fault", SCRIPT, first_counts=True),
        supported("notify_stop", SCRIPT, first_counts=True),
        supported("notify", SCRIPT, first_counts=True),
        not_yet("notify_deleted", MAYBE_WORDS, Severity.WARNING, _NO_SCRIPT),
        not_yet("notify_master_rx_lower_pri", SCRIPT, Severity.WARNING, _NO_SCRIPT),
        not_yet("notify_priority_changes", BOOL, Severity.WARNING, "changes of priority are not notified"),
        not_yet("smtp_alert", BOOL, Severity.NOTE, "no mail is sent"),
        # Virtual MACs
        not_yet("use_vmac", MAYBE_WORDS, Severity.WARNING, _NO_VMAC),
        not_yet("use_vmac_addr", FLAG, Severity.WARNING, _NO_VMAC),
        not_yet("vmac_xmit_base", FLAG, Severity.WARNING, _NO_VMAC),
        not_yet("use_ipvlan", MAYBE_WORDS, Severity.WARNING, _NO_VMAC),
        # The rest
        ignored("skip_check_adv_addr", BOOL, "a difference of addresses never makes an advert be refused"),
        not_yet("strict_mode", BOOL, Severity.WARNING, "RFC limits are not enforced"),
        not_yet("v3_checksum_as_v2", BOOL, Severity.WARNING, "VRRPv3 checksums follow the RFC"),
        not_yet("lower_prio_no_advert", BOOL, Severity.WARNING, "an advert of lower priority is answered"),
        not_yet("higher_prio_send_advert", BOOL, Severity.WARNING, "a last advert is not sent before yielding"),
        not_yet("owner_ignore_adverts", BOOL, Severity.WARNING, "priority 255 hears adverts too"),
        not_yet(
            "timer_expired_backup",
            integer(1, 254, optional=True),
            Severity.WARNING,
            "adverts that waited during a stall are always read first",
        ),
        not_yet(
            "thread_timer_expired",
            integer(1, 254, optional=True),
            Severity.WARNING,
            "adverts that waited during a stall are always read first",
        ),
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

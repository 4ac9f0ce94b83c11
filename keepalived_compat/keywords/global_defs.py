"""`global_defs`."""

from __future__ import annotations

from keepalived_compat.diagnostics import Severity
from keepalived_compat.grammar import (
    BOOL,
    FLAG,
    LINES,
    MAYBE_TEXT,
    MAYBE_WORDS,
    SCRIPT,
    TEXT,
    WORDS,
    Grammar,
    Keyword,
    block,
    choice,
    ignored,
    integer,
    not_yet,
    obsolete,
    old_spelling,
    seconds,
    supported,
)

_NAMES = "the processes have names of their own"
_NO_MAIL = "mail tells of changes of real servers, never of single checks"
_NO_SNMP = "there is no SNMP agent"
_NO_DBUS = "there is no D-Bus interface"
_NO_IPVS = "no IPVS is used"
_NO_NETFILTER = "the packet filter's table of `no_accept` is called haxlb, and is made by nft"
_OWN_CLASS = "the process that sends adverts always runs in a real-time class with its memory locked"
_OWN_BUFFERS = "buffers are sized by need"
_NO_PAUSE = "no pause, which is the default; keepalived refuses 0, and makes none either"
_NO_BFD = "BFD runs in the process that tracks, then in a real-time class with its memory locked"
_DUMPS = "state is read over the control socket, no dump files are written"
_STAYS_WITH_FILES = "the configuration is read where it is"


def _scheduling_of_bfd() -> tuple[Keyword, ...]:
    return (
        ignored("bfd_priority", integer(-20, 19), _NO_BFD),
        ignored("bfd_no_swap", FLAG, _NO_BFD),
        ignored("bfd_rt_priority", integer(0), _NO_BFD),
        ignored("bfd_cpu_affinity", WORDS, _NO_BFD),
        ignored("bfd_rlimit_rttime", integer(1), _NO_BFD),
        ignored("bfd_rlimit_rtime", integer(1), _NO_BFD),
    )


def _buffers(*prefixes: str) -> tuple[Keyword, ...]:
    rows = []
    for prefix in prefixes:
        rows += [ignored(prefix, integer(0), _OWN_BUFFERS), ignored(f"{prefix}_force", BOOL, _OWN_BUFFERS)]
    return tuple(rows)


_COUNT = integer(0, 2**31 - 1)
_DELAY = integer(0, 4294)

GLOBAL_DEFS: Grammar = {
    "global_defs": block(
        supported("router_id", TEXT, default="the host's name", missing=Severity.ERROR),
        # VRRP
        supported("vrrp_version", choice("2", "3"), default="2"),
        supported("vrrp_garp_master_delay", _DELAY, default="5"),
        supported("vrrp_garp_master_repeat", _COUNT, default="5"),
        supported("vrrp_garp_master_refresh", _DELAY, default="0"),
        supported("vrrp_garp_master_refresh_repeat", _COUNT, default="1"),
        supported("vrrp_garp_lower_prio_delay", _DELAY, default="vrrp_garp_master_delay"),
        supported("vrrp_garp_lower_prio_repeat", _COUNT, default="vrrp_garp_master_repeat"),
        supported("vrrp_garp_interval", seconds(), default="0", zero=_NO_PAUSE),
        supported("vrrp_min_garp", BOOL),
        supported("vrrp_mcast_group4", TEXT, default="224.0.0.18"),
        supported("vrrp_down_timer_adverts", integer(1, 100), default="3"),
        supported("vrrp_gna_interval", seconds(), default="0", zero=_NO_PAUSE),
        supported("vrrp_mcast_group6", TEXT),
        ignored("vrrp_skip_check_adv_addr", BOOL, "a difference of addresses never makes an advert be refused"),
        supported("log_unknown_vrids"),
        supported("vrrp_garp_extra_if", WORDS),
        old_spelling("vrrp_vmac_garp_intvl", WORDS, "vrrp_garp_extra_if"),
        supported("vrrp_lower_prio_no_advert", BOOL),
        supported("vrrp_higher_prio_send_advert", BOOL),
        supported("vrrp_check_unicast_src"),
        supported("vrrp_strict", BOOL),
        supported("vrrp_startup_delay", seconds(0.001)),
        supported("vrrp_delay_after_boot", seconds(0.001)),
        supported("vrrp_owner_ignore_adverts", BOOL),
        supported("v3_checksum_as_v2"),
        supported("disable_local_igmp"),
        supported("dynamic_interfaces", MAYBE_TEXT),
        supported("default_interface", TEXT),
        supported("vmac_prefix", TEXT, first_counts=True),
        supported("vmac_addr_prefix", TEXT, first_counts=True),
        ignored("vrrp_rx_bufs_policy", WORDS, _OWN_BUFFERS),
        ignored("vrrp_rx_bufs_multiplier", integer(1), _OWN_BUFFERS),
        *_buffers("vrrp_netlink_cmd_rcv_bufs", "vrrp_netlink_monitor_rcv_bufs", "process_monitor_rcv_bufs"),
        *_buffers("lvs_netlink_cmd_rcv_bufs", "lvs_netlink_monitor_rcv_bufs"),
        # Mail
        supported("notification_email", body=LINES, many=True),
        supported("notification_email_from", WORDS),
        supported("smtp_server", WORDS),
        supported("smtp_helo_name", TEXT),
        supported("smtp_connect_timeout", integer(0, 4294)),
        supported("smtp_alert", BOOL),
        supported("smtp_alert_vrrp", BOOL),
        supported("smtp_alert_checker", BOOL),
        supported("no_email_faults"),
        ignored("no_checker_emails", BOOL, _NO_MAIL),
        # Scripts
        supported("script_user", WORDS),
        supported("enable_script_security"),
        supported("startup_script", SCRIPT, first_counts=True),
        supported("startup_script_timeout", integer(1, 1000)),
        supported("shutdown_script", SCRIPT, first_counts=True),
        supported("shutdown_script_timeout", integer(1, 1000)),
        ignored("use_symlink_paths", BOOL, "scripts are always run by the path that is written"),
        supported("set_supplementary_groups", BOOL),
        supported("notify_fifo", WORDS, first_counts=True),
        supported("notify_fifo_script", SCRIPT, first_counts=True),
        supported("vrrp_notify_fifo", WORDS, first_counts=True),
        supported("vrrp_notify_fifo_script", SCRIPT, first_counts=True),
        supported("lvs_notify_fifo", WORDS, first_counts=True),
        supported("lvs_notify_fifo_script", SCRIPT, first_counts=True),
        supported("vrrp_notify_priority_changes", BOOL),
        supported("fifo_write_vrrp_states_on_reload"),
        supported("rs_init_notifies", BOOL),
        # Checkers and forwarding
        ignored("checker_log_all_failures", BOOL, "the reason of each change is logged, the last failure is shown"),
        supported("lvs_timeouts", WORDS),
        ignored("lvs_flush", FLAG, _NO_IPVS),
        ignored("lvs_flush_on_stop", MAYBE_TEXT, _NO_IPVS),
        ignored("lvs_flush_onstop", MAYBE_TEXT, _NO_IPVS),
        ignored("lvs_sync_daemon", WORDS, "the directors need no synchronisation of connections"),
        # Processes
        ignored("process_names", FLAG, _NAMES),
        ignored("process_name", TEXT, _NAMES),
        ignored("vrrp_process_name", TEXT, _NAMES),
        ignored("checker_process_name", TEXT, _NAMES),
        ignored("lvs_process_name", TEXT, _NAMES),
        ignored("bfd_process_name", TEXT, _NAMES),
        ignored("max_auto_priority", integer(-1, 99, optional=True), _OWN_CLASS),
        ignored("min_auto_priority_delay", integer(1, 10_000_000), _OWN_CLASS),
        supported("vrrp_priority", integer(-20, 19)),
        supported("vrrp_no_swap"),
        supported("vrrp_rt_priority", integer(0)),
        supported("vrrp_cpu_affinity", WORDS),
        supported("vrrp_rlimit_rttime", integer(1)),
        old_spelling("vrrp_rlimit_rtime", integer(1), "vrrp_rlimit_rttime"),
        supported("checker_priority", integer(-20, 19)),
        supported("checker_no_swap", FLAG),
        supported("checker_rt_priority", integer(0)),
        supported("checker_cpu_affinity", WORDS),
        supported("checker_rlimit_rttime", integer(1)),
        old_spelling("checker_rlimit_rtime", integer(1), "checker_rlimit_rttime"),
        *_scheduling_of_bfd(),
        ignored("umask", TEXT, "FIFOs and tracked files are made with mode 0644"),
        ignored("random_seed", integer(0), "the first checks are spread evenly"),
        # Packet filters
        ignored("nftables", MAYBE_TEXT, _NO_NETFILTER),
        ignored("nftables_priority", integer(-(2**31), 2**31 - 1), _NO_NETFILTER),
        ignored("nftables_ifindex", FLAG, _NO_NETFILTER),
        ignored("nftables_counters", FLAG, _NO_NETFILTER),
        ignored("nftables_ipvs", MAYBE_TEXT, _NO_IPVS),
        ignored("nftables_ipvs_priority", integer(-(2**31), 2**31 - 1), _NO_IPVS),
        ignored("nftables_ipvs_start_fwmark", integer(1), _NO_IPVS),
        ignored("vrrp_iptables", MAYBE_WORDS, _NO_NETFILTER),
        ignored("vrrp_ipsets", MAYBE_WORDS, _NO_NETFILTER),
        # SNMP, D-Bus, dumps, reload
        ignored("snmp_socket", TEXT, _NO_SNMP),
        not_yet("enable_traps", FLAG, Severity.WARNING, _NO_SNMP),
        not_yet("enable_snmp_vrrp", FLAG, Severity.WARNING, _NO_SNMP),
        not_yet("enable_snmp_keepalived", FLAG, Severity.WARNING, _NO_SNMP),
        not_yet("enable_snmp_rfc", FLAG, Severity.WARNING, _NO_SNMP),
        not_yet("enable_snmp_rfcv2", FLAG, Severity.WARNING, _NO_SNMP),
        not_yet("enable_snmp_rfcv3", FLAG, Severity.WARNING, _NO_SNMP),
        not_yet("enable_snmp_checker", FLAG, Severity.WARNING, _NO_SNMP),
        ignored("snmp_vs_stats_update_interval", seconds(0.001, 30), _NO_SNMP),
        ignored("snmp_rs_stats_update_interval", seconds(0.001, 30), _NO_SNMP),
        not_yet("enable_dbus", FLAG, Severity.WARNING, _NO_DBUS),
        ignored("dbus_service_name", TEXT, _NO_DBUS),
        ignored("dbus_no_interface_name", TEXT, _NO_DBUS),
        ignored(
            "reload_check_config", MAYBE_TEXT, "a bad configuration is always refused, and the old one keeps running"
        ),
        not_yet("reload_time_file", TEXT, Severity.WARNING, "there are no scheduled reloads"),
        not_yet("reload_repeat", FLAG, Severity.WARNING, "there are no scheduled reloads"),
        not_yet("reload_file", MAYBE_TEXT, Severity.WARNING, "no file tells of a reload"),
        ignored("include_check", MAYBE_WORDS, "problems of includes are always said"),
        ignored("config_save_dir", TEXT, _STAYS_WITH_FILES),
        ignored("tmp_config_directory", TEXT, _STAYS_WITH_FILES),
        ignored("data_use_instance", BOOL, _DUMPS),
        ignored("json_version", choice("1", "2"), _DUMPS),
        ignored("state_dump_file", TEXT, _DUMPS),
        ignored("stats_dump_file", TEXT, _DUMPS),
        ignored("json_dump_file", TEXT, _DUMPS),
        ignored("iproute_usr_dir", TEXT, "names of routing tables are looked up where iproute2 has them"),
        ignored("iproute_etc_dir", TEXT, "names of routing tables are looked up where iproute2 has them"),
        obsolete("lvs_id", "keepalived dropped it after 1.1.7; `router_id` names the director"),
        obsolete("plugin_dir", "it was removed from keepalived"),
        obsolete("notify_email", "it never existed; `notification_email` is meant"),
    ),
}

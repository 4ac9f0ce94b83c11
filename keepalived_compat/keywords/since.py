"""The release of keepalived in whose sources a keyword first stands, by release and block.

From the tags of its repository; 1.0.3 is the oldest one that reads as today, and stands for "always". Words that are
none of keepalived's have no release.
"""

from __future__ import annotations

SINCE: dict[str, dict[str, str]] = {
    "0.5.3": {
        "HTTP_GET": "nb_get_retry url",
        "SSL_GET": "nb_get_retry url",
        "url": "path digest",
        "MISC_CHECK": "misc_path",
    },
    "0.7.6": {
        "url": "status_code",
    },
    "1.0.3": {
        "": ("global_defs static_routes vrrp_sync_group vrrp_instance SSL virtual_server_group virtual_server"),
        "SSL": "password ca certificate key",
        "global_defs": "notification_email_from smtp_server smtp_connect_timeout notification_email",
        "vrrp_sync_group": "group track_interface notify_backup notify_master notify_fault smtp_alert",
        "garp_group": "interface",
        "track_group": "group",
        "vrrp_instance": (
            "state interface track_interface mcast_src_ip virtual_router_id priority advert_int "
            "virtual_ipaddress virtual_ipaddress_excluded virtual_routes preempt debug notify_backup "
            "notify_master notify_fault smtp_alert lvs_sync_daemon_interface garp_master_delay authentication"
        ),
        "authentication": "auth_type auth_pass",
        "virtual_server": (
            "delay_loop inhibit_on_failure lb_algo lb_kind persistence_timeout persistence_granularity "
            "protocol ha_suspend virtualhost weight sorry_server real_server"
        ),
        "real_server": "weight inhibit_on_failure notify_up notify_down delay_loop virtualhost",
    },
    "1.1.0": {
        "": "static_ipaddress",
        "MISC_CHECK": "misc_timeout",
    },
    "1.1.2": {
        "vrrp_sync_group": "notify",
        "vrrp_instance": "notify",
    },
    "1.1.5": {
        "virtual_server": "lvs_sched lvs_method",
        "real_server": "lvs_method",
    },
    "1.1.10": {
        "global_defs": "router_id",
        "vrrp_instance": "dont_track_primary nopreempt preempt_delay",
        "SMTP_CHECK": "helo_name host",
        "MISC_CHECK": "misc_dynamic",
    },
    "1.1.13": {
        "": "vrrp_script",
        "vrrp_sync_group": "track_script notify_stop",
        "vrrp_instance": "track_script notify_stop",
        "vrrp_script": "script interval weight",
        "vrrp_track_process": "weight",
        "real_server": "uthreshold lthreshold",
    },
    "1.1.16": {
        "virtual_server": "alpha omega quorum_up quorum_down quorum hysteresis",
        "real_server": "alpha",
    },
    "1.1.18": {
        "": "linkbeat_use_polling",
        "vrrp_script": "rise fall",
    },
    "1.2.1": {
        "vrrp_instance": "native_ipv6",
    },
    "1.2.3": {
        "vrrp_sync_group": "global_tracking",
        "vrrp_instance": "use_vmac",
    },
    "1.2.5": {
        "global_defs": "enable_traps",
    },
    "1.2.6": {
        "vrrp_script": "timeout",
    },
    "1.2.8": {
        "vrrp_instance": "unicast_peer",
        "virtual_server": "ops",
    },
    "1.2.10": {
        "global_defs": "vrrp_mcast_group4 vrrp_mcast_group6",
        "vrrp_instance": "vmac_xmit_base unicast_src_ip garp_master_refresh",
    },
    "1.2.13": {
        "virtual_server": "sorry_server_inhibit",
        "TCP_CHECK": "connect_ip connect_port bindto bind_port connect_timeout fwmark",
        "HTTP_GET": "connect_ip connect_port bindto bind_port connect_timeout fwmark",
        "SSL_GET": "connect_ip connect_port bindto bind_port connect_timeout fwmark",
        "SMTP_CHECK": "connect_ip connect_port bindto bind_port connect_timeout fwmark",
        "DNS_CHECK": "connect_ip connect_port bindto bind_port connect_timeout fwmark",
        "PING_CHECK": "connect_ip connect_port bindto bind_port connect_timeout fwmark",
        "UDP_CHECK": "connect_ip connect_port bindto bind_port connect_timeout fwmark",
    },
    "1.2.14": {
        "vrrp_instance": "garp_master_repeat garp_master_refresh_repeat",
    },
    "1.2.17": {
        "vrrp_instance": "version accept",
    },
    "1.2.20": {
        "": "static_rules",
        "global_defs": (
            "smtp_helo_name lvs_sync_daemon vrrp_garp_master_delay vrrp_garp_master_repeat "
            "vrrp_garp_master_refresh vrrp_garp_master_refresh_repeat vrrp_garp_lower_prio_delay "
            "vrrp_garp_lower_prio_repeat vrrp_lower_prio_no_advert vrrp_version vrrp_iptables vrrp_ipsets "
            "vrrp_check_unicast_src vrrp_skip_check_adv_addr vrrp_strict vrrp_priority vrrp_no_swap "
            "checker_priority checker_no_swap snmp_socket enable_snmp_keepalived enable_snmp_rfc "
            "enable_snmp_rfcv2 enable_snmp_rfcv3 enable_snmp_checker"
        ),
        "vrrp_instance": (
            "virtual_rules skip_check_adv_addr strict_mode garp_lower_prio_delay garp_lower_prio_repeat "
            "lower_prio_no_advert"
        ),
        "virtual_server": "ip_family persistence_engine",
    },
    "1.2.21": {
        "": "garp_group",
        "global_defs": "vrrp_garp_interval vrrp_gna_interval",
        "garp_group": "garp_interval gna_interval interfaces",
    },
    "1.2.23": {
        "global_defs": "lvs_flush",
    },
    "1.2.24": {
        "": "net_namespace use_pid_dir instance",
        "global_defs": "default_interface lvs_timeouts",
    },
    "1.3.0": {
        "": "namespace_with_ipsets",
        "global_defs": "enable_dbus script_user enable_script_security",
        "vrrp_instance": "promote_secondaries no_accept",
        "vrrp_script": "user",
        "virtual_server": "hashed flag-1 flag-2 flag-3 sh-port sh-fallback",
        "DNS_CHECK": "type name",
        "MISC_CHECK": "user",
    },
    "1.3.2": {
        "vrrp_script": "init_fail",
    },
    "1.3.5": {
        "global_defs": "vrrp_higher_prio_send_advert",
        "vrrp_instance": "higher_prio_send_advert",
    },
    "1.3.6": {
        "global_defs": (
            "notify_fifo notify_fifo_script vrrp_notify_fifo vrrp_notify_fifo_script lvs_notify_fifo "
            "lvs_notify_fifo_script"
        ),
        "virtual_server": "sorry_server_lvs_method",
        "HTTP_GET": "virtualhost",
        "SSL_GET": "virtualhost",
        "url": "virtualhost",
    },
    "1.3.7": {
        "global_defs": "dbus_service_name",
        "vrrp_instance": "old_unicast_checksum",
        "virtual_server": "retry delay_before_retry warmup",
        "real_server": "retry delay_before_retry warmup",
        "TCP_CHECK": "bind_if retry delay_before_retry warmup delay_loop alpha",
        "HTTP_GET": "bind_if retry delay_before_retry warmup delay_loop alpha",
        "SSL_GET": "bind_if retry delay_before_retry warmup delay_loop alpha",
        "SMTP_CHECK": "bind_if retry delay_before_retry warmup delay_loop alpha",
        "DNS_CHECK": "bind_if retry delay_before_retry warmup delay_loop alpha",
        "MISC_CHECK": "retry delay_before_retry warmup delay_loop alpha",
        "PING_CHECK": "bind_if retry delay_before_retry warmup delay_loop alpha",
        "UDP_CHECK": "bind_if retry delay_before_retry warmup delay_loop alpha",
    },
    "1.4.3": {
        "HTTP_GET": "enable_sni",
        "SSL_GET": "enable_sni",
    },
    "2.0.0": {
        "": "child_wait_time bfd_instance track_file",
        "global_defs": (
            "smtp_alert smtp_alert_vrrp smtp_alert_checker dynamic_interfaces no_email_faults "
            "vrrp_rt_priority vrrp_rlimit_rtime checker_rt_priority checker_rlimit_rtime bfd_priority "
            "bfd_no_swap bfd_rt_priority bfd_rlimit_rtime enable_snmp_vrrp vrrp_netlink_cmd_rcv_bufs "
            "vrrp_netlink_cmd_rcv_bufs_force vrrp_netlink_monitor_rcv_bufs "
            "vrrp_netlink_monitor_rcv_bufs_force lvs_netlink_cmd_rcv_bufs lvs_netlink_cmd_rcv_bufs_force "
            "lvs_netlink_monitor_rcv_bufs lvs_netlink_monitor_rcv_bufs_force rs_init_notifies "
            "no_checker_emails"
        ),
        "vrrp_sync_group": "track_file track_bfd sync_group_tracking_weight",
        "vrrp_instance": "track_file track_bfd track_src_ip linkbeat_use_polling",
        "bfd_instance": (
            "neighbor_ip neighbour_ip source_ip min_rx min_tx idle_tx multiplier passive ttl hoplimit "
            "max_hops weight vrrp checker"
        ),
        "virtual_server": "smtp_alert",
        "real_server": "smtp_alert",
        "BFD_CHECK": "name alpha",
    },
    "2.0.3": {
        "": "track_group",
        "global_defs": "vrrp_rx_bufs_policy vrrp_rx_bufs_multiplier",
        "vrrp_instance": "kernel_rx_buf_size",
    },
    "2.0.6": {
        "vrrp_instance": "notify_master_rx_lower_pri",
    },
    "2.0.7": {
        "url": "regex regex_no_match regex_options regex_min_offset regex_max_offset regex_stack",
    },
    "2.0.9": {
        "global_defs": "umask",
    },
    "2.0.11": {
        "": "vrrp_track_process",
        "global_defs": (
            "checker_log_all_failures nftables nftables_priority nftables_ifindex nftables_counters "
            "process_monitor_rcv_bufs process_monitor_rcv_bufs_force"
        ),
        "vrrp_sync_group": "track_process",
        "vrrp_instance": "track_process",
        "vrrp_track_process": "process quorum delay full_command",
        "TCP_CHECK": "log_all_failures",
        "HTTP_GET": "log_all_failures",
        "SSL_GET": "log_all_failures",
        "SMTP_CHECK": "log_all_failures",
        "DNS_CHECK": "log_all_failures",
        "MISC_CHECK": "log_all_failures",
        "PING_CHECK": "log_all_failures",
        "UDP_CHECK": "log_all_failures",
    },
    "2.0.12": {
        "global_defs": "vrrp_min_garp",
    },
    "2.0.13": {
        "": "linkbeat_interfaces",
        "virtual_server": "connect_timeout",
        "real_server": "connect_timeout",
    },
    "2.0.14": {
        "global_defs": "vrrp_startup_delay",
    },
    "2.0.15": {
        "global_defs": "lvs_flush_onstop random_seed",
    },
    "2.0.16": {
        "global_defs": (
            "process_names process_name vrrp_process_name lvs_process_name bfd_process_name "
            "vrrp_notify_priority_changes log_unknown_vrids"
        ),
        "vrrp_sync_group": "notify_priority_changes",
        "vrrp_instance": "notify_priority_changes",
        "vrrp_track_process": "param_match quorum_max terminate_delay fork_delay",
    },
    "2.0.17": {
        "global_defs": "vrrp_cpu_affinity checker_cpu_affinity bfd_cpu_affinity",
        "vrrp_instance": "use_ipvlan",
        "HTTP_GET": "http_protocol fast_recovery",
        "SSL_GET": "http_protocol fast_recovery",
    },
    "2.0.20": {
        "virtual_server": "mh-port mh-fallback",
    },
    "2.1.0": {
        "": "net_namespace_ipvs vrrp_track_file",
        "global_defs": (
            "startup_script startup_script_timeout shutdown_script shutdown_script_timeout max_auto_priority "
            "min_auto_priority_delay vrrp_rlimit_rttime checker_rlimit_rttime bfd_rlimit_rttime "
            "reload_time_file reload_repeat"
        ),
        "vrrp_instance": "check_unicast_src unicast_ttl notify_deleted",
        "track_file": "file weight init_file",
        "UDP_CHECK": "require_reply",
        "FILE_CHECK": "track_file weight",
    },
    "2.2.0": {
        "global_defs": (
            "checker_process_name disable_local_igmp lvs_flush_on_stop vrrp_vmac_garp_intvl vmac_prefix "
            "vmac_addr_prefix reload_check_config reload_file include_check tmp_config_directory"
        ),
        "vrrp_instance": "use_vmac_addr vmac_garp_intvl",
        "UDP_CHECK": "payload min_reply_length max_reply_length",
    },
    "2.2.2": {
        "global_defs": "nftables_ipvs nftables_ipvs_priority nftables_ipvs_start_fwmark",
    },
    "2.2.3": {
        "": "interface_up_down_delays",
        "global_defs": "vrrp_down_timer_adverts vrrp_garp_extra_if config_save_dir data_use_instance",
        "vrrp_instance": "down_timer_adverts garp_extra_if",
        "virtual_server": "snmp_name",
        "real_server": "snmp_name",
    },
    "2.2.5": {
        "global_defs": "fifo_write_vrrp_states_on_reload",
        "vrrp_instance": "unicast_fault_no_peer vrf mcast_dst_ip",
    },
    "2.2.8": {
        "global_defs": "v3_checksum_as_v2 json_version",
        "vrrp_instance": "no_virtual_ipaddress v3_checksum_as_v2 timer_expired_backup",
        "bfd_instance": "multihop",
        "SSL_GET": "tls_compliant",
        "url": "tls_compliant",
    },
    "2.3.0": {
        "global_defs": (
            "use_symlink_paths snmp_vs_stats_update_interval snmp_rs_stats_update_interval dbus_no_interface_name"
        ),
    },
    "2.3.2": {
        "global_defs": "iproute_usr_dir iproute_etc_dir",
        "vrrp_instance": "thread_timer_expired",
    },
    "2.3.3": {
        "global_defs": "vrrp_owner_ignore_adverts state_dump_file stats_dump_file json_dump_file",
        "vrrp_instance": "owner_ignore_adverts",
    },
    "2.4.0": {
        "global_defs": "vrrp_delay_after_boot",
        "vrrp_instance": "auth_hmac",
        "auth_hmac": "key active_key time_window anti_replay mode",
    },
    "after 2.4.3": {
        "global_defs": "set_supplementary_groups",
        "HTTP_GET": "sni_name",
        "SSL_GET": "sni_name",
    },
}
"""Keywords separated by blanks."""

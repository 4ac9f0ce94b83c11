"""How a difference names fields and shows values: by keepalived's keywords, not by how the model is built."""

from __future__ import annotations

from typing import Any

from haxlb.model.commands import Command
from haxlb.model.units import SECOND_US

_NAMES: dict[str, dict[str, str]] = {
    "VrrpInstance": {
        "vrid": "virtual_router_id",
        "initial_role": "state",
        "advert_interval_us": "advert_int",
        "auth_ah": "auth_type AH",
        "source": "source address",
        "multicast_group": "mcast_dst_ip",
        "strict": "strict_mode",
        "checksum_as_v2": "v3_checksum_as_v2",
        "track_primary": "loss of the interface is a fault",
        "track_source": "track_src_ip",
        "virtual_mac": "virtual MAC",
    },
    "NotifyScripts": {
        "master": "notify_master",
        "backup": "notify_backup",
        "fault": "notify_fault",
        "stop": "notify_stop",
        "deleted": "notify_deleted",
        "tells_deleted": "notify_deleted is told",
        "master_rx_lower_pri": "notify_master_rx_lower_pri",
        "any": "notify",
    },
    "GarpConfig": {
        "interval_us": "garp_interval",
        "gna_interval_us": "gna_interval",
        "extra_if_us": "garp_extra_if",
        "extra_if_all": "garp_extra_if all",
    },
    "VirtualServer": {
        "mh_port": "mh-port",
        "persistence_s": "persistence_timeout",
        "one_packet": "ops",
    },
    "RealServer": {
        "method": "lvs_method",
        "tunnel": "type of tunnel",
        "tunnel_port": "port of the tunnel",
        "tunnel_checksum": "csum",
        "upper_threshold": "uthreshold",
        "lower_threshold": "lthreshold",
    },
    "FlowTimeouts": {"tcp_s": "tcp", "tcp_fin_s": "tcpfin", "udp_s": "udp"},
    "SyncGroup": {"tracks": "tracked", "tracking_weight": "sync_group_tracking_weight"},
    "TrackScript": {"run": "script"},
    "TrackFile": {"path": "file"},
    "NotificationSettings": {
        "fifo_states_on_reload": "fifo_write_vrrp_states_on_reload",
        "priority_changes": "vrrp_notify_priority_changes",
    },
    "ScriptSettings": {
        "user": "script_user",
        "group": "group of script_user",
        "security": "enable_script_security",
        "supplementary_groups": "set_supplementary_groups",
        "startup": "startup_script",
        "startup_timeout_us": "startup_script_timeout",
        "shutdown": "shutdown_script",
        "shutdown_timeout_us": "shutdown_script_timeout",
    },
}
_OF_ITS_OWN = ("NotifyScripts", "GarpConfig", "ScriptSettings")
"""Whose fields say by themselves what they belong to."""


def field_name(owner: Any, name: str) -> str:
    """The field `name` of a value, for people."""
    kind = type(owner).__name__
    plain = name.removesuffix("_us")
    return _NAMES.get(kind, {}).get(name, f"garp_{plain}" if kind == "GarpConfig" else plain)


def prefix(value: Any, name: str) -> str:
    """What is put before the names of the fields of a value that is a field called `name`."""
    return "" if type(value).__name__ in _OF_ITS_OWN else f"{name} "


def shown(name: str, value: Any) -> str:
    """A value of the field `name`; what is not there is `none`."""
    if value is None or value in ((), ""):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_us"):
        return f"{value / SECOND_US:g} s"
    if isinstance(value, tuple):
        return " ".join(map(_called, value))
    return _called(value)


def _called(value: Any) -> str:
    """How a value is called: its dataclass has an address, a path or the like that tells it from others."""
    if isinstance(value, Command):
        user = " ".join(filter(None, (value.user, value.group)))
        return " ".join(filter(None, (str(value), user and f"as {user}"))) or "none"
    for name in ("value", "interface", "path", "server", "key"):
        if hasattr(value, name):
            return str(getattr(value, name))
    return str(value)

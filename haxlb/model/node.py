"""NodeConfig: everything a director does, as values. Built by `haxlb.config`, read by every process.

Times are whole microseconds (`_us`). Defaults are keepalived's unless DESIGN section 7 says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.model.addresses import StaticAddress
from haxlb.model.groups import SyncGroup, TrackGroup, VirtualServerGroup
from haxlb.model.instance import VrrpInstance
from haxlb.model.notification import NotificationSettings
from haxlb.model.routes import Route, Rule
from haxlb.model.settings import CheckerSettings, ForwardingSettings, MqttSettings, SpeakerSettings
from haxlb.model.tracking import BfdSession, TrackFile, TrackProcess, TrackScript
from haxlb.model.virtual_server import FlowTimeouts, VirtualServer


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One director."""

    node: str
    """router_id, or the host name: how this director is called in logs, status and MQTT."""
    instances: tuple[VrrpInstance, ...] = ()
    virtual_servers: tuple[VirtualServer, ...] = ()
    mqtt: MqttSettings | None = None
    forwarding: ForwardingSettings = field(default_factory=ForwardingSettings)
    speaker: SpeakerSettings = field(default_factory=SpeakerSettings)
    checker: CheckerSettings = field(default_factory=CheckerSettings)
    notification: NotificationSettings = field(default_factory=NotificationSettings)
    track_scripts: tuple[TrackScript, ...] = ()
    track_files: tuple[TrackFile, ...] = ()
    track_processes: tuple[TrackProcess, ...] = ()
    bfd_sessions: tuple[BfdSession, ...] = ()
    sync_groups: tuple[SyncGroup, ...] = ()
    vmac_addr_prefix: str = "vrrp"
    """How the names of `address_macs` begin; for printing only."""
    track_groups: tuple[TrackGroup, ...] = ()
    """What they come to is in the `tracks` of their instances."""
    static_routes: tuple[Route, ...] = ()
    """Put on this host while haxlb runs."""
    static_rules: tuple[Rule, ...] = ()
    static_addresses: tuple[StaticAddress, ...] = ()
    virtual_server_groups: tuple[VirtualServerGroup, ...] = ()
    timeouts: FlowTimeouts = field(default_factory=FlowTimeouts)

    @property
    def forwarding_interfaces(self) -> tuple[str, ...]:
        """Interfaces that carry the XDP program, in configuration order; none without virtual servers."""
        if not self.virtual_servers:
            return ()
        named = self.forwarding.interfaces or tuple(i.interface for i in self.instances)
        return tuple(dict.fromkeys(named))

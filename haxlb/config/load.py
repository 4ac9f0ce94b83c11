"""Files to a NodeConfig and every complaint about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path

from haxlb.config.commands import (
    Accounts,
    Insecurities,
    Programs,
    check_accounts,
    check_programs,
    check_security,
    check_shell_words,
)
from haxlb.config.crosscheck import check_interfaces, check_purpose, usable_instances, usable_vips
from haxlb.config.crosscheck_election import check_election
from haxlb.config.crosscheck_groups import check_sync_groups
from haxlb.config.crosscheck_macs import separate_macs
from haxlb.config.crosscheck_servers import check_links, check_ownership, check_targets, usable_servers
from haxlb.config.defaults import read_defaults
from haxlb.config.flow_timeouts import read_timeouts
from haxlb.config.globals import Globals
from haxlb.config.instance_mac import MacNames
from haxlb.config.instances import InstanceReader, PlacedInstance
from haxlb.config.link_delays import read_link_delays
from haxlb.config.notification import check_alerts, read_notification
from haxlb.config.server_groups import ServerGroups
from haxlb.config.servers import PlacedServer, VirtualServerReader
from haxlb.config.settings import read_settings
from haxlb.config.speaker_process import read_checker, read_speaker
from haxlb.config.static_entries import read_static_blocks
from haxlb.config.sync_groups import read_sync_groups
from haxlb.config.track_groups import read_track_groups, tie_instances
from haxlb.config.tracking import read_tracking
from haxlb.model.errors import ConfigError
from haxlb.model.node import NodeConfig
from haxlb.model.tracking import TrackKind
from keepalived_compat.diagnostics import Diagnostic, Severity
from keepalived_compat.reading import Reading, read
from keepalived_compat.section import Section
from keepalived_compat.source import Reader, Sources
from keepalived_compat.tree import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of a configuration."""

    config: NodeConfig | None
    """None when a complaint is fatal."""
    diagnostics: tuple[Diagnostic, ...]
    """By file, in the order of reading, then by place."""
    sources: Sources
    """The lines behind the complaints."""
    written: Section
    """What the file says itself, without defaults."""
    instances: tuple[PlacedInstance, ...]
    """Those of the configuration, with what their blocks say."""
    servers: tuple[PlacedServer, ...]
    """Likewise."""


def load(
    path: Path,
    *,
    settings: Path | None,
    interfaces: frozenset[str] | None = None,
    networks: tuple[IPv4Network, ...] = (),
    accounts: Accounts | None = None,
    programs: Programs | None = None,
    insecurities: Insecurities | None = None,
    node: str,
    config_id: str = "",
    reader: Reader | None = None,
) -> Loaded:
    """Read keepalived.conf and, when it is there, haxlb.yml. Raises nothing, whatever the files hold.

    `interfaces` are those that exist on this host: to need another one is fatal; None = it is not looked at.
    `networks` are those that this host is connected to; they count where it looks like the director itself.
    `accounts` says whether a user and a group exist on this host, `programs` why it cannot run a command,
    `insecurities` why enable_script_security forbids one; None = it is not looked at.
    `node` is the host's name: it names the director unless router_id does. `config_id` selects `@ID` lines; empty =
    the host's name does.
    """
    reading = read(path, config_id=config_id or node, reader=reader)
    complaints = reading.complaints
    config, instances, servers = _node_config(reading, node, interfaces, networks)
    if settings is not None:
        given = read_settings(
            settings, complaints=complaints, sources=reading.sources, interfaces=interfaces, reader=reader
        )
        config = replace(
            config,
            mqtt=given.mqtt,
            forwarding=given.forwarding,
            speaker=replace(
                config.speaker,
                vip_lifetime_s=given.vip_lifetime_s,
                lock_memory=given.lock_memory,
                spare=given.spare_speaker,
            ),
        )
    check_purpose(reading.tree, complaints, path)
    check_shell_words(reading.root, complaints)
    if accounts is not None:
        check_accounts(reading.root, accounts, complaints)
    if programs is not None:
        check_programs(reading.root, programs, complaints)
    if insecurities is not None:
        check_security(reading.root, config.notification.scripts, insecurities, complaints)
    diagnostics = tuple(
        sorted(complaints.all, key=lambda each: (reading.sources.rank(each.span), each.severity.rank, each.code))
    )
    return Loaded(
        config=config if complaints.usable else None,
        diagnostics=diagnostics,
        sources=reading.sources,
        written=reading.root,
        instances=tuple(instances),
        servers=tuple(servers),
    )


def load_or_raise(
    path: Path,
    *,
    settings: Path | None,
    interfaces: frozenset[str] | None = None,
    node: str,
    config_id: str = "",
    reader: Reader | None = None,
) -> Loaded:
    """As `load`, but a fatal complaint raises ConfigError, which carries all of them."""
    loaded = load(path, settings=settings, interfaces=interfaces, node=node, config_id=config_id, reader=reader)
    if loaded.config is None:
        raise refusal(loaded)
    return loaded


def refusal(loaded: Loaded) -> ConfigError:
    """The error that says why a configuration was not taken: its first fatal complaint."""
    fatal = [each for each in loaded.diagnostics if each.severity is Severity.FATAL]
    first = fatal[0]
    more = f", and {len(fatal) - 1} more" if len(fatal) > 1 else ""
    return ConfigError(
        f"{first.span}: {first.message}{more}",
        remedy=first.hint or "`haxlb check` shows every complaint",
        diagnostics=loaded.diagnostics,
    )


def _node_config(
    reading: Reading, node: str, interfaces: frozenset[str] | None, networks: tuple[IPv4Network, ...]
) -> tuple[NodeConfig, list[PlacedInstance], list[PlacedServer]]:
    root, tree, complaints = reading.root, reading.tree, reading.complaints
    given = Globals(root)
    defaults = read_defaults(root, given, complaints)
    tracking = read_tracking(root, complaints)
    macs = MacNames(defaults.vmac_prefix, defaults.vmac_addr_prefix)
    found = [
        InstanceReader(each, defaults, complaints, tracks=tracking.of(each.words[0].span), macs=macs).read()
        for each in root.all("vrrp_instance")
    ]
    instances = usable_instances([each for each in found if each is not None], complaints)
    instances = separate_macs(usable_vips(instances, complaints), complaints)
    groups = read_sync_groups(root, tracking, defaults, complaints)
    check_election(instances, complaints)
    check_sync_groups(groups, instances, complaints)
    static = read_static_blocks(root, defaults.default_interface, complaints)
    track_groups = read_track_groups(root, complaints)
    declared = frozenset(_names(tree, "track_group"))
    instances = tie_instances(instances, track_groups, static.ties, complaints, declared=declared)
    if interfaces is not None:
        check_interfaces(instances, interfaces, complaints, later=given.has("dynamic_interfaces"))
    services = ServerGroups(root, complaints)
    read_servers = [
        VirtualServerReader(each, services, defaults, complaints).read() for each in root.all("virtual_server")
    ]
    servers = usable_servers([each for each in read_servers if each is not None], complaints)
    check_ownership(servers, instances, tree, complaints)
    check_targets(servers, instances, complaints)
    if interfaces is not None and _is_director(instances, interfaces, networks):
        check_links(servers, networks, complaints)
    notification = read_notification(given, complaints)
    sections = [*(each.section for each in instances), *(each.section for each in servers)]
    alerting = [each for each in (section.entry("smtp_alert") for section in sections) if each is not None]
    check_alerts(
        given,
        (each.words[0].span for each in alerting if each.value),
        mails=notification.mail is not None,
        complaints=complaints,
    )
    speaker = read_speaker(given, complaints)
    config = NodeConfig(
        node=str(given.value("router_id", node)),
        instances=tuple(each.instance for each in instances),
        virtual_servers=tuple(each.virtual_server for each in servers),
        speaker=replace(
            speaker,
            link_delays=read_link_delays(
                root,
                (each.instance for each in instances),
                complaints,
                tracked=(each.name for group in groups for each in group.tracks if each.kind is TrackKind.INTERFACE),
            ),
        ),
        checker=read_checker(given, speaker, complaints),
        notification=notification,
        track_scripts=tracking.scripts,
        track_files=tracking.files,
        track_processes=tracking.processes,
        bfd_sessions=tracking.sessions,
        sync_groups=groups,
        vmac_addr_prefix=defaults.vmac_addr_prefix if any(each.instance.address_macs for each in instances) else "vrrp",
        track_groups=track_groups,
        static_routes=static.routes,
        static_rules=static.rules,
        static_addresses=static.addresses,
        virtual_server_groups=services.all,
        timeouts=read_timeouts(given, complaints),
    )
    return config, instances, servers


def _names(tree: Body, block: str) -> Iterator[str]:
    return (each.arguments[0].text for each in tree.statements if each.keyword.text == block and each.arguments)


def _is_director(
    instances: list[PlacedInstance], interfaces: frozenset[str], networks: tuple[IPv4Network, ...]
) -> bool:
    """This host has the interfaces of all instances, and is connected to the network of a virtual address."""
    addresses = [vip.address for each in instances for vip in each.instance.vips]
    return interfaces.issuperset(each.instance.interface for each in instances) and any(
        address in network for address in addresses for network in networks
    )

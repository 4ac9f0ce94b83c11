"""What the supervisor stands for at this moment: the configuration in force, and what is known of roles and peers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from haxlb.daemon.live_weights import LiveWeights
from haxlb.daemon.messages import ConfigureChecker, ConfigureSpeaker, ConfigureTracker, GarpFrame, PeersKnown, Tracked
from haxlb.daemon.tracking import Key, same_things, tracker_orders
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.status import InstanceStatus
from haxlb.model.succession import Succession
from haxlb.model.tracking import TrackResult
from haxlb.model.units import SECOND_US

MOST_PEERS = 16
"""Other directors remembered per interface; a flood of spoofed adverts must not cost memory. The one that was not heard
for longest is forgotten, or a few sources that were there first would keep a real one out for ever."""


@dataclass(slots=True, kw_only=True)
class Standing:
    """Everything that a child must be told when it is started."""

    config: NodeConfig
    bpf_directory: str
    config_directory: str = ""
    """Where the configuration file is, and scripts run."""
    firewall_table: str = "haxlb"
    program: str = ""
    """Path of the pinned program; empty = what is attached stays."""
    frames: tuple[GarpFrame, ...] = ()
    reserve: str = ""
    """Why the speaker must not preempt a MASTER yet."""
    roles: dict[str, Role] = field(default_factory=dict)
    """By instance, as last reported."""
    yielded: tuple[str, ...] = ()
    """Instances that were handed over by `haxlb failover`."""
    old_checksums: frozenset[str] = frozenset()
    """Instances whose peer was found to want the checksum of unicast as older keepalived makes it."""
    results: dict[Key, TrackResult] = field(default_factory=dict)
    """The last ones of the tracker; in force as long as there is no other one, also while there is no tracker."""
    weights: LiveWeights = field(default_factory=LiveWeights)
    """What an operator has set on this daemon."""
    _heard: dict[str, dict[IPAddress, None]] = field(default_factory=dict)
    """By interface, the one heard last at the end."""
    _silenced: frozenset[tuple[str, IPAddress]] = frozenset()
    """By interface: directors whose silence has made us MASTER, and that were not heard since."""
    _down: frozenset[tuple[str, IPAddress]] = frozenset()
    """Of these, those whose hosts do not answer either."""

    @property
    def masters(self) -> tuple[VrrpInstance, ...]:
        """Instances that are MASTER here."""
        return tuple(each for each in self.config.instances if self.roles.get(each.name) is Role.MASTER)

    @property
    def held_vips(self) -> tuple[Vip, ...]:
        """Addresses that this node holds."""
        return tuple(vip for each in self.masters for vip in (*each.vips, *each.excluded_vips))

    @property
    def bequeathed(self) -> tuple[VrrpInstance, ...]:
        """The instances as their peers must be told, should the speaker die."""
        return tuple(
            replace(each, old_unicast_checksum="always") if each.name in self.old_checksums else each
            for each in self.config.instances
        )

    def take_statuses(self, instances: tuple[InstanceStatus, ...]) -> bool:
        """The speaker has said how its instances are; True when that changes who can be asked for flows."""
        self.roles = {each.name: each.role for each in instances}
        self.yielded = tuple(each.name for each in instances if each.yielded)
        self.old_checksums = frozenset(each.name for each in instances if each.old_checksum)
        before, self._silenced = self._down, frozenset(_silenced(instances))
        self._down &= self._silenced
        # Of one that speaks all the time there is no fact but the first.
        known = {interface: set(heard) for interface, heard in self._heard.items()}
        spoken = [(peer.heard_at, each.interface, peer.address) for each in instances for peer in each.peers]
        for _, interface, address in sorted(spoken, key=lambda each: each[0]):
            self._remember(interface, address)
        return self._down != before or known != {interface: set(heard) for interface, heard in self._heard.items()}

    @property
    def silenced(self) -> frozenset[tuple[str, IPAddress]]:
        """Interfaces and addresses of directors that have fallen silent: whether their hosts live is to be seen."""
        return self._silenced

    def take_answer(self, silenced: tuple[str, IPAddress], *, answers: bool) -> bool:
        """The host of a director that is silent answers, or not; True when that changes who can be asked for flows."""
        before = self._down
        self._down = (before - {silenced}) if answers else (before | {silenced}) & self._silenced
        return self._down != before

    def hear(self, instance: str, address: IPAddress) -> bool:
        """An advert of this director was heard; True when it was not known on that interface."""
        interface = next((each.interface for each in self.config.instances if each.name == instance), None)
        if interface is None:
            return False
        return self._remember(interface, address)

    def _remember(self, interface: str, address: IPAddress) -> bool:
        heard = self._heard.setdefault(interface, {})
        known = address in heard
        if known:
            del heard[address]
        elif len(heard) >= MOST_PEERS:
            del heard[next(iter(heard))]
        heard[address] = None
        return not known

    def adopt(self, config: NodeConfig) -> tuple[VrrpInstance, ...]:
        """Take a new configuration; what is known of an instance follows its interface and VRID, not its name.

        Returns the MASTERs that have got another name.
        """
        kept = same_things(tracker_orders(self.config), tracker_orders(config))
        self.results = {key: result for key, result in self.results.items() if key in kept}
        former = {each.key: each.name for each in self.config.instances}
        names = {former[each.key]: each.name for each in config.instances if each.key in former}
        self.config = config
        self.weights.keep(config)
        self.roles = {names[name]: role for name, role in self.roles.items() if name in names}
        self.yielded = tuple(names[name] for name in self.yielded if name in names)
        self.old_checksums = frozenset(names[name] for name in self.old_checksums if name in names)
        return tuple(each for each in self.masters if former[each.key] != each.name)

    def speaker_orders(self, successions: tuple[Succession, ...] = ()) -> ConfigureSpeaker:
        """What the speaker shall do; `successions` for one that takes the place of a dead one."""
        return ConfigureSpeaker(
            instances=self.config.instances,
            garp_frames=self.frames,
            settings=self.config.speaker,
            sync_groups=self.config.sync_groups,
            static_addresses=self.config.static_addresses,
            static_routes=self.config.static_routes,
            static_rules=self.config.static_rules,
            script_settings=self.config.notification.scripts,
            config_directory=self.config_directory,
            results=tuple(self.results.values()),
            firewall_table=self.firewall_table,
            successions=successions,
            bpf_directory=self.bpf_directory,
            reserve=self.reserve,
        )

    def checker_orders(self) -> ConfigureChecker:
        """What the checker shall do."""
        return ConfigureChecker(
            config=self.weights.applied(self.config),
            bpf_directory=self.bpf_directory,
            program=self.program,
            config_directory=self.config_directory,
        )

    def tracker_orders(self) -> ConfigureTracker:
        """What the tracker shall do."""
        return replace(tracker_orders(self.config, self.results.values()), config_directory=self.config_directory)

    def take_results(self, tracked: Tracked) -> None:
        """The tracker has found these out."""
        self.results.update(((each.kind, each.name), each) for each in tracked.results)

    def peers(self) -> tuple[PeersKnown, ...]:
        """The other directors per interface: those that are configured, and those that were heard.

        Without dead hosts: the forwarder hands packets of unknown flows to a peer, and those for a dead one would be
        lost until its ARP entry fails. Where only haxlb is dead, and where it has resigned, its forwarder is alive.
        """
        interfaces = dict.fromkeys(each.interface for each in self.config.instances)
        return tuple(PeersKnown(interface=interface, peers=self._peers_on(interface)) for interface in interfaces)

    def _peers_on(self, interface: str) -> tuple[IPAddress, ...]:
        configured = (peer for each in self.config.instances if each.interface == interface for peer in each.peers)
        known = dict.fromkeys((*configured, *self._heard.get(interface, ())))
        return tuple(address for address in known if (interface, address) not in self._down)


def _silenced(instances: tuple[InstanceStatus, ...]) -> Iterator[tuple[str, IPAddress]]:
    """Whose silence has made an instance MASTER: nothing of it for more than half of master_down_interval before."""
    heard: dict[tuple[str, IPAddress], float] = {}
    for each in instances:
        for peer in each.peers:
            key = (each.interface, peer.address)
            heard[key] = max(peer.heard_at, heard.get(key, peer.heard_at))
    for each in instances:
        if each.role is not Role.MASTER:
            continue
        last_chance = each.since_at - each.master_down_interval_us / SECOND_US / 2
        for peer in each.peers:
            if peer.priority > 0 and heard[each.interface, peer.address] < last_chance:
                yield each.interface, peer.address

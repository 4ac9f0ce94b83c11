"""How haxlb and its processes run: `haxlb.yml`, and what keepalived has global keywords for."""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.model.units import SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """`mqtt:` of haxlb.yml."""

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    site: str = "default"
    """Topics are haxlb/<site>/…; the directors of a pair share it."""
    keepalive_s: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingSettings:
    """`forwarding:` of haxlb.yml."""

    interfaces: tuple[str, ...] = ()
    """Where the XDP program is attached; empty = every interface that carries a VRRP instance."""
    mode: str = "auto"
    """auto (native, else generic with a warning), native, generic."""
    flow_buckets_log2: int = 16
    """2^N buckets of four flows, 64 bytes each; the default holds 262,144 flows in 4 MiB."""
    max_services: int = 64
    """Lower bound of the table's size; a configuration with more virtual servers gets a larger one at start."""


TABLE_SIZES = ("flow_buckets_log2", "max_services")
"""Settings of the forwarder that count only where its tables are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDelay:
    """One line of `interface_up_down_delays`."""

    interface: str
    down_us: int
    """So long a link must be down before it counts as down."""
    up_us: int = 0

    def __str__(self) -> str:
        return f"{self.interface} {self.down_us / SECOND_US:g} {self.up_us / SECOND_US:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerSettings:
    """How the process that speaks VRRP runs."""

    realtime_priority: int = 20
    """vrrp_rt_priority, SCHED_RR 1 to 99; 0 = the normal class."""
    nice: int = 0
    """vrrp_priority, where it is in the normal class."""
    lock_memory: bool = True
    """haxlb locks unless haxlb.yml says otherwise; vrrp_no_swap asks for the same."""
    cpus: tuple[int, ...] = ()
    """vrrp_cpu_affinity; empty = all."""
    runaway_us: int = 2 * SECOND_US
    """vrrp_rlimit_rttime: CPU time without a blocking call after which the kernel ends it."""
    startup_delay_us: int = 0
    """vrrp_startup_delay: no instance leaves BACKUP, and no advert counts, before this."""
    delay_after_boot_us: int = 0
    """vrrp_delay_after_boot: likewise, counted from the start of the host; the later end of the two counts."""
    vip_lifetime_s: int = 2
    """`vips: lifetime:` of haxlb.yml: after so long without renewal the kernel takes a VIP off; 0 = never."""
    log_unknown_vrids: bool = False
    disable_local_igmp: bool = False
    """The host reports no membership of link-local IPv4 groups (224.0.0.0/24) while the speaker runs."""
    link_delays: tuple[LinkDelay, ...] = ()
    spare: bool = True
    """`processes: spare_speaker:` of haxlb.yml: whether a second speaker waits to take the place of a dead one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerSettings:
    """How the process that checks servers runs: by default as any other."""

    realtime_priority: int = 0
    """checker_rt_priority, SCHED_RR, always below the speaker's; 0 = the normal class."""
    nice: int = 0
    """checker_priority, where it is in the normal class."""
    lock_memory: bool = False
    """checker_no_swap."""
    cpus: tuple[int, ...] = ()
    """checker_cpu_affinity; empty = all."""
    runaway_us: int = 2 * SECOND_US
    """checker_rlimit_rttime: CPU time without a blocking call after which the kernel ends it."""

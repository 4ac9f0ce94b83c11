"""Virtual servers of the configuration and their real servers, defaults applied."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from haxlb.model.addresses import Endpoint, IPAddress
from haxlb.model.check import Check
from haxlb.model.commands import NO_COMMAND, Command
from haxlb.model.made_often import made_often


class Scheduler(Enum):
    """Schedulers that the forwarder implements, by their IPVS names."""

    RR = "rr"
    WRR = "wrr"
    LC = "lc"
    WLC = "wlc"
    LBLC = "lblc"
    LBLCR = "lblcr"
    SH = "sh"
    DH = "dh"
    MH = "mh"
    SED = "sed"
    NQ = "nq"
    FO = "fo"
    OVF = "ovf"
    TWOS = "twos"

    @property
    def hashes(self) -> bool:
        """The choice is a function of the packet's addresses."""
        return self in (Scheduler.SH, Scheduler.DH, Scheduler.MH)

    @property
    def takes_turns(self) -> bool:
        """New flows go round the servers (twos: two of them are looked at)."""
        return self in (Scheduler.RR, Scheduler.WRR, Scheduler.TWOS)


class ForwardingMethod(Enum):
    """How packets reach a real server, by IPVS's names."""

    DR = "DR"
    TUN = "TUN"
    NAT = "NAT"


class TunnelKind(Enum):
    """`lvs_method TUN type …`."""

    IPIP = "ipip"
    GUE = "gue"
    GRE = "gre"


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class RealServer:
    """One `real_server` block, or the `sorry_server`."""

    address: IPAddress
    port: int
    """0 = that of the packet: a virtual server of all ports."""
    weight: int = 1
    """0 = drain: established flows stay, no new ones."""
    inhibit_on_failure: bool = False
    """On failure weight 0 instead of removal: its flows stay.

    Of a sorry server (`sorry_server_inhibit`): the same while it does not serve.
    """
    alpha: bool | None = None
    """It starts DOWN until its checks succeed; None = as the virtual server says."""
    checks: tuple[Check, ...] = ()
    notify_up: Command = NO_COMMAND
    notify_up_at_start: bool = False
    """rs_init_notifies: notify_up is run for a server that counts as up without having been probed, too."""
    notify_down: Command = NO_COMMAND
    smtp_alert: bool = False
    method: ForwardingMethod = ForwardingMethod.DR
    tunnel: TunnelKind = TunnelKind.IPIP
    tunnel_port: int = 0
    """UDP port of GUE."""
    tunnel_checksum: bool = False
    """csum: the outer UDP or GRE header has a checksum; `remcsum` is not supported."""
    upper_threshold: int = 0
    """uthreshold: with so many connections it gets no more; 0 = any number."""
    lower_threshold: int = 0
    """lthreshold: until it has fewer than this again; 0 = three quarters of the upper one."""

    @property
    def key(self) -> str:
        """`address:port`, of IPv6 `[address]:port`: how the real server is named in status and logs."""
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"  # noqa: PLR2004 - the family


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualServer:
    """One `virtual_server` block."""

    endpoint: Endpoint
    """Of several the first."""
    more_endpoints: tuple[Endpoint, ...] = ()
    """Of a `virtual_server group` or `fwmark`: the others that share its servers."""
    group: str = ""
    """`virtual_server group NAME`."""
    fwmark: int = 0
    """`virtual_server fwmark N`: it serves the addresses of the group that names the mark."""
    scheduler: Scheduler = Scheduler.WRR
    mh_port: bool = False
    """Hash schedulers: hash the source port too (`mh-port`, `sh-port`)."""
    persistence_s: int = 0
    """persistence_timeout: a client keeps its server for so long after its last packet; 0 = off."""
    persistence_granularity: int | None = None
    """Bits of a client's address that count, an IPv4 mask or an IPv6 prefix; None = all."""
    one_packet: bool = False
    """ops: each UDP packet is scheduled anew."""
    alpha: bool = False
    """Servers start DOWN until a check succeeds."""
    quorum: int = 1
    hysteresis: int = 0
    quorum_up: Command = NO_COMMAND
    quorum_down: Command = NO_COMMAND
    smtp_alert: bool = False
    sorry_server: RealServer | None = None
    real_servers: tuple[RealServer, ...] = ()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All of them."""
        return (self.endpoint, *self.more_endpoints)

    @property
    def name(self) -> str:
        """How it is called in status and logs, and what makes it the same one across a reload."""
        protocol = self.endpoint.protocol.value.lower()
        if self.fwmark:
            family = " inet6" if self.endpoint.address.version == 6 else ""  # noqa: PLR2004 - the family
            return f"fwmark {self.fwmark}{family} {protocol}"
        return f"group {self.group} {protocol}" if self.group else str(self.endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTimeouts:
    """`lvs_timeouts`: seconds without a packet after which a flow is no more. Defaults are the kernel's."""

    tcp_s: int = 900
    tcp_fin_s: int = 120
    udp_s: int = 300

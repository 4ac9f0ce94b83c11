"""For tests: virtual routers in every combination, as lines of one configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

PASSWORD = "s3cr3t"
PRIORITIES = {1: 150, 2: 100, 3: 50}
"""By the number of the director: d1 is the best one."""
UNICAST = {4: "10.9.0.{}", 6: "2001:db8::{}"}
"""By family: the address that the director of that number speaks from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """One vrrp_instance, which all directors have with their own priority."""

    vrid: int
    version: int = 3
    family: int = 4
    unicast: bool = False
    auth: str = ""
    """auth_type."""
    vmac: str = ""
    """How the lines on virtual MACs begin; empty without one."""
    interface: str = "eth0"
    nopreempt: bool = False
    interval_ms: tuple[int, ...] = ()
    """By director, where they are not the same."""
    group: str = ""
    """Its sync group."""

    @property
    def name(self) -> str:
        return f"VI_{self.vrid}"

    @property
    def vip(self) -> IPv4Address | IPv6Address:
        return ip_address(f"10.9.1.{self.vrid}" if self.family == 4 else f"fe80::1:{self.vrid:x}")

    @property
    def virtual_mac(self) -> str:
        """RFC 9568 section 7.3; empty where it has none."""
        return f"00:00:5e:00:0{1 if self.family == 4 else 2}:{self.vrid:02x}" if self.vmac else ""

    def advert_interval_ms(self, number: int) -> int:
        if self.interval_ms:
            return self.interval_ms[number - 1]
        return 1000 if self.version == 2 else 100

    def skew_ms(self, number: int, *, learned_ms: int) -> float:
        """RFC 3768: fractions of a second; RFC 9568: of the MASTER's interval."""
        return (256 - PRIORITIES[number]) / 256 * (1000 if self.version == 2 else learned_ms)

    def lines(self, number: int, directors: int) -> Iterable[str]:
        """The instance as the director of this number has it."""
        yield f"vrrp_instance {self.name} {{"
        yield f" version {self.version}\n state BACKUP\n interface {self.interface}\n virtual_router_id {self.vrid}"
        yield f" priority {PRIORITIES[number]}\n advert_int {self.advert_interval_ms(number) / 1000:g}"
        yield " garp_master_delay 1"
        if self.nopreempt:
            yield " nopreempt"
        if self.auth:
            yield f" authentication {{\n auth_type {self.auth}\n auth_pass {PASSWORD}\n }}"
        if self.vmac:
            yield self.vmac.format(self.vrid)
        if self.unicast:
            form = UNICAST[self.family]
            peers = "\n".join(form.format(each) for each in range(1, directors + 1) if each != number)
            yield f" unicast_src_ip {form.format(number)}\n unicast_peer {{\n{peers}\n }}"
        prefix = 32 if self.family == 4 else 64
        more = "" if self.family == 4 else f"\n 2001:db8::1:{self.vrid:x}/128"
        yield f" virtual_ipaddress {{\n {self.vip}/{prefix}{more}\n }}\n}}"


VMAC = " use_vmac vm{}"
XMIT_BASE = f"{VMAC}\n vmac_xmit_base"
MATRIX = (
    Router(vrid=11, version=2),
    Router(vrid=12, version=2, unicast=True),
    Router(vrid=13, version=2, auth="PASS"),
    Router(vrid=14, version=2, auth="PASS", unicast=True),
    Router(vrid=15, version=2, auth="AH"),
    Router(vrid=16, version=2, auth="AH", unicast=True),
    Router(vrid=17, version=2, family=6),
    Router(vrid=18, version=2, family=6, unicast=True),
    Router(vrid=21),
    Router(vrid=22, unicast=True),
    Router(vrid=23, family=6),
    Router(vrid=24, family=6, unicast=True),
    Router(vrid=31, vmac=VMAC),
    Router(vrid=32, vmac=XMIT_BASE),
    Router(vrid=33, vmac=VMAC, family=6),
    Router(vrid=34, vmac=XMIT_BASE, family=6),
    Router(vrid=35, vmac=VMAC, version=2, auth="AH"),
    Router(vrid=36, vmac=XMIT_BASE, unicast=True),
    # Whoever takes over keeps it: more patience than a busy machine needs to run a MASTER again.
    Router(vrid=41, nopreempt=True, interval_ms=(500, 500)),
    Router(vrid=42, version=2, nopreempt=True, auth="PASS"),
    Router(vrid=43, interval_ms=(200, 100)),
    Router(vrid=44, interval_ms=(100, 200), family=6),
    Router(vrid=51, group="VG"),
    Router(vrid=52, group="VG", version=2, interface="eth1"),
)


def configuration(routers: Iterable[Router], number: int, directors: int = 2) -> str:
    """keepalived.conf of the director of this number."""
    routers = tuple(routers)
    lines = [f"global_defs {{\n router_id d{number}\n}}"]
    for group in dict.fromkeys(each.group for each in routers if each.group):
        members = "\n".join(each.name for each in routers if each.group == group)
        lines.append(f"vrrp_sync_group {group} {{\n group {{\n{members}\n }}\n}}")
    for each in routers:
        lines += each.lines(number, directors)
    return "\n".join(lines) + "\n"

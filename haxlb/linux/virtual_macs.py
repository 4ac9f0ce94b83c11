"""`use_vmac`, `use_vmac_addr` and `use_ipvlan`: interfaces with the virtual router's MAC.

A macvlan in private mode, as keepalived makes it: nothing passes between it and other macvlans of the same interface.
It is there for as long as haxlb runs, with addresses or without: what is left behind by a crash is taken over at the
next start, and answers nothing meanwhile (docs/adr/0008).
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_interface
from socket import AF_INET6

from haxlb.linux.address_requests import FOREVER, encode_addition
from haxlb.linux.links import link_request
from haxlb.linux.rtnetlink import (
    IFLA_ADDRESS,
    IFLA_IFNAME,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    RTM_DELLINK,
    RTM_NEWLINK,
    Rtnetlink,
    attach,
    attribute,
    request,
)
from haxlb.linux.sysctls import Sysctls
from haxlb.model.addresses import Vip
from haxlb.model.errors import HostError, NotPermitted
from haxlb.model.instance import VirtualMac, VrrpInstance

# <linux/if_link.h>
_IFLA_LINK, _IFLA_LINKINFO, _IFLA_IFALIAS, _IFLA_AF_SPEC, _IFLA_GROUP = 5, 18, 20, 26, 27
_IFLA_INFO_KIND, _IFLA_INFO_DATA = 1, 2
_IFLA_MACVLAN_MODE, _MACVLAN_MODE_PRIVATE = 1, 1
_IFLA_IPVLAN_MODE, _IPVLAN_MODE_L2, _IFLA_IPVLAN_FLAGS = 1, 0, 2
_IPVLAN_FLAGS = {"bridge": 0, "private": 1, "vepa": 2}
_IFLA_INET6_ADDR_GEN_MODE, _IN6_ADDR_GEN_MODE_NONE = 8, 1
_IFINFOMSG = struct.Struct("=BxHiII")
_HEADER_SIZE = 16
_IFF_UP = 1
_ALIAS = "haxlb"
_VRRP_MACS = ("00:00:5e:00:01:", "00:00:5e:00:02:")
_IPV6 = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Present:
    index: int
    base: int
    mac: str
    kind: str
    alias: str


class VirtualMacs:
    """The interfaces of ours, and the settings of theirs and of the interfaces below them."""

    def __init__(self, rtnetlink: Rtnetlink, sysctls: Sysctls) -> None:
        """`sysctls` are held for the interfaces below, while they carry one of ours."""
        self._rtnetlink = rtnetlink
        self._sysctls = sysctls
        self._made: dict[str, VirtualMac] = {}

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the interfaces that are ours."""
        return tuple(self._made)

    def ensure(self, instances: Iterable[VrrpInstance]) -> list[HostError]:
        """Make what these need and is not there; what could not be had, of each interface one error."""
        problems = []
        bases: dict[str, None] = {}
        for instance, mac in [(each, mac) for each in instances for mac in each.virtual_macs]:
            try:
                self._ensure(instance, mac)
            except HostError as problem:
                problems.append(problem)
            else:
                self._made[mac.interface] = mac
                bases[mac.base] = None
        self._sysctls.hold(_settings_below(bases))
        return problems

    def retire(self, instances: Iterable[VrrpInstance]) -> None:
        """Remove those that none of these instances has. Raises HostError."""
        wanted = {mac.interface for each in instances for mac in each.virtual_macs}
        for name in [each for each in self._made if each not in wanted]:
            present = self._look(name)
            if present is not None:
                self._remove(name, present.index)
            del self._made[name]

    def close(self) -> None:
        """Remove all, and put back the settings. Raises HostError."""
        self.retire(())
        self._sysctls.release()

    def _ensure(self, instance: VrrpInstance, mac: VirtualMac) -> None:
        base = self._look(mac.base)
        if base is None:
            option = "interface" if mac.base == instance.interface else "dev"
            raise HostError(
                f"{instance.name}: no {mac.interface}: there is no interface {mac.base}",
                remedy=f"create it, or name another one in `{option}`",
            )
        present = self._look(mac.interface)
        if present is not None and not _fits(present, base, mac):
            if not _is_ours(present):
                raise HostError(
                    f"{instance.name}: there is an interface {mac.interface} already, and it is not haxlb's",
                    remedy=f"remove it (ip link del {mac.interface}), or name another one in `use_vmac`",
                )
            self._remove(mac.interface, present.index)
            present = None
        if present is None:
            self._make_room(mac)
            self._change(instance, mac, _creation(mac, base.index))
            present = self._look(mac.interface)
            if present is None:
                raise HostError(f"{mac.interface} vanished while it was made", remedy="see what else manages links")
        self._set(instance, mac)
        # In this order: one request with both would be up before it lost the link-local address of its own.
        self._change(instance, mac, _marking(mac, present.index))
        self._change(instance, mac, _activation(present.index))
        if mac.ipvlan_address:
            own = ip_interface(mac.ipvlan_address)
            vip = Vip(address=own.ip, prefix_length=own.network.prefixlen, interface=mac.interface)
            self._change(instance, mac, encode_addition(vip, present.index, FOREVER, FOREVER, flags=NLM_F_REPLACE))

    def _make_room(self, mac: VirtualMac) -> None:
        """A reload that renames it: a second macvlan with the same MAC would not come up (macvlan_open)."""
        same = (mac.base, mac.mac)
        for name in [each for each, other in self._made.items() if (other.base, other.mac) == same and not mac.ipvlan]:
            former = self._look(name)
            if former is not None:
                self._remove(name, former.index)
            del self._made[name]

    def _set(self, instance: VrrpInstance, mac: VirtualMac) -> None:
        """Before it comes up: no address of its own, answers for its own addresses only."""
        name, sysctls = mac.interface, self._sysctls
        sysctls.set(f"ipv4/conf/{name}/arp_ignore", 1)
        sysctls.set(f"ipv4/conf/{name}/promote_secondaries", 1)
        # Clients come in here, and the way back to them is the interface below: strict filtering would drop them.
        # The stricter of this and `all` counts; 2 is loose.
        sysctls.set(f"ipv4/conf/{name}/rp_filter", 0 if sysctls.read("ipv4/conf/all/rp_filter") in ("0", None) else 2)
        on_it = [each for each in (*instance.vips, *instance.excluded_vips) if each.interface == name]
        speaks = mac not in instance.address_macs and instance.family == _IPV6
        ipv6 = speaks or ":" in mac.ipvlan_address or any(each.family == _IPV6 for each in on_it)
        sysctls.set(f"ipv6/conf/{name}/disable_ipv6", int(not ipv6))
        if ipv6:
            sysctls.set(f"ipv6/conf/{name}/accept_ra", 0)
            sysctls.set(f"ipv6/conf/{name}/autoconf", 0)

    def _look(self, name: str) -> _Present | None:
        try:
            answer = self._rtnetlink.get(link_request(name))[0]
        except OSError as problem:
            if problem.errno in (errno.ENODEV, errno.ERANGE, errno.EINVAL):
                return None
            raise HostError(f"rtnetlink: {problem.strerror}", remedy="see the limits of memory") from problem
        _, _, index, _, _ = _IFINFOMSG.unpack_from(answer, _HEADER_SIZE)
        base = attribute(answer, _IFINFOMSG.size, _IFLA_LINK)
        info = attribute(answer, _IFINFOMSG.size, _IFLA_LINKINFO) or b""
        return _Present(
            index=index,
            base=struct.unpack("=I", base)[0] if base else 0,
            mac=(attribute(answer, _IFINFOMSG.size, IFLA_ADDRESS) or b"").hex(":"),
            # The attributes of a nest, as those of a message that has nothing in front of them.
            kind=_text(attribute(bytes(_HEADER_SIZE) + info, 0, _IFLA_INFO_KIND)),
            alias=_text(attribute(answer, _IFINFOMSG.size, _IFLA_IFALIAS)),
        )

    def _remove(self, name: str, index: int) -> None:
        (number,) = self._rtnetlink.change([request(RTM_DELLINK, NLM_F_ACK, _IFINFOMSG.pack(0, 0, index, 0, 0))])
        if number not in (0, errno.ENODEV):
            raise HostError(f"cannot remove {name}: {os.strerror(number)}", remedy=f"ip link del {name}")

    def _change(self, instance: VrrpInstance, mac: VirtualMac, order: bytes) -> None:
        (number,) = self._rtnetlink.change([order])
        if not number:
            return
        if number in (errno.EPERM, errno.EACCES):
            raise NotPermitted(
                f"{instance.name}: may not make {mac.interface}: CAP_NET_ADMIN is missing",
                remedy="run as root, or give the unit AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN",
            )
        kind = "ipvlan" if mac.ipvlan else "macvlan"
        if number == errno.EOPNOTSUPP:
            raise HostError(
                f"{instance.name}: this kernel has no {kind} interfaces",
                remedy=f"modprobe {kind}, or do without use_{'ipvlan' if mac.ipvlan else 'vmac'}",
            )
        raise HostError(
            f"{instance.name}: cannot make {mac.interface} on {mac.base}: {os.strerror(number)}",
            remedy=f"try `ip link add link {mac.base} name {mac.interface} type {kind}` and read its answer",
        )


def _settings_below(bases: Iterable[str]) -> dict[str, int]:
    """So that only the interface above answers for VIPs, and nobody learns another MAC of them.

    arp_ignore 1: only for addresses of its own. arp_announce 2: a question of the host's own never names a VIP as its
    sender, which would put the interface's MAC into the caches of its neighbours.
    """
    return {
        f"ipv4/conf/{base}/{setting}": number
        for base in bases
        for setting, number in (("arp_ignore", 1), ("arp_announce", 2))
    }


def _fits(present: _Present, base: _Present, mac: VirtualMac) -> bool:
    if mac.ipvlan:
        return present.kind == "ipvlan" and present.base == base.index
    return present.kind == "macvlan" and present.base == base.index and present.mac == mac.mac.lower()


def _is_ours(present: _Present) -> bool:
    """Of an earlier run, or keepalived's: a macvlan with a virtual router's MAC is nobody else's."""
    if present.kind not in ("macvlan", "ipvlan"):
        return False
    return present.alias == _ALIAS or present.mac.startswith(_VRRP_MACS)


def _creation(mac: VirtualMac, base: int) -> bytes:
    if mac.ipvlan:
        kind = b"ipvlan"
        data = attach(_IFLA_IPVLAN_MODE, struct.pack("=H", _IPVLAN_MODE_L2))
        data += attach(_IFLA_IPVLAN_FLAGS, struct.pack("=H", _IPVLAN_FLAGS[mac.ipvlan]))
    else:
        kind = b"macvlan"
        data = attach(_IFLA_MACVLAN_MODE, struct.pack("=I", _MACVLAN_MODE_PRIVATE))
    attributes = attach(IFLA_IFNAME, mac.interface.encode() + b"\0")
    attributes += attach(_IFLA_LINK, struct.pack("=I", base))
    if not mac.ipvlan:
        attributes += attach(IFLA_ADDRESS, bytes.fromhex(mac.mac.replace(":", "")))
    if mac.group:
        attributes += attach(_IFLA_GROUP, struct.pack("=I", mac.group))
    attributes += attach(_IFLA_LINKINFO, attach(_IFLA_INFO_KIND, kind) + attach(_IFLA_INFO_DATA, data))
    flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
    return request(RTM_NEWLINK, flags, _IFINFOMSG.pack(0, 0, 0, 0, 0) + attributes)


def _marking(mac: VirtualMac, index: int) -> bytes:
    """Ours, and without a link-local address made from the MAC: both directors would have the same."""
    inet6 = attach(AF_INET6, attach(_IFLA_INET6_ADDR_GEN_MODE, bytes([_IN6_ADDR_GEN_MODE_NONE])))
    attributes = attach(_IFLA_IFALIAS, _ALIAS.encode()) + attach(_IFLA_GROUP, struct.pack("=I", mac.group))
    return request(
        RTM_NEWLINK, NLM_F_ACK, _IFINFOMSG.pack(0, 0, index, 0, 0) + attributes + attach(_IFLA_AF_SPEC, inet6)
    )


def _activation(index: int) -> bytes:
    return request(RTM_NEWLINK, NLM_F_ACK, _IFINFOMSG.pack(0, 0, index, _IFF_UP, _IFF_UP))


def _text(value: bytes | None) -> str:
    return (value or b"").rstrip(b"\0").decode(errors="replace")

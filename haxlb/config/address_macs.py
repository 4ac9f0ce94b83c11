"""Where addresses go: to the instance's interface, to its virtual MAC, or to a virtual MAC on another interface.

`use_vmac_addr` and `use_vmac` of one address, as keepalived 2.2.7 does them: one macvlan for each interface and virtual
MAC, which its addresses share.
"""

from __future__ import annotations

from dataclasses import replace

from haxlb.config.instance_mac import MacNames, router_mac
from haxlb.config.vips import PlacedVip
from haxlb.model.addresses import Vip
from haxlb.model.instance import VirtualMac
from keepalived_compat.diagnostics import Complaints

_FLAG = "use_vmac"


class AddressMacs:
    """The places of one instance's addresses."""

    def __init__(
        self,
        *,
        instance: str,
        base: str,
        vrid: int,
        family: int,
        own: VirtualMac | None,
        everywhere: bool,
        names: MacNames,
        complaints: Complaints,
    ) -> None:
        """`own` is the instance's virtual MAC; `everywhere`: use_vmac_addr."""
        self._instance, self._base, self._vrid, self._family = instance, base, vrid, family
        self._own, self._everywhere = own, everywhere
        self._names, self._complaints = names, complaints
        self._made: dict[tuple[str, str], VirtualMac] = {}

    @property
    def made(self) -> tuple[VirtualMac, ...]:
        """Those that addresses need beside the instance's own."""
        return tuple(self._made.values())

    def place(self, placed: PlacedVip) -> PlacedVip:
        """The address with the interface that it goes to; its own `use_vmac` has been seen to."""
        vip, where = placed
        told, device = _FLAG in vip.flags, vip.interface or self._base
        abroad = device != self._base or vip.family != self._family
        own = self._own
        if told or (self._everywhere and abroad):
            mac = router_mac(vip.family, self._vrid)
            if own is not None and own.mac not in ("", router_mac(self._family, self._vrid)):
                mac = own.mac  # one that was chosen is that of all addresses
            if own is None or (device, mac) != (self._base, own.mac):
                return _at(vip, self._mac(device, mac, vip.family, placed).interface), where
            if told:
                self._complaints.warning(
                    "useless-option",
                    where,
                    f"{self._instance} has use_vmac for all addresses on {self._base}: that of {vip.address} adds"
                    " nothing",
                    "delete it",
                )
            return _at(vip, own.interface), where
        # 2.2.7: those of the instance's family to its virtual MAC, which answers for that family only.
        return _at(vip, device if own is None or abroad else own.interface), where

    def _mac(self, device: str, mac: str, family: int, placed: PlacedVip) -> VirtualMac:
        found = self._made.get((device, mac))
        if found is None:
            name = self._names.of_addresses(family, self._vrid, placed[1])
            found = self._made[device, mac] = VirtualMac(interface=name, mac=mac, base=device)
        return found


def _at(vip: Vip, interface: str) -> Vip:
    return replace(vip, interface=interface, flags=tuple(each for each in vip.flags if each != _FLAG))

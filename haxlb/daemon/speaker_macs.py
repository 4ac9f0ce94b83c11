"""Which virtual MACs the forwarder shall take frames to: those of the instances that are MASTER here.

A switch that has lost the place of a virtual MAC floods frames to it, and both directors get them: a forwarder that
took them while its instance is BACKUP would deliver them a second time.
"""

from __future__ import annotations

from haxlb.daemon.ports import VirtualMacPort
from haxlb.model.instance import VrrpInstance

Key = tuple[str, int]
"""`VrrpInstance.key`."""


class MacKeeper:
    """Tells the port of changes only; asking twice costs nothing."""

    def __init__(self, port: VirtualMacPort) -> None:
        self._port = port
        self._masters: dict[Key, VrrpInstance] = {}
        self._told: frozenset[tuple[str, str]] = frozenset()

    def enter(self, instance: VrrpInstance) -> None:
        """It is MASTER: before its first advert, from which on switches send its frames here."""
        if self._masters.get(instance.key) is not instance:
            self._masters[instance.key] = instance
            self._tell()

    def leave(self, key: Key) -> None:
        """It is MASTER no more: when its addresses are off, or the kernel would answer what was forwarded so far."""
        if self._masters.pop(key, None) is not None:
            self._tell()

    def _tell(self) -> None:
        # An ipvlan has the MAC of its base, which is the forwarder's in any case.
        macs = frozenset(
            (mac.base, mac.mac.lower())
            for instance in self._masters.values()
            for mac in instance.virtual_macs
            if not mac.ipvlan
        )
        if macs != self._told:
            self._told = macs
            self._port.accept(macs)

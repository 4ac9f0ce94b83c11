"""VirtualMacPort: the map `virtual_macs` of the pinned data plane, opened where there is one.

The map belongs to whoever is MASTER, not to the checker: a few system calls, no process between. What another process
makes of it meanwhile (a new data plane, entries of a speaker that is dead) is put right by `check`.
"""

from __future__ import annotations

import os
from pathlib import Path

from haxlb.forwarding.layout import pack_virtual_mac
from haxlb.linux import bpf
from haxlb.linux.link_layers import carrier_of
from haxlb.linux.log import Complaints
from haxlb.linux.xdp import interface_index
from haxlb.model.errors import HostError

MAP = "virtual_macs"
_SHAPE = (bpf.MAP_TYPE_HASH, 12, 4)
_PRESENT = (1).to_bytes(4, "little")


class ForwardedMacs:
    """Without a data plane there is nothing to do, until there is one."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._pin: Path | None = None
        self._fd = -1
        self._opened: tuple[int, int] | None = None
        """Device and inode of the pin: another data plane has another one."""
        self._macs: frozenset[tuple[str, str]] = frozenset()
        self._carriers: dict[tuple[str, int], int] = {}
        """Index of the interface that has the frames of another one, by its name and index."""

    def use(self, directory: str) -> None:
        """The data plane is pinned here; empty = nowhere. A `check` must follow."""
        pin = Path(directory) / MAP if directory else None
        if pin != self._pin:
            self.close()
            self._pin = pin

    def accept(self, macs: frozenset[tuple[str, str]]) -> None:
        """Let the forwarder take frames to exactly these; each a base interface and a MAC."""
        former, self._macs = self._macs, macs
        try:
            if not self._open():
                return
            for each in macs - former:
                bpf.map_update(self._fd, self._key(*each), _PRESENT)
            for each in former - macs:
                bpf.map_delete(self._fd, self._key(*each))
        except (HostError, OSError) as problem:
            self._complain(problem)

    def check(self) -> None:
        """Make the map say what it should, whoever has written, emptied or replaced it."""
        try:
            if not self._open():
                return
            wanted = set()
            for each in self._macs:
                try:
                    wanted.add(self._key(*each))
                except HostError:
                    continue  # its base is gone, and no frame comes in there
            present = set(bpf.map_keys(self._fd, _SHAPE[1]))
            for key in wanted - present:
                bpf.map_update(self._fd, key, _PRESENT)
            for key in present - wanted:
                bpf.map_delete(self._fd, key)
        except (HostError, OSError) as problem:
            self._complain(problem)

    def close(self) -> None:
        """Let go of the map; what it says stays."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._opened = -1, None

    def _open(self) -> bool:
        """Whether there is a map to write. Raises HostError and OSError."""
        if self._pin is None:
            return False
        try:
            status = self._pin.stat()
        except FileNotFoundError:
            self.close()
            return False
        if self._opened != (status.st_dev, status.st_ino):
            self.close()
            self._fd = open_map(self._pin)
            self._opened = (status.st_dev, status.st_ino)
        return True

    def _key(self, base: str, mac: str) -> bytes:
        """Of the interface that carries the program: below a VLAN, for one. Raises HostError."""
        index = interface_index(base)
        carrier = self._carriers.get((base, index))
        if carrier is None:
            below, _ = carrier_of(base)
            carrier = self._carriers[base, index] = interface_index(below)
        return pack_virtual_mac(carrier, mac)

    def _complain(self, problem: Exception) -> None:
        self._complaints.complain(
            "virtual_macs_not_told",
            reason=problem,
            consequence="frames to a virtual MAC may not be forwarded, or be forwarded by a BACKUP",
            remedy="see the capabilities of this process; `haxlb swap` builds the data plane anew",
        )


def open_map(pin: Path) -> int:
    """File descriptor of the pinned map. Raises HostError where it is none of ours."""
    fd = bpf.obj_get(pin)
    info = bpf.map_info(fd)
    if (info.type, info.key_size, info.value_size) != _SHAPE:
        os.close(fd)
        raise HostError(f"{pin} is not a map of virtual MACs", remedy="`haxlb swap` builds the data plane anew")
    return fd


def forget(directory: Path, macs: frozenset[str]) -> None:
    """Take the entries of these MACs out, on any interface. Raises HostError and OSError."""
    pin = directory / MAP
    if not pin.exists():
        return
    fd = open_map(pin)
    try:
        gone = {bytes.fromhex(each.replace(":", "")) for each in macs}
        for key in list(bpf.map_keys(fd, _SHAPE[1])):
            if key[4:10] in gone:
                bpf.map_delete(fd, key)
    finally:
        os.close(fd)

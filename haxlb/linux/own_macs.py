"""What frames must be addressed to, by the interface that they come by: maps `interfaces` and `near_interfaces`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haxlb.forwarding import layout
from haxlb.linux import bpf

if TYPE_CHECKING:
    from haxlb.linux.maps import Maps


def note(maps: Maps, interface_index: int, mac: str) -> None:
    """Frames to this MAC are for the director. Nothing is written where it is known. Raises BpfError."""
    key, value = layout.INDEX.pack(interface_index), layout.pack_own_mac(mac)
    if maps.read("interfaces", key) != value:
        maps.write("interfaces", key, value)
    near, value = _near(interface_index), layout.pack_near_interface(interface_index, mac)
    # Of two interfaces with the same lower bits the later one is found there, the other one by `interfaces`.
    if maps.read("near_interfaces", near) != value:
        maps.write("near_interfaces", near, value)


def forget(maps: Maps, interface_index: int) -> None:
    """No frame by this interface is. Raises BpfError."""
    near = _near(interface_index)
    value = maps.read("near_interfaces", near)
    if value is not None and value.startswith(layout.INDEX.pack(interface_index)):
        maps.write("near_interfaces", near, bytes(len(value)))
    bpf.map_delete(maps.fds["interfaces"], layout.INDEX.pack(interface_index))


def _near(interface_index: int) -> bytes:
    return layout.INDEX.pack(interface_index % layout.NEAR_INTERFACES)

"""AnnouncePort: gratuitous ARP and unsolicited neighbour advertisements from one AF_PACKET socket, 5 µs a frame.

The frames come ready-made from the crafter (`haxlb.linux.craft`). An interface that got another MAC since, or a VIP
without a frame, must not cost an announcement: then the same bytes are put together here, and the supervisor is told
to have new ones crafted.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address

from haxlb.daemon.messages import GarpFrame
from haxlb.linux.log import Complaints
from haxlb.linux.neighbour_advertisement import forwards_ipv6, unsolicited_advertisement
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.errors import NotPermitted

_BROADCAST = b"\xff" * 6
_ETHERTYPE_ARP = 0x0806
_SO_SNDBUFFORCE = 32
_SEND_BUFFER = 2 << 20
"""Doubled by the kernel (socket(7)): room for five rounds over a thousand addresses that no driver has sent yet."""
_MAC_LENGTH = len("aa:bb:cc:dd:ee:ff")
# RFC 826 for IPv4 over Ethernet: hardware type 1, protocol 0x0800, lengths 6 and 4, operation 1 (request).
_ARP_REQUEST = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)


def garp_request(mac: str, vip: IPv4Address) -> bytes:
    """The frame that the crafter makes for this MAC and VIP, without scapy."""
    hardware = bytes.fromhex(mac.replace(":", ""))
    ethernet = _BROADCAST + hardware + struct.pack("!H", _ETHERTYPE_ARP)
    return ethernet + _ARP_REQUEST + hardware + vip.packed + _BROADCAST + vip.packed


def announcement(mac: str, vip: IPAddress, interface: str) -> bytes:
    """The frame that tells the neighbours of this interface that the VIP has this MAC now."""
    if isinstance(vip, IPv4Address):
        return garp_request(mac, vip)
    return unsolicited_advertisement(mac, vip, router=forwards_ipv6(interface))


class Announcer:
    """Sends one frame per VIP from its interface's present MAC."""

    def __init__(
        self,
        mac_of: Callable[[str], str | None],
        complaints: Complaints,
        on_stale: Callable[[str, str], None],
    ) -> None:
        """`mac_of` names an interface's MAC now, empty where addresses are not resolved and nobody is to be told.

        `on_stale(interface, mac)` hears once per MAC that frames are due.
        """
        self._mac_of = mac_of
        self._complaints = complaints
        self._on_stale = on_stale
        self._frames: dict[tuple[str, IPAddress], tuple[str, bytes]] = {}
        self._reported: set[tuple[str, str]] = set()
        self.sent = 0
        try:
            # Protocol 0: the socket receives nothing, so no packet of the host is ever cloned for it.
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError as problem:
            raise NotPermitted(
                "may not announce addresses: CAP_NET_RAW is missing",
                remedy="run as root, or give the unit AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN",
            ) from problem
        # A link may take no frames for as long as it likes (one that its switch has paused): adverts leave by others.
        self._socket.setblocking(False)
        with contextlib.suppress(
            OSError
        ):  # without CAP_NET_ADMIN the default must do: some hundred frames on their way
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER)

    def take(self, frames: Iterable[GarpFrame]) -> None:
        """Replace the ready-made frames by these."""
        self._frames = {(each.interface, each.vip): (each.mac, bytes.fromhex(each.frame_hex)) for each in frames}
        self._reported.clear()

    def add(self, frames: Iterable[GarpFrame]) -> None:
        """Put these beside the others, or in the place of those that are for another MAC."""
        self._frames.update(((each.interface, each.vip), (each.mac, bytes.fromhex(each.frame_hex))) for each in frames)
        self._reported.clear()

    def inspect(self, interface: str) -> None:
        """Report at once when the frames of this interface are for another MAC than its present one."""
        mac = self._mac_of(interface)
        crafted_for = {each for (name, _), (each, _) in self._frames.items() if name == interface}
        if mac is not None and crafted_for - {mac}:
            self._report_stale(interface, mac)

    def announce(self, vips: Iterable[Vip]) -> None:
        """Send one frame for each; a failure is counted and logged, never raised."""
        for vip in vips:
            mac = self._mac_of(vip.interface)
            if mac is None:
                self._complaints.complain("garp_not_sent", interface=vip.interface, vip=vip, reason="no such interface")
                continue
            if len(mac) != _MAC_LENGTH:  # NOARP, a tunnel, a point-to-point link
                continue
            try:
                self._socket.sendto(self._frame(vip, mac), (vip.interface, 0))
            except OSError as problem:
                self._complaints.complain(
                    "garp_not_sent", interface=vip.interface, vip=vip, reason=problem.strerror or problem
                )
            else:
                self.sent += 1

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _frame(self, vip: Vip, mac: str) -> bytes:
        crafted_for, frame = self._frames.get((vip.interface, vip.address), ("", b""))
        if crafted_for == mac:
            return frame
        self._report_stale(vip.interface, mac)
        frame = announcement(mac, vip.address, vip.interface)
        # For the rounds that follow; the setting that an IPv6 one depends on is read from a file.
        self._frames[vip.interface, vip.address] = (mac, frame)
        return frame

    def _report_stale(self, interface: str, mac: str) -> None:
        if (interface, mac) not in self._reported:
            self._reported.add((interface, mac))
            self._on_stale(interface, mac)

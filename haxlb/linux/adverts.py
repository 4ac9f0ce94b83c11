"""AdvertPort: VRRP messages over raw sockets, with an IP header of our own making.

Multicast: one socket per interface, group and IP protocol, bound to them. An instance with a virtual MAC listens on its
macvlan, which hears whatever its base hears, and besides what other directors send from that very MAC (macvlan hands a
frame that seems to come from one of its own devices to no other, drivers/net/macvlan.c). Unicast: one socket per family
(and VRF), bound to no interface, because routing decides by which of them the peer's packets come, and keepalived does
the same. Version 2 over IPv4 has a second socket for protocol 51 always: a peer with another kind of authentication is
to be seen and named, not just not heard.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from haxlb.daemon.ports import ClockPort, Datagram, Link
from haxlb.daemon.speaker_frames import departure, own_address
from haxlb.linux.advert_filter import CALM, SAMPLE, Signature
from haxlb.linux.advert_socket import FLOOD_WINDOW_US, AdvertSocket, Place, send6
from haxlb.linux.ip_packets import packet_of
from haxlb.linux.log import Complaints
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import MULTICAST_GROUP, PROTOCOL_NUMBER, group_of, is_unicast
from haxlb.vrrp.authentication_header import AH_PROTOCOL_NUMBER

VRRP_GROUP = MULTICAST_GROUP
BATCH = 128
"""Datagrams taken from one socket per `receive`: a flood may not keep the speaker from its timers."""
FLOOD_COUNT = 200
"""Messages in FLOOD_WINDOW_US beyond what the instances of a socket account for: a flood."""


class AdvertSockets:
    """Sends and receives for the instances that `configure` names."""

    def __init__(self, clock: ClockPort, complaints: Complaints) -> None:
        self._clock = clock
        self._complaints = complaints
        self._sockets: dict[Place, AdvertSocket] = {}
        # With hundreds of interfaces, asking each socket would cost more than everything else that a wake does.
        self._epoll = select.epoll()
        self._by_fd: dict[int, AdvertSocket] = {}
        self._unwanted: set[Place] = set()
        """Sockets that are open for a farewell only."""
        self._labels: dict[Place, dict[int, str]] = {}
        """Of multicast: the interface of the instance that has this VRID."""
        self._expected: dict[Place, int] = {}
        """How many messages are no flood, per window."""
        self._ways: dict[tuple[str, int, IPAddress | None], AdvertSocket] = {}
        """By which socket to send: interface, family, and group or None."""
        self._unicast_interfaces: dict[IPAddress, tuple[str, ...]] = {}
        self._arrivals: dict[tuple[IPAddress, int], str] = {}
        self._flooded: list[AdvertSocket] = []
        self._report_strangers = False
        self.strangers = 0
        """Messages for VRIDs that no instance has: other routers' on the same segment. An estimate, see SAMPLE."""
        self.malformed = 0
        """Packets whose IP or authentication header made no sense."""

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """All open sockets, for the loop to watch."""
        return tuple(each.socket for each in self._sockets.values())

    def configure(
        self,
        instances: Iterable[VrrpInstance],
        indices: Mapping[str, int],
        links: Mapping[str, Link | None],
        *,
        strangers: bool = False,
    ) -> dict[tuple[str, int], HostError]:
        """Open what these instances need; call again when an interface comes or goes.

        What they no longer need stays open until `retire`: whoever leaves must still be able to say priority 0.
        `indices` and `links` hold the index and the state of each interface that exists. `strangers`
        (log_unknown_vrids): messages for VRIDs of nobody are handed on, too. Returns why an instance is deaf, by its
        key: one that cannot hear its peer must not run, it would become MASTER.
        """
        listed = tuple(instances)
        self._report_strangers = strangers
        users: dict[Place, list[VrrpInstance]] = {}
        for instance in listed:
            if is_unicast(instance) or _index(instance.interface, indices):
                for place in _places(instance):
                    users.setdefault(place, []).append(instance)
        self._close_stale(indices)
        self._unwanted = {place for place in self._sockets if place not in users}
        deaf: dict[tuple[str, int], HostError] = {}
        for place, here in users.items():
            try:
                self._serve(place, here, indices)
            except HostError as problem:
                deaf.update((each.key, problem) for each in here)
        self._note_ways(listed)
        self._note_addresses(listed, links)
        return deaf

    def retire(self) -> None:
        """Close what the instances of the last `configure` do not need."""
        for place in self._unwanted:
            self._close(place)
        self._unwanted = set()

    def send(self, datagram: Datagram) -> None:
        """Hand to the kernel at once; a failure is counted and logged, never raised."""
        destination = datagram.destination
        group = destination if destination.is_multicast else None
        way = self._ways.get((datagram.interface, destination.version, group))
        if way is None:
            self._complain(datagram, "no such interface")
            return
        try:
            if destination.version == 4:  # noqa: PLR2004 - the family
                way.socket.sendto(packet_of(datagram), (str(destination), 0))
            else:
                scope = way.index
                if not scope and destination.is_link_local:
                    scope = socket.if_nametoindex(datagram.interface)
                send6(way.socket, datagram, scope)
        except OSError as problem:
            self._complain(datagram, problem.strerror or str(problem))

    def receive(self) -> list[Datagram]:
        """All that has arrived, oldest first per socket; at most BATCH from each, the rest next time."""
        received: list[Datagram] = []
        now = self._clock.now()
        if self._flooded:
            self._calm(now)
        for fd, _ in self._epoll.poll(0):
            self._drain(self._by_fd[fd], received, now)
        return received

    def close(self) -> None:
        """Close all sockets."""
        for place in list(self._sockets):
            self._close(place)
        self._epoll.close()

    def _close_stale(self, indices: Mapping[str, int]) -> None:
        for place, opened in list(self._sockets.items()):
            # A socket stays bound to the index it was opened for: an interface made anew needs another one.
            if place.device and _index(place.device, indices) not in (None, opened.index):
                self._close(place)

    def _close(self, place: Place) -> None:
        opened = self._sockets.pop(place)
        del self._by_fd[opened.socket.fileno()]
        if opened in self._flooded:
            self._flooded.remove(opened)
        opened.close()
        self._ways = {way: each for way, each in self._ways.items() if each is not opened}

    def _serve(self, place: Place, users: list[VrrpInstance], indices: Mapping[str, int]) -> None:
        index = 0
        if place.device:
            index = _index(place.device, indices) or 0
            if not index:
                raise HostError(
                    f"cannot listen for VRRP on {place.device}: there is no such interface", remedy="create it"
                )
        opened = self._sockets.get(place)
        if opened is None:
            opened = self._sockets[place] = AdvertSocket(place, index)
            self._by_fd[opened.socket.fileno()] = opened
            self._epoll.register(opened.socket, select.EPOLLIN)
        hearing = [each for each in users if _listens(each, place)]
        opened.want({each.vrid: Signature.of(each) for each in hearing}, strangers=self._report_strangers)
        self._labels[place] = {each.vrid: each.interface for each in hearing}
        peers = sum(FLOOD_WINDOW_US / each.advert_interval_us * max(1, len(each.peers)) for each in hearing)
        self._expected[place] = FLOOD_COUNT + 4 * int(peers)

    def _note_ways(self, instances: tuple[VrrpInstance, ...]) -> None:
        for each in instances:
            group = None if is_unicast(each) else group_of(each)
            device = each.vrf if group is None else departure(each)
            opened = self._sockets.get(Place(family=each.family, protocol=PROTOCOL_NUMBER, device=device, group=group))
            if opened is not None:
                self._ways[departure(each), each.family, group] = opened

    def _note_addresses(self, instances: tuple[VrrpInstance, ...], links: Mapping[str, Link | None]) -> None:
        interfaces: dict[IPAddress, tuple[str, ...]] = {}
        for each in instances:
            source = each.source or own_address(each, links.get(each.interface))
            if source and is_unicast(each):
                interfaces[source] = (*interfaces.get(source, ()), each.interface)
        self._unicast_interfaces = interfaces
        self._arrivals.clear()

    def _drain(self, opened: AdvertSocket, received: list[Datagram], now: int) -> None:
        place, wanted = opened.place, opened.wanted
        labels = self._labels.get(place, {})
        taken = 0
        senders: set[IPAddress] = set()
        for _ in range(BATCH):
            try:
                arrived = opened.receive(now)
            except OSError as problem:
                # ENETDOWN once, when the interface goes down; the link's own event tells the speaker.
                self._complaints.complain("advert_not_received", interface=place.device, reason=problem.strerror)
                break
            if arrived is None:
                break
            taken += 1
            datagram, index = arrived
            if datagram is None:
                self.malformed += 1
                continue
            # The second byte is the VRID (RFC 9568 section 5.1).
            vrid = datagram.payload[1] if len(datagram.payload) > 1 else 0
            if vrid in wanted:
                senders.add(datagram.source)
            elif len(datagram.payload) > 1:
                self.strangers += 1 if self._report_strangers and opened.stage == CALM else SAMPLE
                if not self._report_strangers:
                    continue
            interface = self._arrival(datagram, index) if place.group is None else labels.get(vrid, place.device)
            received.append(datagram if datagram.interface == interface else replace(datagram, interface=interface))
        if opened.count(taken, senders, self._expected.get(place, FLOOD_COUNT), now):
            self._flooded.append(opened)
            self._complaints.complain(
                "advert_flood",
                interface=place.device or "unicast",
                detail=f"the kernel drops what cannot be good; of it one in {SAMPLE} is counted",
            )
        if opened.has_kept:
            self._drain(opened, received, now)

    def _calm(self, now: int) -> None:
        for opened in list(self._flooded):
            if now >= opened.calm_at:
                self._flooded.remove(opened)
                opened.calm(now)

    def _arrival(self, datagram: Datagram, index: int) -> str:
        """The interface of the instance that a unicast message is for, whichever one it came in by."""
        key = (datagram.destination, index)
        known = self._arrivals.get(key)
        if known is None:
            arrival = ""
            with contextlib.suppress(OSError):
                arrival = socket.if_indextoname(index)
            candidates = self._unicast_interfaces.get(datagram.destination, ())
            known = arrival if arrival in candidates or not candidates else candidates[0]
            self._arrivals[key] = known
        return known

    def _complain(self, datagram: Datagram, reason: str) -> None:
        self._complaints.complain(
            "advert_not_sent", interface=datagram.interface, destination=datagram.destination, reason=reason
        )


def _index(interface: str, indices: Mapping[str, int]) -> int | None:
    """Of macvlans, too, which may not be among the interfaces that are known."""
    index = indices.get(interface)
    if index is None:
        with contextlib.suppress(OSError):
            index = socket.if_nametoindex(interface)
    return index


def _places(instance: VrrpInstance) -> Iterator[Place]:
    """All sockets that an instance needs."""
    protocols = [PROTOCOL_NUMBER]
    if instance.version == 2 and instance.family == 4:  # noqa: PLR2004 - the version, the family
        protocols.append(AH_PROTOCOL_NUMBER)
    group = None if is_unicast(instance) else group_of(instance)
    if group is None:
        devices = [instance.vrf]
    else:
        mac = instance.virtual_mac
        # Also by the base of a macvlan, which is not to be heard of by a switch itself (firewall.py): one that snoops
        # must know that this port wants the group.
        devices = list(dict.fromkeys((mac.interface if mac else instance.interface, instance.interface)))
    for device in devices:
        for protocol in protocols:
            yield Place(family=instance.family, protocol=protocol, device=device, group=group)


def _listens(instance: VrrpInstance, place: Place) -> bool:
    """Whether an instance hears by a socket that it has: not by the base of its macvlan."""
    mac = instance.virtual_mac
    return place.group is None or place.device == (mac.interface if mac else instance.interface)

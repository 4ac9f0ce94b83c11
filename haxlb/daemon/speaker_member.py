"""One instance inside the speaker: its router, the frames that it sends, and what it makes of those that come in.

A pair exchanges the same few bytes for months. What is sent is encoded once, and a message that was checked once is
recognised by its bytes: the hot path neither encodes nor decodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from haxlb.daemon.ports import Datagram, Link
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import PeerError
from haxlb.model.node import VrrpInstance
from haxlb.model.status import InstanceStatus
from haxlb.vrrp.advert import ADVERT_TTL, MULTICAST_GROUP, Advert, Expected, advert_of, decode, encode
from haxlb.vrrp.inputs import AdvertReceived, LinkChanged
from haxlb.vrrp.router import Router

_MAX_REMEMBERED = 64
"""Distinct messages remembered per instance; a flood of different ones must not cost memory."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that was checked: what to tell the router, and what is odd about it although it is accepted."""

    datagram: Datagram
    what: AdvertReceived
    oddity: str


class Member:
    """An instance that the speaker runs."""

    def __init__(self, instance: VrrpInstance, serial: int) -> None:
        self.router = Router(instance)
        self.serial = serial
        """Order of creation; breaks ties between equal deadlines."""
        self.armed: int | None = None
        """The deadline under which the speaker's timetable has it; may be earlier than the router's."""
        self.link: Link | None = None
        self.rejected: dict[str, int] = {}
        self._expected = Expected.of(instance)
        self._frames: dict[int, list[Datagram]] = {}
        self._own_payloads: set[bytes] = set()
        self._heard: dict[bytes, Heard] = {}

    @property
    def instance(self) -> VrrpInstance:
        """Its configuration."""
        return self.router.instance

    def retune(self, instance: VrrpInstance) -> None:
        """Forget what was prepared under the former configuration; the router is told separately."""
        self._expected = Expected.of(instance)
        self._frames.clear()
        self._heard.clear()

    def link_input(self, link: Link | None) -> LinkChanged:
        """Remember the link; what the router is to be told of it."""
        if link is None or self.link is None or link.address != self.link.address:
            self._frames.clear()
        self.link = link
        if link is None:
            return LinkChanged(up=False, address=None, present=False)
        return LinkChanged(up=link.up, address=link.address)

    def frames(self, priority: int) -> list[Datagram]:
        """One advert of this priority for every destination; empty without a source address."""
        frames = self._frames.get(priority)
        if frames is None:
            source = self.router.source
            frames = [] if source is None else datagrams(self.instance, source, priority)
            self._frames[priority] = frames
            if len(self._own_payloads) > _MAX_REMEMBERED:
                self._own_payloads.clear()
            self._own_payloads.update(each.payload for each in frames)
        return frames

    def hear(self, datagram: Datagram) -> Heard | None:
        """Check a message; None = our own, looped back. Raises PeerError."""
        heard = self._heard.get(datagram.payload)
        if heard is not None and _same_header(heard.datagram, datagram):
            return heard
        # An advert from our address that we did not send is somebody else with our address: the router shall know.
        if datagram.payload in self._own_payloads and datagram.source == self.router.source:
            return None
        advert = decode(
            datagram.payload, datagram.source, datagram.destination, ttl=datagram.ttl, expected=self._expected
        )
        heard = Heard(datagram, AdvertReceived(source=datagram.source, advert=advert), self._oddity(advert))
        if len(self._heard) >= _MAX_REMEMBERED:
            self._heard.clear()
        self._heard[datagram.payload] = heard
        return heard

    def status(self, epoch_offset_us: int) -> InstanceStatus:
        """The router's, with what was rejected before it reached the router."""
        return replace(self.router.status(epoch_offset_us), adverts_rejected=dict(self.rejected))

    def reject(self, reason: str) -> None:
        """Count one message under this reason."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def _oddity(self, advert: Advert) -> str:
        """As keepalived does, an advert for other addresses is accepted: a typing error must not make two MASTERs."""
        own = {vip.address for vip in self.instance.vips}
        theirs = set(advert.addresses)
        if own == theirs:
            return ""
        only_own, only_theirs = sorted(own - theirs), sorted(theirs - own)
        return f"accepted, but its addresses differ: only ours {_list(only_own)}, only theirs {_list(only_theirs)}"


def datagrams(instance: VrrpInstance, source: IPAddress, priority: int) -> list[Datagram]:
    """The advert of an instance, once for each destination: version 3's checksum depends on it."""
    advert = advert_of(instance, priority)
    return [
        Datagram(
            interface=instance.interface,
            source=source,
            destination=destination,
            ttl=ADVERT_TTL,
            payload=encode(advert, source, destination),
            at_us=0,
        )
        for destination in instance.peers or (MULTICAST_GROUP,)
    ]


def resignation(instance: VrrpInstance, link: Link | None) -> list[Datagram]:
    """The priority-0 adverts of an instance, for whoever must send them when its speaker is dead."""
    source = instance.source or (link.address if link is not None else None)
    return [] if source is None else datagrams(instance, source, 0)


def vrid_of(datagram: Datagram) -> int:
    """The VRID of an unchecked message. Raises PeerError when it is too short to have one."""
    if len(datagram.payload) < 2:  # noqa: PLR2004 - the second byte
        raise PeerError("packet_len_err", f"{len(datagram.payload)} bytes are too short for a VRRP message")
    return datagram.payload[1]


def _same_header(one: Datagram, other: Datagram) -> bool:
    return (
        (one.source is other.source or one.source == other.source)
        and (one.destination is other.destination or one.destination == other.destination)
        and one.ttl == other.ttl
    )


def _list(addresses: list[IPAddress]) -> str:
    return ", ".join(map(str, addresses)) or "none"

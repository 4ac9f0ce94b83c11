"""One instance inside the speaker: its router, the frames that it sends, and what it makes of those that come in.

A pair exchanges the same few bytes for months. What is sent is encoded once, and a message that was checked once is
recognised by its bytes, be it good or bad: the hot path neither encodes nor decodes. Only an authentication header is
made and checked for every single advert, since its sequence number is part of what is signed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker_frames import datagrams, own_address, resignation, sign
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import PeerError
from haxlb.model.instance import VrrpInstance
from haxlb.model.status import InstanceStatus
from haxlb.model.units import SECOND_US
from haxlb.vrrp.advert import Advert, Expected, advertised, decode
from haxlb.vrrp.authentication_header import Sequence
from haxlb.vrrp.inputs import AdvertReceived, LinkChanged
from haxlb.vrrp.router import Router

__all__ = ["Heard", "Member", "datagrams", "key_of", "resignation", "vrid_of"]

OLD_CHECKSUM = "old_checksum"
"""Reason of the fact by which an instance says that it has changed to the old form of checksum."""
_MAX_REMEMBERED = 64
"""Distinct messages remembered per instance; a flood of different ones must not cost memory."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that was checked: what to tell the router, and what is odd about it although it is accepted."""

    datagram: Datagram
    what: AdvertReceived
    oddities: tuple[PeerError, ...]


@dataclass(frozen=True, slots=True)
class _Refused:
    """A message that failed a check, and will again."""

    datagram: Datagram
    problem: PeerError


class Member:
    """An instance that the speaker runs."""

    def __init__(self, instance: VrrpInstance, serial: int, epoch_us: Callable[[], int] = lambda: 0) -> None:
        """`epoch_us` tells the wall clock's time, for the sequence numbers of the authentication header only."""
        self.router = Router(instance)
        self.serial = serial
        """Order of creation; breaks ties between equal deadlines."""
        self.armed: int | None = None
        """The deadline under which the speaker's timetable has it; may be earlier than the router's."""
        self.link: Link | None = None
        self.rejected: dict[str, int] = {}
        self._last_rejected: tuple[IPAddress, str, int] | None = None
        self.old_checksum = False
        """Since a peer was heard that makes the checksum of unicast as older keepalived does: so do we (`auto`)."""
        self._expected = Expected.of(instance)
        self._sequence = Sequence(epoch_us)
        self._frames: dict[int, list[Datagram]] = {}
        self._said: set[int] = set()
        """Priorities whose frames, as they are now, are among the own payloads."""
        self._own_payloads: set[bytes] = set()
        self._heard: dict[bytes, Heard] = {}
        self._refused: dict[bytes, _Refused] = {}

    @property
    def instance(self) -> VrrpInstance:
        """Its configuration."""
        return self.router.instance

    def retune(self, instance: VrrpInstance) -> None:
        """Forget what was prepared under the former configuration; the router is told separately."""
        self._expected = Expected.of(instance)
        if instance.old_unicast_checksum != "auto":
            self.old_checksum = False
        self._frames.clear()
        self._heard.clear()
        self._refused.clear()

    def link_input(self, link: Link | None) -> LinkChanged:
        """Remember the link; what the router is to be told of it."""
        address = own_address(self.instance, link)
        if link is None or address != own_address(self.instance, self.link):
            self._frames.clear()
        self.link = link
        if link is None:
            return LinkChanged(up=False, address=None, present=False)
        return LinkChanged(up=link.up, address=address, has_source=self.instance.source not in link.absent_sources)

    def prepare(self) -> None:
        """Encode now what it would say first as MASTER, and last: 0.1 ms that a change of role need not wait for."""
        for priority in (self.router.priority, 0):
            self._encoded(priority)

    def frames(self, priority: int) -> list[Datagram]:
        """One advert of this priority for every destination, to be sent now; empty without a source address."""
        frames = self._encoded(priority)
        if priority not in self._said:
            self._said.add(priority)
            if len(self._own_payloads) > _MAX_REMEMBERED:
                self._own_payloads.clear()
            self._own_payloads.update(each.payload for each in frames)
        key = self._expected.key
        return frames if key is None else sign(frames, key, self._sequence.next())

    def hear(self, datagram: Datagram) -> Heard | None:
        """Check a message; None = our own, looped back. Raises PeerError."""
        heard = self._heard.get(datagram.payload)
        if heard is not None and _same_header(heard.datagram, datagram):
            if self._expected.auth_ah:
                self._authenticate(datagram)
            elif datagram.ah:
                self._expected.check_header(datagram.ah)
            return heard
        refused = self._refused.get(datagram.payload)
        if refused is not None and _same_header(refused.datagram, datagram) and not datagram.ah:
            # Anew, or each raise would lengthen the traceback that it carries.
            raise refused.problem.with_traceback(None)
        # An advert from our address that we did not send is somebody else with our address: the router shall know.
        if datagram.payload in self._own_payloads and datagram.source == self.router.source:
            return None
        return self._examine(datagram)

    def status(self, epoch_offset_us: int) -> InstanceStatus:
        """The router's, with what was rejected before it reached the router."""
        status = replace(
            self.router.status(epoch_offset_us), adverts_rejected=dict(self.rejected), old_checksum=self.old_checksum
        )
        if self._last_rejected is None:
            return status
        source, why, at = self._last_rejected
        return replace(status, last_rejected=f"{source}: {why}", last_rejected_at=(at + epoch_offset_us) / SECOND_US)

    def reject(self, datagram: Datagram, problem: PeerError, now: int) -> None:
        """Count one message under its reason."""
        self.rejected[problem.reason] = self.rejected.get(problem.reason, 0) + 1
        # In words only when somebody asks: it may be one of a flood.
        self._last_rejected = (datagram.source, problem.message, now)

    def _encoded(self, priority: int) -> list[Datagram]:
        frames = self._frames.get(priority)
        if frames is None:
            source = self.router.source
            frames = (
                [] if source is None else datagrams(self.instance, source, priority, old_checksum=self.old_checksum)
            )
            self._frames[priority] = frames
            self._said.discard(priority)
        return frames

    def _examine(self, datagram: Datagram) -> Heard:
        try:
            advert = decode(
                datagram.payload,
                datagram.source,
                datagram.destination,
                ttl=datagram.ttl,
                expected=self._expected,
                ah=datagram.ah,
                ip_header=datagram.ip_header,
            )
        except PeerError as problem:
            # What an authentication header has made bad need not be so the next time.
            if not datagram.ah:
                if len(self._refused) >= _MAX_REMEMBERED:
                    self._refused.clear()
                self._refused[datagram.payload] = _Refused(datagram, problem)
            raise
        if self._expected.auth_ah:
            self._authenticate(datagram)
        heard = Heard(datagram, AdvertReceived(source=datagram.source, advert=advert), self._oddities(advert))
        if len(self._heard) >= _MAX_REMEMBERED:
            self._heard.clear()
        self._heard[datagram.payload] = heard
        if advert.old_checksum and not self.old_checksum and self.instance.old_unicast_checksum == "auto":
            self.old_checksum = True
            self._frames.clear()
            detail = "accepted, but its checksum is that of older keepalived; ours is so, too, from now on"
            return Heard(datagram, heard.what, (*heard.oddities, PeerError(OLD_CHECKSUM, detail)))
        return heard

    def _authenticate(self, datagram: Datagram) -> None:
        self._expected.check_header(datagram.ah)
        key = self._expected.key
        if key is not None:
            self._sequence.take(datagram.source, key.verify(datagram.ip_header, datagram.ah, datagram.payload))

    def _oddities(self, advert: Advert) -> tuple[PeerError, ...]:
        """What keepalived accepts, too: a typing error must not make two MASTERs."""
        oddities = []
        own = set(advertised(self.instance))
        theirs = set(advert.addresses)
        if own != theirs:
            ours, others = sorted(own - theirs), sorted(theirs - own)
            detail = f"accepted, but its addresses differ: only ours {_list(ours)}, only theirs {_list(others)}"
            oddities.append(PeerError("addr_list_err", detail))
        interval_us = self.instance.advert_interval_us
        if advert.interval_us != interval_us:
            detail = (
                f"accepted, but it advertises every {advert.interval_us / SECOND_US:g} s, "
                f"we every {interval_us / SECOND_US:g} s"
            )
            oddities.append(PeerError("advert_interval_differs", detail))
        return tuple(oddities)


def vrid_of(datagram: Datagram) -> int:
    """The VRID of an unchecked message. Raises PeerError when it is too short to have one."""
    if len(datagram.payload) < 2:  # noqa: PLR2004 - the second byte
        raise PeerError("packet_len_err", f"{len(datagram.payload)} bytes are too short for a VRRP message")
    return datagram.payload[1]


def key_of(datagram: Datagram) -> tuple[str, int]:
    """The `VrrpInstance.key` that an unchecked message is for. Raises PeerError when it is too short to have one."""
    vrid = vrid_of(datagram)
    return (datagram.interface, vrid if datagram.source.version == 4 else vrid + 256)  # noqa: PLR2004 - the family


def _same_header(one: Datagram, other: Datagram) -> bool:
    return (
        (one.source is other.source or one.source == other.source)
        and (one.destination is other.destination or one.destination == other.destination)
        and one.ttl == other.ttl
    )


def _list(addresses: list[IPAddress]) -> str:
    return ", ".join(map(str, addresses)) or "none"

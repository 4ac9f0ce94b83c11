"""The other routers of a VRID, as their adverts show them, and the facts that follow from hearing them."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.model.addresses import IPAddress
from haxlb.model.facts import AdvertRejected, ForeignAdvertHeard, PeerHeard
from haxlb.model.instance import VrrpInstance
from haxlb.model.status import PeerStatus
from haxlb.model.units import SECOND_US
from haxlb.vrrp.advert import Advert
from haxlb.vrrp.inputs import AdvertReceived, Report

_MAX_PEERS = 16
"""Sources remembered per instance: a flood of spoofed adverts must not cost memory."""


@dataclass(slots=True)
class _Peer:
    advert: Advert
    """The last one."""
    heard_at: int
    reported_at: int | None = None
    """Last ForeignAdvertHeard."""


class Peers:
    """Who was heard by one instance."""

    def __init__(self) -> None:
        self._peers: dict[IPAddress, _Peer] = {}
        self._duplicate_reported_at: int | None = None

    def hear(self, what: AdvertReceived, instance: VrrpInstance, now: int) -> list[Report]:
        """Note an advert; a fact if it is the source's first or its priority differs from the last."""
        advert = what.advert
        priority = advert.priority
        peer = self._peers.get(what.source)
        if peer is None:
            if len(self._peers) >= _MAX_PEERS:
                del self._peers[min(self._peers, key=lambda each: self._peers[each].heard_at)]
            self._peers[what.source] = _Peer(advert=advert, heard_at=now)
        else:
            peer.heard_at = now
            before, peer.advert = peer.advert.priority, advert
            if before == priority:
                return []
        fact = PeerHeard(instance=instance.name, vrid=instance.vrid, address=what.source, priority=priority, at_us=now)
        return [Report(fact=fact)]

    def foreign(self, what: AdvertReceived, instance: VrrpInstance, down_us: int, now: int) -> list[Report]:
        """The fact that somebody else speaks while we are MASTER: once per interval and source."""
        peer = self._peers[what.source]
        # A quarter of the interval is allowed for jitter, or every other advert would be missed.
        if peer.reported_at is not None and now - peer.reported_at < instance.advert_interval_us * 3 // 4:
            return []
        peer.reported_at = now
        fact = ForeignAdvertHeard(
            instance=instance.name,
            vrid=instance.vrid,
            address=what.source,
            priority=what.advert.priority,
            master_down_interval_us=down_us,
            at_us=now,
        )
        return [Report(fact=fact)]

    def duplicate(self, what: AdvertReceived, instance: VrrpInstance, now: int) -> list[Report]:
        """The fact that another router uses our own address: at most once a second."""
        if self._duplicate_reported_at is not None and now - self._duplicate_reported_at < SECOND_US:
            return []
        self._duplicate_reported_at = now
        fact = AdvertRejected(
            instance=instance.name,
            address=what.source,
            reason="duplicate_address",
            detail="an advert that we did not send came from our own address",
            at_us=now,
        )
        return [Report(fact=fact)]

    def statuses(self, epoch_offset_us: int) -> tuple[PeerStatus, ...]:
        """In the order in which they were first heard."""
        return tuple(
            PeerStatus(
                address=address,
                priority=peer.advert.priority,
                heard_at=(peer.heard_at + epoch_offset_us) / SECOND_US,
                version=peer.advert.version,
                interval_us=peer.advert.interval_us,
                addresses=tuple(map(str, peer.advert.addresses)),
            )
            for address, peer in self._peers.items()
        )

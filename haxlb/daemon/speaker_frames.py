"""The datagrams that carry the adverts of one instance: to every destination, signed where it is so configured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from haxlb.daemon.ports import Datagram, Link
from haxlb.model.addresses import IPAddress
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import ADVERT_TTL, advert_of, encode, group_of, is_unicast
from haxlb.vrrp.authentication_header import Key


def datagrams(
    instance: VrrpInstance, source: IPAddress, priority: int, *, old_checksum: bool = False
) -> list[Datagram]:
    """The advert of an instance, once for each destination: version 3's checksum depends on it.

    `old_checksum`: unicast version 3 gets the pseudo-header of the multicast group, as older keepalived makes it.
    Those of an instance with an authentication header lack it until `sign`.
    """
    advert = advert_of(instance, priority)
    group = group_of(instance)
    unicast = is_unicast(instance)
    old = instance.family == 4 and (old_checksum or instance.old_unicast_checksum == "always")  # noqa: PLR2004
    return [
        Datagram(
            interface=departure(instance),
            source=source,
            destination=destination,
            ttl=instance.unicast_ttl if unicast else ADVERT_TTL,
            payload=encode(advert, source, group if old else destination, checksum_as_v2=instance.checksum_as_v2),
            at_us=0,
        )
        for destination in (instance.peers if unicast else (group,))
    ]


def departure(instance: VrrpInstance) -> str:
    """The interface by which its adverts leave."""
    mac = instance.virtual_mac
    return instance.interface if mac is None or mac.xmit_base else mac.interface


def sign(frames: Iterable[Datagram], key: Key, sequence: int) -> list[Datagram]:
    """The same with an authentication header."""
    signed = []
    for each in frames:
        ip_header, ah = key.sign(each.source, each.destination, each.ttl, each.payload, sequence)
        signed.append(replace(each, ip_header=ip_header, ah=ah))
    return signed


def own_address(instance: VrrpInstance, link: Link | None) -> IPAddress | None:
    """The interface's address in the instance's family."""
    if link is None:
        return None
    return link.address if instance.family == 4 else link.address6  # noqa: PLR2004


def resignation(instance: VrrpInstance, link: Link | None) -> list[Datagram]:
    """The priority-0 adverts of an instance, for whoever must send them when its speaker is dead; still to `sign`."""
    source = instance.source or own_address(instance, link)
    return [] if source is None else datagrams(instance, source, 0)

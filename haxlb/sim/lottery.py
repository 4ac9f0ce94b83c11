"""A cluster by chance: two or three directors with whatever a VRRP user may configure, drawn from one stream.

Only what makes sense is drawn: the directors of a virtual router agree on version, family and addresses, and all
instances of a sync group prefer the same director. What breaks a pair by its configuration alone proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from random import Random

from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.commands import Command
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import GarpConfig, Role, VirtualMac, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.routes import Route
from haxlb.model.settings import SpeakerSettings
from haxlb.model.tracking import Track, TrackFile, TrackKind, TrackProcess, TrackScript
from haxlb.model.units import SECOND_US
from haxlb.sim.topology import Station, plan

_V2_INTERVALS_US = (SECOND_US, 2 * SECOND_US)
_V3_INTERVALS_US = (10_000, 20_000, 50_000, 100_000, 500_000, SECOND_US)
_IPV4 = 4
_AUTHENTICATED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Things:
    """What can be tracked."""

    scripts: tuple[TrackScript, ...]
    files: tuple[TrackFile, ...]
    processes: tuple[TrackProcess, ...]


def draw(dice: Random) -> tuple[Station, ...]:
    """The stations of one cluster."""
    nodes = dice.choice((2, 2, 3))
    grouped = dice.random() < 0.3  # noqa: PLR2004 - a share
    count = 2 if grouped else dice.choice((1, 1, 1, 2))
    priorities = _priorities(dice, nodes)
    mirrored = None if grouped or count == 1 else dice.choice((None, tuple(reversed(priorities))))
    things = _things(dice)
    shared = _tracks(dice, things) if dice.random() < 0.4 else ()  # noqa: PLR2004
    per_instance = [
        _instances(dice, number, nodes, mirrored if number and mirrored else priorities, shared)
        for number in range(count)
    ]
    groups: tuple[SyncGroup, ...] = ()
    if grouped:
        names = tuple(listed[0].name for listed in per_instance)
        groups = (SyncGroup(name="G", members=names, tracking_weight=dice.random() < 0.5),)  # noqa: PLR2004
        per_instance = [_alike(listed, per_instance[0]) for listed in per_instance]
    settings = SpeakerSettings(
        vip_lifetime_s=dice.choice((2, 2, 2, 0)),
        startup_delay_us=dice.choice((0, 0, 0, 0, SECOND_US)),
    )
    configs = [
        NodeConfig(
            node=f"lb{index + 1}",
            instances=tuple(listed[index] for listed in per_instance),
            speaker=settings,
            sync_groups=groups,
            track_scripts=things.scripts,
            track_files=things.files,
            track_processes=things.processes,
        )
        for index in range(nodes)
    ]
    return plan(configs[0], tuple(configs[1:]))


def _priorities(dice: Random, nodes: int) -> tuple[int, ...]:
    if dice.random() < 0.15:  # noqa: PLR2004 - a share
        return (dice.choice((100, 200)),) * nodes
    drawn = sorted(dice.sample(range(2, 255), nodes), reverse=True)
    if dice.random() < 0.05:  # noqa: PLR2004
        drawn[0] = 255
    return tuple(drawn)


def _instances(
    dice: Random, number: int, nodes: int, priorities: tuple[int, ...], tracks: tuple[Track, ...]
) -> list[VrrpInstance]:
    """One virtual router, as each of the directors has it."""

    def some(share: float) -> bool:
        return dice.random() < share

    family = 6 if some(0.25) else _IPV4
    version = 3 if family != _IPV4 or some(0.65) else 2
    interval_us = dice.choice(_V2_INTERVALS_US if version == _AUTHENTICATED else _V3_INTERVALS_US)
    interface = f"eth{number}"
    vrid = dice.randrange(1, 256)
    mac = VirtualMac(interface=f"vrrp.{vrid}", mac=_mac(family, vrid), xmit_base=some(0.5)) if some(0.15) else None
    wearer = interface if mac is None else mac.interface
    sources = _unicast(dice, family, number, nodes) if some(0.3) else None
    password = "secret" if version == _AUTHENTICATED and some(0.4) else None
    nopreempt = some(0.2)
    first = VrrpInstance(
        name=f"VI_{number + 1}",
        interface=interface,
        vrid=vrid,
        version=version,
        family=family,
        advert_interval_us=interval_us,
        auth_pass=password,
        auth_ah=password is not None and some(0.5),
        nopreempt=nopreempt,
        preempt_delay_us=0 if nopreempt or some(0.8) else dice.choice((SECOND_US, 3 * SECOND_US)),
        vips=tuple(_vip(wearer, family, number, each) for each in range(dice.choice((1, 1, 2)))),
        excluded_vips=(_vip(wearer, 10 - family, number, 9),) if some(0.2) else (),
        routes=(Route(destination=f"198.51.100.{number}/32", device=wearer),) if some(0.15) else (),
        garp=GarpConfig(
            master_delay_us=dice.choice((0, SECOND_US, 5 * SECOND_US)),
            master_repeat=dice.choice((1, 5)),
            lower_prio_repeat=dice.choice((1, 5)),
            lower_prio_delay_us=dice.choice((0, SECOND_US, 5 * SECOND_US)),
            master_refresh_us=dice.choice((0, 0, 0, 2 * SECOND_US)),
        ),
        tracks=tracks if some(0.7) else (),
        virtual_mac=mac,
        down_timer_adverts=dice.choice((3, 3, 3, 3, 2, 5)),
        higher_prio_send_advert=some(0.05),
    )
    if first.excluded_vips and some(0.3):
        first = _with_mac_of_address(first)
    hurried = not nopreempt and some(0.5)
    return [
        replace(
            first,
            priority=priority,
            initial_role=Role.MASTER if index == 0 and hurried else Role.BACKUP,
            source=None if sources is None else sources[index],
            peers=() if sources is None else tuple(each for each in sources if each != sources[index]),
        )
        for index, priority in enumerate(priorities)
    ]


def _alike(listed: list[VrrpInstance], like: list[VrrpInstance]) -> list[VrrpInstance]:
    """The instances of one sync group do not contradict each other."""
    return [
        replace(
            each,
            nopreempt=one.nopreempt,
            preempt_delay_us=one.preempt_delay_us,
            initial_role=one.initial_role,
            tracks=one.tracks,
        )
        for each, one in zip(listed, like, strict=True)
    ]


def _vip(interface: str, family: int, number: int, each: int) -> Vip:
    address: IPAddress = IPv4Address(f"192.0.2.{10 * number + each + 1}")
    if family != _IPV4:
        address = IPv6Address(f"2001:db8:{number}::{each + 1:x}")
    return Vip(address=address, prefix_length=address.max_prefixlen, interface=interface)


def _unicast(dice: Random, family: int, number: int, nodes: int) -> list[IPAddress]:
    low = dice.randrange(1, 200)
    if family == _IPV4:
        return [IPv4Address(f"198.18.{100 + number}.{low + each}") for each in range(nodes)]
    return [IPv6Address(f"fe80::{100 + number:x}:{low + each:x}") for each in range(nodes)]


def _with_mac_of_address(instance: VrrpInstance) -> VrrpInstance:
    """The same with its excluded address, of the other family, on a virtual MAC of its own (`use_vmac_addr`)."""
    (vip,) = instance.excluded_vips
    family, vrid = vip.family, instance.vrid
    made = VirtualMac(interface=f"vrrp{family}.{vrid}", mac=_mac(family, vrid), base=instance.interface)
    return replace(instance, excluded_vips=(replace(vip, interface=made.interface),), address_macs=(made,))


def _mac(family: int, vrid: int) -> str:
    return f"00:00:5e:00:0{1 if family == _IPV4 else 2}:{vrid:02x}"


def _things(dice: Random) -> _Things:
    interval_us = dice.choice((200_000, SECOND_US, 2 * SECOND_US))
    scripts = tuple(
        TrackScript(
            name=name,
            run=Command(argv=(f"/usr/local/bin/{name}",)),
            interval_us=interval_us,
            timeout_us=interval_us,
            rise=dice.choice((1, 2)),
            fall=dice.choice((1, 3)),
            init_fail=dice.random() < 0.2,  # noqa: PLR2004 - a share
        )
        for name in ("chk_a", "chk_b")
    )
    return _Things(
        scripts=scripts,
        files=(TrackFile(name="file", path="/run/weight"),),
        processes=(TrackProcess(name="proc", process="nginx"),),
    )


def _tracks(dice: Random, things: _Things) -> tuple[Track, ...]:
    weight: Callable[[], int] = lambda: dice.choice((0, 0, -30, -100, 30))  # noqa: E731 - read where it is used
    choices = [Track(kind=TrackKind.SCRIPT, name=each.name, weight=weight()) for each in things.scripts]
    choices += [Track(kind=TrackKind.FILE, name=each.name, weight=dice.choice((0, 1, 5))) for each in things.files]
    choices += [Track(kind=TrackKind.PROCESS, name=each.name, weight=weight()) for each in things.processes]
    choices.append(Track(kind=TrackKind.INTERFACE, name="eth9", weight=weight()))
    return tuple(dice.sample(choices, dice.choice((1, 1, 2))))

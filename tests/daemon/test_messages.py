"""Messages between our processes, as lines and back."""

from __future__ import annotations

import dataclasses
import json
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest

from haxlb.daemon.messages import (
    ConfigureSpeaker,
    GarpFrame,
    GarpFrames,
    Happened,
    Notify,
    SpeakerStatus,
    Tracked,
    decode,
    encode,
)
from haxlb.model.addresses import TtlLimits, Vip
from haxlb.model.errors import PeerError
from haxlb.model.facts import PeerHeard
from haxlb.model.instance import GarpConfig, Role, VirtualMac, VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.settings import SpeakerSettings
from haxlb.model.status import InstanceStatus, LoopLag
from haxlb.model.tracking import Track, TrackKind, TrackResult

VIP = IPv4Address("10.0.0.1")
PLAIN = VrrpInstance(name="VI_1", interface="eth0", vrid=51)
FULL = dataclasses.replace(
    PLAIN,
    priority=0,
    initial_role=Role.MASTER,
    family=6,
    vips=(Vip(address=IPv6Address("fd00::64"), prefix_length=64, interface="eth0", flags=("home",)),),
    peers=(IPv6Address("fd00::2"),),
    ttl_limits=(TtlLimits(peer=IPv6Address("fd00::2"), lowest=0),),
    garp=GarpConfig(master_repeat=0, group="a"),
    virtual_mac=VirtualMac(interface="vrrp.51", mac="00:00:5e:00:02:33"),
    tracks=(Track(kind=TrackKind.FILE, name="load", weight=0, reverse=True),),
    auth_pass="",
    accept=not PLAIN.accept,
    track_primary=not PLAIN.track_primary,
)
STATUS = InstanceStatus(
    name="VI_1", interface="eth0", vrid=51, version=2, role=Role.BACKUP, since_at=0.0, reason="", priority=0
)


@pytest.mark.parametrize(
    "message",
    [
        ConfigureSpeaker(instances=(PLAIN, FULL), garp_frames=()),
        GarpFrames(frames=(GarpFrame(interface="eth0", mac="02:00:00:00:00:01", vip=VIP, frame_hex="00"),)),
        ConfigureSpeaker(instances=(), garp_frames=(), settings=SpeakerSettings(vip_lifetime_s=0, spare=False)),
        Tracked(results=(TrackResult(kind=TrackKind.BFD, name="b", value=None, counts=False),)),
        Tracked(results=(TrackResult(kind=TrackKind.FILE, name="f", value=0),)),
        Notify(due=NotifyDue(subject="GROUP", name="VG", state="BACKUP", priority=0)),
        Happened(fact=PeerHeard(instance="VI_1", vrid=51, address=IPv4Address("10.0.0.2"), priority=0, at_us=0)),
        SpeakerStatus(ticket=0, instances=(STATUS, dataclasses.replace(STATUS, yielded=True)), lag=LoopLag(wakes=1)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_said_is_understood(message: Any) -> None:
    assert decode(encode(message).rstrip(b"\n")) == message


def test_what_is_as_by_default_is_not_said() -> None:
    """The speaker reads hundreds of instances between two adverts."""
    (said,) = json.loads(encode(ConfigureSpeaker(instances=(PLAIN,), garp_frames=())))["instances"]
    assert said.keys() <= {"name", "interface", "vrid", "garp", "notify"}


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{", b'{"type":"Tracked"}', b'{"type":"Unheard"}', b'{"type":"Stop","reason":1}']
)
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(PeerError):
        decode(line)

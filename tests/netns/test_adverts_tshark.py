"""tshark decodes our adverts, as they are on the wire, without a complaint."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lab import Lab, run

from haxlb.daemon.speaker_frames import datagrams, sign
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import Expected
from tests.netns.advert_hosts import LOCAL6, MULTICAST, MULTICAST6, ONE, ONE6, TWO, TWO6, Sockets, send, two_hosts
from tests.netns.standin import Ear, eventually

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (apt)"),
]

ADVERTS = {
    "v2": MULTICAST,
    "v2 PASS": replace(MULTICAST, auth_pass="s3cret"),
    "v2 AH": replace(MULTICAST, auth_pass="s3cret", auth_ah=True),
    "v2 AH unicast": replace(MULTICAST, auth_pass="s3cret", auth_ah=True, peers=(TWO,), unicast_ttl=64),
    "v3": replace(MULTICAST, version=3, advert_interval_us=250_000),
    "v3 unicast": replace(MULTICAST, version=3, peers=(TWO,)),
    "v3 IPv6": MULTICAST6,
    "v3 IPv6 unicast": replace(MULTICAST6, source=ONE6, peers=(TWO6,)),
}
"""Without version 2 over IPv6: tshark sums it up without the pseudo-header, and says the same of keepalived's."""
SAYS = {
    "v2 PASS": ("Auth Type: Simple Text Authentication [RFC 2338] / Reserved [RFC 3768] (1)", "s3cret"),
    "v2 AH": ("Authentication Header", "AH SPI: 0x0a090001", "AH Sequence: 4711"),
    "v3": ("Adver Int: 25",),
}
COMPLAINTS = ("Expert Info", "Malformed", "incorrect", "Bad", "Unknown", "Unreassembled")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(f"hxats{os.getpid()}") as made:
        two_hosts(made)
        yield made


def captured(lab: Lab, instance: VrrpInstance) -> bytes:
    """The frame of one advert."""
    one, two = lab.hosts["d1"], lab.hosts["d2"]
    source = instance.source or (LOCAL6["d1"] if instance.family == 6 else ONE)
    frames = datagrams(instance, source, 100)
    key = Expected.of(instance).key
    with Sockets(one, instance) as sender, Ear(two.namespace) as ear:
        send(sender, one, sign(frames, key, 4711) if key else frames)
        mark = frames[0].payload[:8]
        return eventually(lambda: [each for each in ear.frames() if mark in each.frame], "the frame")[0].frame


@pytest.mark.parametrize("kind", ADVERTS)
def test_no_complaint(lab: Lab, tmp_path: Path, kind: str) -> None:
    frame = captured(lab, ADVERTS[kind])
    capture = tmp_path / "advert.pcap"
    header = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    capture.write_bytes(header + struct.pack("=IIII", 1, 0, len(frame), len(frame)) + frame)
    told = run("tshark", "-r", str(capture), "-V", "-o", "ip.check_checksum:TRUE").stdout
    assert "Virtual Router Redundancy Protocol" in told
    assert "Checksum Status: Good" in told
    assert [line for line in told.splitlines() if any(word in line for word in COMPLAINTS)] == []
    for words in SAYS.get(kind, ()):
        assert words in told

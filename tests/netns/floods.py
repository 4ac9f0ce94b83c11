"""Floods of adverts on a pair of directors: what is sent, and what became of the pair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path

from lab import Host, Lab

from haxlb.daemon.speaker_frames import datagrams, sign
from haxlb.linux.ip_packets import packet_of
from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.vrrp.advert import Expected
from tests.netns.advert_times import AdvertTimes
from tests.netns.standin import LIMIT_S, SpeakerHandle, eventually, vip
from tests.netns.standstill import Standstill

FAST = VrrpInstance(
    name="VI_1", interface="eth0", vrid=51, version=3, advert_interval_us=100_000, vips=(vip("10.9.0.100"),)
)
SLOW = VrrpInstance(name="VI_2", interface="eth0", vrid=52, auth_pass="s3cret", vips=(vip("10.9.0.101"),))
SIGNED = replace(SLOW, name="VI_3", vrid=53, auth_ah=True, vips=(vip("10.9.0.102"),))
INSTANCES = (FAST, SLOW, SIGNED)
FLOODER = IPv4Address("10.9.0.66")


def _of(*instances: VrrpInstance, highest: int = 250) -> list[bytes]:
    """Frames of adverts of many priorities and senders: no two in a row are the same."""
    frames = []
    for number in range(highest):
        instance = instances[number % len(instances)]
        sender = IPv4Address(int(IPv4Address("10.9.1.0")) + number)
        (datagram,) = datagrams(instance, sender, number + 1)
        key = Expected.of(instance).key
        ether = bytes.fromhex("01005e000012") + b"\x02\0\0\0\0\x66" + b"\x08\0"
        packet = bytearray(packet_of(sign([datagram], key, number)[0] if key else datagram))
        packet[10:12] = _header_checksum(packet[:20])
        frames.append(ether + bytes(packet))
    return frames


def _header_checksum(header: bytes) -> bytes:
    total = sum(int.from_bytes(header[at : at + 2]) for at in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    return (0xFFFF ^ ((total & 0xFFFF) + (total >> 16))).to_bytes(2)


FLOODS: dict[str, Callable[[], list[bytes]]] = {
    "of strangers": lambda: _of(*(replace(FAST, vrid=vrid) for vrid in range(100, 200))),
    "of our VRID, wrong version": lambda: _of(replace(FAST, version=2, advert_interval_us=1_000_000)),
    "of our VRID, wrong password": lambda: _of(replace(SLOW, auth_pass="wrong")),
    "of our VRID, wrong key": lambda: _of(replace(SIGNED, auth_pass="wrong")),
    "of our VRID, nothing wrong, lower priority": lambda: _of(FAST, highest=99),
    "of our VRIDs, of every kind": lambda: _of(
        replace(FAST, version=2, advert_interval_us=1_000_000), replace(SLOW, auth_pass=None), replace(FAST, vrid=99)
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one flood."""

    per_second: int
    """Frames sent."""
    longest_gap_ms: float
    """Between two adverts of the MASTER of VI_1, which sends one each 100 ms."""
    longest_gap_of_seconds_ms: float
    """VI_2, one a second."""
    roles: list[str]
    """Changes on either director; there should be none."""
    rejected: dict[str, int]
    """As the MASTER counts."""
    cpu_share: float
    """Of one CPU, that the MASTER's speaker used."""
    standstill_ms: float = 0.0
    """The longest time in which the machine itself let nobody run: what came of that is not the speakers' doing."""


class Pair:
    """Two directors and a third host that floods them."""

    def __init__(self, lab: Lab) -> None:
        self.master = lab.host("d1", "10.9.0.1/24")
        self.backup = lab.host("d2", "10.9.0.2/24")
        self.flooder = lab.host("fl", f"{FLOODER}/24")
        self.one, self.two = SpeakerHandle(self.master), SpeakerHandle(self.backup)
        for handle, priority in ((self.one, 150), (self.two, 100)):
            handle.configure(*(replace(each, priority=priority) for each in INSTANCES))
        self._settle()
        self.times = AdvertTimes(self.backup.namespace, self.master.mac())

    def close(self) -> None:
        """End the speakers."""
        self.times.__exit__()
        for each in (self.one, self.two):
            each.__exit__()

    def flood(self, frames: list[bytes], rate: int, seconds: float) -> Outcome:
        """Flood both and look at what became of them."""
        self._settle()
        standstill = Standstill()
        with standstill.watched():
            outcome = self._flood(frames, rate, seconds)
        return replace(outcome, standstill_ms=round(standstill.longest_ms, 1))

    def _flood(self, frames: list[bytes], rate: int, seconds: float) -> Outcome:
        marks = [len(each.messages) for each in (self.one, self.two)]
        cpu_before = _cpu_seconds(self.one.process.pid)
        began = time.time_ns()
        sent = _send(self.flooder, frames, rate, seconds)
        ended = time.time_ns()
        cpu_share = (_cpu_seconds(self.one.process.pid) - cpu_before) / (ended - began) * 1e9
        # Until after the flood: what it has delayed must have come out.
        begin_of_seconds = began - 1_000_000_000
        eventually(
            lambda: self.times.of(51, ended) and self.times.of(52, ended) and self.times.gaps_ms(52, begin_of_seconds),
            "an advert after the flood",
        )
        rejected: dict[str, int] = {}
        for status in self.one.status().instances:
            rejected.update(status.adverts_rejected)
        changes = [
            f"{each.host.name} {fact.instance} {fact.after.value}: {fact.reason}"
            for each, mark in zip((self.one, self.two), marks, strict=True)
            for message in each.messages[mark:]
            if isinstance(fact := getattr(message, "fact", None), RoleChanged)
        ]
        return Outcome(
            per_second=sent,
            longest_gap_ms=max(self.times.gaps_ms(51, began)),
            longest_gap_of_seconds_ms=max(self.times.gaps_ms(52, begin_of_seconds)),
            roles=changes,
            rejected=rejected,
            cpu_share=round(cpu_share, 3),
        )

    def _settle(self) -> None:
        """Wait until one is MASTER and the other BACKUP of all instances."""
        for each, role in ((self.one, Role.MASTER), (self.two, Role.BACKUP)):
            eventually(
                lambda: {status.role for status in each.status().instances} == {role},  # noqa: B023
                f"{each.host.name} is {role.value} of all",
            )


def _send(host: Host, frames: list[bytes], rate: int, seconds: float) -> int:
    """From two processes: one alone is slowed down by what the receivers do with its frames, on its own CPU."""
    script = Path(__file__).with_name("flooder.py")
    argv = host.argv(sys.executable, str(script), "eth0", str(rate // 2), str(seconds))
    lines = "\n".join(each.hex() for each in frames).encode()
    senders = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for each in senders:
        assert each.stdin is not None
        each.stdin.write(lines)
        each.stdin.close()
        each.stdin = None
    answers = [each.communicate(timeout=seconds + LIMIT_S)[0] for each in senders]
    return sum(int(json.loads(each.splitlines()[-1])["per_second"]) for each in answers)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

"""The authentication header, and IPv6, between haxlb's speaker and Debian's keepalived: who believes whom.

Each pair lives through the same story in a lab of its own; the labs run side by side, since most of the time is waiting
for VRRP's seconds.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from lab import Host, Lab

from haxlb.linux.resign import Bequest
from haxlb.model.addresses import Vip
from haxlb.model.instance import Role, VrrpInstance
from tests.netns.standin import LIMIT_S, Ear, SpeakerHandle, eventually, inside, vip

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("keepalived") is None, reason="keepalived is not installed (apt)"),
]

ONE, TWO = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")
INSTANCE = VrrpInstance(name="VI_1", interface="eth0", vrid=51, priority=100, auth_pass="s3cret", auth_ah=True)
V4 = replace(INSTANCE, vips=(vip("10.9.0.100"),))
V6 = replace(
    INSTANCE,
    family=6,
    version=3,
    auth_pass=None,
    auth_ah=False,
    vips=(
        Vip(address=IPv6Address("fe80::64"), prefix_length=64, interface="eth0"),
        Vip(address=IPv6Address("fd00:9::64"), prefix_length=64, interface="eth0"),
    ),
)
PARTS = {
    "AH multicast": V4,
    "AH unicast": replace(V4, peers=(TWO,)),
    "IPv6 v3 multicast": V6,
    "IPv6 v2 multicast": replace(V6, version=2),
    "IPv6 v3 unicast": replace(V6, source=IPv6Address("fd00:9::1"), peers=(IPv6Address("fd00:9::2"),)),
}
OPPOSITE = {TWO: (TWO, ONE), IPv6Address("fd00:9::2"): (IPv6Address("fd00:9::2"), IPv6Address("fd00:9::1"))}


class Keepalived:
    """keepalived 2.2.7 on a host, with the same instance."""

    def __init__(self, host: Host, directory: Path, instance: VrrpInstance, priority: int) -> None:
        self.host = host
        self._log = directory / "keepalived.log"
        lines = [
            # A busy machine must not make it late for its own timers. In a real-time class it allows itself 10 ms.
            "global_defs {",
            "vrrp_priority -20",
            "}",
            "vrrp_instance VI_1 {",
            f"version {instance.version}",
            "state BACKUP",
            "interface eth0",
            f"virtual_router_id {instance.vrid}",
            f"priority {priority}",
            "advert_int 1",
        ]
        if instance.auth_ah:
            lines += ["authentication {", "auth_type AH", f"auth_pass {instance.auth_pass}", "}"]
        if instance.peers:
            here, there = OPPOSITE[instance.peers[0]]
            lines += [f"unicast_src_ip {here}", "unicast_peer {", f"{there}", "}"]
        lines += ["virtual_ipaddress {", *(f"{each} dev eth0" for each in instance.vips), "}", "}"]
        self._conf = directory / "keepalived.conf"
        self._conf.write_text("\n".join(lines) + "\n")
        self._directory = directory
        self.start()

    def start(self) -> None:
        pids = [f"--{kind}={self._directory / kind}" for kind in ("pid", "vrrp_pid", "checkers_pid")]
        with self._log.open("ab") as stream:
            self.process = self.host.start(
                "keepalived", "-n", "-l", "-D", "-f", str(self._conf), *pids, stdout=stream, stderr=stream
            )

    def stop(self) -> None:
        """In order: it resigns."""
        self.process.terminate()
        self.process.wait(timeout=LIMIT_S)

    def says(self, words: str, count: int = 1) -> None:
        try:
            eventually(lambda: self._log.read_text().count(words) >= count, f"{words!r}, {count} times")
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {self._log.read_text()[-800:]}") from None

    def complaints(self) -> list[str]:
        words = ("invalid", "already", "mismatch", "wrong", "expect")
        lines = self._log.read_text().splitlines()
        return [line for line in lines if any(word in line.lower() for word in words)]


def story(prefix: str, directory: Path, instance: VrrpInstance) -> None:
    """From the first election to a dead speaker."""
    directory.mkdir()
    with Lab(prefix) as lab:
        for name, number in (("d1", 1), ("d2", 2)):
            host = lab.host(name, f"10.9.0.{number}/24")
            host.sysctl(net__ipv6__conf__all__disable_ipv6=0, net__ipv6__conf__eth0__disable_ipv6=0)
            host.run("ip", "address", "add", f"fd00:9::{number}/64", "dev", "eth0", "nodad")
            host.run("ip", "address", "add", f"fe80::9:{number}/64", "dev", "eth0", "nodad")
        live(lab.hosts["d1"], lab.hosts["d2"], directory, instance)


def live(d1: Host, d2: Host, directory: Path, instance: VrrpInstance) -> None:
    with Ear(d1.namespace) as ear, SpeakerHandle(d1) as haxlb:
        assert haxlb.configure(instance) == ""
        haxlb.becomes(Role.MASTER)
        # It hears ours, whose sequence numbers are far above its own, and takes over from there.
        mark = len(haxlb.messages)
        keepalived = Keepalived(d2, directory, instance, 150)
        keepalived.says("received lower priority (100) advert")
        assert "150" in haxlb.becomes(Role.BACKUP, start=mark).reason
        keepalived.says("Entering MASTER STATE")

        # Its farewell is believed.
        mark = len(haxlb.messages)
        keepalived.stop()
        assert "resigned" in haxlb.becomes(Role.MASTER, start=mark).reason

        # It starts anew, with sequence numbers from 1, and is believed nevertheless.
        mark = len(haxlb.messages)
        keepalived.start()
        haxlb.becomes(Role.BACKUP, start=mark)

        # Ours, on a reload, has the better one: keepalived believes it.
        keepalived.says("Entering MASTER STATE", 2)
        mark = len(haxlb.messages)
        assert haxlb.configure(replace(instance, priority=200)) == ""
        haxlb.becomes(Role.MASTER, start=mark)
        keepalived.says("advert from", 2)
        keepalived.says("Entering BACKUP STATE", 3)

        assert [each.adverts_rejected for each in haxlb.status().instances] == [{}]

        # The speaker dies; whoever resigns for it is believed, too.
        with inside(d1.namespace):
            bequest = Bequest()
            bequest.prepare((instance,))
            haxlb.kill()
            at_ns = time.time_ns()
            assert bequest.execute(frozenset({"VI_1"})) == ()
            bequest.close()
        keepalived.says("Entering MASTER STATE", 3)
        assert keepalived.complaints() == []
        eventually(lambda: ear.frames(at_ns), "the farewell was on the wire")
        keepalived.stop()


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    directory = tmp_path_factory.mktemp("keepalived")
    with ThreadPoolExecutor(len(PARTS)) as pool:
        yield {
            part: pool.submit(story, f"hxahk{os.getpid()}{number}", directory / str(number), instance)
            for number, (part, instance) in enumerate(PARTS.items())
        }


@pytest.mark.parametrize("part", PARTS)
def test_each_believes_the_other(stories: dict[str, Future[None]], part: str) -> None:
    stories[part].result()

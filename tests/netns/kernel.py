"""For tests: one namespace of its own with some interfaces, and what the kernel has in it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from haxlb.linux.links import Links
from haxlb.linux.rtnetlink import Rtnetlink
from haxlb.model.addresses import IPAddress
from tests.netns.standin import inside


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((event, fields))


@dataclass
class Namespace:
    """A namespace with `eth0` and `eth1`, whose other ends, `far0` and `far1`, are in it, too."""

    name: str
    netlink: Rtnetlink
    log: Lines = field(default_factory=Lines)

    def run(self, *argv: str, check: bool = True, text: str | None = None) -> str:
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, *argv], capture_output=True, text=True, check=False, input=text
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def json(self, *argv: str) -> Any:
        return json.loads(self.run("ip", "-j", "-d", *argv) or "[]")

    def links(self, *names: str, vips: tuple[IPAddress, ...] = ()) -> Links:
        links = Links(self.netlink)
        links.watch(names, vips)
        return links

    def addresses(self, interface: str = "eth0") -> dict[str, dict[str, Any]]:
        """By ADDRESS/PREFIX, without the link-local ones that the kernel makes of a MAC."""
        shown = self.json("address", "show", "dev", interface)
        return {
            f"{each['local']}/{each['prefixlen']}": each
            for each in shown[0]["addr_info"]
            if not (each["local"].startswith("fe80::") and "ff:fe" in each["local"])
        }

    def sysctl(self, name: str) -> str:
        return self.run("cat", f"/proc/sys/net/{name}").strip()


@contextlib.contextmanager
def namespace(tag: str) -> Iterator[Namespace]:
    """Make it, and remove it."""
    name = f"hx{tag}{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with inside(name):
            netlink = Rtnetlink()
        made = Namespace(name, netlink)
        made.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        made.run("ip", "link", "set", "lo", "up")
        for number in (0, 1):
            made.run("ip", "link", "add", f"eth{number}", "type", "veth", "peer", "name", f"far{number}")
            made.run("ip", "link", "set", f"far{number}", "up")
            made.run("ip", "link", "set", f"eth{number}", "up")
            made.run("ip", "address", "add", f"10.{number}.0.1/24", "dev", f"eth{number}")
        yield made
        netlink.close()
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)

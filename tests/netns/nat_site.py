"""A director between a client, who is behind a router, and two servers of private addresses, one behind a router, too.

client -- edge -- director -- near (a server)
                      `------ inner -- far (a server)
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Self

from haxlb.forwarding import layout
from haxlb.forwarding.layout import INDEX
from haxlb.forwarding.wanted import NextHop
from haxlb.linux import xdp
from haxlb.linux.bpf import attach_pass_program
from haxlb.model.addresses import Protocol
from tests.bpf.natted import DNS, DNS6, WEB, WEB6, Natted, Site

FAR = Site(10, "10.0.0.1", 81, Protocol.TCP, "192.168.2.10", 8080)
FAR6 = Site(11, "fd00::1", 81, Protocol.TCP, "fd02::10", 8080)
CLOSED = replace(DNS, number=12, port=54, server_port=5454)
CLOSED6 = replace(DNS6, number=13, port=54, server_port=5454)
"""Nobody listens there."""
NEAR = (WEB, DNS, WEB6, DNS6, CLOSED, CLOSED6)
BEHIND = (FAR, FAR6)

LINKS = (
    ("client", "north", "edge", "south"),
    ("edge", "north", "director", "outside"),
    ("director", "inside", "near", "north"),
    ("director", "beyond", "inner", "north"),
    ("inner", "south", "far", "north"),
)
ADDRESSES = {
    ("client", "north"): ("198.51.100.7/24", "fd99::7/64"),
    ("edge", "south"): ("198.51.100.1/24", "fd99::1/64"),
    ("edge", "north"): ("203.0.113.9/24", "fd98::9/64"),
    ("director", "outside"): ("203.0.113.1/24", "fd98::1/64", "10.0.0.1/32", "fd00::1/128"),
    ("director", "inside"): ("192.168.1.1/24", "fd01::1/64"),
    ("near", "north"): ("192.168.1.10/24", "fd01::10/64"),
    ("director", "beyond"): ("192.168.3.1/24", "fd03::1/64"),
    ("inner", "north"): ("192.168.3.2/24", "fd03::2/64"),
    ("inner", "south"): ("192.168.2.1/24", "fd02::1/64"),
    ("far", "north"): ("192.168.2.10/24", "fd02::10/64"),
}
ROUTES = (
    ("client", "default via 198.51.100.1", "default via fd99::1"),
    ("edge", "10.0.0.1/32 via 203.0.113.1", "fd00::1/128 via fd98::1"),
    ("near", "default via 192.168.1.1", "default via fd01::1"),
    ("inner", "default via 192.168.3.1", "default via fd03::1"),
    ("far", "default via 192.168.2.1", "default via fd02::1"),
)
NARROW = 1300
ROUTERS = ("edge", "inner")
HOSTS = ("client", "edge", "director", "near", "inner", "far")
PEERS = (("edge", "north"), ("near", "north"), ("inner", "north"))
"""The other ends of the director's links."""


class NatSite:
    """The hosts, and the program of `plane` on the director's three interfaces."""

    def __init__(self, plane: Natted) -> None:
        self.plane = plane
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def namespace(self, host: str) -> str:
        return f"hxnat{os.getpid()}-{host}"

    def path(self, host: str) -> Path:
        return Path("/run/netns") / self.namespace(host)

    def run(self, host: str, *words: str) -> str:
        """A command in a host, to its end; what it printed."""
        done = subprocess.run(self._inside(host, *words), capture_output=True, text=True, check=False, timeout=200)
        assert not done.returncode, f"{' '.join(words)}: {done.stderr or done.stdout}"
        return done.stdout

    def peer(self, host: str, *words: str) -> dict[str, object]:
        """What a client of tests.netns.nat_peer says."""
        said: dict[str, object] = json.loads(self.run(host, sys.executable, "-m", "tests.netns.nat_peer", *words))
        return said

    @contextlib.contextmanager
    def narrow(self, router: str, to: str) -> Iterator[None]:
        """Meanwhile `router` takes no more than NARROW bytes to this address."""
        route = (f"{to}/{128 if ':' in to else 32}", "dev", "south")
        self.run(router, "ip", "route", "add", *route, "mtu", "lock", str(NARROW))
        yield
        self.run(router, "ip", "route", "delete", *route)
        # Who has learned a path MTU asks for segments as small.
        for host, family in product(("client", "far"), ("-4", "-6")):
            self.run(host, "ip", family, "route", "flush", "cache")

    def wrong_checksums(self, host: str) -> int:
        """What the kernel there has refused for its checksum."""
        total = 0
        for name in ("snmp", "snmp6", "netstat"):
            lines = self.run(host, "cat", f"/proc/net/{name}").splitlines()
            if name == "snmp6":
                total += sum(int(line.split()[1]) for line in lines if "CsumErrors" in line)
                continue
            for names, values in zip(lines[::2], lines[1::2], strict=True):
                total += sum(
                    int(value) for key, value in zip(names.split(), values.split(), strict=True) if "CsumErrors" in key
                )
        return total

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(timeout=60)
            if process.stdout is not None:
                process.stdout.close()
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", self.namespace(host)], capture_output=True, check=False)

    def _inside(self, host: str, *words: str) -> list[str]:
        return ["nsenter", f"--net={self.path(host)}", *words]

    def _build(self) -> None:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "add", self.namespace(host)], check=True, capture_output=True)
            self.run(host, "ip", "link", "set", "lo", "up")
            self.run(host, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
        for one, its, other, others in LINKS:
            peer = ("peer", "name", others, "netns", self.namespace(other))
            self.run(one, "ip", "link", "add", its, "type", "veth", *peer)
        for (host, interface), addresses in ADDRESSES.items():
            for address in addresses:
                self.run(
                    host, "ip", "address", "add", address, "dev", interface, *(["nodad"] if ":" in address else [])
                )
            # What a veth leaves to hardware that is not there would reach the program without a checksum.
            self.run(host, "ethtool", "-K", interface, "tx", "off")
            self.run(host, "ip", "link", "set", interface, "up")
        for host, *routes in ROUTES:
            for route in routes:
                self.run(host, "ip", *(["-6"] if "::" in route else []), "route", "add", *route.split())
        for host in ROUTERS:
            self.run(host, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for host, interface in PEERS:
            attach_pass_program(self.path(host), interface)
        for interface, host, sites in (("inside", "near", NEAR), ("beyond", "inner", BEHIND)):
            own = self._mac("director", interface)
            hop = NextHop(
                interface_index=self._index(interface), source_mac=own, destination_mac=self._mac(host, "north")
            )
            for site in sites:
                self.plane.serve(site, hop=hop)
        for interface in ("outside", "inside", "beyond"):
            index, mac = self._index(interface), self._mac("director", interface)
            self.plane.maps.write("interfaces", INDEX.pack(index), layout.pack_own_mac(mac))
            xdp.attach_by_netlink(self.plane.program, interface, namespace=self.path("director"))
        for host in ("near", "far"):
            command = self._inside(host, sys.executable, "-m", "tests.netns.nat_peer", "serve")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self._processes.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def _index(self, interface: str) -> int:
        return xdp.in_namespace(self.path("director"), lambda: xdp.interface_index(interface))

    def _mac(self, host: str, interface: str) -> str:
        return json.loads(self.run(host, "ip", "-j", "link", "show", "dev", interface))[0]["address"]  # type: ignore[no-any-return]

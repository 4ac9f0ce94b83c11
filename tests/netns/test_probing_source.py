"""An IPv6 VIP as /64 on a director, the same VIP on lo of a server: from where the probes come, by a real kernel."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address
from pathlib import Path

import pytest
from lab import Host, Lab

from haxlb.daemon.messages import ConfigureChecker
from haxlb.model.addresses import Endpoint, Protocol, Vip
from haxlb.model.check import Check, CheckKind
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.virtual_server import RealServer, VirtualServer
from tests.netns.standin import eventually, whole_lines
from tests.netns.test_checker import CheckerHandle

pytestmark = pytest.mark.netns

VIP = "2001:db8:78::100"
DIRECTOR = "2001:db8:78::1"
SERVER = "2001:db8:78::21"

# Its arguments are steps: avoid=ADDRESS, probe=TARGET, brief=TARGET (which fails after a second), bound=SOURCE (and
# probe SERVER from there), run=COMMAND.
PROBES = """
import asyncio, subprocess, sys
from dataclasses import replace
from ipaddress import ip_address
from haxlb.health.timetable import StartProbe
from haxlb.linux.probing import Prober
from haxlb.model.check import Check, CheckKind

async def main():
    ended = asyncio.Queue()
    prober = Prober(ended.put_nowait)
    for step in sys.argv[1:]:
        word, _, rest = step.partition("=")
        if word == "avoid":
            prober.avoid([ip_address(rest)])
        elif word == "run":
            subprocess.run(rest.split(), check=True)
        else:
            target = ip_address("2001:db8:78::21" if word == "bound" else rest)
            limit_us = 1_000_000 if word == "brief" else 60_000_000
            check = Check(kind=CheckKind.HTTP, address=target, port=80, connect_timeout_us=limit_us)
            if word == "bound":
                check = replace(check, bind_address=ip_address(rest))
            prober.start(StartProbe(ticket=1, check=check, deadline_us=0))
            ((_, outcome),) = await ended.get()
            print(outcome.reason)
    prober.close()

asyncio.run(main())
"""
# Its arguments are steps: avoid=ADDRESS, source=TARGET, run=COMMAND. Says each source, and how often it read addresses.
SOURCES = """
import subprocess, sys
from ipaddress import ip_address
from haxlb.linux import probing_source

def present():
    global reads
    reads += 1
    return probing_source._present()

reads = 0
sources = probing_source.ProbeSources(present)
for step in sys.argv[1:]:
    word, _, rest = step.partition("=")
    if word == "avoid":
        sources.avoid([ip_address(rest)])
    elif word == "run":
        subprocess.run(rest.split(), check=True)
    else:
        print(sources.of(ip_address(rest)), reads)
"""
# Any request passes; each client is said on its standard output.
SERVING = """
import socket
listener = socket.create_server(("::", 80), family=socket.AF_INET6)
print("ready", flush=True)
while True:
    connection, client = listener.accept()
    print(client[0], flush=True)
    connection.recv(4096)
    connection.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    connection.close()
"""


class Site:
    """A director, and a server that says who asks."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.director = lab.host("director", "192.168.78.1/24")
        self.server = lab.host("server", "192.168.78.21/24")
        for host in (self.director, self.server):
            # No address may change by itself: that of the MAC would become usable a second or two later.
            host.sysctl(**{f"net__ipv6__conf__{each}__accept_dad": 0 for each in ("all", "eth0")})
            host.sysctl(**{f"net__ipv6__conf__{each}__disable_ipv6": 0 for each in ("all", "lo", "eth0")})
        address(self.director, "add", f"{DIRECTOR}/64")
        address(self.server, "add", f"{SERVER}/64")
        self._clients = directory / "clients"
        with self._clients.open("w") as said:
            self.server.start(sys.executable, "-c", SERVING, stdout=said)
        self._taken = 0
        assert self.client() == "ready"

    def probe(self, *steps: str) -> list[str]:
        """The reasons of the outcomes."""
        environment = f"PYTHONPATH={Path(__file__).parents[2]}"
        return self.director.run("env", environment, sys.executable, "-P", "-c", PROBES, *steps).stdout.splitlines()

    def sources(self, *steps: str) -> list[str]:
        environment = f"PYTHONPATH={Path(__file__).parents[2]}"
        argv = ("env", environment, sys.executable, "-P", "-c", SOURCES, *steps)
        return self.director.run(*argv).stdout.splitlines()

    def batch(self, lines: Iterable[str]) -> Path:
        """What `ip -batch` does at once."""
        path = self._clients.with_name("batch")
        path.write_text("".join(f"{each}\n" for each in lines))
        return path

    def client(self) -> str:
        """Who has asked, one after the other."""
        said = eventually(lambda: whole_lines(self._clients)[self._taken :], "a client")
        self._taken += 1
        return said[0]


def address(host: Host, verb: str, what: str, *more: str, dev: str = "eth0") -> None:
    host.run("ip", "-6", "address", verb, what, "dev", dev, *more, *(("nodad",) if verb == "add" else ()))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Lab(f"hxsrc{os.getpid()}") as lab:
        yield Site(lab, tmp_path)


def test_a_vip_of_the_servers_network_is_not_the_source_of_its_masters_probes(site: Site) -> None:
    address(site.director, "add", f"{VIP}/64")
    address(site.server, "add", f"{VIP}/128", dev="lo")
    # What is cured: the kernel's own choice, and a server that answers itself.
    assert f"src {VIP}" in site.director.run("ip", "-6", "route", "get", SERVER).stdout
    assert site.probe(f"brief={SERVER}") == ["no connection in 1 s"]
    assert site.probe(f"avoid={VIP}", f"probe={SERVER}", f"probe={SERVER}") == ["HTTP 200", "HTTP 200"]
    assert [site.client(), site.client()] == [DIRECTOR, DIRECTOR]


def test_what_the_check_names_and_what_the_kernel_chooses_rightly_stays(site: Site) -> None:
    address(site.director, "add", f"{VIP}/64")
    assert site.probe(f"avoid={VIP}", f"bound={VIP}") == ["HTTP 200"]
    assert site.client() == VIP
    address(site.director, "del", f"{VIP}/64")
    address(site.director, "add", f"{VIP}/128", "preferred_lft", "0")
    assert site.probe(f"avoid={VIP}", f"probe={SERVER}") == ["HTTP 200"]
    assert site.client() == DIRECTOR


def test_a_host_that_has_but_its_vip_for_that_network_asks_from_there(site: Site) -> None:
    address(site.director, "add", f"{VIP}/64")
    gone = f"run=ip -6 address del {DIRECTOR}/64 dev eth0"
    other = "run=ip -6 address add fd00:78::1/64 dev eth0 nodad"
    came = f"run=ip -6 address add {DIRECTOR}/64 dev eth0 nodad"
    one = f"probe={SERVER}"
    # A source that was there before has gone; one of another network is no way back; the first one returns.
    assert site.probe(f"avoid={VIP}", one, gone, one, other, one, came, one) == ["HTTP 200"] * 4
    assert [site.client() for _ in range(4)] == [DIRECTOR, VIP, VIP, DIRECTOR]


def test_an_address_that_is_none_yet_or_not_for_long_is_no_source(site: Site) -> None:
    address(site.director, "del", f"{DIRECTOR}/64")
    address(site.director, "add", f"{DIRECTOR}/64", "preferred_lft", "0")
    address(site.director, "add", f"{VIP}/64")
    assert site.probe(f"avoid={VIP}", f"probe={SERVER}") == ["HTTP 200"]
    assert site.client() == VIP


def test_addresses_are_read_again_only_when_one_has_changed(site: Site) -> None:
    """A thousand of them take as long as a hundred probes."""
    address(site.director, "del", f"{DIRECTOR}/64")
    address(site.director, "add", f"{VIP}/64")
    targets = [f"source=2001:db8:78::{number}" for number in (21, 22, 23)]
    # The kernel takes what has come last.
    came = [
        f"run=ip -6 address {what} dev eth0"
        for what in (f"add {DIRECTOR}/64 nodad", f"del {VIP}/64", f"add {VIP}/64 nodad")
    ]
    # As many as the kernel has no room to tell of.
    many = [f"fd00:{number:x}::1" for number in range(1200)]
    batch = site.batch(f"address add {each}/128 dev eth0 nodad" for each in many)
    said = site.sources(
        f"avoid={VIP}", *targets, *came, *targets, f"run=ip -6 -batch {batch}", "source=2001:db8:78::24"
    )
    assert said == ["None 1"] * 3 + [f"{DIRECTOR} 2"] * 3 + [f"{DIRECTOR} 3"]


def test_a_server_without_a_way_fails_as_ever(site: Site) -> None:
    assert site.probe(f"avoid={VIP}", "probe=2001:db8:99::1") == ["no route to the network"]


def test_the_checker_tells_its_probes_what_the_vips_are(site: Site, tmp_path: Path) -> None:
    address(site.director, "add", f"{VIP}/64")
    vip, server = IPv6Address(VIP), IPv6Address(SERVER)
    check = Check(kind=CheckKind.HTTP, address=server, port=80, connect_timeout_us=60_000_000)
    config = NodeConfig(
        node="director",
        instances=(
            VrrpInstance(
                name="VI_1",
                interface="eth0",
                vrid=51,
                family=6,
                vips=(Vip(address=vip, prefix_length=64, interface="eth0"),),
            ),
        ),
        virtual_servers=(
            VirtualServer(
                endpoint=Endpoint(address=vip, port=80, protocol=Protocol.TCP),
                real_servers=(RealServer(address=server, port=80, checks=(check,)),),
            ),
        ),
    )
    with CheckerHandle(site.director) as checker:
        # There is no data plane here: what is answered says so, and the checks go on.
        checker.send(ConfigureChecker(config=config, bpf_directory=str(tmp_path / "bpf" / "none"), program=""))
        assert site.client() == DIRECTOR

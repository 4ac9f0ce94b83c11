"""TUN with real connections: client, director and server in namespaces; a small program is the tunnel's other end."""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TypeVar

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.layout import INDEX
from haxlb.forwarding.reference_packet import IPV4, IPV6
from haxlb.linux import bpf, xdp
from haxlb.linux.bpf_call import closing
from haxlb.model.virtual_server import TunnelKind
from tests.bpf.assembly import answer, strip
from tests.bpf.tunnelled import OWN_MAC, PORT, SERVER_MAC, Site, Tunnelled, site, tunnelled

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

T = TypeVar("T")
_CLIENT_MAC, _BACK_MAC = "02:00:00:00:00:cc", "02:00:00:00:00:cd"
_PATIENCE_S = 60.0
_WAYS = (
    site(TunnelKind.IPIP),
    site(TunnelKind.GUE, checksum=True),
    site(TunnelKind.GRE, 4, 6),
    site(TunnelKind.IPIP, 6, 6),
    site(TunnelKind.GUE, 6, 4),
)
_NUMBERS = {TunnelKind.IPIP: {4: 4, 6: 41}, TunnelKind.GUE: {4: 17, 6: 17}, TunnelKind.GRE: {4: 47, 6: 47}}
_IP_MTU_DISCOVER, _IP_PMTUDISC_DONT = 10, 0


class Place:
    """A network namespace."""

    def __init__(self, which: str) -> None:
        self.name = f"hxtun{which}-{os.getpid()}"
        self.path = Path("/run/netns") / self.name

    def ip(self, words: str) -> str:
        return run("ip", "-n", self.name, *words.split())

    def inside(self, work: Callable[[], T]) -> T:
        return xdp.in_namespace(self.path, work)

    def index(self, interface: str) -> int:
        return self.inside(lambda: xdp.interface_index(interface))


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


class Network:
    """Client and director share a wire, director and server another; the server answers by a third one."""

    def __init__(self) -> None:
        self.client, self.director, self.server = Place("c"), Place("d"), Place("s")

    @contextmanager
    def up(self) -> Iterator[Network]:
        places = (self.client, self.director, self.server)
        try:
            for place in places:
                run("ip", "netns", "add", place.name)
                place.inside(_quiet)
                place.ip("link set lo up")
            for here, name, there, other in (
                (self.client, "c0", self.director, "d0"),
                (self.director, "d1", self.server, "s0"),
                (self.client, "c1", self.server, "s1"),
            ):
                here.ip(f"link add {name} type veth peer name {other} netns {there.name}")
            for place, name, mac in (
                (self.client, "c0", _CLIENT_MAC),
                (self.client, "c1", _BACK_MAC),
                (self.director, "d0", OWN_MAC),
                (self.director, "d1", OWN_MAC),
                (self.server, "s0", SERVER_MAC),
                (self.server, "s1", "02:00:00:00:01:02"),
            ):
                place.ip(f"link set {name} address {mac} up")
            # The checksums that a veth leaves to its peer would be left to the director.
            run("ip", "netns", "exec", self.client.name, "ethtool", "-K", "c0", "tx", "off")
            yield self
        finally:
            for place in places:
                subprocess.run(["ip", "netns", "delete", place.name], capture_output=True, check=False)

    def serve(self, at: Site) -> None:
        """The addresses and ways of a site."""
        bits = 32 if at.inner == 4 else 128
        options = "" if at.inner == 4 else " nodad"
        self.client.ip(f"addr add {at.client}/{bits} dev c0{options}")
        self.client.ip(f"route add {at.vip}/{bits} dev c0 src {at.client}")
        self.client.ip(f"neigh add {at.vip} lladdr {OWN_MAC} dev c0 nud permanent")
        self.server.ip(f"addr add {at.vip}/{bits} dev lo{options}")
        self.server.ip(f"route add {at.client}/{bits} dev s1")
        self.server.ip(f"neigh add {at.client} lladdr {_BACK_MAC} dev s1 nud permanent")


def _quiet() -> None:
    """What comes by one interface is answered by another."""
    for which in ("all", "default"):
        Path(f"/proc/sys/net/ipv4/conf/{which}/rp_filter").write_text("0", encoding="ascii")


class Upload(BaseHTTPRequestHandler):
    """Answers with the digest of what it got, and much more."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        said = hashlib.sha256(body).hexdigest().encode() + bytes(300_000)
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


class Web(HTTPServer):
    allow_reuse_address = True


class Web6(Web):
    address_family = socket.AF_INET6


@contextmanager
def _web(network: Network, at: Site) -> Iterator[None]:
    made = network.server.inside(lambda: (Web if at.inner == 4 else Web6)((at.vip, PORT), Upload))
    thread = threading.Thread(target=lambda: made.serve_forever(poll_interval=0.05))
    thread.start()
    try:
        yield
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


@contextmanager
def _echo(network: Network, at: Site) -> Iterator[None]:
    """A server of UDP that says how much it got."""
    family = socket.AF_INET if at.inner == 4 else socket.AF_INET6
    channel = network.server.inside(lambda: socket.socket(family, socket.SOCK_DGRAM))
    channel.bind((at.vip, PORT))

    def work() -> None:
        while True:
            data, client = channel.recvfrom(65535)
            if not data:
                return
            channel.sendto(str(len(data)).encode(), client)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        with network.server.inside(lambda: socket.socket(family, socket.SOCK_DGRAM)) as last:
            last.sendto(b"", (at.vip, PORT))
        thread.join()
        channel.close()


@pytest.fixture(scope="module")
def loaded() -> Iterator[Tunnelled]:
    with tunnelled() as made:
        yield made


@pytest.fixture
def network(loaded: Tunnelled) -> Iterator[Network]:
    loaded.reset()
    with Network().up() as made, ExitStack() as stack:
        at_director = made.director.index("d0")
        loaded.maps.write("interfaces", INDEX.pack(at_director), layout.pack_own_mac(OWN_MAC))
        attach(stack, made.director, "d0", loaded.program)
        # What XDP_TX gives to a veth arrives where the other end has a program, too.
        attach(stack, made.client, "c0", stack.enter_context(closing(bpf.prog_load(answer(bpf.XDP_PASS), name="pass"))))
        yield made


def attach(stack: ExitStack, place: Place, interface: str, program: int) -> None:
    link = place.inside(lambda: bpf.link_create(program, xdp.interface_index(interface), flags=xdp.FLAGS_DRV_MODE))
    stack.callback(os.close, link)


@contextmanager
def _ends_at_server(network: Network, loaded: Tunnelled, at: Site) -> Iterator[None]:
    """The way to the server, and what takes its packets out of their tunnel there."""
    network.serve(at)
    loaded.serve(at, interface=network.director.index("d1"))
    outer = (IPV4, 23) if at.outer == 4 else (IPV6, 20)
    code = strip(at.overhead, (*outer, _NUMBERS[at.kind][at.inner]), IPV4 if at.inner == 4 else IPV6)
    with ExitStack() as stack:
        attach(stack, network.server, "s0", stack.enter_context(closing(bpf.prog_load(code, name="strip"))))
        yield


@pytest.mark.parametrize("at", _WAYS, ids=str)
def test_a_web_request_whose_segments_are_too_long(network: Network, loaded: Tunnelled, at: Site) -> None:
    before = loaded.verdicts()
    body = os.urandom(1_000_000)
    with _ends_at_server(network, loaded, at), _web(network, at):
        client = http.client.HTTPConnection(at.vip, PORT, timeout=_PATIENCE_S)
        network.client.inside(client.connect)
        client.request("POST", "/", body)
        said = client.getresponse().read()
        client.close()
    assert said[:64].decode() == hashlib.sha256(body).hexdigest()
    assert len(said) == 64 + 300_000
    counted = {name: count - before[name] for name, count in loaded.verdicts().items() if count != before[name]}
    assert counted["new_flow"] == 1
    assert counted["forwarded"] > 600
    assert counted["too_big"] >= 1
    assert f"mtu {1500 - at.overhead} " in network.client.ip(f"route get {at.vip}") + " "


def test_a_datagram_that_may_be_fragmented_comes_in_fragments(network: Network, loaded: Tunnelled) -> None:
    at = site(TunnelKind.IPIP)
    with _ends_at_server(network, loaded, at), _echo(network, at):
        channel = network.client.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with channel:
            channel.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DONT)
            channel.settimeout(0.2)
            said, deadline = b"", time.monotonic() + _PATIENCE_S
            # The first one is lost, and its sender told.
            while not said and time.monotonic() < deadline:
                channel.sendto(bytes(1472), (at.vip, PORT))
                try:
                    said = channel.recv(100)
                except TimeoutError:
                    continue
    assert said == b"1472"
    verdicts = loaded.verdicts()
    assert verdicts["too_big"] >= 1
    assert verdicts["later_fragment"] >= 1

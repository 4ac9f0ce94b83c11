"""Services, fragments and ICMP errors for the tests of what belongs to a flow without telling its ports."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
)
from scapy.layers.l2 import Ether

from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import Scheduler
from tests.bpf.hand_filled import CLIENT_MAC, OWN_MAC, PEER_MAC, hop

WEB, DNS, HASHED, ANY, EACH, WEB6, HASHED6 = (
    "10.0.0.1",
    "10.0.0.9",
    "10.0.0.2",
    "10.0.0.3",
    "10.0.0.4",
    "fd00::1",
    "fd00::2",
)
CLIENTS = ("192.0.2.1", "192.0.2.2", "198.51.100.77")
CLIENTS6 = ("2001:db8::1", "2001:db8::2", "2001:db8:0:7::77")
ROUTER = {4: "203.0.113.1", 6: "2001:db8:ffff::1"}
ROUTER_MAC = "02:00:00:00:00:dd"
PEER = hop(PEER_MAC)
LOCAL = NextHop(interface_index=1, source_mac="00:00:00:00:00:00", destination_mac="00:00:00:00:00:00")


def servers(count=3, *, network="10.0.1.0", dead=(), local=()):
    return tuple(
        WantedServer(
            address=ip_address(network) + number,
            port=0,
            weight=1,
            alive=number not in dead,
            next_hop=LOCAL if number in local else hop(f"02:00:00:00:01:{number:02x}"),
        )
        for number in range(1, count + 1)
    )


def service(vip, *ports, protocol=Protocol.TCP, scheduler=Scheduler.RR, those=None, **more):
    endpoints = tuple(Endpoint(address=ip_address(vip), port=port, protocol=protocol) for port in ports)
    network = "10.0.1.0" if endpoints[0].address.version == 4 else "fd01::"
    return WantedService(
        name=f"{vip} {protocol.name} {ports}",
        endpoints=endpoints,
        scheduler=scheduler,
        servers=servers(network=network) if those is None else those,
        **more,
    )


def everything(peer=None, **kind):
    """One service of each sort."""
    made = (
        service(WEB, 80),
        service(DNS, 53, protocol=Protocol.UDP),
        service(HASHED, 53, protocol=Protocol.UDP, scheduler=Scheduler.MH),
        service(HASHED, 80, scheduler=Scheduler.MH, hash_port=True),
        service(ANY, 0, scheduler=Scheduler.RR),
        service(EACH, 53, protocol=Protocol.UDP, one_packet=True),
        service(WEB6, 80),
        service(HASHED6, 53, 54, protocol=Protocol.UDP, scheduler=Scheduler.SH),
    )
    return tuple(replace(each, peer=peer, servers=servers(network=_network(each), **kind)) for each in made)


def _network(wanted):
    return "10.0.1.0" if wanted.endpoints[0].address.version == 4 else "fd01::"


def is6(address):
    return ":" in address


def segment(protocol, sport, dport, flags="S", data=b""):
    if protocol is Protocol.TCP:
        return TCP(sport=sport, dport=dport, flags=flags) / data
    return UDP(sport=sport, dport=dport) / data


def frame(network, *, to=OWN_MAC, by=CLIENT_MAC):
    return bytes(Ether(dst=to, src=by) / network)


def whole(client, vip, port, *, protocol=Protocol.TCP, vport=80, flags="S", data=b"", to=OWN_MAC, by=CLIENT_MAC):
    header = IPv6(src=client, dst=vip) if is6(client) else IP(src=client, dst=vip)
    return frame(header / segment(protocol, port, vport, flags, data), to=to, by=by)


def fragments(
    client, vip, port, *, protocol=Protocol.UDP, vport=53, flags="A", identification=7, size=200, count=3, **link
):
    """Frames of a datagram in pieces of `size` bytes."""
    header = IPv6(src=client, dst=vip) if is6(client) else IP(src=client, dst=vip)
    packet = bytes(header / segment(protocol, port, vport, flags, bytes(size * count - 20)))
    payload = packet[40 if is6(client) else 20 :]
    return [
        frame(
            piece(
                client,
                vip,
                protocol.number,
                payload[at : at + size],
                at=at,
                more=at + size < len(payload),
                identification=identification,
            ),
            **link,
        )
        for at in range(0, len(payload), size)
    ]


def piece(client, vip, protocol, payload, *, at=200, more=False, identification=7):
    if is6(client):
        header = IPv6ExtHdrFragment(nh=protocol, offset=at // 8, m=int(more), id=identification)
        return IPv6(src=client, dst=vip) / header / payload
    return IP(src=client, dst=vip, proto=protocol, id=identification, frag=at // 8, flags="MF" if more else 0) / payload


def quoted(vip, client, vport, port, *, protocol=Protocol.TCP, most=28, options=False, **ip):
    """The beginning of what a server has sent from the VIP to a client."""
    if is6(vip):
        header = IPv6(src=vip, dst=client, **ip)
        header = header / IPv6ExtHdrDestOpt() if options else header
        return bytes(header / segment(protocol, vport, port, "A", bytes(64)))[: most + 20 + 8 * options]
    header = IP(src=vip, dst=client, options=[b"\x01\x01\x01\x01"] if options else [], **ip)
    return bytes(header / segment(protocol, vport, port, "A", bytes(64)))[: most + 4 * options]


def error(inner, vip, *, kind=3, code=4, by=ROUTER_MAC, to=OWN_MAC, **link):
    """What a router says of it."""
    if is6(vip):
        message = ICMPv6PacketTooBig(mtu=1280) if kind == 2 else ICMPv6DestUnreach(type=kind, code=code)
        return frame(IPv6(src=ROUTER[6], dst=vip) / message / inner, to=to, by=by)
    return frame(IP(src=ROUTER[4], dst=vip, **link) / ICMP(type=kind, code=code) / inner, to=to, by=by)


def about(vip, client, port, *, vport=80, protocol=Protocol.TCP, **more):
    """An error about a packet of a flow."""
    kind = {"kind": 2} if is6(vip) else {}
    return error(quoted(vip, client, vport, port, protocol=protocol), vip, **kind, **more)

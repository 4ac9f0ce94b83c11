"""Frames that were valid once: each kind that some part of the program takes, and what chance makes of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService, WantedTable
from haxlb.linux.specimen import LOOPBACK, OWN_MAC
from haxlb.model.addresses import Endpoint, IPAddress, Protocol
from haxlb.model.virtual_server import ForwardingMethod, Scheduler, TunnelKind
from tests.bpf.frames import CLIENT_MAC
from tests.bpf.packets import ACK, DATA, FIN, INIT, NO_OPERATION, RST, SYN, ethernet, ipv4, ipv6, segment
from tests.forwarding.tables import PEER, PEER_MAC, mac

CLIENTS: dict[int, tuple[IPAddress, ...]] = {
    4: (IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")),
    6: (IPv6Address("2001:db8:c::1"), IPv6Address("2001:db8:c::2")),
}
DIRECTOR: dict[int, IPAddress] = {4: IPv4Address("10.9.0.254"), 6: IPv6Address("2001:db8:9::fe")}
VLAN = 7
NAT_SERVICES = 8
"""The last ones of `everything`: half of all frames are theirs, as answers are only to what has been asked."""
_ICMP, _ICMPV6, _FRAGMENT_HEADER = 1, 58, 44
_VALUES = (0x00, 0x01, 0x04, 0x06, 0x11, 0x2B, 0x2C, 0x3A, 0x3C, 0x45, 0x4F, 0x60, 0x7F, 0x80, 0x81, 0x84, 0x88, 0xFF)
_LENGTHS = (0, 1, 8, 19, 20, 28, 39, 40, 41, 1480, 1500, 1501, 0x1FFF, 0x2000, 0x7FFF, 0x8000, 0xFFD7, 0xFFFF)
_TAGS = (b"\x81\x00\x00\x07", b"\x88\xa8\x00\x05\x81\x00\x00\x07", b"\x81\x00\x00\x00", b"\x81\x00\x0f\xff" * 3)


def _server(
    number: int, version: int = 4, method: ForwardingMethod = ForwardingMethod.DR, **more: object
) -> WantedServer:
    network = IPv6Address("2001:db8:9::") if version == 6 else IPv4Address("10.9.0.0")
    hop = NextHop(
        interface_index=LOOPBACK,
        source_mac=OWN_MAC,
        destination_mac=mac(0x100 + number),
        source=DIRECTOR[version],
        vlan=VLAN if number % 5 == 0 else 0,
    )
    made = WantedServer(address=network + number, port=8080, weight=1, alive=True, next_hop=hop, method=method)
    return replace(made, **more)


def _service(vip: str, port: int, protocol: Protocol, scheduler: Scheduler, *servers: WantedServer, **more: object):
    endpoint = Endpoint(address=ip_address(vip), port=port, protocol=protocol)
    made = WantedService(
        name=str(endpoint), endpoints=(endpoint,), scheduler=scheduler, servers=servers, hash_port=True
    )
    return replace(made, **more)


def direct() -> WantedTable:
    """Services by direct routing, which the oracle knows whole."""
    made = []
    for version, network in ((4, "10.200.1."), (6, "2001:db8:1::")):
        dr = [_server(number, version) for number in (1, 2, 5)]
        here = replace(dr[0], next_hop=NextHop(interface_index=LOOPBACK, source_mac=OWN_MAC, destination_mac=OWN_MAC))
        for protocol in Protocol:
            made += [
                _service(f"{network}1", 80, protocol, Scheduler.RR, *dr, peer=PEER),
                _service(f"{network}2", 80, protocol, Scheduler.MH, *dr),
                _service(f"{network}3", 80, protocol, Scheduler.WLC, *dr, persistence_s=60),
                _service(f"{network}4", 0, protocol, Scheduler.WRR, *dr),
                _service(f"{network}5", 80, protocol, Scheduler.RR, here, dr[1], peer=PEER),
                _service(f"{network}6", 80, protocol, Scheduler.LC, replace(dr[0], upper_threshold=2), dr[1]),
            ]
        made.append(_service(f"{network}7", 80, Protocol.UDP, Scheduler.RR, *dr, one_packet=True))
    return WantedTable(services=tuple(made))


def tunnelled() -> WantedTable:
    """The same, and tunnels of each kind."""
    made = list(direct().services)
    for version, vip in ((4, "10.200.1.8"), (6, "2001:db8:1::8")):
        ways: list[tuple[int, dict[str, object]]] = [
            (outer, {"tunnel": kind, "tunnel_port": port, "tunnel_checksum": checksum})
            for outer in (4, 6)
            for kind, port, checksum in (
                (TunnelKind.IPIP, 0, False),
                (TunnelKind.GUE, 6080, version == 4),
                (TunnelKind.GRE, 0, version == 6),
            )
        ]
        servers = [
            _server(number, outer, ForwardingMethod.TUN, **way) for number, (outer, way) in enumerate(ways, start=11)
        ]
        made += [_service(vip, 80, protocol, Scheduler.RR, *servers) for protocol in Protocol]
    return WantedTable(services=tuple(made))


def everything() -> WantedTable:
    """The same, and NAT of both families."""
    made = list(tunnelled().services)
    for version, network in ((4, "10.200.1."), (6, "2001:db8:1::")):
        servers = [_server(number, version, ForwardingMethod.NAT) for number in (21, 22, 25)]
        whole = [replace(each, address=each.address + 10, port=0) for each in servers]
        for protocol in (Protocol.TCP, Protocol.UDP):
            made.append(_service(f"{network}9", 80, protocol, Scheduler.RR, *servers))
            made.append(_service(f"{network}10", 0, protocol, Scheduler.LC, *whole))
    return WantedTable(services=tuple(made))


class Mutations:
    """Frames by chance, the same ones for the same seed."""

    def __init__(self, wanted: WantedTable, seed: int) -> None:
        self._services = wanted.services
        self._chance = random.Random(seed)

    def frames(self, count: int) -> Iterator[bytes]:
        """Half of them spoilt."""
        for _ in range(count):
            frame = self._valid()
            for _ in range(self._chance.choice((0, 0, 0, 1, 1, 2, 5))):
                frame = self._spoilt(frame)
            yield frame if len(frame) >= 14 else frame.ljust(14, b"\0")

    def _valid(self) -> bytes:
        chance = self._chance
        service = chance.choice(self._services if chance.random() < 0.5 else self._services[-NAT_SERVICES:])
        endpoint = service.endpoints[0]
        vip, version = endpoint.address, endpoint.address.version
        server = chance.choice(service.servers)
        # Now and then the service itself, one of its servers, or this host.
        odd = tuple(each for each in (vip, server.address, DIRECTOR[version]) if each.version == version)
        client = chance.choice(CLIENTS[version] * 10 + odd)
        here, there = chance.choice((40000, 40001, 1024)), endpoint.port or chance.choice((443, 8443))
        protocol = endpoint.protocol
        kind = {
            Protocol.TCP: chance.choice((SYN, ACK, ACK, FIN | ACK, RST)),
            Protocol.UDP: 0,
            Protocol.SCTP: chance.choice((INIT, DATA)),
        }[protocol]
        data = bytes(chance.choice((0, 1, 7, 64, 1400, 1432, 1460)))
        sort = chance.choice(("packet",) * 4 + ("answer", "error", "error", "pieces", "pieces", "other"))
        nat = server.method is ForwardingMethod.NAT
        if sort == "answer" and nat:
            payload = segment(protocol, server.port or there, here, kind, data)
            packet = self._packet(server.address, client, protocol.number, payload)
        elif sort == "error":
            of_server = nat and chance.random() < 0.5
            # About what the client sent to the server, or about what the server sent to the client.
            if of_server:
                inner = self._packet(
                    client, server.address, protocol.number, segment(protocol, here, server.port or there, kind, data)
                )
            else:
                inner = self._packet(vip, client, protocol.number, segment(protocol, there, here, kind, data))
            packet = self._error(inner[: chance.choice((28, 48, 68, 548, 1232))], client if of_server else vip, version)
        elif sort == "pieces":
            packet = self._piece(client, vip, protocol, segment(protocol, here, there, kind, bytes(64)))
        elif sort == "other":
            number = chance.choice((_ICMP, _ICMPV6, 47, 50, 51, 112, 255, 0))
            packet = self._packet(client, vip, number, chance.choice((b"\x08\0\0\0", b"\x80\0\0\0", b"")) + data)
        else:
            packet = self._packet(client, vip, protocol.number, segment(protocol, here, there, kind, data))
        return ethernet(
            packet,
            by=chance.choice((CLIENT_MAC, CLIENT_MAC, CLIENT_MAC, PEER_MAC)),
            tags=chance.choice((b"",) * 8 + _TAGS),
            kind=chance.choice((b"",) * 10 + (b"\x88\xb5", b"\x88\xb6")),
        )

    def _packet(self, source: IPAddress, to: IPAddress, number: int, payload: bytes) -> bytes:
        chance, four = self._chance, source.version == 4
        if four:
            packet = ipv4(source, to, number, payload, options=NO_OPERATION * chance.choice((0, 0, 0, 0, 1, 10)))
        else:
            packet = ipv6(
                source, to, number, payload, extensions=chance.choice(((), (), (), (0,), (60, 43), (60,) * 6))
            )
        hops_at = 8 if four else 7
        return packet[:hops_at] + bytes([chance.choice((64,) * 30 + (0, 1))]) + packet[hops_at + 1 :]

    def _error(self, inner: bytes, to: IPAddress, version: int) -> bytes:
        chance = self._chance
        if version == 4:
            kind = struct.pack("!BBHHH", chance.choice((3, 11, 12, 4, 5, 0)), chance.choice((0, 3, 4)), 0, 0, 1280)
            return ipv4(IPv4Address("203.0.113.1"), to, _ICMP, kind + inner)
        kind = struct.pack("!BBHI", chance.choice((1, 2, 3, 4, 128, 135)), 0, 0, 1280)
        return ipv6(IPv6Address("2001:db8:ffff::1"), to, _ICMPV6, kind + inner)

    def _piece(self, source: IPAddress, to: IPAddress, protocol: Protocol, payload: bytes) -> bytes:
        at, more = self._chance.choice((0, 0, 8, 0x1FFF)), self._chance.random() < 0.7
        number = self._chance.randrange(4)
        if source.version == 4:
            made = bytearray(ipv4(source, to, protocol.number, payload))
            made[4:8] = struct.pack("!HH", number, at | (0x2000 if more else 0))
            return bytes(made)
        header = struct.pack("!BBHI", protocol.number, 0, at << 3 | more, number)
        return ipv6(source, to, _FRAGMENT_HEADER, header + payload)

    def _spoilt(self, frame: bytes) -> bytes:
        chance = self._chance
        # Where the headers are: what lies behind them nobody reads.
        at = chance.randrange(12, max(min(len(frame), 120), 13))
        head, tail = frame[:at], frame[at:]
        return chance.choice(
            (
                head.ljust(14, b"\0"),
                head + bytes([chance.randrange(256)]) + tail[1:],
                head + bytes([chance.choice(_VALUES)]) + tail[1:],
                head + bytes([(tail or b"\0")[0] ^ 1 << chance.randrange(8)]) + tail[1:],
                head + struct.pack("!H", chance.choice(_LENGTHS)) + tail[2:],
                head + chance.randbytes(chance.choice((1, 4, 8, 40))) + tail,
                head + tail[chance.choice((1, 4, 8, 20)) :],
                # What a tunnel that is not ours would hold.
                frame[: 14 + 20] + frame[14:],
            )
        )

"""Configurations, frames and pauses that no person thinks of, for Hypothesis."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

from hypothesis import strategies as st

from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService, WantedTable
from haxlb.linux.specimen import LOOPBACK, OWN_MAC, VIP
from haxlb.model.addresses import Endpoint, IPAddress, Protocol
from haxlb.model.virtual_server import Scheduler
from tests.bpf.frames import CLIENT_MAC
from tests.bpf.packets import ACK, DATA, FIN, INIT, NO_OPERATION, PSH, RST, SHUTDOWN, SYN, ethernet, ipv4, ipv6, segment
from tests.forwarding.tables import PEER, PEER_MAC, mac, server, server6

VIP6 = IPv6Address("2001:db8:1::1")
VIRTUAL_MAC = "00:00:5e:00:01:07"
ENDPOINTS = [
    Endpoint(address=address, port=port, protocol=protocol)
    for address in (VIP, VIP6)
    for port in (80, 81, 0)
    for protocol in Protocol
]
CLIENTS: dict[int, list[IPAddress]] = {
    4: [IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv4Address("192.0.3.1"), VIP],
    6: [IPv6Address("2001:db8:2::1"), IPv6Address("2001:db8:2::2"), IPv6Address("2001:db8:2:1::1"), VIP6],
}
KINDS = {Protocol.TCP: [SYN, ACK, PSH | ACK, FIN | ACK, RST, SYN | ACK], Protocol.UDP: [0]}
KINDS[Protocol.SCTP] = [INIT, DATA, DATA, SHUTDOWN, 6, 14]
# Odd fractions: no sum of them falls on a lifetime, where a millisecond would decide.
PAUSES = st.sampled_from([1.37, 2.31, 7.31, 23.17, 70.77, 130.93, 310.37, 1000.71])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Mostly of a flow that may be a service's."""
    endpoint = draw(st.sampled_from(ENDPOINTS))
    version = endpoint.address.version
    source = draw(st.sampled_from(CLIENTS[version][:2] * 4 + CLIENTS[version]))
    port = draw(st.sampled_from([40000, 40000, 40000, 40001, 1024, 0]))
    kind = draw(st.sampled_from(KINDS[endpoint.protocol]))
    data = bytes(draw(st.sampled_from([0, 6, 200])))
    payload = segment(endpoint.protocol, port, endpoint.port or 443, kind, data)
    destination, number = endpoint.address, endpoint.protocol.number
    if version == 4:
        options = NO_OPERATION * draw(st.sampled_from([0, 0, 0, 1, 10]))
        packet = ipv4(source, destination, number, payload, options=options)
    else:
        extensions = draw(st.sampled_from([(), (), (), (0,), (0, 60), (43,) * 6, (60,) * 7]))
        packet = ipv6(source, destination, number, payload, extensions=extensions)
    asks = draw(st.sampled_from([b""] * 8 + [b"\x88\xb5", b"\x88\xb5", b"\x88\xb6"]))
    made = ethernet(
        packet,
        to=draw(st.sampled_from([OWN_MAC] * 14 + [VIRTUAL_MAC, "02:00:00:00:00:ab"])),
        by=draw(st.sampled_from([CLIENT_MAC] * 4 + [PEER_MAC] * 2 + [mac(0x101)])),
        kind=asks,
    )
    spoilt = draw(st.integers(0, 25))
    if spoilt == 0:
        made = made[: draw(st.integers(14, len(made)))]
    elif spoilt == 1:
        at = draw(st.integers(12, min(len(made), 70) - 1))
        made = made[:at] + bytes([draw(st.integers(0, 255))]) + made[at + 1 :]
    return made


@st.composite
def servers(draw: st.DrawFn, *, limited: bool) -> tuple[WantedServer, ...]:
    """Up to four, of either family; `limited`: some take a limited number of flows."""
    make = draw(st.sampled_from([server, server6]))
    found = []
    for number in range(1, draw(st.sampled_from([0, 1, 3, 4, 4])) + 1):
        one = make(
            number,
            weight=draw(st.sampled_from([0, 1, 1, 2, 5])),
            alive=draw(st.sampled_from([True] * 5 + [False])),
            destination_mac=draw(st.sampled_from([mac(0x100 + number)] * 5 + [mac(0x200 + number), OWN_MAC])),
            interface_index=draw(st.sampled_from([LOOPBACK, LOOPBACK, 7])),
        )
        if draw(st.integers(0, 20)) == 0:
            one = replace(one, next_hop=None)
        upper = draw(st.sampled_from([0, 0, 2, 4])) if limited else 0
        found.append(replace(one, upper_threshold=upper, lower_threshold=draw(st.sampled_from([0, 1])) if upper else 0))
    return tuple(found)


@st.composite
def tables(draw: st.DrawFn) -> WantedTable:
    """One to three services, each of one to three endpoints."""
    left = list(draw(st.permutations(ENDPOINTS)))
    services = []
    for number in range(draw(st.integers(1, 3))):
        endpoints = tuple(left.pop() for _ in range(draw(st.sampled_from([1, 1, 2, 3]))))
        udp = all(endpoint.protocol is Protocol.UDP for endpoint in endpoints)
        services.append(
            WantedService(
                name=f"service {number + draw(st.sampled_from([0, 0, 0, 10]))}",
                endpoints=endpoints,
                scheduler=draw(st.sampled_from(Scheduler)),
                servers=draw(servers(limited=draw(st.sampled_from([False, False, False, True])))),
                hash_port=draw(st.booleans()),
                peer=draw(st.sampled_from([None, PEER])),
                persistence_s=draw(st.sampled_from([0, 0, 0, 60])),
                persistence_mask=draw(st.sampled_from([32, 24])),
                persistence_prefix=draw(st.sampled_from([128, 64, 48])),
                one_packet=udp and draw(st.booleans()),
            )
        )
    return WantedTable(services=tuple(services))


@st.composite
def changes(draw: st.DrawFn) -> tuple[float, ...]:
    """What becomes of the servers of the services there are: a number for each of some."""
    return tuple(draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=4, max_size=12)))


def changed(table: WantedTable, change: tuple[float, ...]) -> WantedTable:
    """The same services, some servers of which died, came back, or changed their weight or MAC."""
    chance = iter(change * 20)

    def other(one: WantedServer) -> WantedServer:
        which = next(chance)
        if which < 0.5 or one.next_hop is None:
            return one
        if which < 0.7:
            return replace(one, alive=not one.alive)
        if which < 0.9:
            return replace(one, weight=(one.weight + 1) % 3)
        hop: NextHop = replace(one.next_hop, destination_mac=mac(0x300 + int(which * 1000)))
        return replace(one, next_hop=hop)

    return WantedTable(
        services=tuple(
            replace(service, servers=tuple(other(each) for each in service.servers)) for service in table.services
        )
    )

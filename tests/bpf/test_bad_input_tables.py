"""More than the tables hold: one line with a remedy, and what was forwarded before still is."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from haxlb.forwarding.reference import Action
from haxlb.forwarding.wanted import WantedService, WantedTable
from haxlb.linux.specimen import VIP
from haxlb.model.addresses import Endpoint, IPAddress, Protocol
from haxlb.model.errors import HostError
from haxlb.model.virtual_server import Scheduler
from tests.bpf.frames import tcp
from tests.bpf.packets import ethernet, ipv4
from tests.bpf.plane import Plane
from tests.forwarding.tables import server, service, table

pytestmark = pytest.mark.bpf

FIRST = table(server(1), server(2))


def endpoint(number: int, network: IPAddress = VIP) -> Endpoint:
    return Endpoint(address=network + 1 + number, port=80, protocol=Protocol.TCP)


def services(count: int, servers: int = 1, **options: object) -> tuple[WantedService, ...]:
    return tuple(
        service(*(server(each) for each in range(1, servers + 1)), endpoint=endpoint(number), **options)
        for number in range(count)
    )


def endpoints(count: int, network: IPAddress = VIP) -> WantedService:
    return service(server(1), name="all", endpoints=tuple(endpoint(each, network) for each in range(count)))


TOO_MUCH = {
    "services": (services(65), "virtual servers"),
    "endpoints": ((endpoints(300),), "addresses and ports"),
    "endpoints6": ((endpoints(600, IPv6Address("2001:db8:1::")),), "addresses and ports"),
    "backends": (services(30, 150), "real servers"),
    "rings": (services(40, 60, scheduler=Scheduler.MH), "slots"),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_table_that_does_not_hold_it(plane: Plane, what: str) -> None:
    more, said = TOO_MUCH[what]
    plane.apply(FIRST)
    known = plane.server(tcp("S"))
    assert known.startswith("02:")
    for _ in range(2):
        with pytest.raises(HostError, match=said) as caught:
            plane.forwarder.apply(WantedTable(services=(*FIRST.services, *more)))
        assert "\n" not in str(caught.value)
        assert "haxlb detach" in caught.value.remedy
        assert plane.server(tcp("A")) == known
        assert plane.server(tcp("S", port=40001)).startswith("02:"), "new ones, too"
    # Without what was too much it is as before, and nothing has leaked: what fits, fits after any number of refusals.
    plane.apply(WantedTable(services=(*FIRST.services, *services(40, 60))))
    plane.apply(FIRST)
    assert plane.server(tcp("A")) == known


@pytest.mark.usefixtures("one_cpu")
def test_more_first_fragments_than_are_remembered(plane: Plane) -> None:
    """The latest are; of the oldest, later fragments are nobody's, and nothing else suffers."""
    plane.apply(FIRST)
    known = plane.send(tcp("S")).frame[:6]
    most = plane.maps.shape("fragments").entries
    payload = tcp()[34:] + bytes(20)

    def piece(number: int, at: int) -> bytes:
        packet = bytearray(ipv4(IPv4Address("192.0.2.9") + (number >> 16), VIP, Protocol.TCP.number, payload))
        packet[4:8] = (number & 0xFFFF).to_bytes(2, "big") + (at | (0 if at else 0x2000)).to_bytes(2, "big")
        return ethernet(bytes(packet))

    for number in range(2 * most):
        assert plane.send(piece(number, 0)).action is Action.SEND
    assert plane.send(piece(2 * most - 1, 5)).reason == "later_fragment"
    assert plane.send(piece(0, 5)).reason == "fragment"
    assert plane.send(tcp("A")).frame[:6] == known

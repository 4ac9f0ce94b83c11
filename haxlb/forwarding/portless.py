"""Where packets go that do not tell their ports: later fragments whose first one is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from haxlb.forwarding.wanted import WantedService
from haxlb.model.addresses import Endpoint, IPAddress, Protocol


def portless_endpoints(services: Iterable[WantedService]) -> Mapping[Endpoint, WantedService]:
    """Endpoints of port 0 that stand for all of an address and protocol, with the one service that has them all.

    A later fragment that comes before its first one finds its server by the ring alone, where that says it all and does
    not ask for the port. Where the endpoints of the address go to several services, or to one that keeps records, there
    is no telling, and no such endpoint.
    """
    owners: dict[tuple[IPAddress, Protocol], list[WantedService]] = {}
    for service in services:
        for endpoint in service.endpoints:
            owners.setdefault((endpoint.address, endpoint.protocol), []).append(service)
    return {
        Endpoint(address=address, port=0, protocol=protocol): those[0]
        for (address, protocol), those in owners.items()
        if all(each is those[0] for each in those) and those[0].stateless and not those[0].hash_port
    }

"""By hand: what packets are told of addresses that have endpoints for all ports."""

from __future__ import annotations

from haxlb.forwarding.hashing import any_port_bit
from haxlb.forwarding.layout import INDEX
from haxlb.linux.maps import Maps
from haxlb.model.addresses import Endpoint


def admit(maps: Maps, endpoint: Endpoint) -> None:
    """To be called before the endpoint is written."""
    if endpoint.port:
        return
    at, bit = divmod(any_port_bit(endpoint.address), 8)
    bits = bytearray(maps.array("any_port_bits")[0])
    bits[at] |= 1 << bit
    maps.write("any_port_bits", INDEX.pack(0), bytes(bits))

"""`haxlb show -c --service`: a virtual server under each name that the other commands take."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from haxlb.cli.show_connections import asked_for
from haxlb.forwarding.connection_filter import Asked, Unknown
from haxlb.forwarding.connections import BackendName, Book, FrontendName
from haxlb.forwarding.records import identity_of
from haxlb.model.addresses import IPAddress, Protocol

FIRST = IPv4Address("10.0.0.1")


def named(address: IPAddress, port: int, protocol: Protocol, service: int) -> FrontendName:
    return FrontendName(address=address, port=port, protocol=protocol, service=service)


BOOK = Book(
    frontends={
        1: named(FIRST, 80, Protocol.TCP, 1),
        2: named(FIRST, 53, Protocol.UDP, 2),
        3: named(FIRST, 53, Protocol.TCP, 3),
        4: named(IPv6Address("2001:db8::1"), 80, Protocol.TCP, 4),
    },
    backends={10: BackendName(address=IPv4Address("192.168.1.11"), port=80, incarnation=0)},
    persistence_s={},
    lifetimes_s=(0,),
    now=0,
    ticks_per_second=250,
)
IDENTITIES = {
    1: identity_of("group web tcp"),
    2: identity_of("group dns udp"),
    3: identity_of("group dns tcp"),
    4: identity_of("fwmark 5 inet6 tcp"),
}


@pytest.mark.parametrize(
    ("name", "services", "frontends"),
    [
        ("web", {1}, None),
        ("group  web", {1}, None),
        ("group web tcp", {1}, None),
        ("dns", {2, 3}, None),
        ("fwmark 5 inet6", {4}, None),
        ("FWM 5 inet6", {4}, None),
        ("10.0.0.1:80", None, {1}),
        ("[10.0.0.1]:udp:53", None, {2}),
        ("[2001:db8::1]:tcp:80", None, {4}),
    ],
)
def test_every_name_finds_it(name, services, frontends):
    found = asked_for(Asked(service=name, server="192.168.1.11"), BOOK, IDENTITIES)
    assert (found.services, found.frontends, found.servers) == (services, frontends, {10})


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (Asked(service="shop"), "shop"),
        (Asked(service="[10.0.0.1]:udp:80"), "[10.0.0.1]:udp:80"),
        (Asked(service="web", server="192.168.1.99"), "192.168.1.99"),
        (Asked(service="web", states=("CLOSED",)), "CLOSED"),
    ],
)
def test_what_is_not_there_is_named(asked, word):
    with pytest.raises(Unknown) as raised:
        asked_for(asked, BOOK, IDENTITIES)
    assert raised.value.word == word

"""Lines of connections: the words of ipvsadm, seconds that are left, and what is not listed."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_network
from socket import AF_INET6, inet_ntop

import pytest
from hypothesis import given
from hypothesis import strategies as some

from haxlb.forwarding.connection_filter import Asked, Unknown, stateless, wanted
from haxlb.forwarding.connections import BackendName, Book, Form, FrontendName, Listing, Wanted, header
from haxlb.forwarding.flows import FlowEntry, FlowState, unpack_flows, unpack_wide_flows
from haxlb.forwarding.records import FrontendFlag, identity_of
from haxlb.model.addresses import IPAddress, Protocol

TICKS = 250
NOW = 1000
"""jiffies: the stamps of a second ago lie before the wrap."""
VIP6 = IPv6Address("2001:db8::1")
BOOK = Book(
    frontends={
        1: FrontendName(address=IPv4Address("10.0.0.1"), port=80, protocol=Protocol.TCP, service=1),
        2: FrontendName(address=IPv4Address("10.0.0.1"), port=53, protocol=Protocol.UDP, service=2),
        3: FrontendName(address=IPv4Address("10.0.0.1"), port=80, protocol=Protocol.SCTP, service=3),
        4: FrontendName(address=VIP6, port=80, protocol=Protocol.TCP, service=1),
        5: FrontendName(
            address=IPv4Address("10.0.0.9"), port=0, protocol=Protocol.TCP, service=4, flags=FrontendFlag.ANY_PORT
        ),
        6: FrontendName(
            address=IPv4Address("10.0.0.7"), port=80, protocol=Protocol.TCP, service=5, flags=FrontendFlag.STATELESS
        ),
    },
    backends={
        10: BackendName(address=IPv4Address("192.168.1.11"), port=8080, incarnation=3),
        11: BackendName(address=IPv6Address("2001:db8::11"), port=80, incarnation=0),
        12: BackendName(address=IPv4Address("192.168.1.12"), port=0, incarnation=0),
    },
    persistence_s={1: 50, 4: 360},
    lifetimes_s=(0, 1, 60, 900, 120, 300, 300, 0),
    now=NOW,
    ticks_per_second=TICKS,
)
IDENTITIES = {1: identity_of("group web tcp"), 2: identity_of("[10.0.0.1]:udp:53")}


def way(
    state: FlowState,
    *,
    source: str = "198.51.100.7",
    port: int = 40000,
    frontend: int = 1,
    backend: int = 10,
    incarnation: int = 3,
    age: float = 1,
) -> bytes:
    stamp = (NOW - round(age * TICKS)) & 0xFFFFFFFF
    return (
        IPv4Address(source).packed
        + struct.pack(">H", port)
        + struct.pack("=HHBBI", frontend, backend, incarnation, state, stamp)
    )


def wide_way(
    state: FlowState, source: IPAddress, *, frontend: int, backend: int, target: int = 0, port: int = 40000
) -> bytes:
    head = b"\1\0" + struct.pack(">HH", target, port)
    return head + struct.pack("=HHBBI", frontend, backend, 0, state, NOW - TICKS) + source.packed.rjust(16, b"\0")


def listing(form: Form = Form.TABLE, chosen: Wanted | None = None, book: Book = BOOK) -> Listing:
    return Listing(book, chosen or Wanted(), form, lambda raw: inet_ntop(AF_INET6, raw))


STATES = {
    Protocol.TCP: {2: "SYN_RECV", 3: "ESTABLISHED", 4: "FIN_WAIT"},
    Protocol.SCTP: {2: "INIT1", 3: "ESTABLISHED", 4: "SHUTDOWN_SENT"},
    Protocol.UDP: {2: "SYN_RECV", 3: "ESTABLISHED", 4: "FIN_WAIT"},
}


def written(address: IPAddress, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def plainly(entries: Iterable[FlowEntry], form: Form, chosen: Wanted, book: Book) -> list[str]:
    """What a listing says, a flow at a time, without anything that makes it fast."""
    lines = []
    for entry in entries:
        template = entry.state.of_client
        of_service = (each for each in book.frontends.values() if each.service == entry.frontend)
        frontend = next(of_service, None) if template else book.frontends.get(entry.frontend)
        server = book.backends.get(entry.backend)
        if frontend is None or server is None or server.incarnation != entry.incarnation:
            continue
        udp = entry.state in (FlowState.UDP, FlowState.UDP_NEW) and frontend.protocol is not Protocol.SCTP
        state = "UDP" if udp else STATES[frontend.protocol].get(entry.state, "NONE")
        lifetime_s = book.persistence_s.get(frontend.service, 0) if template else book.lifetimes_s[entry.state]
        age = (book.now - entry.stamp) % 2**32
        left = lifetime_s * book.ticks_per_second - (age if age < 2**31 else 0)
        client = chosen.client
        if (
            left <= 0
            or (chosen.services is not None and frontend.service not in chosen.services)
            or (chosen.frontends is not None and entry.frontend not in chosen.frontends)
            or (chosen.servers is not None and entry.backend not in chosen.servers)
            or (chosen.states and state not in chosen.states)
            or (client is not None and (client.version != entry.source.version or entry.source not in client))
        ):
            continue
        left_s = -(-left // book.ticks_per_second)
        port = frontend.port or entry.destination_port
        columns = (
            written(entry.source, entry.source_port),
            written(frontend.address, port),
            written(server.address, server.port or port),
        )
        protocol = frontend.protocol.value
        if form is Form.TABLE:
            time = f"{left_s // 60:02}:{left_s % 60:02}"
            lines.append("{:<3} {}  {:<11} {:<18} {:<18} {}".format(protocol, time, state, *columns))
        else:
            names = ("source", "virtual", "destination")
            said = {"protocol": protocol, "expires_s": left_s, "state": state, **dict(zip(names, columns, strict=True))}
            lines.append(json.dumps(said, separators=(",", ":")))
    return lines


FIELDS = some.tuples(
    some.sampled_from([*range(1, 7), 9]),
    some.sampled_from([*BOOK.backends, 13]),
    some.sampled_from([0, 0, 3]),
    some.sampled_from(FlowState),
    some.one_of(
        some.sampled_from([round(each * TICKS) + by for each in BOOK.lifetimes_s for by in (-1, 0, 1)]),
        some.integers(-TICKS, 1000 * TICKS),
    ).map(lambda age: (NOW - age) & 0xFFFFFFFF),
).map(lambda fields: struct.pack("=HHBBI", *fields))
PORT = some.sampled_from([0, 1, 80, 255, 256, 65535]).map(lambda port: struct.pack(">H", port))
NARROW = some.sampled_from(["198.51.100.7", "198.51.100.8", "198.51.101.255", "1.2.3.4", "255.255.255.255"]).map(
    lambda text: IPv4Address(text).packed
)
SIX = some.sampled_from(["2001:db8::77", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "1::"]).map(
    lambda text: IPv6Address(text).packed
)
EMPTY = some.just(b"")
WAYS = some.lists(some.tuples(NARROW, PORT, FIELDS).map(b"".join) | EMPTY.map(lambda _: bytes(16)), max_size=24)
WIDE_WAYS = some.lists(
    some.tuples(some.just(b"\1\0"), PORT, PORT, FIELDS, SIX | NARROW.map(lambda raw: raw.rjust(16, b"\0"))).map(
        b"".join
    )
    | EMPTY.map(lambda _: bytes(32)),
    max_size=24,
)
CHOSEN = some.builds(
    Wanted,
    services=some.none() | some.just(frozenset({1, 4})),
    frontends=some.none() | some.just(frozenset({1, 2, 5})),
    servers=some.none() | some.just(frozenset({10, 12})),
    client=some.none()
    | some.sampled_from(
        ["198.51.100.7", "198.51.100.0/24", "198.51.100.0/23", "0.0.0.0/0", "::/0", "2001:db8::77", "2001:db8::/33"]
    ).map(ip_network),
    states=some.just(frozenset()) | some.just(frozenset({"ESTABLISHED", "UDP", "NONE"})),
)


@given(ways=WAYS, wide=WIDE_WAYS, form=some.sampled_from(Form), chosen=CHOSEN)
def test_all_is_written_as_if_it_were_a_flow_at_a_time(
    ways: list[bytes], wide: list[bytes], form: Form, chosen: Wanted
) -> None:
    made = listing(form, chosen)
    raw, wide_raw = b"".join(ways), b"".join(wide)
    assert made.lines(raw) == plainly(unpack_flows(raw), form, chosen, BOOK)
    assert made.wide_lines(wide_raw) == plainly(unpack_wide_flows(wide_raw), form, chosen, BOOK)


def test_a_state_that_nobody_knows_is_left_out() -> None:
    unknown = bytearray(way(FlowState.UDP))
    unknown[11] = max(FlowState) + 1
    assert listing().lines(bytes(unknown)) == []


@pytest.mark.parametrize(
    ("frontend", "state", "said"),
    [
        (1, FlowState.TCP_NEW, "TCP 00:59  SYN_RECV    198.51.100.7:40000 10.0.0.1:80        192.168.1.11:8080"),
        (
            1,
            FlowState.TCP_ESTABLISHED,
            "TCP 14:59  ESTABLISHED 198.51.100.7:40000 10.0.0.1:80        192.168.1.11:8080",
        ),
        (1, FlowState.TCP_CLOSING, "TCP 01:59  FIN_WAIT    198.51.100.7:40000 10.0.0.1:80        192.168.1.11:8080"),
        (1, FlowState.TEMPLATE, "TCP 00:49  NONE        198.51.100.7:40000 10.0.0.1:80        192.168.1.11:8080"),
        (2, FlowState.UDP_NEW, "UDP 04:59  UDP         198.51.100.7:40000 10.0.0.1:53        192.168.1.11:8080"),
        (2, FlowState.UDP, "UDP 04:59  UDP         198.51.100.7:40000 10.0.0.1:53        192.168.1.11:8080"),
        (3, FlowState.TCP_NEW, "SCTP 00:59  INIT1       198.51.100.7:40000 10.0.0.1:80        192.168.1.11:8080"),
        (3, FlowState.TCP_CLOSING, "SCTP 01:59  SHUTDOWN_SENT 198.51.100.7:40000 10.0.0.1:80        192.168.1.11:8080"),
    ],
)
def test_a_line_is_that_of_ipvsadm(frontend: int, state: FlowState, said: str) -> None:
    assert listing().lines(way(state, frontend=frontend)) == [said]


def test_the_columns_stand_below_their_names() -> None:
    (line,) = listing().lines(way(FlowState.TCP_ESTABLISHED))
    _, names = header()
    for name, content in (
        ("expire", "14:59"),
        ("state", "EST"),
        ("source", "198"),
        ("virtual", "10.0"),
        ("dest", "192"),
    ):
        assert line.index(content) == names.index(name)


def test_what_is_empty_claimed_or_over_is_not_listed() -> None:
    raw = (
        bytes(16)
        + way(FlowState.CLAIMED)
        + way(FlowState.TCP_NEW, age=60)
        + way(FlowState.TCP_NEW, age=59.99, port=1)
        + way(FlowState.EMPTY)
        + way(FlowState.TCP_NEW, age=-0.1, port=2)
    )
    lines = listing().lines(raw)
    assert [line.split()[1:4:2] for line in lines] == [["00:01", "198.51.100.7:1"], ["01:00", "198.51.100.7:2"]]


@pytest.mark.parametrize("changed", [{"frontend": 9}, {"backend": 9}, {"incarnation": 2}])
def test_a_flow_of_what_is_gone_is_not_listed(changed: dict[str, int]) -> None:
    assert listing().lines(way(FlowState.TCP_ESTABLISHED, **changed)) == []  # type: ignore[arg-type]


def test_a_long_time_has_more_than_two_digits_of_minutes() -> None:
    book = replace(BOOK, persistence_s={1: 86_401})
    (line,) = listing(book=book).lines(way(FlowState.TEMPLATE))
    assert line.startswith("TCP 1440:00  NONE")


def test_ipv6_and_all_ports() -> None:
    raw = (
        wide_way(FlowState.TCP_ESTABLISHED, IPv6Address("2001:db8::77"), frontend=4, backend=11)
        + wide_way(FlowState.TCP_ESTABLISHED, IPv4Address("198.51.100.7"), frontend=5, backend=12, target=2222)
        + wide_way(FlowState.TEMPLATE, IPv4Address("198.51.100.7"), frontend=4, backend=12, port=0)
        + bytes(32)
    )
    assert [line.split() for line in listing().wide_lines(raw)] == [
        ["TCP", "14:59", "ESTABLISHED", "[2001:db8::77]:40000", "[2001:db8::1]:80", "[2001:db8::11]:80"],
        ["TCP", "14:59", "ESTABLISHED", "198.51.100.7:40000", "10.0.0.9:2222", "192.168.1.12:2222"],
        ["TCP", "05:59", "NONE", "198.51.100.7:0", "10.0.0.9:0", "192.168.1.12:0"],
    ]


def test_json_says_the_same_in_seconds() -> None:
    made = listing(Form.JSON)
    raw = wide_way(FlowState.TCP_ESTABLISHED, IPv6Address("2001:db8::77"), frontend=4, backend=11)
    assert json.loads(made.wide_lines(raw)[0])["source"] == "[2001:db8::77]:40000"
    (line,) = made.lines(way(FlowState.TCP_ESTABLISHED))
    assert json.loads(line) == {
        "protocol": "TCP",
        "expires_s": 899,
        "state": "ESTABLISHED",
        "source": "198.51.100.7:40000",
        "virtual": "10.0.0.1:80",
        "destination": "192.168.1.11:8080",
    }


@pytest.mark.parametrize(
    ("asked", "ports"),
    [
        (Asked(), [1, 2, 3, 4]),
        (Asked(service="group web tcp"), [1, 4]),
        (Asked(service="group  web  tcp"), [1, 4]),
        (Asked(service="10.0.0.1:53"), [2]),
        (Asked(service="UDP 10.0.0.1:53"), [2]),
        (Asked(service="10.0.0.1:80"), [1, 3, 4]),
        (Asked(service="sctp 10.0.0.1:80"), [3]),
        (Asked(service="10.0.0.1"), [1, 2, 3, 4]),
        (Asked(server="192.168.1.12"), [4]),
        (Asked(server="192.168.1.11:8080"), [1, 2, 3]),
        (Asked(client="198.51.100.0/29"), [1, 2, 3]),
        (Asked(client="203.0.113.9"), [4]),
        (Asked(client="2001:db8::/32"), []),
        (Asked(states=("fin_wait", "UDP")), [2, 4]),
        (Asked(states=("INIT1",)), [3]),
        (Asked(service="10.0.0.1:80", states=("ESTABLISHED",)), [1]),
    ],
)
def test_only_those_that_were_asked_for(asked: Asked, ports: list[int]) -> None:
    raw = (
        way(FlowState.TCP_ESTABLISHED, port=1)
        + way(FlowState.UDP, port=2, frontend=2)
        + way(FlowState.TCP_NEW, port=3, frontend=3)
        + way(FlowState.TCP_CLOSING, port=4, source="203.0.113.9", backend=12, incarnation=0)
    )
    lines = listing(Form.JSON, wanted(asked, BOOK, IDENTITIES)).lines(raw)
    assert [int(json.loads(line)["source"].rpartition(":")[2]) for line in lines] == ports


@pytest.mark.parametrize(
    ("client", "found"),
    [
        ("2001:db8::/64", 1),
        ("2001:db8:1::/64", 0),
        ("198.51.100.7", 1),
        ("198.51.100.8", 0),
        ("::/0", 1),
        ("0.0.0.0/0", 1),
    ],
)
def test_clients_of_either_family_in_the_wide_tables(client: str, found: int) -> None:
    raw = wide_way(FlowState.UDP, IPv6Address("2001:db8::77"), frontend=4, backend=11) + wide_way(
        FlowState.UDP, IPv4Address("198.51.100.7"), frontend=5, backend=12, target=9
    )
    chosen = Wanted(client=ip_network(client))
    assert len(listing(chosen=chosen).wide_lines(raw)) == found


@pytest.mark.parametrize(
    ("asked", "words", "known"),
    [
        (Asked(service="10.0.0.1:81"), "no virtual server is called 10.0.0.1:81", "10.0.0.1:80"),
        (Asked(service="x"), "no virtual server is called x", "[2001:db8::1]:80"),
        (Asked(service="udp 10.0.0.1:80"), "no virtual server", "UDP 10.0.0.1:53"),
        (Asked(server="192.168.1.11:80"), "no real server is called 192.168.1.11:80", "192.168.1.11:8080"),
        (Asked(states=("CLOSED",)), "no connection is in a state CLOSED", "FIN_WAIT"),
    ],
)
def test_what_is_called_so_is_not_there(asked: Asked, words: str, known: str) -> None:
    with pytest.raises(Unknown, match=words.replace(".", r"\.")) as caught:
        wanted(asked, BOOK, IDENTITIES)
    assert known in caught.value.known


@pytest.mark.parametrize("client", ["300.1.1.1", "10.0.0.0/33", "web"])
def test_a_client_that_is_no_address(client: str) -> None:
    with pytest.raises(ValueError, match=client):
        wanted(Asked(client=client), BOOK, IDENTITIES)


def test_stateless_services_are_named_where_they_were_asked_for() -> None:
    assert stateless(BOOK, Wanted()) == ("TCP 10.0.0.7:80",)
    assert stateless(BOOK, wanted(Asked(service="10.0.0.7:80"), BOOK, IDENTITIES)) == ("TCP 10.0.0.7:80",)
    assert stateless(BOOK, wanted(Asked(service="10.0.0.1:80"), BOOK, IDENTITIES)) == ()
    assert stateless(BOOK, wanted(Asked(service="group web tcp"), BOOK, IDENTITIES)) == ()

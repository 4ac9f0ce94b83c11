"""What two directors ask each other (ADR 3)."""

from __future__ import annotations

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Ether

from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.specimen import OWN_MAC, VIP
from haxlb.model.virtual_server import Scheduler
from tests.bpf.frames import CLIENT, CLIENT_MAC, in_doubt, tcp, udp
from tests.bpf.plane import Plane
from tests.forwarding.tables import DNS, PEER, PEER_MAC, server, service, table

pytestmark = pytest.mark.bpf


@pytest.mark.parametrize("scheduler", Scheduler)
def test_the_peer_is_asked_for_unknown_connections_that_are_kept_on_record(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(*map(server, range(1, 4)), scheduler=scheduler, peer=PEER))
    asks = not scheduler.hashes
    for flags in ("A", "PA", "FA", "R", "SA"):
        answer = plane.expect(tcp(flags, port=2000 + sum(map(ord, flags))))
        assert (answer.reason, answer.frame[:6].hex(":") == PEER_MAC) == (
            ("asked_peer", True) if asks else ("hashed", False)
        )
    assert plane.expect(tcp("S")).reason == ("new_flow" if asks else "hashed")
    plane.expect_flows()


def test_what_the_peer_asks_is_answered_here(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    answer = plane.expect(tcp("A", by=PEER_MAC))
    assert answer.reason == "unknown_flow"
    assert plane.expect(tcp("A", by=PEER_MAC)).frame == answer.frame
    # And also when clients reach us directly from then on.
    assert plane.expect(tcp("A")).frame == answer.frame
    plane.expect_flows()


def test_two_directors_send_an_unknown_connection_to_the_same_server(plane: Plane) -> None:
    """What neither knows has a hash: it does not depend on what each of them did before."""
    plane.apply(table(*map(server, range(1, 8)), peer=PEER))
    for port in range(1, 20):
        plane.expect(tcp(port=port))
    first = [plane.expect(tcp("A", port=port, by=PEER_MAC)).frame[:6] for port in range(5000, 5040)]
    plane.reset()
    plane.apply(table(*map(server, reversed(range(1, 8))), peer=PEER))
    assert [plane.expect(tcp("A", port=port, by=PEER_MAC)).frame[:6] for port in range(5000, 5040)] == first


def close(plane: Plane) -> bytes:
    """A connection that its client closes; the frame as it then reaches its server."""
    plane.expect(tcp())
    plane.expect(tcp("A"))
    assert plane.expect(tcp("FA")).reason == "forwarded"
    answer = plane.expect(tcp("A"))
    assert answer.reason == "forwarded"
    return answer.frame


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.WRR])
@pytest.mark.parametrize("idle_s", [2.1, 60.0, 119.0, 7200.0])
@pytest.mark.parametrize("flags", ["A", "PA", "FA", "R"])
def test_the_peer_is_asked_whether_it_placed_another_connection_on_the_ports_of_a_closed_one(
    plane: Plane, scheduler: Scheduler, idle_s: float, flags: str
) -> None:
    plane.apply(table(*map(server, range(1, 4)), scheduler=scheduler, peer=PEER))
    close(plane)
    plane.age(idle_s)
    before = plane.flows()
    frame = tcp(flags, data=b"x" * 100)
    for _ in range(3):
        answer = plane.expect(frame)
        assert answer.reason == "asked_peer"
        assert answer.frame == in_doubt(plane.peers(frame))
    assert plane.flows() == before
    plane.expect_flows()


def test_a_late_packet_that_comes_back_from_the_peer_reaches_the_server_of_the_closed_connection(plane: Plane) -> None:
    """It waits for the answer with its side closed: after a pause of the server its ACKs are late, but no others'."""
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    reached = close(plane)
    plane.age(30)
    assert plane.expect(tcp("A")).reason == "asked_peer"
    answer = plane.expect(tcp("A", by=PEER_MAC))
    assert (answer.reason, answer.frame) == ("forwarded", reached)
    # Heard of again: for the next two seconds nobody is asked.
    for pause in (0.0, 1.5, 1.9):
        plane.age(pause)
        assert plane.expect(tcp("A")).frame == reached
    plane.expect_flows()


def test_a_closed_connection_without_a_peer_keeps_its_late_packets(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4))))
    reached = close(plane)
    for pause in (30, 130):
        plane.age(pause)
        answer = plane.expect(tcp("A"))
        assert (answer.reason, answer.frame) == ("forwarded", reached)
    plane.expect_flows()


def test_a_connection_that_has_just_been_closed_asks_nobody(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    reached = close(plane)
    for flags in ("FA", "A", "R"):
        plane.age(1.9)
        answer = plane.expect(tcp(flags))
        assert (answer.reason, answer.frame) == ("forwarded", reached[:12] + tcp(flags)[12:])


@pytest.mark.parametrize("idle_s", [2.1, 61.0, 901.0])
@pytest.mark.parametrize("seen", [("S",), ("S", "A")], ids=["half-open", "established"])
def test_a_connection_that_is_not_closing_asks_nobody(plane: Plane, seen: tuple[str, ...], idle_s: float) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    for flags in seen:
        plane.expect(tcp(flags))
    plane.age(idle_s)
    assert plane.expect(tcp("FA")).reason == "forwarded"


def test_a_syn_on_a_closed_connection_is_not_for_the_peer(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    reached = close(plane)
    plane.age(30)
    answer = plane.expect(tcp())
    assert (answer.reason, answer.frame[:6] == reached[:6]) == ("new_flow", False)
    assert plane.expect(tcp("A")).frame[:6] == answer.frame[:6]


@pytest.mark.parametrize("idle_s", [0.0, 30.0, 1000.0])
@pytest.mark.parametrize("closed", [True, False])
def test_what_the_peer_doubts_and_we_know_is_forwarded(plane: Plane, idle_s: float, *, closed: bool) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    first = plane.expect(tcp())
    plane.expect(tcp("FA" if closed else "A"))
    plane.age(idle_s)
    answer = plane.expect(in_doubt(tcp("PA", by=PEER_MAC, data=b"x" * 500)))
    assert (answer.reason, answer.frame) == ("forwarded", first.frame[:12] + tcp("PA", data=b"x" * 500)[12:])
    plane.expect_flows()


def test_what_the_peer_doubts_and_we_do_not_know_goes_back_as_it_was(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    for flags in ("A", "PA", "FA", "R"):
        frame = tcp(flags, by=PEER_MAC)
        answer = plane.expect(in_doubt(frame))
        assert (answer.reason, answer.frame) == ("asked_peer", plane.peers(frame))
    assert plane.flows() == []


def test_what_the_peer_doubts_is_placed_anew_when_our_server_for_it_is_dead(plane: Plane) -> None:
    plane.apply(table(server(1), peer=PEER))
    plane.expect(tcp())
    plane.apply(table(server(1, alive=False), server(2), peer=PEER))
    assert plane.expect(in_doubt(tcp("A", by=PEER_MAC))).reason == "moved_flow"
    plane.expect_flows()


def test_no_packet_goes_back_and_forth_between_two_directors(plane: Plane) -> None:
    """Each asks at most once, and what has come back is sent to a server, whatever has become of the flow meanwhile."""
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    close(plane)
    plane.age(30)
    asked = plane.expect(tcp("A")).frame
    plane.reset()
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    # The other director, and then the first one, which has lost its record.
    back = plane.expect(as_received(asked)).frame
    assert back[:6].hex(":") == PEER_MAC
    assert plane.expect(as_received(back)).reason == "unknown_flow"


def as_received(sent: bytes) -> bytes:
    """What was sent to the other director, as if we were that one."""
    return bytes.fromhex((OWN_MAC + PEER_MAC).replace(":", "")) + sent[12:]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (tcp("A"), "asked_peer"),  # of somebody else: no more than the packet in it
        (tcp("S", by=PEER_MAC), "new_flow"),
        (udp(by=PEER_MAC), "new_flow"),
        (tcp("A", by=PEER_MAC, vport=81), "no_service"),
        (tcp("A", by=PEER_MAC, to="02:00:00:00:00:ab"), "not_ip"),
        (tcp("A", by=PEER_MAC, ip={"flags": "MF"}), "asked_peer"),
        (tcp("A", by=PEER_MAC)[:14], "malformed"),
        (tcp("A", by=PEER_MAC)[:40], "malformed"),
        (
            bytes(Ether(dst=OWN_MAC, src=CLIENT_MAC) / IP(src=CLIENT, dst=str(VIP)) / ICMP()).ljust(60, b"\0"),
            "other_protocol",
        ),
    ],
)
def test_doubts_that_no_peer_of_ours_has(plane: Plane, frame: bytes, reason: str) -> None:
    servers = tuple(map(server, range(1, 4)))
    plane.apply(WantedTable(services=(service(*servers, peer=PEER), service(*servers, endpoint=DNS, peer=PEER))))
    assert plane.expect(in_doubt(frame)).reason == reason
    plane.expect_flows()


@pytest.mark.parametrize(
    "options", [{}, {"scheduler": Scheduler.SH, "peer": PEER}, {"scheduler": Scheduler.MH, "peer": PEER}]
)
def test_a_doubt_where_no_peer_is_asked_is_an_ordinary_packet(plane: Plane, options: dict[str, object]) -> None:
    """The two directors have different configurations, or we have lost sight of the other one."""
    plane.apply(table(*map(server, range(1, 4)), **options))
    assert plane.expect(in_doubt(tcp("A", by=PEER_MAC))).reason == ("hashed" if options else "unknown_flow")
    plane.expect_flows()

"""Two directors that are real servers themselves: questions, answers, and frames that are for this host (ADR 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from haxlb.forwarding.wanted import WantedServer
from haxlb.linux.specimen import OWN_MAC
from haxlb.model.virtual_server import Scheduler
from tests.bpf.books import expect_books
from tests.bpf.frames import in_doubt, tcp, udp
from tests.bpf.plane import Plane
from tests.forwarding.tables import DNS, PEER, PEER_MAC, mac, server, table

pytestmark = pytest.mark.bpf

HERE, THERE, ELSEWHERE = server(1, destination_mac=OWN_MAC), server(2, destination_mac=PEER_MAC), server(3)
RECORDING = [each for each in Scheduler if not each.hashes]


def serve(plane: Plane, **options: object) -> None:
    plane.apply(table(HERE, THERE, ELSEWHERE, **{"peer": PEER, **options}))


def answered(frame: bytes) -> bytes:
    return frame[:12] + b"\x88\xb6" + frame[14:]


@pytest.mark.parametrize("scheduler", Scheduler)
@pytest.mark.parametrize("flags", ["S", "A", "PA", "FA", "R"])
def test_what_the_other_director_has_placed_here_is_for_this_host(
    plane: Plane, scheduler: Scheduler, flags: str
) -> None:
    serve(plane, scheduler=scheduler)
    for port in range(2000, 2020):
        assert plane.expect(tcp(flags, port=port, by=PEER_MAC)).reason == "local"
    assert plane.flows() == []


def test_udp_that_the_other_director_has_placed_here_is_for_this_host(plane: Plane) -> None:
    serve(plane, endpoint=DNS)
    assert {plane.expect(udp(port=port, by=PEER_MAC)).reason for port in range(2000, 2020)} == {"local"}


@pytest.mark.parametrize("scheduler", RECORDING)
def test_questions_and_answers_are_never_plain(plane: Plane, scheduler: Scheduler) -> None:
    serve(plane, scheduler=scheduler)
    asked = plane.expect(tcp("A"))
    assert (asked.reason, asked.frame) == ("asked_peer", in_doubt(plane.peers(tcp("A"))))
    back = plane.expect(in_doubt(tcp("A", by=PEER_MAC)))
    assert (back.reason, back.frame) == ("asked_peer", answered(plane.peers(tcp("A"))))
    placed = plane.expect(answered(tcp("A", by=PEER_MAC)))
    assert placed.reason in ("unknown_flow", "local", "loop")
    assert len(plane.flows()) == 1
    expect_books(plane)


@pytest.mark.parametrize("one_of_us", [HERE, THERE])
def test_one_director_that_serves_is_enough(plane: Plane, one_of_us: WantedServer) -> None:
    """The other one would take a plain question for what was placed on it."""
    plane.apply(table(one_of_us, ELSEWHERE, peer=PEER))
    asked = plane.expect(tcp("A"))
    assert (asked.reason, asked.frame) == ("asked_peer", in_doubt(plane.peers(tcp("A"))))


def test_what_comes_back_goes_to_the_server_on_record(plane: Plane) -> None:
    plane.apply(table(replace(HERE, weight=0), ELSEWHERE, peer=PEER))
    for flags in ("S", "A", "FA"):
        assert plane.expect(tcp(flags)).frame[:6].hex(":") == mac(0x103)
    plane.age(30)
    assert plane.expect(tcp("A")).frame == in_doubt(plane.peers(tcp("A")))
    answer = plane.expect(answered(tcp("A", by=PEER_MAC)))
    assert (answer.reason, answer.frame[:6].hex(":")) == ("forwarded", mac(0x103))
    expect_books(plane)


def test_a_question_about_a_flow_that_is_here_is_answered_by_the_server(plane: Plane) -> None:
    plane.apply(table(replace(HERE, weight=0), ELSEWHERE, peer=PEER))
    plane.expect(tcp())
    plane.expect(tcp("A"))
    answer = plane.expect(in_doubt(tcp("PA", by=PEER_MAC)))
    assert (answer.reason, answer.frame[:6].hex(":")) == ("forwarded", mac(0x103))


@pytest.mark.parametrize("here", [HERE, ELSEWHERE])
def test_a_question_about_a_flow_that_the_asking_director_serves_goes_back_as_placed(
    plane: Plane, here: WantedServer
) -> None:
    plane.apply(table(replace(here, weight=0), THERE, peer=PEER))
    assert plane.expect(tcp()).frame[:6].hex(":") == PEER_MAC
    answer = plane.expect(in_doubt(tcp("PA", by=PEER_MAC)))
    assert (answer.reason, answer.frame) == ("forwarded", plane.peers(tcp("PA")))


def test_no_packet_goes_on_for_ever(plane: Plane) -> None:
    """Both directors are this one: whatever is sent to the other comes back, and a server gets it in the end."""
    serve(plane)
    for port in range(2000, 2040):
        frame = tcp("A", port=port)
        hops = 0
        while (answer := plane.expect(frame)).reason == "asked_peer":
            frame = bytes.fromhex((OWN_MAC + PEER_MAC).replace(":", "")) + answer.frame[12:]
            hops += 1
        assert hops <= 2
        assert answer.reason in ("unknown_flow", "local", "loop")


@pytest.mark.parametrize("kind", [in_doubt, answered])
def test_without_the_peer_questions_are_ordinary_packets(plane: Plane, kind: Callable[[bytes], bytes]) -> None:
    plane.apply(table(HERE, ELSEWHERE))
    for port in range(2000, 2010):
        answer = plane.expect(kind(tcp("A", port=port, by=PEER_MAC)))
        assert answer.reason in ("unknown_flow", "local")
    expect_books(plane)

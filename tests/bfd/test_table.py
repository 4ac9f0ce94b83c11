from __future__ import annotations

import random
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest

from haxlb.bfd.packet import ControlPacket, State, decode, encode
from haxlb.bfd.table import Arrival, Changed, Refused, SessionKey, SessionTable, Transmit, by_ends, lowest_ttl
from haxlb.model.errors import Bug
from haxlb.model.tracking import BfdSession, TrackKind, TrackResult
from tests.bfd.wire import SECOND, Wire, pair, settings

NEIGHBOR, OURS = ip_address("192.0.2.2"), ip_address("192.0.2.1")
SETTINGS = BfdSession(name="peer", neighbor="192.0.2.2")
HELLO = ControlPacket(state=State.DOWN, detect_mult=3, my_discriminator=7, desired_min_tx_us=1, required_min_rx_us=1)


def table(*sessions: BfdSession) -> SessionTable:
    made = SessionTable(random.Random(1).randint)
    made.configure(by_ends(sessions)[0], 0)
    return made


def arrival(packet: ControlPacket = HELLO, **values: Any) -> Arrival:
    given: dict[str, Any] = {"source": NEIGHBOR, "destination": OURS, "ttl": 255, "multihop": False}
    return Arrival(**{**given, "payload": encode(packet), **values})


def refusals(made: SessionTable, *arrivals: Arrival) -> list[str]:
    effects = [each for one in arrivals for each in made.receive(one, 0)]
    return [each.reason for each in effects if isinstance(each, Refused)]


def states(made: SessionTable) -> list[State]:
    return [made.session(key).state for key in made.keys]


class TestWhichSession:
    def test_the_first_packet_by_its_ends(self) -> None:
        """RFC 5881 section 3."""
        made = table(
            replace(SETTINGS, name="other", neighbor="192.0.2.3"),
            replace(SETTINGS, name="there", source="192.0.2.9"),
            replace(SETTINGS, name="far", multihop=True),
            SETTINGS,
        )
        assert refusals(made, arrival()) == []
        assert states(made) == [State.DOWN, State.DOWN, State.DOWN, State.INIT]
        assert refusals(made, arrival(destination=ip_address("192.0.2.9"))) == []
        assert refusals(made, arrival(multihop=True)) == []
        assert states(made) == [State.DOWN, State.INIT, State.INIT, State.INIT]

    def test_later_ones_by_our_discriminator(self) -> None:
        made = table(SETTINGS)
        (key,) = made.keys
        known = replace(HELLO, your_discriminator=made.session(key).discriminator)
        assert refusals(made, arrival(replace(known, state=State.INIT))) == []
        assert states(made) == [State.UP]

    def test_a_discriminator_that_is_nobodys(self) -> None:
        made = table(SETTINGS)
        assert refusals(made, arrival(replace(HELLO, your_discriminator=99))) == ["unknown_session"]
        assert made.refused == {"unknown_session": 1}

    def test_a_discriminator_from_somebody_else(self) -> None:
        made = table(SETTINGS)
        (key,) = made.keys
        known = replace(HELLO, your_discriminator=made.session(key).discriminator)
        wrong = ({"source": ip_address("192.0.2.66")}, {"multihop": True})
        assert [refusals(made, arrival(known, **each)) for each in wrong] == [["unknown_session"]] * 2

    def test_strangers(self) -> None:
        made = table(SETTINGS)
        assert refusals(made, arrival(source=ip_address("192.0.2.3")), arrival(source=ip_address("2001:db8::1"))) == [
            "unknown_session",
            "unknown_session",
        ]

    def test_link_local_neighbors_by_their_interface(self) -> None:
        one, two = (
            replace(SETTINGS, name=each, neighbor=f"fe80::1%{each}", source="fe80::2") for each in ("eth0", "eth1")
        )
        made = table(one, two)
        where = {"source": ip_address("fe80::1%eth1"), "destination": ip_address("fe80::2")}
        assert refusals(made, arrival(**where)) == []
        assert states(made) == [State.DOWN, State.INIT]


class TestTtl:
    @pytest.mark.parametrize(
        ("values", "lowest"),
        [
            ({}, 255),
            ({"max_hops": 2}, 253),
            ({"max_hops": -1}, 0),
            ({"ttl": 64}, 64),
            ({"ttl": 64, "max_hops": 255}, 0),
            ({"multihop": True}, 0),
            ({"multihop": True, "max_hops": 5}, 250),
        ],
    )
    def test_the_lowest(self, values: dict[str, Any], lowest: int) -> None:
        chosen = replace(SETTINGS, **values)
        assert lowest_ttl(chosen) == lowest
        ttls = [each for each in (lowest - 1, lowest) if each >= 0]
        made = table(chosen)
        refused = refusals(made, *(arrival(ttl=each, multihop=chosen.multihop) for each in ttls))
        assert refused == ["ttl"] * (len(ttls) - 1)

    def test_a_packet_from_afar_is_counted_and_does_not_keep_the_session_up(self) -> None:
        wire = pair()
        node = wire.nodes["a"]
        (key,) = node.table.keys
        before = node.session.next_deadline()
        forged = ControlPacket(
            state=State.DOWN, detect_mult=3, my_discriminator=9, desired_min_tx_us=1, required_min_rx_us=1
        )
        assert refusals(node.table, arrival(forged, ttl=254)) == ["ttl"]
        assert (node.state, node.session.next_deadline()) == (State.UP, before)
        assert node.table.session(key).counters.refused == {"ttl": 1}


def test_demand_mode_is_refused() -> None:
    made = table(SETTINGS)
    assert refusals(made, arrival(replace(HELLO, demand=True))) == ["demand"]
    assert states(made) == [State.DOWN]


def test_bytes_that_are_no_packet_are_counted() -> None:
    made = table(SETTINGS)
    assert refusals(made, arrival(payload=b""), arrival(payload=b"x" * 24)) == ["length", "version"]
    assert made.refused == {"length": 1, "version": 1}


class TestConfigure:
    def test_all_results_first_then_those_that_change(self) -> None:
        wire = Wire()
        for name in ("a", "b"):
            wire.start(name, settings(name))
        wire.run(SECOND)
        node = wire.nodes["a"]
        assert [(each.kind, each.value) for _, each in node.results] == [(TrackKind.BFD, None), (TrackKind.BFD, 1)]
        wire.configure("a", settings("a", multiplier=7))
        assert [each.value for _, each in node.results] == [None, 1, 1]

    def test_a_renamed_session_lives_on(self) -> None:
        wire = pair()
        wire.configure("a", replace(settings("a"), name="renamed"))
        wire.run(SECOND)
        node = wire.nodes["a"]
        assert node.results[-1][1] == TrackResult(kind=TrackKind.BFD, name="renamed", value=1)
        assert node.session.counters.ups == 1
        assert wire.nodes["b"].session.counters.ups == 1

    def test_other_ends_are_another_session_and_the_former_neighbour_is_told(self) -> None:
        wire = pair()
        wire.configure("a", replace(settings("a"), neighbor="192.0.2.77"))
        wire.run(1000)
        assert wire.nodes["b"].changes[-1][1].reason == "the neighbour says AdminDown"
        assert wire.nodes["a"].state is State.DOWN

    def test_a_session_that_is_gone_takes_no_packets(self) -> None:
        wire = pair()
        wire.configure("a")
        assert wire.nodes["a"].table.next_deadline() is None
        assert wire.nodes["a"].table.take_results() == ()
        wire.run(10 * SECOND)
        assert wire.nodes["a"].table.keys == ()
        assert wire.nodes["a"].table.refused["unknown_session"] > 1

    def test_an_identical_configuration_does_nothing(self) -> None:
        wire = pair()
        node = wire.nodes["a"]
        before = (node.table.next_deadline(), len(node.sent))
        wire.configure("a", settings("a"))
        assert (node.table.next_deadline(), len(node.sent)) == before

    @pytest.mark.parametrize(
        "values",
        [
            {"neighbor": "nonsense"},
            {"neighbor": ""},
            {"source": "192.0.2.300"},
            {"source": "2001:db8::1"},
            {"neighbor": "fe80::1"},
        ],
    )
    def test_ends_that_make_no_sense(self, values: dict[str, str]) -> None:
        usable, problems = by_ends([replace(SETTINGS, name="wrong", **values), SETTINGS])  # type: ignore[arg-type]
        assert [each.name for each in usable.values()] == ["peer"]
        assert "bfd_instance wrong" in problems["wrong"].message
        assert problems["wrong"].remedy

    def test_of_two_sessions_between_the_same_ends_the_first_is_held(self) -> None:
        usable, problems = by_ends([SETTINGS, replace(SETTINGS, name="again")])
        assert [each.name for each in usable.values()] == ["peer"]
        assert "same ends as peer" in problems["again"].message

    def test_discriminators_are_unique(self) -> None:
        numbers = iter([5, 5, 5, 6, 6, 7])
        made = SessionTable(lambda low, high: next(numbers) if high > SECOND * 10 else high)
        made.configure(by_ends(replace(SETTINGS, neighbor=f"192.0.2.{each}") for each in (2, 3, 4))[0], 0)
        assert [made.session(key).discriminator for key in made.keys] == [5, 6, 7]

    def test_chance_that_is_none(self) -> None:
        made = SessionTable(lambda low, _: low)
        usable, _ = by_ends(replace(SETTINGS, neighbor=f"192.0.2.{each}") for each in (2, 3))
        with pytest.raises(Bug):
            made.configure(usable, 0)


class TestTimers:
    def test_many_sessions_one_heap(self) -> None:
        made = table(*(replace(SETTINGS, neighbor=f"198.51.{each // 200}.{each % 200}") for each in range(500)))
        sent: dict[SessionKey, list[int]] = {}
        while (at := made.next_deadline()) is not None and at < 4 * SECOND:
            for each in made.expire(at):
                assert isinstance(each, Transmit)
                sent.setdefault(each.key, []).append(at)
        assert len(sent) == 500
        assert all(4 <= len(times) <= 6 for times in sent.values())

    def test_a_flood_does_not_fill_the_heap(self) -> None:
        made = table(SETTINGS)
        (key,) = made.keys
        known = replace(HELLO, state=State.INIT, your_discriminator=made.session(key).discriminator)
        for now in range(10_000):
            made.receive(arrival(replace(known, desired_min_tx_us=0xFFFFFFFF)), now)
        assert len(made._heap) < 10

    def test_a_late_call_handles_what_was_due_once(self) -> None:
        made = table(SETTINGS, replace(SETTINGS, name="other", neighbor="192.0.2.3"))
        effects = made.expire(100 * SECOND)
        assert len([each for each in effects if isinstance(each, Transmit)]) == 2
        assert made.next_deadline() > 100 * SECOND  # type: ignore[operator]
        assert made.expire(100 * SECOND) == []

    def test_silence_is_noticed_by_a_timer_alone(self) -> None:
        wire = pair()
        wire.cut = {"a", "b"}
        wire.run(60_000)
        changes = [each for each in wire.nodes["a"].changes if isinstance(each[1], Changed)]
        assert (changes[-1][1].before, changes[-1][1].after) == (State.UP, State.DOWN)
        assert [each.value for _, each in wire.nodes["a"].results] == [None, 1, 0]


def test_payloads_are_packets() -> None:
    made = table(SETTINGS)
    (effect,) = made.expire(0)
    assert isinstance(effect, Transmit)
    assert decode(effect.payload).my_discriminator == made.session(effect.key).discriminator

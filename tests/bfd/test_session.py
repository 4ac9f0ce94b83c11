from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from haxlb.bfd.packet import ControlPacket, Diagnostic, State
from haxlb.bfd.session import Disable, Received, Reconfigure, Send, Session, StateChanged, TimerExpired
from haxlb.model.tracking import BfdSession
from tests.bfd.wire import SECOND, pair, settings

SETTINGS = BfdSession(name="peer", neighbor="192.0.2.2", min_rx_us=10_000, min_tx_us=10_000, multiplier=5)
A, D, I, U = State.ADMIN_DOWN, State.DOWN, State.INIT, State.UP  # noqa: E741
MS = 1_000


def longest(low: int, high: int) -> int:
    """No jitter."""
    assert low <= high
    return high


def session(**values: Any) -> Session:
    return Session(replace(SETTINGS, **values), 0x11, longest, 0)


def packet(state: State, **values: Any) -> ControlPacket:
    given: dict[str, Any] = {
        "state": state,
        "detect_mult": 3,
        "my_discriminator": 0x22,
        "your_discriminator": 0x11,
        "desired_min_tx_us": 10_000 if state is U else SECOND,
        "required_min_rx_us": 10_000,
    }
    return ControlPacket(**{**given, **values})


def hear(machine: Session, state: State, now: int, **values: Any) -> list[ControlPacket]:
    """What it sends at once."""
    return sent(machine.handle(Received(packet=packet(state, **values)), now))


def sent(effects: list[Any]) -> list[ControlPacket]:
    return [each.packet for each in effects if isinstance(each, Send)]


def expire(machine: Session) -> tuple[int, list[ControlPacket]]:
    """The next timer: when, and what it sends."""
    at = machine.next_deadline()
    assert at is not None
    return at, sent(machine.handle(TimerExpired(), at))


def up(now: int = 0, **values: Any) -> Session:
    """Up, and the neighbour has confirmed it."""
    machine = session(**values)
    hear(machine, D, now)
    hear(machine, I, now)
    hear(machine, U, now, final=True)
    assert machine.state is U
    return machine


def reached(state: State) -> Session:
    machine = session()
    if state is not D:
        hear(machine, D, 0)
    if state is U:
        hear(machine, I, 0)
    if state is A:
        machine.handle(Disable(), 0)
    assert machine.state is state
    return machine


@pytest.mark.parametrize(
    ("before", "heard", "after"),
    [
        *((D, A, D), (D, D, I), (D, I, U), (D, U, D)),
        *((I, A, D), (I, D, I), (I, I, U), (I, U, U)),
        *((U, A, D), (U, D, D), (U, I, U), (U, U, U)),
        *((A, A, A), (A, D, A), (A, I, A), (A, U, A)),
    ],
)
def test_the_state_table_of_section_6_8_6(before: State, heard: State, after: State) -> None:
    machine = reached(before)
    effects = machine.handle(Received(packet=packet(heard)), 1)
    assert machine.state is after
    changes = [each for each in effects if isinstance(each, StateChanged)]
    assert [(each.before, each.after) for each in changes] == ([] if before is after else [(before, after)])
    assert all(each.reason for each in changes)
    if before is not after:
        assert sent(effects), "a change is told at once"
        if after is D:
            assert sent(effects)[-1].diagnostic == Diagnostic.NEIGHBOR_SIGNALED_DOWN


def test_the_first_packet_goes_out_at_once_and_then_once_an_idle_interval() -> None:
    machine = session(idle_tx_us=2 * SECOND)
    times = []
    for _ in range(4):
        at, (first,) = expire(machine)
        times.append(at)
        assert (first.state, first.your_discriminator, first.desired_min_tx_us) == (D, 0, 2 * SECOND)
    assert times == [0, 2 * SECOND, 4 * SECOND, 6 * SECOND]


def test_an_idle_interval_below_a_second_is_a_second() -> None:
    """RFC 5880 section 6.8.3 forbids a shorter one."""
    machine = session(idle_tx_us=10 * MS)
    expire(machine)
    assert machine.transmit_interval_us == SECOND


def test_a_passive_session_waits_until_it_is_spoken_to() -> None:
    machine = session(passive=True)
    at, nothing = expire(machine)
    assert (at, nothing) == (5 * SECOND, []), "only the verdict"
    assert machine.next_deadline() is None
    (answer,) = hear(machine, D, 6 * SECOND)
    assert (answer.state, answer.your_discriminator) == (I, 0x22)
    while machine.state is not D:
        at, _ = expire(machine)
    assert machine.next_deadline() is None, "and it is silent again when the neighbour is lost"


def test_the_interval_is_the_greater_of_ours_and_what_the_neighbour_takes() -> None:
    machine = up(min_tx_us=10 * MS)
    assert machine.transmit_interval_us == 10 * MS
    hear(machine, U, 0, required_min_rx_us=50 * MS)
    assert machine.transmit_interval_us == 50 * MS
    hear(machine, U, 0, required_min_rx_us=1)
    assert machine.transmit_interval_us == 10 * MS


def test_a_shorter_interval_counts_at_once() -> None:
    machine = up()
    hear(machine, U, 0, required_min_rx_us=10 * SECOND, desired_min_tx_us=10 * SECOND)
    hear(machine, U, 20 * MS, desired_min_tx_us=10 * SECOND)
    assert machine.next_deadline() == 20 * MS


def test_a_neighbour_that_takes_no_periodic_packets_gets_none() -> None:
    machine = up()
    hear(machine, U, 0, required_min_rx_us=0)
    assert machine.transmit_interval_us is None
    assert machine.next_deadline() == 30 * MS, "its silence is still noticed"
    (answer,) = hear(machine, U, 1, required_min_rx_us=0, poll=True)
    assert answer.final


def test_the_detection_time_is_the_neighbours_multiplier_and_the_slower_interval() -> None:
    machine = up(min_rx_us=20 * MS)
    hear(machine, U, 0, detect_mult=3, desired_min_tx_us=10 * MS)
    assert machine.detection_time_us == 60 * MS
    hear(machine, U, 0, detect_mult=4, desired_min_tx_us=30 * MS)
    assert machine.detection_time_us == 120 * MS


def test_silence_for_the_detection_time_is_down_and_forgets_the_neighbour() -> None:
    machine = up()
    hear(machine, U, 7 * MS)
    assert [each.state for each in sent(machine.handle(TimerExpired(), 37 * MS - 1))] == [U]
    effects = machine.handle(TimerExpired(), 37 * MS)
    assert machine.state is D
    (told,) = sent(effects)
    assert (told.state, told.diagnostic, told.poll) == (D, Diagnostic.DETECTION_TIME_EXPIRED, False)
    assert told.desired_min_tx_us == SECOND
    assert "30 ms" in machine.reason
    assert machine.remote.discriminator == 0
    _, (later,) = expire(machine)
    assert later.your_discriminator == 0


def test_a_poll_is_answered_at_once_and_does_not_move_the_schedule() -> None:
    machine = up()
    due = machine.next_deadline()
    (answer,) = hear(machine, U, 3 * MS, poll=True)
    assert (answer.final, answer.poll) == (True, False)
    assert machine.next_deadline() == due


def test_coming_up_polls_until_the_neighbour_confirms() -> None:
    machine = session()
    hear(machine, D, 0)
    (first,) = hear(machine, I, 0)
    assert (first.state, first.poll, first.desired_min_tx_us) == (U, True, 10 * MS)
    _, (second,) = expire(machine)
    assert second.poll
    hear(machine, U, 15 * MS, final=True)
    _, (third,) = expire(machine)
    assert not third.poll


def test_a_final_nobody_asked_for_changes_nothing() -> None:
    machine = up()
    assert hear(machine, U, 1, final=True) == []


class TestReconfigure:
    def test_a_longer_transmit_interval_waits_for_the_neighbours_consent(self) -> None:
        machine = up()
        (told,) = sent(machine.handle(Reconfigure(settings=replace(SETTINGS, min_tx_us=100 * MS)), MS))
        assert (told.poll, told.desired_min_tx_us) == (True, 100 * MS)
        assert machine.transmit_interval_us == 10 * MS
        hear(machine, U, 2 * MS, final=True)
        assert machine.transmit_interval_us == 100 * MS

    def test_a_shorter_transmit_interval_counts_at_once(self) -> None:
        machine = up(min_tx_us=100 * MS)
        machine.handle(Reconfigure(settings=replace(SETTINGS, min_tx_us=20 * MS)), MS)
        assert machine.transmit_interval_us == 20 * MS

    def test_a_shorter_receive_interval_waits_for_the_neighbours_consent(self) -> None:
        machine = up(min_rx_us=100 * MS)
        hear(machine, U, 0)
        assert machine.detection_time_us == 300 * MS
        machine.handle(Reconfigure(settings=SETTINGS), MS)
        assert machine.detection_time_us == 300 * MS
        hear(machine, U, 2 * MS, final=True)
        assert machine.detection_time_us == 30 * MS

    def test_a_longer_receive_interval_counts_at_once(self) -> None:
        machine = up()
        machine.handle(Reconfigure(settings=replace(SETTINGS, min_rx_us=100 * MS)), MS)
        assert machine.detection_time_us == 300 * MS

    def test_a_second_change_is_not_confirmed_by_the_answer_to_the_first(self) -> None:
        machine = up()
        machine.handle(Reconfigure(settings=replace(SETTINGS, min_tx_us=100 * MS)), MS)
        machine.handle(Reconfigure(settings=replace(SETTINGS, min_tx_us=200 * MS)), MS)
        hear(machine, U, 2 * MS, final=True)
        assert machine.transmit_interval_us == 10 * MS
        hear(machine, U, 3 * MS, final=True)
        assert machine.transmit_interval_us == 200 * MS

    def test_a_multiplier_goes_out_with_the_next_packet_without_a_poll(self) -> None:
        machine = up()
        assert machine.handle(Reconfigure(settings=replace(SETTINGS, multiplier=9)), MS) == []
        _, (told,) = expire(machine)
        assert (told.detect_mult, told.poll) == (9, False)

    def test_the_state_stays(self) -> None:
        machine = up()
        effects = machine.handle(Reconfigure(settings=replace(SETTINGS, name="other", min_rx_us=77 * MS)), MS)
        assert not [each for each in effects if isinstance(each, StateChanged)]
        assert (machine.state, machine.settings.name) == (U, "other")

    def test_no_longer_passive(self) -> None:
        machine = session(passive=True)
        machine.handle(Reconfigure(settings=SETTINGS), 3 * SECOND)
        assert machine.next_deadline() == 3 * SECOND


def test_taken_down_it_says_so_once_and_never_speaks_again() -> None:
    machine = up()
    effects = machine.handle(Disable(), MS)
    (told,) = sent(effects)
    assert (told.state, told.diagnostic) == (A, Diagnostic.ADMINISTRATIVELY_DOWN)
    assert machine.next_deadline() is None
    assert machine.handle(Disable(), 2 * MS) == []
    assert machine.handle(TimerExpired(), SECOND) == []


def test_taken_down_before_it_heard_of_anybody_it_says_nothing() -> None:
    assert sent(session().handle(Disable(), 0)) == []


def test_a_neighbour_that_restarted_has_another_discriminator() -> None:
    machine = up()
    told = hear(machine, D, MS, my_discriminator=0x33, your_discriminator=0)
    assert [(each.state, each.your_discriminator) for each in told] == [(D, 0x33)]
    hear(machine, D, 2 * MS, my_discriminator=0x33)
    hear(machine, I, 3 * MS, my_discriminator=0x33)
    assert (machine.state, machine.remote.discriminator, machine.counters.ups) == (U, 0x33, 2)


def test_not_known_until_up_or_until_the_neighbour_had_time() -> None:
    silent, answered = session(), session()
    assert silent.well is answered.well is None
    hear(answered, D, 0)
    assert answered.well is None
    hear(answered, I, 0)
    assert answered.well is True
    hear(answered, D, 1)
    assert answered.well is False
    while silent.well is None:
        at, _ = expire(silent)
    assert (at, silent.well) == (5 * SECOND, False)


def test_a_session_that_the_neighbour_takes_down_is_no_failure() -> None:
    machine = up()
    hear(machine, A, MS)
    assert (machine.state, machine.well) == (D, True)
    while machine.remote.discriminator:
        expire(machine)
    assert machine.well is True, "its silence says nothing either"
    hear(machine, D, 20 * SECOND)
    assert (machine.state, machine.well) == (I, True)
    while machine.state is I:
        expire(machine)
    assert machine.well is False, "it was back, and is lost"


def test_a_neighbour_that_was_never_up_and_is_taken_down_is_not_well() -> None:
    machine = session()
    hear(machine, A, 0)
    while machine.well is None:
        expire(machine)
    assert machine.well is False


def test_a_stalled_process_does_not_catch_up_in_a_burst() -> None:
    machine = up()
    hear(machine, U, 0, detect_mult=255)
    assert len(sent(machine.handle(TimerExpired(), 95 * MS))) == 1
    assert machine.next_deadline() == 105 * MS


def test_a_little_late_does_not_move_the_schedule() -> None:
    machine = up()
    hear(machine, U, 0, detect_mult=255)
    due = machine.next_deadline()
    assert due is not None
    machine.handle(TimerExpired(), due + 4 * MS)
    assert machine.next_deadline() == due + 10 * MS


@pytest.mark.parametrize(("multiplier", "most"), [(2, 10_000), (1, 9_000)])
def test_jitter(multiplier: int, most: int) -> None:
    """RFC 5880 section 6.8.7: 0 to 25 % less, and at least 10 % less where one lost packet is already silence."""
    machine = Session(replace(SETTINGS, multiplier=multiplier), 0x11, random.Random(7).randint, 0)
    for state in (D, I):
        hear(machine, state, 0)
    hear(machine, U, 0, final=True, detect_mult=255)
    times = [0]
    while len(times) < 200:
        at, packets = expire(machine)
        assert len(packets) == 1
        times.append(at)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) >= 7_500
    assert max(gaps) <= most
    assert max(gaps) - min(gaps) > (most - 7_500) // 2


def test_one_seed_gives_one_trace() -> None:
    traces = [pair(seed).nodes["a"].sent for seed in (3, 3, 4)]
    assert traces[0] == traces[1] != traces[2]


def test_two_machines_agree_on_the_slower_interval() -> None:
    wire = pair()
    wire.configure("b", settings("b", min_rx_us=40 * MS))
    wire.run(SECOND)
    assert wire.nodes["a"].session.transmit_interval_us == 40 * MS
    assert wire.nodes["b"].session.transmit_interval_us == 10 * MS
    assert len(wire.nodes["a"].changes) == len(wire.nodes["b"].changes) == 2, "Init and Up, nothing since"

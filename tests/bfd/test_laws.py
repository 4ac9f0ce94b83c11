"""Two machines and a wire, whatever the settings, the seed and the loss."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.bfd.packet import State
from tests.bfd import wire as w
from tests.bfd.wire import SECOND, Wire

MS = 1_000
MOST_DELAY_US = 500
SEEDS = st.integers(0, 2**32)
INTERVALS = st.sampled_from((40 * MS, 50 * MS, 300 * MS, 2 * SECOND))
SETTINGS = st.fixed_dictionaries(
    {
        "min_rx_us": INTERVALS,
        "min_tx_us": INTERVALS,
        "idle_tx_us": st.sampled_from((SECOND, 3 * SECOND)),
        # With 1 every lost packet, and every one that is a little late, is silence.
        "multiplier": st.integers(2, 6),
    }
)
LAWS = settings(derandomize=True, deadline=None, max_examples=30)


def started(seed: int, a: dict[str, Any], b: dict[str, Any], loss: float = 0.0) -> Wire:
    made = Wire(seed, loss=loss, delay=(50, MOST_DELAY_US))
    made.start("a", w.settings("a", **a))
    made.start("b", w.settings("b", **b))
    return made


def come_up(made: Wire) -> None:
    made.run_until(("a", State.UP), ("b", State.UP), limit_us=300 * SECOND)


def ups(made: Wire) -> list[int]:
    return [node.session.counters.ups for node in made.nodes.values()]


@LAWS
@given(seed=SEEDS, a=SETTINGS, b=SETTINGS, passive=st.sampled_from(("", "a", "b")))
def test_without_loss_both_come_up_within_an_idle_interval_and_stay(seed, a, b, passive):
    a, b = {**a, "passive": passive == "a"}, {**b, "passive": passive == "b"}
    made = started(seed, a, b)
    took = made.run_until(("a", State.UP), ("b", State.UP))
    assert took <= max(a["idle_tx_us"], b["idle_tx_us"]) + 10 * MOST_DELAY_US
    made.run(8 * SECOND)
    assert ups(made) == [1, 1]


@LAWS
@given(seed=SEEDS, a=SETTINGS, b=SETTINGS, loss=st.sampled_from((0.05, 0.2, 0.4)))
def test_with_loss_both_come_up(seed, a, b, loss):
    made = started(seed, a, b, loss)
    come_up(made)
    made.loss = 0.0
    made.run(30 * SECOND)
    assert [node.state for node in made.nodes.values()] == [State.UP, State.UP]
    before = ups(made)
    made.run(8 * SECOND)
    assert ups(made) == before


@LAWS
@given(seed=SEEDS, a=SETTINGS, b=SETTINGS, cut=st.sampled_from((("a", "b"), ("a",), ("b",))))
def test_a_cut_is_noticed_by_both_within_their_detection_times(seed, a, b, cut):
    made = started(seed, a, b)
    come_up(made)
    made.run(10 * SECOND)
    times = {name: node.session.detection_time_us for name, node in made.nodes.items()}
    slower = {name: max(own["min_rx_us"], other["min_tx_us"]) for name, own, other in (("a", a, b), ("b", b, a))}
    assert times == {"a": b["multiplier"] * slower["a"], "b": a["multiplier"] * slower["b"]}
    made.cut = set(cut)
    begin = made.now
    made.run(max(times.values()) * 2 + 10 * MOST_DELAY_US)
    noticed = {}
    for name, node in made.nodes.items():
        at, change = next(each for each in node.changes if each[0] > begin)
        assert (change.before, change.after) == (State.UP, State.DOWN)
        noticed[name] = at - begin
    for name, other in (("a", "b"), ("b", "a")):
        if other in cut:
            assert noticed[name] <= times[name] + MOST_DELAY_US
        else:
            # It still hears the other one, which says Down as soon as it has noticed.
            assert noticed[name] <= noticed[other] + MOST_DELAY_US
    made.cut = set()
    made.run(30 * SECOND)
    assert [node.state for node in made.nodes.values()] == [State.UP, State.UP], "and it heals"


@LAWS
@given(seed=SEEDS, a=SETTINGS, b=SETTINGS, changes=st.lists(st.tuples(st.sampled_from("ab"), SETTINGS), max_size=5))
def test_changed_intervals_never_drop_the_session(seed, a, b, changes):
    made = started(seed, a, b)
    come_up(made)
    for name, values in changes:
        made.run(made.chance.randint(0, 3 * SECOND))
        made.configure(name, w.settings(name, **values))
    made.run(8 * SECOND)
    assert ups(made) == [1, 1]
    for node in made.nodes.values():
        session = node.session
        assert session.transmit_interval_us == max(session.settings.min_tx_us, session.remote.min_rx_us)


@LAWS
@given(seed=SEEDS, a=SETTINGS, b=SETTINGS)
def test_a_restarted_node_is_noticed_at_once_and_comes_up_again(seed, a, b):
    made = started(seed, a, b)
    come_up(made)
    made.run(5 * SECOND)
    begin = made.now
    made.start("b", w.settings("b", **b))
    made.run_until(("a", State.DOWN))
    assert made.now - begin <= 2 * MOST_DELAY_US, "by its first packet, not by silence"
    come_up(made)
    made.run(8 * SECOND)
    assert ups(made) == [2, 1]


@LAWS
@given(seed=SEEDS, a=SETTINGS, b=SETTINGS, stall_us=st.integers(1, 5 * SECOND))
def test_a_frozen_node_does_not_blame_its_neighbour(seed, a, b, stall_us):
    made = started(seed, a, b)
    come_up(made)
    made.run(10 * SECOND)
    node = made.nodes["a"]
    patience = made.nodes["b"].session.detection_time_us
    node.frozen = True
    made.run(stall_us)
    heard = bool(node.queue)
    made.thaw("a")
    made.run(1)
    if heard and stall_us < patience - 2 * MOST_DELAY_US - max(a["min_tx_us"], b["min_rx_us"]):
        made.run(8 * SECOND)
        assert ups(made) == [1, 1]
    made.run(30 * SECOND)
    assert [each.state for each in made.nodes.values()] == [State.UP, State.UP]

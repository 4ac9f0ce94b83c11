from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.model.status import Contribution
from haxlb.model.tracking import Track, TrackKind, TrackResult
from haxlb.vrrp.priority import Tally

SCRIPT, FILE, INTERFACE = TrackKind.SCRIPT, TrackKind.FILE, TrackKind.INTERFACE
SIMPLE = [TrackKind.SCRIPT, TrackKind.INTERFACE, TrackKind.PROCESS, TrackKind.BFD]


def track(weight: int = 0, kind: TrackKind = SCRIPT, *, name: str = "x", reverse: bool = False) -> Track:
    return Track(kind=kind, name=name, weight=weight, reverse=reverse)


def heard(value: int | None, kind: TrackKind = SCRIPT, name: str = "x") -> tuple[TrackResult, ...]:
    return (TrackResult(kind=kind, name=name, value=value),)


def told(tracked: Track, value: int | None, *, base: int = 100) -> Tally:
    tally = Tally(base, (tracked,))
    tally.take(heard(value, tracked.kind))
    return tally


@pytest.mark.parametrize("kind", SIMPLE)
@pytest.mark.parametrize(
    ("weight", "reverse", "well", "ill"),
    [(20, False, 120, 100), (-20, False, 100, 80), (20, True, 80, 100), (-20, True, 100, 120)],
)
def test_a_weight_counts_in_one_of_the_two_states(
    kind: TrackKind, *, weight: int, reverse: bool, well: int, ill: int
) -> None:
    tracked = track(weight, kind, reverse=reverse)
    assert told(tracked, 1).effective == well
    assert told(tracked, 0).effective == ill
    assert told(tracked, None).effective == 100
    assert not told(tracked, 0).faults
    assert not told(tracked, None).waiting


@pytest.mark.parametrize("kind", SIMPLE)
def test_without_weight_it_is_a_fault(kind: TrackKind) -> None:
    assert told(track(0, kind), 1).faults == ()
    assert len(told(track(0, kind), 0).faults) == 1
    assert len(told(track(0, kind, reverse=True), 1).faults) == 1
    assert told(track(0, kind, reverse=True), 0).faults == ()
    assert told(track(0, kind), 0).effective == 100


def test_the_fault_is_said_in_words() -> None:
    assert told(track(), 0).faults == ("script x fails",)
    assert told(track(reverse=True), 1).faults == ("script x succeeds",)
    assert told(track(0, INTERFACE), 0).faults == ("x is down",)
    assert told(track(0, FILE), 3).faults == ("file x says 3",)
    assert told(track(-2, FILE), 200).faults == ("file x says 200, times -2",)


@pytest.mark.parametrize(
    ("weight", "reverse", "value", "effective", "fault"),
    [
        (1, False, 20, 120, False),
        (1, False, -20, 80, False),
        (-3, False, 10, 70, False),
        (2, True, 10, 80, False),
        (1, False, 10**9, 254, False),
        (1, False, -253, 1, False),
        (1, False, -254, 100, True),
        (2, False, -127, 100, True),
        (-1, False, 254, 100, True),
        (1, True, 254, 100, True),
        (-1, True, 254, 254, False),
        (0, False, 0, 100, False),
        (0, False, 1, 100, True),
        (0, False, -1, 100, True),
        (0, True, 0, 100, True),
        (0, True, 7, 100, False),
    ],
)
def test_files(*, weight: int, reverse: bool, value: int, effective: int, fault: bool) -> None:
    tally = told(track(weight, FILE, reverse=reverse), value)
    assert tally.effective == effective
    assert bool(tally.faults) is fault


def test_the_number_of_a_file_is_cut_before_it_is_added() -> None:
    tally = Tally(100, (track(10, FILE, name="high"), track(-200, name="low")))
    tally.take((*heard(100, FILE, "high"), *heard(0, name="low")))
    assert tally.effective == 100 + 253 - 200


def test_the_sum_is_cut_once_at_the_end() -> None:
    tally = Tally(200, (track(100, name="a"), track(-150, name="b")))
    tally.take((*heard(1, name="a"), *heard(0, name="b")))
    assert tally.effective == 150
    assert told(track(200), 1, base=200).effective == 254
    assert told(track(-200), 0, base=10).effective == 1


def test_nothing_moves_the_owner_but_faults_are_faults() -> None:
    owner = told(track(-50), 0, base=255)
    assert owner.effective == 255
    assert owner.contributions() == (Contribution(kind="track_script", name="x", well=False),)
    assert told(track(), 0, base=255).faults == ("script x fails",)


def test_a_track_without_weight_is_waited_for_until_it_is_known() -> None:
    tally = Tally(100, (track(), track(5, name="weighted")))
    assert tally.waiting == ("x",)
    assert not tally.take(heard(None))
    assert tally.waiting == ("x",)
    assert tally.take(heard(1))
    assert tally.waiting == ()


def test_take_says_whether_anything_changed() -> None:
    tally = Tally(100, (track(10),))
    assert tally.take(heard(1))
    assert not tally.take(heard(1))
    assert not tally.take(heard(0, name="somebody else's"))
    assert not tally.take(heard(0, INTERFACE))
    assert tally.take(heard(0))
    assert not tally.take(())


def test_contributions_add_up() -> None:
    tally = Tally(100, (track(10), track(0, INTERFACE, name="eth1"), track(2, FILE, name="f"), track(7, name="new")))
    tally.take((*heard(1), *heard(0, INTERFACE, "eth1"), *heard(-4, FILE, "f")))
    assert tally.contributions() == (
        Contribution(kind="track_script", name="x", well=True, change=10),
        Contribution(kind="track_interface", name="eth1", well=False, fault=True),
        Contribution(kind="track_file", name="f", well=False, change=-8),
        Contribution(kind="track_script", name="new", well=None),
    )
    assert tally.effective == 102


def test_reconfigure_keeps_what_is_known() -> None:
    tally = told(track(10), 1)
    tally.reconfigure(50, (track(30),))
    assert tally.effective == 80
    tally.reconfigure(50, ())
    assert tally.effective == 50
    tally.reconfigure(50, (track(30),))
    assert tally.contributions()[0].well is None  # what left is forgotten


def test_what_a_reload_brings_counts_as_well_until_it_is_heard_of() -> None:
    tally = Tally(100, ())
    tally.reconfigure(100, (track(), track(20, name="up"), track(-20, name="down"), track(0, FILE, name="f")))
    assert (tally.faults, tally.waiting, tally.effective) == ((), (), 120)
    tally.take((*heard(0), *heard(0, name="up"), *heard(0, name="down"), *heard(1, FILE, "f")))
    assert tally.faults == ("script x fails", "file f says 1")
    assert tally.effective == 80


def test_a_reload_never_assumes_a_fault() -> None:
    tally = Tally(100, ())
    tally.reconfigure(100, (track(reverse=True), track(0, FILE, name="f", reverse=True)))
    assert tally.faults == ()


def test_a_reload_does_not_end_the_wait_for_a_first_result() -> None:
    tally = Tally(100, (track(),))
    tally.reconfigure(120, (track(), track(name="y")))
    assert tally.waiting == ("x",)


def test_what_is_known_no_longer_counts_as_well() -> None:
    """A script whose command was changed."""
    tally = told(track(), 0)
    assert tally.take(heard(None))
    assert (tally.faults, tally.waiting) == ((), ())
    assert told(track(20), 0).take(heard(None))


@pytest.mark.parametrize("tracked", [track(), track(reverse=True), track(20), track(-20), track(5, FILE)])
def test_what_cannot_be_known_does_not_count(tracked: Track) -> None:
    never = (TrackResult(kind=tracked.kind, name="x", value=None, counts=False),)
    tally = told(tracked, 1)
    for _ in range(2):  # whatever was known before
        tally.take(never)
        assert (tally.effective, tally.faults, tally.waiting) == (100, (), ())
        tally = Tally(100, (tracked,))
    tally.take(never)
    tally.take(heard(None, tracked.kind))
    assert not tally.waiting
    assert tally.take(heard(1, tracked.kind))
    assert tally.contributions()[0].well is not None


@given(
    st.integers(1, 255),
    st.lists(
        st.tuples(
            st.sampled_from(list(TrackKind)),
            st.integers(-253, 253),
            st.booleans(),
            st.one_of(st.none(), st.integers(-400, 400)),
        ),
        max_size=6,
    ),
)
def test_laws_of_the_sum(base: int, things: list[tuple[TrackKind, int, bool, int | None]]) -> None:
    tracks = tuple(
        track(weight, kind, name=str(number), reverse=reverse)
        for number, (kind, weight, reverse, _) in enumerate(things)
    )
    results = [TrackResult(kind=kind, name=str(n), value=value) for n, (kind, _, _, value) in enumerate(things)]
    tally = Tally(base, tracks)
    tally.take(results)
    shares = tally.contributions()
    if base == 255:
        assert tally.effective == 255
        assert all(each.change == 0 for each in shares)
    else:
        assert tally.effective == max(1, min(254, base + sum(each.change for each in shares)))
    assert len(tally.faults) == sum(each.fault for each in shares)
    for share, each, (_, _, _, value) in zip(shares, tracks, things, strict=True):
        assert (share.well is None) is (value is None)
        assert share.change in range(-253, 254)
        assert not (share.change and share.fault)
        assert (each.name in tally.waiting) is (value is None and each.weight == 0)
        if each.kind is not FILE:
            assert share.change in (0, each.weight, -each.weight)
    # One at a time and in any order comes to the same.
    other = Tally(base, tracks)
    for each_result in reversed(results):
        other.take((each_result,))
    assert (other.effective, other.contributions()) == (tally.effective, shares)

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from haxlb.health.outcome import Outcome, failed, inconclusive, passed
from haxlb.health.rise_fall import RISE, RiseFall, Verdict, fall, fall_time_us, probe_limit_us, retry_pace_us
from haxlb.model.check import HttpUrl
from tests.health.worlds import check, seconds

OUTCOMES = {"+": passed("connected"), "-": failed("connection refused"), "?": inconclusive("out of file descriptors")}


def verdicts(outcomes: str, **changes: object) -> list[Verdict]:
    machine = RiseFall(check(**changes))
    said = []
    for now, each in enumerate(outcomes):
        machine.handle(OUTCOMES[each], now)
        said.append(machine.verdict)
    return said


def last(outcomes: str, **changes: object) -> Verdict:
    return verdicts(outcomes, **changes)[-1]


def test_two_up_two_down() -> None:
    assert last("+") is Verdict.UNKNOWN
    assert last("++") is Verdict.UP
    assert last("-") is Verdict.UNKNOWN
    assert last("--") is Verdict.DOWN
    assert last("++-") is Verdict.UP
    assert last("++--") is Verdict.DOWN
    assert last("--+") is Verdict.DOWN
    assert last("--++") is Verdict.UP


def test_single_outcomes_that_disagree_never_change_the_verdict() -> None:
    assert set(verdicts("++" + "-+" * 20)[1:]) == {Verdict.UP}
    assert set(verdicts("--" + "+-" * 20)[1:]) == {Verdict.DOWN}
    assert set(verdicts("+-" * 20)) == {Verdict.UNKNOWN}


def test_retry_names_the_further_attempts() -> None:
    assert last("-", retry=0) is Verdict.DOWN
    assert last("++---", retry=3) is Verdict.UP
    assert last("++----", retry=3) is Verdict.DOWN
    assert last("++---+---", retry=3) is Verdict.UP
    assert last("----+", retry=3) is Verdict.DOWN
    assert last("----++", retry=3) is Verdict.UP


def test_a_probe_that_this_host_could_not_make_counts_for_nothing() -> None:
    assert last("++-?-") is Verdict.DOWN
    assert last("++-?") is Verdict.UP
    assert last("++?????") is Verdict.UP
    assert last("?") is Verdict.UNKNOWN


def test_the_reason_says_how_far_a_change_has_come() -> None:
    machine = RiseFall(check(retry=2))
    reasons = []
    for now, each in enumerate("-----++"):
        machine.handle(OUTCOMES[each], now)
        reasons.append(machine.reason)
    assert reasons == [
        "connection refused (1 of 3)",
        "connection refused (2 of 3)",
        "connection refused, 3 times in a row",
        "connection refused",
        "connection refused",
        "connected (1 of 2)",
        "connected, twice in a row",
    ]


def test_probes_follow_each_other_quickly_until_the_verdict_is_settled() -> None:
    machine = RiseFall(check(retry=1, delay_before_retry_us=seconds(1)))
    pauses = []
    for now, each in enumerate("++-+--+-+++"):
        machine.handle(OUTCOMES[each], now)
        pauses.append(machine.pause_us // seconds(1))
    #                 +  +   -  +   -  -   +  -   +  +   +
    assert pauses == [1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 10]


def test_delay_before_retry_is_taken_literally_only_beside_a_retry() -> None:
    slow = {"delay_before_retry_us": seconds(30), "delay_loop_us": seconds(2)}
    assert retry_pace_us(check(retry=1, **slow)) == seconds(30)
    assert retry_pace_us(check(retry=None, **slow)) == seconds(2)


def test_the_fall_time_is_one_pause_and_all_attempts() -> None:
    assert fall_time_us(check(retry=3, delay_before_retry_us=seconds(2))) == seconds(10 + 4 * 1 + 3 * 2)
    assert fall_time_us(check(delay_loop_us=seconds(1))) == seconds(1 + 2 * 1 + 1 * 1)


def test_each_url_has_its_own_time() -> None:
    assert probe_limit_us(check()) == seconds(1)
    assert probe_limit_us(check(urls=(HttpUrl(path="/a"), HttpUrl(path="/b")))) == seconds(2)


@given(st.text("+-?", max_size=60), st.one_of(st.none(), st.integers(0, 4)))
def test_a_verdict_changes_exactly_after_its_number_of_equal_outcomes(outcomes: str, retry: int | None) -> None:
    """Against an oracle that looks at the whole past, not at counters."""
    probe = check(retry=retry)
    machine = RiseFall(probe)
    expected = Verdict.UNKNOWN
    counted = ""
    for now, each in enumerate(outcomes):
        before = machine.verdict
        changed = machine.handle(OUTCOMES[each], now)
        counted += each.replace("?", "")
        if each == "+" and counted.endswith("+" * RISE):
            expected = Verdict.UP
        if each == "-" and counted.endswith("-" * fall(probe)):
            expected = Verdict.DOWN
        assert machine.verdict is expected
        assert changed is (machine.verdict is not before)


@given(st.lists(st.sampled_from(sorted(OUTCOMES)), max_size=60), st.integers(0, 4))
def test_the_pace_is_quick_exactly_while_a_change_is_possible(outcomes: list[str], retry: int) -> None:
    machine = RiseFall(check(retry=retry, delay_before_retry_us=seconds(1)))
    believed: dict[str, Verdict] = {"+": Verdict.UP, "-": Verdict.DOWN}
    telling: Outcome | None = None
    for now, each in enumerate(outcomes):
        machine.handle(OUTCOMES[each], now)
        telling = OUTCOMES[each] if each != "?" else telling
        last_word = next((one for one in reversed(outcomes[: now + 1]) if one != "?"), None)
        agrees = last_word is not None and machine.verdict is believed[last_word]
        assert machine.pause_us == (seconds(10) if agrees else seconds(1))

import json

import pytest
from demo.records import KEPT, NEW, Break, Journal, Request, decode, encode
from demo.report import PHASES, Mark, PhaseReport, as_json, as_table, longest_gap, reports, shortfalls

MS = 1000


def request(start_ms: float, end_ms: float, outcome: str = "ok", server: str = "web1", kind: str = NEW) -> Request:
    return Request(
        kind=kind,
        started_us=int(start_ms * MS),
        ended_us=int(end_ms * MS),
        outcome=outcome,
        server=server if outcome == "ok" else "",
    )


def row(name: str, **changes) -> PhaseReport:
    values = {"requests": 100, "failed": 0, "broken": 0, "gap_ms": 10.0, "theory_ms": 0.0, "share": {"web1": 1.0}}
    return PhaseReport(name=name, **{**values, **changes})


def all_rows(**changes: PhaseReport) -> list[PhaseReport]:
    theories = {"server-down": 3000.0, "power-off": 3609.4}
    return [changes.get(name.replace("-", "_"), row(name, theory_ms=theories.get(name, 0.0))) for name in PHASES]


def test_journal_survives_the_file_and_a_line_that_was_cut_short():
    records = [request(1, 2), request(3, 4, "reset", kind=KEPT), Break(started_us=3000, ended_us=4000, outcome="reset")]
    lines = [encode(each) for each in records]
    assert decode([*lines, lines[0][:-4]]) == Journal(requests=tuple(records[:2]), breaks=(records[2],))


def test_a_failure_belongs_to_the_phase_in_which_its_request_started():
    journal = Journal(
        requests=(request(10, 11), request(95, 1095, "timeout"), request(1020, 1021)),
        breaks=(
            Break(started_us=899 * MS, ended_us=1200 * MS, outcome="timeout"),
            Break(started_us=1000 * MS, ended_us=1001 * MS, outcome="reset"),
        ),
    )
    marks = [Mark(name="steady", at_us=0, theory_ms=0), Mark(name="power-off", at_us=1000 * MS, theory_ms=0)]
    first, second = reports(journal, marks, 2000 * MS)
    assert (first.requests, first.failed, first.broken, first.reasons) == (2, 1, 1, {"timeout": 1})
    assert (second.requests, second.failed, second.broken, second.reasons) == (1, 0, 1, {})


def test_what_was_under_way_when_the_event_came_belongs_to_the_event():
    hit = request(995, 1003, "reset")
    answered = request(996, 1004)
    failed_before = request(980, 990, "refused")
    in_trouble_before = request(899, 1899, "timeout")
    lost = Break(started_us=995 * MS, ended_us=1003 * MS, outcome="reset")
    journal = Journal(requests=(hit, answered, failed_before, in_trouble_before), breaks=(lost,))
    marks = [Mark(name="steady", at_us=0, theory_ms=0), Mark(name="server-down", at_us=1000 * MS, theory_ms=0)]
    first, second = reports(journal, marks, 2000 * MS)
    assert (first.requests, first.reasons, first.broken) == (3, {"refused": 1, "timeout": 1}, 0)
    assert (second.requests, second.reasons, second.broken) == (1, {"reset": 1}, 1)


def test_on_a_busy_machine_what_was_under_way_when_something_broke_may_have_been_so_for_longer():
    hit, lost = request(700, 1003, "reset"), request(1700, 2003, "reset")
    marks = [
        Mark(name="steady", at_us=0, theory_ms=0),
        Mark(name="power-off", at_us=1000 * MS, theory_ms=3609.4),
        Mark(name="master-back", at_us=2000 * MS, theory_ms=0),
    ]

    def failed(patience_us: int) -> list[int]:
        rows = reports(Journal(requests=(hit, lost)), marks, 3000 * MS, patience_us=patience_us)
        return [row.failed for row in rows]

    assert failed(0) == [1, 1, 0]
    # Of what breaks nothing it is no excuse.
    assert failed(500 * MS) == [0, 2, 0]


def test_share_counts_answers_on_new_connections_only():
    journal = Journal(
        requests=(
            request(1, 2, server="web1"),
            request(3, 4, server="web1"),
            request(5, 6, server="web2"),
            request(7, 8, "refused"),
            request(9, 10, server="web3", kind=KEPT),
        )
    )
    (only,) = reports(journal, [Mark(name="steady", at_us=0, theory_ms=0)], 20 * MS)
    assert only.share == {"web1": 0.6667, "web2": 0.3333}


@pytest.mark.parametrize(
    ("successes", "phase", "gap"),
    [
        ([0, 10, 15, 40, 45, 100], (5, 50), (15, 40)),
        # An outage that begins just before its mark counts whole, in the phase that it lies in …
        ([0, 98, 700, 710], (100, 800), (98, 700)),
        # … and not in the one before.
        ([0, 50, 98, 700, 710], (0, 100), (0, 50)),
        # One that fills its phase counts even if it is longer than twice the phase.
        ([0, 900], (300, 400), (0, 900)),
        # Never answered again: until the phase's end.
        ([0, 10], (5, 500), (10, 500)),
        ([], (0, 500), (0, 500)),
    ],
)
def test_longest_gap(successes, phase, gap):
    assert longest_gap(successes, *phase) == gap


def test_all_kept():
    rows = all_rows(
        server_down=row("server-down", failed=2, reasons={"refused": 2}, failed_us=(5, 7), broken=6, theory_ms=3000.0),
        power_off=row(
            "power-off", failed=3, failed_us=(10, 20, 30), gap_us=(0, 40), gap_ms=3659.0, theory_ms=3609.4, broken=2
        ),
    )
    assert shortfalls(rows, removed_us=7) == []


@pytest.mark.parametrize("name", ["steady", "server-back", "hot-swap", "failover", "speaker-killed", "master-back"])
@pytest.mark.parametrize("loss", [{"failed": 1, "reasons": {"reset": 1}}, {"broken": 1}, {"requests": 0}])
def test_nothing_may_be_lost_in_the_other_phases(name, loss):
    (line,) = shortfalls(all_rows(**{name.replace("-", "_"): row(name, **loss)}), removed_us=0)
    assert line.startswith(name)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ({"failed": 1, "failed_us": (8,), "reasons": {"refused": 1}}, "started after the server had left"),
        ({"failed": 1, "failed_us": (5,), "reasons": {"timeout": 1}}, "1 timeout"),
    ],
)
def test_server_down_excuses_only_what_went_to_the_dead_server(loss, said):
    (line,) = shortfalls(all_rows(server_down=row("server-down", **loss)), removed_us=7)
    assert said in line


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ({"gap_ms": 3659.5}, "a gap of 3659.5 ms, want at most 3659 ms"),
        ({"failed": 1, "failed_us": (50,), "gap_us": (0, 40)}, "want one gap"),
    ],
)
def test_power_off_allows_one_gap_of_theory_plus_fifty(loss, said):
    (line,) = shortfalls(all_rows(power_off=row("power-off", theory_ms=3609.4, **loss)), removed_us=0)
    assert said in line


def test_a_busy_machine_is_allowed_a_longer_gap():
    rows = all_rows(power_off=row("power-off", theory_ms=3609.4, gap_ms=5000.0))
    assert len(shortfalls(rows, removed_us=0)) == 1
    assert shortfalls(rows, removed_us=0, allowance_ms=2000.0) == []


def test_a_phase_that_did_not_take_place_is_named():
    assert shortfalls(all_rows()[:-1], removed_us=0) == ["master-back: did not take place"]


def test_json_has_the_keys_that_scripts_rely_on_and_no_others():
    data = json.loads(json.dumps(as_json([row("steady")])))
    assert data == {
        "schema": "haxlb.demo/1",
        "phases": [
            {
                "name": "steady",
                "requests": 100,
                "failed": 0,
                "broken": 0,
                "gap_ms": 10.0,
                "theory_ms": 0.0,
                "share": {"web1": 1.0},
            }
        ],
    }


def test_table_shows_every_server_and_why_requests_failed():
    rows = [row("steady", share={"web1": 0.75, "web2": 0.25}), row("power-off", failed=3, reasons={"timeout": 3})]
    head, first, second = as_table(rows).splitlines()
    assert head.split()[-4:] == ["web1", "web2", "failed", "with"]
    assert "75.0 %" in first
    assert second.endswith("3 timeout")

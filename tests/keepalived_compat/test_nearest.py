from __future__ import annotations

import pytest

from keepalived_compat.nearest import COMPARISONS, Hints, nearest


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("wwr", ("rr", "wrr", "sh", "mh"), "wrr"),
        ("TPC", ("TCP", "UDP", "SCTP"), "TCP"),
        ("RD", ("NAT", "DR", "TUN"), "DR"),
        ("lc", ("rr", "sh", "mh"), None),
        ("ch", ("rr", "sh", "mh"), None),
        ("fwm", ("rr", "wrr"), None),
        ("priorty", ("priority", "state"), "priority"),
        ("abc", ("cba",), None),
        ("virtual_router", ("virtual_router_id", "virtual_routes", "virtual_rules"), "virtual_router_id"),
        ("Virtual-Router", ("virtual_router_id", "virtual_routes"), "virtual_router_id"),
        ("virtual_route", ("virtual_router_id", "virtual_routes"), "virtual_routes"),
        ("advert", ("advert_int", "state"), "advert_int"),
        ("track", ("track_script", "track_file"), None),
        ("pri", ("priority", "state"), None),
    ],
)
def test_short_words_have_a_nearest_too_by_one_mistake(word, known, meant):
    assert nearest(word, known) == meant


def test_hints_end_when_enough_has_been_compared():
    hints = Hints()
    known = [f"name{each}" for each in range(COMPARISONS // 2)]
    assert [hints.did_you_mean("NAME7", known) for _ in range(3)] == ["did you mean `name7`?"] * 2 + [""]

"""Public configurations, with the verdicts of keepalived 2.2.7 beside them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from haxlb.config import load
from keepalived_compat.diagnostics import Severity
from keepalived_compat.rendering import as_json, as_text

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
FILES = sorted(each for each in CORPUS.glob("*/*") if each.is_file())
NO_COMPLAINT = "0"
SCRIPTS_ONLY = "6"
"""keepalived's exit code where its only complaint is that scripts run without script security."""

pytestmark = pytest.mark.skipif(not FILES, reason="the corpus is not beside this repository")


def verdicts() -> dict[str, tuple[str, str]]:
    """Exit code and messages by file."""
    found: dict[str, tuple[str, str]] = {}
    for table in CORPUS.glob("*.tsv"):
        with table.open(newline="") as rows:
            found |= {row[0]: (row[1], row[2]) for row in csv.reader(rows, delimiter="\t", quoting=csv.QUOTE_NONE)}
    return found


VERDICTS = verdicts()
NOT_DONE = ("not-supported-yet", "not-supported", "unmapped-mark")
"""Complaints of what keepalived does and haxlb does not."""
HOST_ONLY = re.compile(r"(Disabling track script \S+ since not found/accessible\|?)+")
"""haxlb judges the configuration, on whatever machine it is checked."""
TAKEN = [each for each in FILES if VERDICTS[each.name][0] in (NO_COMPLAINT, SCRIPTS_ONLY)]
DISLIKED = [each for each in FILES if each not in TAKEN and not HOST_ONLY.fullmatch(VERDICTS[each.name][1])]


@pytest.mark.parametrize("path", FILES, ids=[each.name for each in FILES])
def test_a_file_loads_and_every_complaint_can_be_shown(path):
    loaded = load(path, settings=None, node="high")
    for each in loaded.diagnostics:
        assert as_text(each, loaded.sources)
        assert each.span.line >= 1
        assert each.span.column >= 1
        assert each.message
    assert len(as_json(loaded.diagnostics)) == len(loaded.diagnostics)
    assert (loaded.config is None) == any(each.severity is Severity.FATAL for each in loaded.diagnostics)


@pytest.mark.parametrize("path", TAKEN, ids=[each.name for each in TAKEN])
def test_what_keepalived_takes_is_wrong_only_where_it_is_not_supported(path):
    loaded = load(path, settings=None, node="high")
    assert loaded.config is not None
    bad = [each for each in loaded.diagnostics if each.severity in (Severity.FATAL, Severity.ERROR)]
    assert [as_text(each, loaded.sources) for each in bad if each.code not in NOT_DONE] == []


@pytest.mark.parametrize("path", DISLIKED, ids=[each.name for each in DISLIKED])
def test_what_keepalived_dislikes_is_not_taken_in_silence(path):
    assert load(path, settings=None, node="high").diagnostics

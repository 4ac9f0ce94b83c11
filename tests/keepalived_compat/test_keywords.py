"""The table itself, and the page that is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from haxlb.cli.keywords import keywords
from haxlb.config.checks import _HARMLESS, _INLINE
from keepalived_compat.grammar import LINES, Support
from keepalived_compat.keywords import KEEPALIVED
from keepalived_compat.keywords.checkers import REGEX_OPTIONS
from keepalived_compat.keywords.defaults import DEFAULTS
from keepalived_compat.keywords.limited import LIMITED
from keepalived_compat.keywords.partly import PARTLY
from keepalived_compat.keywords.since import SINCE
from keepalived_compat.keywords.syntax import SYNTAX, SYNTAX_IN, UNITS
from keepalived_compat.manual import page
from keepalived_compat.table import Status, blocks, rows


@pytest.mark.parametrize("block", KEEPALIVED)
def test_rows_are_complete(block):
    for name, row in KEEPALIVED[block].items():
        assert row.name == name
        assert row.body is None or row.body == LINES or row.body in KEEPALIVED, name
        if row.support in (Support.IGNORED, Support.NOT_YET, Support.OBSOLETE, Support.REFUSED, Support.UNSUPPORTED):
            assert row.reason, name
        if row.means:
            assert row.means in KEEPALIVED[block], name


@pytest.mark.parametrize(
    ("block", "count"),
    [("", 28), ("global_defs", 143), ("vrrp_instance", 71), ("virtual_server", 43), ("real_server", 27), ("url", 11)],
)
def test_no_row_is_lost(block, count):
    """Every block is a mapping by name: a name that is written twice in it would hide a row."""
    assert len(KEEPALIVED[block]) == count


def test_the_page_of_the_documentation_is_up_to_date():
    kept = Path(__file__).parents[2] / "docs" / "reference" / "keepalived-conf.md"
    assert kept.read_text() == page(), "python -m keepalived_compat.manual > docs/reference/keepalived-conf.md"


@pytest.mark.parametrize("block", KEEPALIVED)
def test_rows_say_how_their_arguments_are_written(block):
    for row in rows(block):
        if row.kind in ("words", "script") and row.status is not Status.OBSOLETE:
            assert row.argument not in ("words", "[words]", "script", "[script]"), row.keyword


def test_a_release_is_named_for_every_word_of_keepalived():
    without = {(row.block, row.keyword) for name in blocks() for row in rows(name) if not row.since}
    never = {row for row in without if row[1] in ("inhibit_on_fail", "nb_get_retry")}
    checks = {row for row in without if row[0] in ("real_server", "host")}
    obsolete = {(row.block, row.keyword) for name in blocks() for row in rows(name) if row.status is Status.OBSOLETE}
    assert without == never | checks | (obsolete & without)


def test_facts_kept_apart_belong_to_rows():
    for release, by_block in SINCE.items():
        for block, names in by_block.items():
            assert set(names.split()) <= set(KEEPALIVED[block]), (release, block)
    for block, partly in PARTLY.items():
        assert set(partly) <= set(KEEPALIVED[block]), block
    for block, limited in LIMITED.items():
        assert set(limited) <= set(KEEPALIVED[block]), block
    for block, defaults in DEFAULTS.items():
        assert set(defaults) <= set(KEEPALIVED[block]), block
    names = {row.keyword for name in blocks() for row in rows(name)}
    assert set(SYNTAX) | set(UNITS) | {name for _, name in SYNTAX_IN} <= names


def test_regex_options_that_are_planned_are_those_that_a_check_refuses():
    refused = set(REGEX_OPTIONS) - set(_INLINE) - set(_HARMLESS)
    assert set(PARTLY["url"]["regex_options"].split(", ")) == refused


def test_a_row():
    (row,) = [each for each in rows("vrrp_instance") if each.keyword == "priority"]
    assert (row.low, row.high, row.default, row.since, row.status) == (1, 255, "100", "1.0.3", Status.SUPPORTED)
    assert row.argument == "integer 1 to 255"


class TestCommand:
    def test_a_block(self):
        result = CliRunner().invoke(keywords, ["authentication"])
        assert result.exit_code == 0
        assert result.output.splitlines()[:2] == [
            "authentication:",
            "  auth_type PASS | AH  # default none; since 1.0.3",
        ]

    def test_a_keyword_in_every_block_that_has_it(self):
        result = CliRunner().invoke(keywords, ["nb_get_retry"])
        assert [each for each in result.output.splitlines() if each[0] != " "] == [
            "TCP_CHECK:",
            "HTTP_GET:",
            "SSL_GET:",
            "SMTP_CHECK:",
        ]

    def test_a_word_that_is_a_block_and_a_keyword(self):
        lines = CliRunner().invoke(keywords, ["real_server"]).output.splitlines()
        assert [each for each in lines if each[0] != " "] == ["real_server:", "virtual_server:"]
        assert any(each.startswith("  weight ") for each in lines)
        assert any(each.startswith("  real_server ") for each in lines)

    @pytest.mark.parametrize(
        ("word", "planned"),
        [
            ("regex_options", "planned: allow_empty_class"),
            ("omega", "planned: stopping runs no notify_down"),
            ("persistence_engine", "not supported: the forwarder does not read"),
        ],
    )
    def test_what_is_planned_stands_on_the_line_of_its_keyword(self, word, planned):
        lines = CliRunner().invoke(keywords, []).output.splitlines()
        assert [each for each in lines if each.startswith(f"  {word} ") and planned in each]

    def test_json_is_the_whole_table(self):
        found = json.loads(CliRunner().invoke(keywords, ["--json"]).output)
        assert found["schema"] == "haxlb.keywords/1"
        assert len(found["keywords"]) == sum(len(each) for each in KEEPALIVED.values())

    def test_an_unknown_name_is_a_wrong_usage_with_a_hint(self):
        result = CliRunner().invoke(keywords, ["vrrp_instanc"])
        assert result.exit_code == 2
        assert "did you mean `vrrp_instance`?" in result.output

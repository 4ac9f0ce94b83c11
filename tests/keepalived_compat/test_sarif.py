"""SARIF 2.1.0, and the forms of output of the command."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from haxlb.cli.check import check
from keepalived_compat.diagnostics import Diagnostic, Related, Severity
from keepalived_compat.sarif import as_sarif
from keepalived_compat.source import Span

SPAN = Span("/etc/k.conf", 2, 12, 15)


def test_a_log_with_one_result():
    related = (Related(span=Span("sub/x.conf", 1, 4, 7), message="it is defined here"),)
    found = Diagnostic(
        code="a-code", severity=Severity.FATAL, span=SPAN, message="it is wrong", hint="do it", related=related
    )
    log = as_sarif([found], tool="t", version="1")
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["tool"]["driver"] == {"name": "t", "version": "1", "rules": [{"id": "a-code"}]}
    assert run["results"] == [
        {
            "ruleId": "a-code",
            "ruleIndex": 0,
            "level": "error",
            "message": {"text": "it is wrong (do it)"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "file:///etc/k.conf"},
                        "region": {"startLine": 2, "startColumn": 12, "endColumn": 15},
                    }
                }
            ],
            "properties": {"severity": "fatal"},
            "relatedLocations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "sub/x.conf"},
                        "region": {"startLine": 1, "startColumn": 4, "endColumn": 7},
                    },
                    "message": {"text": "it is defined here"},
                }
            ],
        }
    ]


def test_rules_are_named_once():
    found = [
        Diagnostic(code=code, severity=Severity.NOTE, span=SPAN, message=str(number))
        for number, code in enumerate(("b", "a", "b"))
    ]
    (run,) = as_sarif(found, tool="t", version="1")["runs"]
    assert [each["id"] for each in run["tool"]["driver"]["rules"]] == ["a", "b"]
    assert [each["ruleIndex"] for each in run["results"]] == [1, 0, 1]


@pytest.fixture
def run(tmp_path):
    def of(text, *options):
        path = tmp_path / "k.conf"
        path.write_text(text)
        return CliRunner().invoke(check, ["-f", str(path), "--no-interfaces", *options])

    return of


def test_the_command_prints_it(run):
    result = run("nonsense\n", "--format", "sarif")
    assert result.exit_code == 5
    assert json.loads(result.output)["runs"][0]["results"][0]["ruleId"] == "unknown-keyword"


def test_json_in_both_spellings(run):
    assert run("nonsense\n", "--format", "json").output == run("nonsense\n", "--json").output


def test_a_config_id_selects_lines(run):
    text = "@one nonsense\n@^one global_defs {\n@^one }\n"
    assert "unknown-keyword" in run(text, "-i", "one").output
    assert "unknown-keyword" not in run(text, "--config-id", "two").output

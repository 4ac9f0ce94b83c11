"""Beside keepalived 2.2.7: each line that it complains of has a complaint of ours, or is a listed difference."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from haxlb.config import load
from keepalived_compat.diagnostics import Severity
from keepalived_compat.reading import read
from keepalived_compat.tree import Body, Statement

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
DIFFERENCES = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"
HOST = "some-host"
"""The verdicts were made on a host that no file names in an `@` line."""

pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not beside this repository")


@dataclass(frozen=True)
class Complaint:
    path: Path
    line: int
    message: str


def verdicts() -> list[tuple[Path, str, list[Complaint]]]:
    found = []
    for table in sorted(CORPUS.glob("*-verdicts.tsv")):
        directory = CORPUS / table.name.removesuffix("-verdicts.tsv")
        with table.open(newline="") as rows:
            for file, code, messages in list(csv.reader(rows, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]:
                path = directory / file
                lines = re.findall(r"Line (\d+)\) *([^|]*)", messages)
                found.append((path, code, [Complaint(path, int(line), message) for line, message in lines]))
    return found


VERDICTS = verdicts()
LINES = [each for _, _, complaints in VERDICTS for each in complaints]


def blocks(body: Body, around: tuple[Statement, ...] = ()):
    for statement in body.statements:
        if statement.body is not None:
            yield statement, around
            yield from blocks(statement.body, (*around, statement))


class Differences:
    """A name of a section of differences.md, and what belongs to it."""

    def __init__(self, complaint: Complaint) -> None:
        self.complaint = complaint
        self.tree = read(complaint.path, config_id=HOST).tree
        self.said = load(complaint.path, settings=None, node=HOST).diagnostics

    def within(self):
        """The blocks that the line is in, their last line included."""
        for statement, _ in blocks(self.tree):
            closing = statement.body.closing
            if closing is not None and statement.keyword.line <= self.complaint.line <= closing.line:
                yield statement, closing

    def said_at(self, line: int, *codes: str) -> bool:
        return any(each.span.line == line and (not codes or each.code in codes) for each in self.said)

    def follow_up(self) -> bool:
        if not re.match(r"Unknown keyword|Unexpected '\{'", self.complaint.message):
            return False
        unread = ("unknown-keyword", "misplaced-keyword", "obsolete")
        for statement, closing in self.within():
            if self.said_at(statement.keyword.line, *unread):
                return True
            in_value = any(
                self.said_at(line, "undefined-name") for line in range(statement.keyword.line, self.complaint.line)
            )
            if closing.line == self.complaint.line and in_value:
                return True
        return False

    def place(self) -> bool:
        wanted = re.match(r"Warning - empty|No script set|Unable to set default user", self.complaint.message)
        return wanted is not None and any(
            closing.line == self.complaint.line and self.said_at(statement.keyword.line)
            for statement, closing in self.within()
        )

    def host(self) -> bool:
        name = re.search(r"track script (\S+) not found", self.complaint.message)
        if name is None:
            accounts = ("Unable to set default user", "Error setting global script uid/gid", "Invalid smtp server")
            return self.complaint.message.startswith(accounts)
        return any(
            each.keyword.text == "vrrp_script" and each.words[1].text == name[1] for each in self.tree.statements
        )

    def blackhole(self) -> bool:
        if "cannot track route" not in self.complaint.message:
            return False
        return any(
            inner.keyword.line == self.complaint.line and inner.keyword.text == "blackhole"
            for statement, _ in self.within()
            for inner in statement.body.statements
        )

    def reasons(self) -> list[str]:
        return [name for name in NAMES if getattr(self, name.replace("-", "_"))()]


BAD = (Severity.FATAL, Severity.ERROR)
NAMES = ("follow-up", "place", "host", "blackhole")


@pytest.fixture(scope="module")
def unsaid() -> list[Complaint]:
    """Complaints of keepalived on lines where there is none of ours."""
    said = {
        path: {each.span.line for each in load(path, settings=None, node=HOST).diagnostics} for path, _, _ in VERDICTS
    }
    return [each for each in LINES if each.line not in said[each.path]]


def test_what_keepalived_complains_of_is_complained_of_or_listed(unsaid):
    reasons = {each: Differences(each).reasons() for each in unsaid}
    assert [each for each, found in reasons.items() if not found] == []
    assert len(unsaid) < len(LINES) / 5


def test_each_listed_difference_happens(unsaid):
    listed = re.findall(r"^### (.+)$", DIFFERENCES.read_text(), re.MULTILINE)
    assert tuple(listed) == NAMES
    assert {name for each in unsaid for name in Differences(each).reasons()} == set(NAMES)


@pytest.mark.parametrize("path", [path for path, code, _ in VERDICTS if code == "0"], ids=lambda path: path.name)
def test_what_keepalived_takes_without_a_word_is_no_error_but_for_what_is_planned(path):
    bad = [each for each in load(path, settings=None, node=HOST).diagnostics if each.severity in BAD]
    assert [each for each in bad if each.code != "not-supported-yet"] == []

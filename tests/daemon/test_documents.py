"""The reference says of each shape what the code has: no field more, none less."""

from __future__ import annotations

import re
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from haxlb.daemon import control, handover
from haxlb.daemon.history import describe
from haxlb.model import status
from haxlb.model.errors import Bug, ConfigError, HostError, NotPermitted, Unreachable
from tests.daemon.test_history import EXAMPLES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SHAPES = [each for each in vars(status).values() if isinstance(each, type) and is_dataclass(each)]


def rows(text: str) -> list[str]:
    """First cells of table rows, those that are code."""
    return [name for line in text.splitlines() if line.startswith("| `") for name in [line.split("`")[1]]]


def sections(name: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", (REFERENCE / name).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda each: each.__name__)
def test_every_field_of_the_status(shape):
    assert rows(sections("status.md")[shape.__name__]) == [each.name for each in fields(shape)]


def test_every_shape_of_the_status():
    assert set(sections("status.md")) == {each.__name__ for each in SHAPES}


def test_every_request_and_its_fields():
    text = sections("control.md")["Requests"]
    described = {line.split("`")[1]: line.split("|")[2] for line in text.splitlines() if line.startswith("| `")}
    requests = {each.__name__: each for each in typing.get_args(control.Request)}
    assert set(described) == set(requests)
    for name, cell in described.items():
        assert re.findall(r"`(\w+)`", cell) == [each.name for each in fields(requests[name])]


def test_every_field_of_the_replies():
    text = sections("control.md")["Replies"]
    named = {name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    for shape in (control.Step, control.Answer):
        assert {each.name for each in fields(shape)} <= named


def test_every_step_of_a_hand_over():
    source = Path(handover.__file__).read_text()
    used = set(re.findall(r'self\._tell\(instance, "(\w+)"', source)) | set(re.findall(r'step="(\w+)"', source))
    assert set(rows(sections("control.md")["The steps of a hand-over"])) == used


def test_every_exit_code_of_an_error():
    text = (REFERENCE / "exit-codes.md").read_text()
    for kind in (ConfigError, HostError, NotPermitted, Unreachable, Bug):
        assert f"\n| {kind.exit_code} |" in text


def test_every_fact_that_becomes_an_event():
    (line,) = (
        line for line in sections("mqtt.md")["Payloads"].splitlines() if line.startswith("| `type` | `RoleChanged`")
    )
    lasting = {type(fact).__name__ for fact in EXAMPLES if describe(fact).lasting}
    assert set(re.findall(r"`(\w+)`", line)) - {"type"} == lasting

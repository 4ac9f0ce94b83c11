"""docs/reference/check.md names every code that can come out, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAYING = ("fatal", "error", "warning", "note", "complain")


def said() -> set[str]:
    found: set[str] = set()
    for path in [*(ROOT / "keepalived_compat").rglob("*.py"), *(ROOT / "haxlb" / "config").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            arguments = node.args[1:2] if name == "add" else node.args[:1] if name in SAYING else []
            found |= {
                each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
    return found | {"undefined-name"}


def documented() -> set[str]:
    text = (ROOT / "docs" / "reference" / "check.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \|", text.split("## Codes")[1], re.MULTILINE)
    return {code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row)}


def test_codes_are_documented():
    assert said() == documented()

"""docs/reference/diagnostics.md: it has every code, and each example brings its code and no other."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from haxlb.config import load
from keepalived_compat.diagnostics import UNDEFINED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "diagnostics.md"
CONF, SETTINGS = Path("/etc/keepalived/keepalived.conf"), Path("/etc/haxlb/haxlb.yml")
SAYING = ("fatal", "error", "warning", "note", "complain")

INSTANCE = """\
vrrp_instance VI {
    interface eth0
    virtual_router_id 50
    virtual_ipaddress {
        192.0.2.1/24
    }
"""
SERVER = """\
virtual_server 192.0.2.1 80 {
    lb_algo rr
    lb_kind DR
    protocol TCP
"""
REAL = """\
    real_server 192.0.2.21 80 {
        TCP_CHECK {
        }
    }
"""


@dataclass(frozen=True)
class Example:
    code: str
    language: str
    """keepalived, yaml, escaped (bytes written as in Python), path (a file that is missing)."""
    options: frozenset[str]
    text: str

    def option(self, name: str) -> str:
        return next((each.partition("=")[2] for each in self.options if each.startswith(f"{name}=")), "")

    def files(self) -> dict[Path, bytes]:
        match self.language:
            case "yaml":
                return {CONF: b"", SETTINGS: self.text.encode()}
            case "escaped":
                text = "".join(self.text.splitlines())
                return {CONF: text.encode("latin-1").decode("unicode_escape").encode("latin-1")}
            case "path":
                return {}
        return {CONF: self._configuration().encode()}

    def _configuration(self) -> str:
        text = self.text
        if "long" in self.options:
            text = text.replace("…", "x" * 1500)
        if "many" in self.options:
            text = text.replace("…", "\n".join(f"10.1.1.{number}" for number in range(256)))
        server = SERVER.replace("rr", "sh") if self.option("clean") == "sh" else SERVER
        match self.option("in"):
            case "global_defs":
                return f"global_defs {{\n{text}\n}}\n"
            case "vrrp_instance":
                return f"{INSTANCE}{text}\n}}\n"
            case "virtual_server":
                return f"{INSTANCE}}}\n{server}{text}\n{REAL}}}\n"
            case "real_server":
                real = REAL.replace("        TCP_CHECK {\n        }\n", text + "\n")
                return f"{INSTANCE}}}\n{SERVER}{real}}}\n"
        return f"{INSTANCE}}}\n{text}\n" if self.option("clean") == "vip" else text + "\n"


class Files:
    def __init__(self, files: dict[Path, bytes]) -> None:
        self._files = files

    def read(self, path: Path) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(2, "No such file or directory")
        return self._files[path]

    def match(self, pattern: str, directory: Path) -> list[Path]:
        return [each for each in self._files if each == directory / pattern]

    def refusal(self, path: Path) -> str:
        return ""

    def identity(self, path: Path) -> str:
        return str(path)


def examples() -> list[Example]:
    found = []
    for section in PAGE.read_text().split("\n### ")[1:]:
        code = section.split("\n", 1)[0].strip()
        for language, options, text in re.findall(
            r"^```(\w+) ?([^\n]*)\n(.*?)\n```$", section, re.MULTILINE | re.DOTALL
        ):
            found.append(Example(code, language, frozenset(options.split()), text))
    return found


def said() -> set[str]:
    """Codes that stand in the sources as the code of a complaint."""
    found = {UNDEFINED}
    for path in [*(ROOT / "keepalived_compat").rglob("*.py"), *(ROOT / "haxlb" / "config").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            arguments = node.args[1:2] if name == "add" else node.args[:1] if name in SAYING else []
            found |= {
                each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
    return found


EXAMPLES = examples()


def test_every_code_has_an_example_and_no_other_is_there():
    assert {each.code for each in EXAMPLES} == said()
    assert PAGE.read_text().count("\nFix: ") == len(said())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.code)
def test_an_example_brings_its_code_and_no_other(example):
    loaded = load(
        CONF,
        settings=SETTINGS,
        interfaces=frozenset({"eth0", "eth1"}),
        networks=(IPv4Network("192.0.2.0/24"),),
        accounts=lambda user, _: "there is no such user" if user == "nobody-here" else "",
        programs=lambda argv: "there is no such file" if argv[0].endswith("not-here") else "",
        insecurities=lambda command: "others can change it" if command.argv[0].endswith("insecure") else "",
        node="lb1",
        reader=Files(example.files()),
    )
    also = set(filter(None, example.option("also").split(",")))
    found = {each.code for each in loaded.diagnostics}
    if "vrrp_instance" not in example.text:  # most examples are a part of a file
        found -= {"nothing-to-do"} - {example.code}
    assert found == {example.code} | also

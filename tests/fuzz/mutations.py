"""Random mutations of real configurations: only diagnostics may come of them, in time that is linear in their size.

`make fuzz` runs a million; `python -m tests.fuzz.mutations COUNT [SEED]` as many as one likes. One seed gives one run.
The first file that fails is kept beside the report.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from haxlb.config import load
from keepalived_compat.diagnostics import Severity
from keepalived_compat.keywords import KEEPALIVED
from keepalived_compat.printer import canonical
from keepalived_compat.reading import read
from keepalived_compat.rendering import as_json, as_text
from keepalived_compat.sarif import as_sarif

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
OWN = Path(__file__).parents[1] / "config" / "data"
CONF = Path("/etc/keepalived/keepalived.conf")
KEYWORDS = sorted({name for rows in KEEPALIVED.values() for name in rows})
PIECES = [
    *(
        "{",
        "}",
        "{\n",
        "}\n",
        "\n",
        '"',
        "'",
        "#",
        "!",
        "\\",
        "\\\n",
        "\t",
        "\r\n",
        " ",
        "/",
        "-",
        "\0",
        "\u00a0",
        "\ufeff",
    ),
    *("$A", "${A}", "$A=1 \\\n", "$A=${A}", "${_RANDOM}", "${_ENV X}", "${_PWD}", "~SEQ(i,1,3) ", "~SEQ(i,1,999) $A"),
    *(
        "~LST({a,b},{1,2}) ",
        "@lb1 ",
        "@^lb1 ",
        "@",
        "include keepalived.conf\n",
        "includea {a,b}\n",
        "{{ x }}",
        "{% x %}",
    ),
    *(
        "0",
        "1",
        "-1",
        "255",
        "256",
        "65536",
        "4294967296",
        "1e9",
        "0x10",
        "5s",
        "10.0.0.1",
        "10.0.0.1/33",
        "::1",
        "fe80::/64",
    ),
    *(
        "10.0.0.1-300",
        "fwmark",
        "group",
        "weight",
        "reverse",
        "dev",
        "via",
        "table",
        "x" * 300,
        "\U0001f600",
        "true",
        "no",
    ),
]
SLOWEST_S = 5
"""CPU seconds that one file may take."""


class Memory:
    """One file; every include finds it again."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, path: Path) -> bytes:
        return self._content

    def match(self, pattern: str, directory: Path) -> list[Path]:
        return [CONF]

    def refusal(self, path: Path) -> str:
        return ""

    def identity(self, path: Path) -> str:
        return str(path)


def seeds() -> list[str]:
    """The files to begin with."""
    paths = sorted(each for each in CORPUS.glob("*/*") if each.is_file()) or sorted(OWN.glob("*.conf"))
    return [each.read_text(errors="replace") for each in paths]


def mutations(files: list[str], seed: int) -> Iterator[bytes]:
    """Files without end."""
    chance = random.Random(seed)
    while True:
        text = chance.choice(files)
        for _ in range(chance.choice((1, 1, 2, 3, 8))):
            text = _mutated(text, files, chance)
        content = text.encode(errors="surrogatepass")
        if chance.random() < 0.02 and content:
            place = chance.randrange(len(content))
            content = content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]
        yield content


def _mutated(text: str, files: list[str], chance: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = chance.randrange(len(lines))
    match chance.randrange(11):
        case 0:
            del lines[at]
        case 1:
            lines[at] *= chance.choice((2, 3, 50))
        case 2:
            other = chance.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        case 4 | 5:
            place = chance.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + chance.choice(PIECES) + lines[at][place:]
        case 6:
            words = lines[at].split(" ")
            words[chance.randrange(len(words))] = chance.choice((*PIECES, *KEYWORDS))
            lines[at] = " ".join(words)
        case 7:
            other_lines = chance.choice(files).splitlines(keepends=True)
            begin = chance.randrange(len(other_lines) + 1)
            lines[at:at] = other_lines[begin : begin + chance.randrange(1, 20)]
        case 8:
            lines = lines[:at]
        case 9:
            lines[at] = lines[at].rstrip("\n")
        case _:
            braces = [number for number, line in enumerate(lines) if "{" in line or "}" in line]
            if braces:
                chosen = chance.choice(braces)
                lines[chosen] = lines[chosen].replace(chance.choice("{}"), "", 1)
    return "".join(lines)


def survives(content: bytes) -> None:
    """Raises AssertionError, or whatever went wrong."""
    begin = time.process_time()
    reader = Memory(content)
    loaded = load(CONF, settings=None, node="lb1", interfaces=frozenset({"eth0"}), reader=reader)
    assert (loaded.config is None) == any(each.severity is Severity.FATAL for each in loaded.diagnostics)
    for each in loaded.diagnostics:
        as_text(each, loaded.sources).encode()
        assert each.message
        assert each.span.line >= 1
        assert 1 <= each.span.column <= each.span.end_column
    json.dumps([as_json(loaded.diagnostics), as_sarif(loaded.diagnostics, tool="t", version="1")]).encode()
    once = canonical(read(CONF, config_id="lb1", reader=reader).tree)
    again = canonical(read(CONF, config_id="lb1", reader=Memory(once.encode(errors="surrogatepass"))).tree)
    # A name that was left because something is glued to it may be printed with a blank behind it.
    assert again == once or "$" in once, "what was printed is read as something else"
    spent = time.process_time() - begin
    assert spent < SLOWEST_S, f"{spent:.1f} s"


def main(count: int, seed: int) -> int:
    begin = time.perf_counter()
    slowest = 0.0
    for number, content in enumerate(mutations(seeds(), seed), 1):
        before = time.process_time()
        try:
            survives(content)
        except Exception:  # noqa: BLE001 - whatever it is, it is the find
            traceback.print_exc()
            with tempfile.NamedTemporaryFile(suffix=".conf", delete=False) as kept:
                kept.write(content)
            print(f"mutation {number} of seed {seed}: {kept.name}")
            return 1
        slowest = max(slowest, time.process_time() - before)
        if number % 10_000 == 0 or number >= count:
            spent = time.perf_counter() - begin
            print(f"{number} mutations in {spent:.0f} s, slowest {slowest:.2f} s", flush=True)
        if number >= count:
            return 0
    return 0


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    sys.exit(main(given[0] if given else 1_000_000, given[1] if len(given) > 1 else 1))

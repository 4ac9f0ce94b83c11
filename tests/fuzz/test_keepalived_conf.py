"""Whatever the bytes, only diagnostics come out of the configuration's readers."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from haxlb.config import load
from haxlb.model.node import NodeConfig
from haxlb.model.wire import from_json, to_json
from keepalived_compat.diagnostics import Severity
from keepalived_compat.keywords import KEEPALIVED
from keepalived_compat.rendering import as_json, as_text
from tests.fuzz.mutations import mutations, seeds
from tests.fuzz.mutations import survives as mutations_survives

GATE = settings(derandomize=True, deadline=None, max_examples=400)
"""In the gate every run tries the same inputs."""

DATA = Path(__file__).parents[1] / "config" / "data"
TEXT = (DATA / "master.conf").read_text() + (DATA / "backup.conf").read_text().replace("VI_1", "VI_2")
LINES = TEXT.splitlines(keepends=True)
WORDS = sorted({name for rows in KEEPALIVED.values() for name in rows} | {each.strip('"') for each in TEXT.split()})
CONF = Path("/etc/keepalived/keepalived.conf")
YAML = Path("/etc/haxlb/haxlb.yml")


class Memory:
    """Two files; every include finds the first of them again."""

    def __init__(self, conf: bytes, yaml: bytes = b"") -> None:
        self.files = {CONF: conf, YAML: yaml}

    def read(self, path: Path) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory")
        return self.files[path]

    def match(self, pattern: str, directory: Path) -> list[Path]:
        return [CONF]

    def refusal(self, path: Path) -> str:
        return ""

    def identity(self, path: Path) -> str:
        return str(path)


def survives(conf: bytes, yaml: bytes = b"") -> None:
    """Loading yields a configuration or a fatal complaint, and every complaint can be shown and sent."""
    loaded = load(CONF, settings=YAML, node="lb1", interfaces=frozenset({"eth0"}), reader=Memory(conf, yaml))
    fatal = any(each.severity is Severity.FATAL for each in loaded.diagnostics)
    assert (loaded.config is None) == fatal
    for each in loaded.diagnostics:
        assert as_text(each, loaded.sources).encode()
        line, column, end_column = each.span[1:]
        assert line >= 1
        assert 1 <= column <= end_column
        assert each.message
    json.dumps(as_json(loaded.diagnostics)).encode()
    if loaded.config is not None:
        sent = json.dumps(to_json(loaded.config)).encode()
        assert from_json(NodeConfig, json.loads(sent)) == loaded.config


@GATE
@given(st.binary(max_size=400))
@example(b"")
@example(b"\0")
@example(b"{" * 1000)
@example(b"}" * 1000)
@example(b'"')
@example(b"$")
@example(b"${}")
@example(b"$A=\\")
@example(b"@")
@example(b"@^")
@example(b"~SEQ")
@example(b"include {")
@example(b"include " + b"{a,b}" * 40)
@example(b"\xed\xa0\x80 x")
@example("vrrp_instance \u2028 {\n}".encode())
def test_any_bytes(content):
    survives(content)


PIECES = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(["{", "}", "\n", "\n", "\n", '"', "'", "#", "!", "\\", "$A", "${A}", "$A=1", "@lb1 ", "include x"]),
    st.integers(-3, 70000).map(str),
    st.text(max_size=5),
)


@GATE
@given(st.lists(PIECES, max_size=60).map(" ".join))
def test_any_words(text):
    survives(text.encode(errors="surrogatepass"))


@st.composite
def mutated(draw):
    """The pair's configuration with a few lines or characters lost, doubled, swapped or replaced."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 6))):
        where = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "double", "swap", "cut", "insert", "word"])):
            case "drop":
                lines[where] = "\n"
            case "double":
                lines[where] *= 2
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[where], lines[other] = lines[other], lines[where]
            case "cut":
                at = draw(st.integers(0, len(lines[where])))
                lines[where] = lines[where][:at]
            case "insert":
                at = draw(st.integers(0, len(lines[where])))
                lines[where] = lines[where][:at] + draw(PIECES) + lines[where][at:]
            case "word":
                words = lines[where].split(" ")
                words[draw(st.integers(0, len(words) - 1))] = draw(PIECES)
                lines[where] = " ".join(words)
    return "".join(lines)


@GATE
@given(mutated())
def test_a_damaged_configuration(text):
    survives(text.encode(errors="surrogatepass"))


@pytest.mark.parametrize("number", [n for n, line in enumerate(LINES) if "{" in line or "}" in line])
def test_every_brace_that_is_lost_is_said(number):
    text = "".join(line for n, line in enumerate(LINES) if n != number)
    loaded = load(CONF, settings=None, node="lb1", reader=Memory(text.encode()))
    assert loaded.config is None
    assert any("brace" in each.code for each in loaded.diagnostics)


YAML_WORDS = [
    *("mqtt", "forwarding", "host", "port", "password_file", "tls", "site", "interfaces", "mode", "auto", "true"),
    *("1883", "\n", *":-[]{},&*?|>!%@#"),
]
SETTINGS = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.one_of(
            st.sampled_from(YAML_WORDS),
            st.text(max_size=4),
        ),
        max_size=30,
    ).map(lambda words: " ".join(words).encode(errors="surrogatepass")),
)


@GATE
@given(SETTINGS)
@example(b"? [a]\n: b")
@example(b"&a [*a]")
@example(b"mqtt: &a {host: x}\nforwarding: *a")
@example(b"mqtt: {<<: {host: x}}")
@example(b"--- a\n--- b")
@example(b"!!python/object:os.system x")
def test_any_settings(content):
    survives(b"", content)


def test_mutations_of_real_files():
    """The same ones on every run; `make fuzz` goes on for a million."""
    for content, _ in zip(mutations(seeds(), seed=0), range(300), strict=False):
        mutations_survives(content)


GROWING = {
    "opening braces": "{\n",
    "closing braces": "}\n",
    "unclosed instances": "vrrp_instance A {\n",
    "unclosed servers": "virtual_server 10.0.0.1 80 {\n real_server 10.0.0.2 80 {\n  TCP_CHECK {\n",
    "unknown blocks": "foo {\n",
    "unknown words": "wrod x\n",
    "one word twice": "global_defs {\n router_id a\n router_id b\n}\n",
    "quotes": 'x "\n',
    "definitions": "$A=x\nrouter_id $A\n",
    "undefined names": "x ${UNDEFINED}\n",
    "misspelt names": "$NAME_OF_THIS_%=1\nx ${NAME_IF_THIS_%}\n",
    "conditions": "@lb2 x\n",
    "sequences": "~SEQ(i,1,3) x$i\n",
    "instances": "vrrp_instance A {\n interface eth0\n virtual_router_id 1\n virtual_ipaddress {\n  10.0.0.1\n }\n}\n",
    "servers": "virtual_server 10.0.0.1 80 {\n lb_algo rr\n lb_kind DR\n real_server 10.0.0.2 80 {\n }\n}\n",
    "tracks": "vrrp_instance A {\n track_script {\n  a weight 5\n }\n}\n",
    "routes": "static_routes {\n default via 10.0.0.1\n}\n",
    "comments": "# x\n! y\n",
}


def repeated(text: str, times: int) -> str:
    """The text over and over, with the number of the repetition for each %."""
    return "".join(text.replace("%", str(each)) for each in range(times))


def spent(text: str) -> float:
    """CPU seconds, without the collector: it walks through all that other tests have left."""
    gc.disable()
    try:
        begin = time.process_time()
        load(CONF, settings=None, node="lb1", reader=Memory(text.encode()))
        return time.process_time() - begin
    finally:
        gc.enable()


@pytest.mark.parametrize("text", GROWING.values(), ids=GROWING)
def test_time_grows_with_size(text):
    """Four times the size: four times the time, with room; quadratic would be sixteen.

    The machine does other things too, which only ever makes a run longer: the shortest of some counts.
    """
    repeats = 400 // text.count("\n")
    small = large = float("inf")
    for _ in range(6):
        small = min(small, spent(repeated(text, repeats)))
        large = min(large, spent(repeated(text, 4 * repeats)))
        if large < 9 * small:
            return
    pytest.fail(f"{large * 1000:.1f} ms for four times what took {small * 1000:.1f} ms")

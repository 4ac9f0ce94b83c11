"""Public configurations with random mistakes: whatever comes of them is printed, explained and compared."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from haxlb.cli.explain_config import explain
from haxlb.config import load
from haxlb.config.consequences import Fate, consequences
from haxlb.config.diff import plan_reload
from haxlb.config.printer import keepalived_conf
from haxlb.config.verdict import verdict
from tests.config.conftest import CONF, OnlyThese

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
TEXTS = [each.read_text(errors="replace") for each in sorted(CORPUS.glob("*/*")) if each.is_file()]
WORDS = sorted({word for text in TEXTS for word in text.split()})
ROUNDS = 500

pytestmark = pytest.mark.skipif(not TEXTS, reason="the corpus is not beside this repository")


def mutated(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines))
        line = lines[at]
        match chance.randrange(6):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(chance.choice(TEXTS).split("\n")))
            case 2 if words := line.split():
                words[chance.randrange(len(words))] = chance.choice(WORDS)
                lines[at] = " ".join(words)
            case 3:
                lines[at] = line.replace("1", str(chance.randrange(100_000)))
            case 4:
                column = chance.randrange(len(line) + 1)
                lines[at] = line[:column] + chance.choice("{}\"'#$~@\\ -.:/0") + line[column:]
            case _:
                lines[at] = f"{line} {chance.choice(WORDS)}"
    return "\n".join(lines)


def loaded(text: str):
    return load(CONF, settings=None, node="high", reader=OnlyThese({CONF: text}))


def test_what_can_be_used_survives_printing_and_is_explained():
    chance = random.Random(1)
    used = 0
    former = None
    for _ in range(ROUNDS):
        text = mutated(chance.choice(TEXTS), chance)
        found = loaded(text)
        assert verdict(found, runnable=lambda _: True).value in (0, 2, 4, 5, 6)
        assert explain(found)
        config = found.config
        if config is None:
            continue
        used += 1
        assert loaded(keepalived_conf(config, secrets=True)).config == config, text
        assert all(each.fate is Fate.KEPT for each in consequences(config, config))
        if former is not None:
            touched = any(each.fate is not Fate.KEPT for each in consequences(former, config))
            assert touched != plan_reload(former, config).empty
        former = config
    assert used > ROUNDS // 4

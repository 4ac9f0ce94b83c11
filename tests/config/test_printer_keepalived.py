"""keepalived takes what is printed of the files that it takes."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from haxlb.config import load
from haxlb.config.printer import keepalived_conf

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
TUTORIAL = sorted((Path(__file__).parents[2] / "docs" / "tutorial").glob("*.conf"))

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(shutil.which("keepalived") is None, reason="keepalived is not installed"),
]


def taken() -> list[Path]:
    """The public files that keepalived has no complaint about."""
    found = []
    for table in CORPUS.glob("*-verdicts.tsv"):
        directory = CORPUS / table.name.removesuffix("-verdicts.tsv")
        with table.open(newline="") as rows:
            read = csv.reader(rows, delimiter="\t", quoting=csv.QUOTE_NONE)
            found += [directory / row[0] for row in read if row[1] == "0"]
    return sorted(found)


@pytest.fixture(scope="module")
def namespace():
    """Every interface that a file names is eth0 here."""
    name = f"hxpk{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"], check=True)
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.parametrize("path", [*taken(), *TUTORIAL], ids=lambda path: path.name)
def test_keepalived_has_no_complaint_about_what_is_printed(namespace, tmp_path, path):
    config = load(path, settings=None, node="high").config
    assert config is not None
    text = keepalived_conf(config, secrets=True)
    text = re.sub(r"^( +interface) .*", r"\1 eth0", text, flags=re.MULTILINE)
    printed = tmp_path / "printed.conf"
    printed.write_text(re.sub(r" dev \S+", "", text))
    words = ["ip", "netns", "exec", namespace, "keepalived", "-t", "-f", str(printed)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

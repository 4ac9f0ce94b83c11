"""What tests load is what bcc makes of the C: tests/build_cache."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import haxlb
from haxlb.forwarding import layout
from haxlb.linux.forwarder_build import PYTHON
from haxlb.linux.teardown import tear_down
from tests.build_cache.place import USER_BASE, close_place, open_place

pytestmark = [pytest.mark.bpf, pytest.mark.timeout(900)]

ROOT = Path(haxlb.__file__).parent.parent
COMPARED = """
import os, sys, bcc
from haxlb.linux import compiler
class Compared(bcc.BPF):
    def __init__(self, *, text, cflags):
        super().__init__(text=text, cflags=cflags)
        made = bcc.by_bcc(text, cflags)
        others = [name for name in made if made[name] != self._code.get(name)]
        print("the same" if made and made.keys() == self._code.keys() and not others else others)
        sys.stdout.flush()
        os._exit(0)
bcc.BPF = Compared
compiler._seed = lambda maps: int(sys.argv[1])
compiler.main(sys.argv[2:])
"""


# A seed of either sign, and all that make use of it in a way of their own.
@pytest.mark.parametrize(("seed", "features"), [(0x1234_5678, "stateful"), (0xFEDC_BA98, "stateful,ipv6,any_port,nat")])
def test_descriptors_and_seed_written_into_a_build_are_as_if_compiled(seed: int, features: str, tmp_path: Path) -> None:
    directory = tmp_path / "bpf" / layout.ABI
    order = [f"--directory={directory}", f"--features={features}", "--flow-buckets-log2=10"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            [PYTHON, "-P", "-c", COMPARED, str(seed), *order],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    finally:
        tear_down(tmp_path)
    assert (done.stdout, done.stderr) == ("the same\n", "")


def test_a_build_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(USER_BASE)
    place = open_place()
    assert place is not None
    order = [f"--directory={tmp_path / 'bpf' / layout.ABI}", "--features=none", "--flow-buckets-log2=10"]
    command = [PYTHON, "-P", "-m", "haxlb.linux.compiler", *order]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        kept = []
        for _ in range(2):
            subprocess.run(command, capture_output=True, check=True, env=environment)
            kept.append([(each, each.stat().st_ino) for each in Path(place.name).rglob("*.json")])
    finally:
        close_place(place)
        tear_down(tmp_path)
    assert len(kept[0]) == 1
    assert kept[0] == kept[1]

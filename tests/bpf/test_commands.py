"""`haxlb bench pin` and `haxlb detach` as a user runs them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.linux import bpf
from haxlb.linux.bpffs import ensure_bpffs, is_bpffs, unmount
from haxlb.linux.forwarder_build import compile_forwarder
from haxlb.linux.instance_lock import InstanceLock
from haxlb.linux.teardown import tear_down
from tests.bpf.frames import tcp, udp

pytestmark = pytest.mark.bpf

FEW = Features.parse("stateful")
HAXLB = Path(sys.executable).with_name("haxlb")


def haxlb(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HAXLB, *map(str, words)], capture_output=True, text=True, check=False, timeout=200)


@pytest.fixture
def bpffs(tmp_path: Path) -> Iterator[Path]:
    ensure_bpffs(tmp_path / "fs")
    yield tmp_path / "fs"
    unmount(tmp_path / "fs")


@pytest.mark.parametrize(
    ("scheduler", "words"), [("rr", ()), ("wlc", ()), ("dh", ()), ("mh", ()), ("mh", ("--features", "all"))]
)
def test_a_pinned_specimen_forwards_and_goes_when_interrupted(
    bpffs: Path, tmp_path: Path, scheduler: str, words: tuple[str, ...]
) -> None:
    pin = bpffs / "ours"
    process = subprocess.Popen(
        [HAXLB, "bench", "pin", pin, "--scheduler", scheduler, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"pinned at {pin}\n"
            program = bpf.obj_get(pin)
            for frame in (tcp("S"), tcp("A"), udp()):
                assert bpf.prog_test_run(program, frame).verdict == bpf.XDP_TX
            os.close(program)
        finally:
            process.send_signal(signal.SIGINT if scheduler == "rr" else signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert not pin.exists()
    # Nothing of its own is left behind either.
    assert [each.name for each in tmp_path.iterdir()] == [bpffs.name]


def test_features_that_there_are_not(bpffs: Path) -> None:
    done = haxlb("bench", "pin", bpffs / "ours", "--features", "stateful,antigravity")
    assert done.returncode == 2
    assert "no such features: antigravity" in done.stderr


def test_a_path_outside_a_bpffs(tmp_path: Path) -> None:
    done = haxlb("bench", "pin", tmp_path / "ours")
    assert (done.returncode, done.stdout) == (71, "")
    assert (
        done.stderr
        == f"haxlb: {tmp_path}/ours does not lie in a bpffs (mkdir -p {tmp_path} && mount -t bpf bpf {tmp_path})\n"
    )


def test_a_path_that_is_taken(bpffs: Path) -> None:
    taken = bpf.map_create(bpf.MAP_TYPE_ARRAY, 4, 8, 1)
    bpf.obj_pin(taken, bpffs / "ours")
    os.close(taken)
    done = haxlb("bench", "pin", bpffs / "ours")
    assert done.returncode == 71
    assert "something is pinned at" in done.stderr


def test_a_name_that_bpffs_does_not_take(bpffs: Path) -> None:
    done = haxlb("bench", "pin", bpffs / "ours.new")
    assert done.returncode == 71
    assert "no dot in a name: ours.new" in done.stderr


@pytest.mark.parametrize("words", [["bench", "pin", f"bpf/{layout.ABI}/ours"], ["detach", "--runtime-dir", "."]])
def test_without_privileges_it_says_so_in_one_line(tmp_path: Path, words: list[str]) -> None:
    asyncio.run(compile_forwarder(tmp_path / "bpf" / layout.ABI, features=FEW))
    command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", HAXLB, *words]
    try:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
        assert (done.returncode, done.stdout) == (77, "")
        assert done.stderr.count("\n") == 1
        assert "run it as root" in done.stderr
    finally:
        tear_down(tmp_path)


def test_detach_removes_what_a_stopped_daemon_left(tmp_path: Path) -> None:
    asyncio.run(compile_forwarder(tmp_path / "bpf" / layout.ABI, features=FEW))
    for name in ("haxlb.pid", "control.sock", "verdicts.json"):
        (tmp_path / name).touch()
    done = haxlb("detach", "--runtime-dir", tmp_path)
    assert done.returncode == 0
    assert "removed map flows\n" in done.stdout
    assert "removed program prog-" in done.stdout
    assert not is_bpffs(tmp_path / "bpf")
    assert list(tmp_path.iterdir()) == []
    assert haxlb("detach", "--runtime-dir", tmp_path).stdout == "nothing to remove\n"
    assert haxlb("detach", "--runtime-dir", tmp_path / "none").stdout == "nothing to remove\n"
    assert list(tmp_path.iterdir()) == []


def test_detach_does_not_disturb_a_daemon_that_is_starting(tmp_path: Path) -> None:
    asyncio.run(compile_forwarder(tmp_path / "bpf" / layout.ABI, features=FEW))
    lock = InstanceLock(tmp_path)
    done = haxlb("detach", "--runtime-dir", tmp_path)
    assert done.returncode == 71
    assert f"another haxlb (pid {os.getpid()})" in done.stderr
    assert (tmp_path / "bpf" / layout.ABI / "flows").exists()
    lock.release()
    tear_down(tmp_path)


def test_detach_leaves_a_running_daemons_data_plane_alone(tmp_path: Path) -> None:
    asyncio.run(compile_forwarder(tmp_path / "bpf" / layout.ABI, features=FEW))
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as daemon:
        daemon.bind(str(tmp_path / "control.sock"))
        daemon.listen()
        done = haxlb("detach", "--runtime-dir", tmp_path)
    assert done.returncode == 71
    assert "haxlb is running" in done.stderr
    assert (tmp_path / "bpf" / layout.ABI / "flows").exists()
    tear_down(tmp_path)

"""The compiler process: what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import haxlb
from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.forwarding.layout import Sizes
from haxlb.linux import bpf
from haxlb.linux.bpffs import held, is_bpffs
from haxlb.linux.forwarder_build import PYTHON, compile_forwarder
from haxlb.linux.maps import Maps
from haxlb.linux.teardown import tear_down
from haxlb.model.errors import HostError, NotPermitted

pytestmark = pytest.mark.bpf

FEW = Features.parse("stateful")
"""All of them take bcc and the verifier some seconds."""
ROOT = Path(haxlb.__file__).parent.parent
ALTERED = """
import sys
from pathlib import Path
from haxlb.linux import compiler
compiler.sources = lambda: Path(sys.argv[1])
sys.exit(compiler.main(sys.argv[2:]))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "bpf" / layout.ABI
    tear_down(tmp_path)


def build(directory: Path, **options: Any) -> str:
    options.setdefault("features", FEW)
    return asyncio.run(compile_forwarder(directory, **options))


def say(*command: str | Path) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.count("\n") == 1, done.stderr
    assert done.stderr == ""
    answer: dict[str, str] = json.loads(done.stdout)
    assert done.returncode == ("problem" in answer)
    return answer


@pytest.fixture
def altered(tmp_path: Path) -> Path:
    """A copy of the C to be changed."""
    return Path(shutil.copytree(ROOT / "bpf", tmp_path / "source"))


def build_altered(source: Path, directory: Path) -> dict[str, str]:
    return say(PYTHON, "-c", ALTERED, source, "--directory", directory, f"--features={FEW.text}")


def test_it_mounts_makes_pins_and_says_where(directory: Path) -> None:
    path = Path(build(directory, services=70, flow_buckets_log2=10))
    assert is_bpffs(path)
    program = bpf.obj_get(path)
    info = bpf.program_info(program)
    os.close(program)
    assert (info.name, path.name) == ("haxlb", f"prog-{info.tag}-{info.id}")
    with Maps.open(directory) as maps:
        assert (maps.sizes.services, maps.sizes.flow_buckets_log2) == (70, 10)
        # Those that it needs, and its own parts.
        (parts,) = set(info.map_ids) - maps.ids()
        assert maps.is_parts(parts)
        assert {bpf.map_info(maps.fds[name]).id for name in ("endpoints", "services", "flows")} < set(info.map_ids)


def test_tables_of_which_some_were_removed_are_made_anew_as_a_whole(directory: Path) -> None:
    """What is left would speak of services that are not there."""
    build(directory)
    with Maps.open(directory) as maps:
        maps.write("endpoints", bytes(maps.shape("endpoints").key_size), bytes(8))
        former = maps.ids()
    (directory / "services").unlink()
    build(directory)
    with Maps.open(directory) as maps:
        assert not maps.ids() & former
        assert list(bpf.map_keys(maps.fds["endpoints"], maps.shape("endpoints").key_size)) == []


def test_somebody_who_never_ends_making_tables_is_named_and_not_waited_for(directory: Path) -> None:
    build(directory)
    with held(directory) as mine:
        assert mine
        with pytest.raises(HostError, match=f"another process has had {directory} locked for 1 s") as refused:
            Maps.create(directory, Sizes(), patience_s=1.0)
    assert "lslocks" in refused.value.remedy
    with Maps.open(directory) as maps, Maps.create(directory, maps.sizes, patience_s=0.0) as again:
        assert again.ids() == maps.ids()


def test_the_same_again_is_another_program_on_the_same_maps(directory: Path) -> None:
    first = bpf.obj_get(Path(build(directory)))
    second = bpf.obj_get(Path(build(directory)))
    one, two = bpf.program_info(first), bpf.program_info(second)
    os.close(first)
    os.close(second)
    assert one.id != two.id
    assert one.tag == two.tag
    with Maps.open(directory) as maps:
        # Each has parts of its own.
        assert set(one.map_ids) & maps.ids() == set(two.map_ids) & maps.ids()
        assert not (set(one.map_ids) & set(two.map_ids)) - maps.ids()


def test_a_larger_table_is_kept(directory: Path) -> None:
    build(directory, services=80, flow_buckets_log2=12)
    build(directory, services=64, flow_buckets_log2=10)
    with Maps.open(directory) as maps:
        assert (maps.sizes.services, maps.sizes.flow_buckets_log2) == (80, 12)


@pytest.mark.parametrize(
    "larger", [{"services": 65}, {"frontends": 257}, {"backends": 5000}, {"rings": 9000}, {"flow_buckets_log2": 17}]
)
def test_a_smaller_table_is_said_with_its_remedy(directory: Path, larger: dict[str, int]) -> None:
    build(directory)
    with pytest.raises(HostError, match=r"holds .* the configuration needs") as caught:
        build(directory, **larger)
    assert "haxlb detach" in caught.value.remedy


@pytest.mark.parametrize("most", [{"services": 65536}, {"frontends": 65536}, {"backends": 65536}])
def test_more_than_a_flow_can_remember(directory: Path, most: dict[str, int]) -> None:
    with pytest.raises(HostError, match="the forwarder can count 65535") as caught:
        build(directory, **most)
    assert "max_services" in caught.value.remedy


def test_a_map_of_another_shape_is_not_written_into(directory: Path) -> None:
    build(directory)
    (directory / "backends").unlink()
    foreign = bpf.map_create(bpf.MAP_TYPE_ARRAY, 4, 48, 4096, name="backends")
    bpf.obj_pin(foreign, directory / "backends")
    os.close(foreign)
    for attempt in (lambda: build(directory), lambda: Maps.open(directory)):
        with pytest.raises(HostError, match="backends is not a map of this version") as caught:
            attempt()
        assert "haxlb detach" in caught.value.remedy


def test_the_directory_of_a_daemon_of_another_version_is_left_as_it_is(directory: Path) -> None:
    """haxlb was upgraded on disk while an older one runs: the tables that it writes mean something else."""
    former = directory.with_name("1-former")
    for attempt in (lambda: build(former), lambda: Maps.open(former)):
        with pytest.raises(HostError, match="another version of haxlb than the one installed") as caught:
            attempt()
        assert "restart haxlb" in caught.value.remedy
    assert not former.exists()


@pytest.mark.parametrize(
    ("header", "former", "now"),
    [
        ("abi.h", "REASON_NEW_FLOW, ", "REASON_MOVED_FLOW_, "),
        ("abi.h", "#define BACKEND_ALIVE 0x01", "#define BACKEND_ALIVE 0x08"),
        ("maps.h", "MAP_OF(verdicts, PERCPU_ARRAY", "MAP_OF(verdicts, ARRAY"),
    ],
)
def test_source_with_shapes_of_another_version_is_refused(
    directory: Path, altered: Path, header: str, former: str, now: str
) -> None:
    """An installation that is half exchanged: the C is new, the Python is not."""
    text = (altered / header).read_text()
    assert former in text
    (altered / header).write_text(text.replace(former, now))
    answer = build_altered(altered, directory)
    assert "of different versions" in answer["problem"]
    assert "install haxlb anew" in answer["remedy"]
    assert not directory.exists()


def test_maps_that_are_not_there(directory: Path) -> None:
    with pytest.raises(HostError, match="no endpoints in") as caught:
        Maps.open(directory)
    assert "haxlb swap" in caught.value.remedy


def test_a_python_without_bcc(directory: Path) -> None:
    with pytest.raises(HostError, match="has no bcc") as caught:
        build(directory, python=sys.executable)
    assert "apt install python3-bpfcc" in caught.value.remedy


def test_no_python(directory: Path) -> None:
    with pytest.raises(HostError, match="cannot run /nonexistent/python3: No such file"):
        build(directory, python="/nonexistent/python3")


def test_a_python_that_says_something_else(directory: Path) -> None:
    with pytest.raises(HostError, match="ended with 0: no word"):
        build(directory, python=shutil.which("true"))


def test_without_capabilities(tmp_path: Path) -> None:
    command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", PYTHON, "-m", "haxlb.linux.compiler"]
    answer = say(*command, "--directory", tmp_path / "bpf" / layout.ABI)
    assert answer["problem"].startswith("cannot mount a bpffs at ")
    assert "as root" in answer["remedy"]
    assert answer["code"] == NotPermitted.exit_code


def test_a_directory_that_cannot_be_made() -> None:
    with pytest.raises(HostError, match="cannot make /proc/haxlb"):
        build(Path("/proc/haxlb/bpf") / layout.ABI)


def test_source_that_does_not_compile_is_said_in_one_line(directory: Path, altered: Path) -> None:
    (altered / "choose.h").write_text((altered / "choose.h").read_text() + "\nint oops(void) { return nonsense; }\n")
    answer = build_altered(altered, directory)
    assert "use of undeclared identifier 'nonsense'" in answer["problem"]
    assert "python3-bpfcc" in answer["remedy"]


def test_what_the_verifier_refuses_is_said_with_its_last_words(directory: Path, altered: Path) -> None:
    forward = (altered / "forward.c").read_text()
    marker = "\tfrontend = frontend_of(&packet, family);\n"
    assert marker in forward
    reach = "\tif (packet.source_port == 200)\n\t\treturn ((__u8 *)packet.frame)[5000];\n"
    (altered / "forward.c").write_text(forward.replace(marker, reach + marker))
    answer = build_altered(altered, directory)
    assert "the kernel refuses the BPF program haxlb" in answer["problem"]
    assert "offset is outside of the packet" in answer["problem"].partition("verifier: ")[2]


def test_programs_that_nothing_runs_are_removed(directory: Path, altered: Path) -> None:
    first = Path(build(directory))
    forward = (altered / "forward.c").read_text()
    (altered / "forward.c").write_text(forward.replace("return drop(REASON_NO_SERVER);", "return XDP_ABORTED;"))
    answer = build_altered(altered, directory)
    assert Path(answer["program"]) != first
    assert [pin.name for pin in directory.glob("prog-*")] == [Path(answer["program"]).name]

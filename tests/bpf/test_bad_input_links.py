"""Whoever builds or attaches is ended at any step, or cannot go on: what is attached forwards, the next one ends it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import haxlb
from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import held
from haxlb.linux.forwarder import Forwarder
from haxlb.linux.forwarder_build import PYTHON, compile_forwarder
from haxlb.linux.link_layers import carrier_of
from haxlb.linux.teardown import tear_down
from haxlb.model.errors import HostError
from haxlb.model.virtual_server import Scheduler
from tests.bpf.frames import tcp
from tests.bpf.wire import Wire, Witnessed
from tests.forwarding.tables import server, table
from tests.netns.standin import eventually

pytestmark = [pytest.mark.bpf, pytest.mark.netns, pytest.mark.timeout(900)]

ROOT = Path(haxlb.__file__).parent.parent
FEATURES = Features.parse("stateful")
ENDED = """
import os, signal, sys
from pathlib import Path
from haxlb.linux import bpf, bpf_call, compiler

left = int(sys.argv[1])

def counted(work):
    def step(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments, **options)
    return step

def count():
    bpf_call.call = bpf.call = counted(bpf_call.call)
    for name in ("unlink", "rename", "rmdir", "mkdir"):
        setattr(Path, name, counted(getattr(Path, name)))
"""
"""A process that is killed at its nth step, of those that the kernel or a file system remembers."""
ATTACHES = """
from haxlb.linux.forwarder import Forwarder
forwarder = Forwarder(Path(sys.argv[2]))
count()
forwarder.attach(sys.argv[3], ("near",), "native")
"""
BUILDS = """
from haxlb.linux.bpf import PROG_TYPE_SCHED_CLS
passes = bytes.fromhex("b700000002000000" "9500000000000000")
# In place of bcc, which takes its time and leaves nothing behind.
compiler._compile = lambda maps, parts, order: {"forward": passes, "sweep": passes, "any": passes, "nat": passes}
count()
sys.exit(compiler.main(sys.argv[2:]))
"""


class Site:
    """A wire with a forwarder at its near end, which has one server."""

    def __init__(self, wire: Wire, runtime: Path) -> None:
        self.wire = wire
        self.runtime = runtime
        self.directory = runtime / "bpf" / layout.ABI
        self.log: list[str] = []
        self._ports = itertools.count(40000)
        self.program = asyncio.run(compile_forwarder(self.directory, flow_buckets_log2=10, features=FEATURES))
        with self.forwarder() as forwarder:
            one = table(server(1, interface_index=wire.index("near")))
            wire.inside(lambda: forwarder.apply(one))

    def forwarder(self) -> contextlib.closing[Forwarder]:
        return contextlib.closing(Forwarder(self.directory, lambda _, event, __: self.log.append(event)))

    def attach(self, program: str = "") -> None:
        with self.forwarder() as forwarder:
            self.wire.inside(lambda: forwarder.attach(program or self.program, ("near",), "native"))

    def attached(self) -> int:
        """Id of the program on the wire; 0 = none."""
        return self.wire.attachment("near").program_id

    def forwards(self) -> bool:
        """What is attached, whatever is pinned, a new flow each time: one that is on record needs no part."""
        return self.verdict() == bpf.XDP_TX

    def verdict(self) -> int:
        index, attached = self.wire.index("near"), self.attached()
        assert attached, "no program is attached"
        frame = tcp(port=next(self._ports))
        with closing(bpf.program_by_id(attached)) as program:
            assert program is not None
            run = self.wire.inside(lambda: bpf.prog_test_run(program, frame, interface_index=index))
        return run.verdict

    def pins(self, kind: str) -> set[str]:
        return {pin.name.partition("-")[2] for pin in self.directory.glob(f"{kind}-*")}

    def ended(self, what: str, step: int, *arguments: str) -> int:
        """Run it until that step; its exit code, negative when it was killed."""
        command = ["nsenter", f"--net={self.wire.path}", PYTHON, "-c", ENDED + what, str(step), *arguments]
        done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        return done.returncode


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Wire() as wire:
        try:
            yield Site(wire, tmp_path)
        finally:
            wire.inside(lambda: tear_down(tmp_path))


def test_a_checker_killed_at_any_step_of_a_swap(site: Site) -> None:
    site.attach()
    first = site.attached()
    second = asyncio.run(compile_forwarder(site.directory, flow_buckets_log2=10, features=FEATURES))
    step = 0
    while site.ended(ATTACHES, step, str(site.directory), second):
        assert site.forwards(), f"killed at step {step}"
        step += 1
    assert step > 5
    assert site.forwards()
    assert site.attached() != first


def test_a_checker_killed_at_any_step_of_an_upgrade(site: Site) -> None:
    """Of the tables' layout: the links of the version before are taken over, and its tables removed."""
    site.attach()
    former = site.directory.with_name("1-former")
    step, left = 0, -1
    while left:
        (former / "links").mkdir(parents=True, exist_ok=True)
        for pin in (site.directory / "links").iterdir():
            pin.rename(former / "links" / pin.name)
        if not (former / "flows").exists():
            with closing(bpf.map_create(bpf.MAP_TYPE_ARRAY, 4, 8, 1, name="flows")) as flows:
                bpf.obj_pin(flows, former / "flows")
        left = site.ended(ATTACHES, step, str(site.directory), site.program)
        assert site.forwards(), f"killed at step {step}"
        site.attach()
        assert site.forwards(), f"killed at step {step}, and attached again"
        assert not former.exists(), f"killed at step {step}: what it left is not found again"
        step += 1
    assert step > 10


def test_a_compiler_killed_at_any_step(site: Site) -> None:
    site.attach()
    first, build = site.attached(), Path(site.program).name.partition("-")[2]
    words = (f"--directory={site.directory}", "--flow-buckets-log2=10")
    step = 0
    while site.ended(BUILDS, step, *words):
        assert site.attached() == first
        assert site.forwards(), f"killed at step {step}"
        assert all(build in site.pins(kind) for kind in ("prog", "parts", "sweep")), f"killed at step {step}"
        # The next one, whoever needs it, finds nothing in its way: this is one too, until it is killed.
        step += 7
    assert step > 50
    assert site.forwards()
    (other,) = site.pins("prog") - {build}
    for kind in ("prog", "parts", "sweep"):
        assert site.pins(kind) == {build, other}, "what a build that was killed has left is removed"


def test_a_compiler_killed_at_any_step_of_its_first_tables(tmp_path: Path) -> None:
    """Half of the tables are none: the next build makes them anew."""
    with Wire() as wire:
        half = Site.__new__(Site)
        half.wire, half.directory = wire, tmp_path / "bpf" / layout.ABI
        step = 0
        try:
            while half.ended(BUILDS, step, f"--directory={half.directory}", "--flow-buckets-log2=10"):
                step += 5
            assert step > 50
            with contextlib.closing(Forwarder(half.directory)):
                pass
        finally:
            tear_down(tmp_path)


def test_a_bpffs_that_cannot_be_written(site: Site) -> None:
    """Somebody has mounted it again, read-only: one line, and what is attached stays."""
    site.attach()
    bpffs = site.directory.parent
    subprocess.run(["mount", "-o", "remount,ro", bpffs], check=True)
    try:
        with pytest.raises(HostError, match="Read-only file system") as caught:
            asyncio.run(compile_forwarder(site.directory, flow_buckets_log2=10, features=FEATURES))
        assert "\n" not in str(caught.value)
        assert caught.value.remedy
        assert site.forwards()
    finally:
        subprocess.run(["mount", "-o", "remount,rw", bpffs], check=True)


def test_pins_that_somebody_removes_are_pinned_again_and_no_new_flow_is_refused(site: Site) -> None:
    with site.forwarder() as forwarder:
        site.wire.inside(lambda: forwarder.attach(site.program, ("near",), "native"))
        before = {pin.name for pin in site.directory.iterdir()}
        for pin in site.directory.iterdir():
            if not pin.is_dir():
                pin.unlink()
        assert site.forwards(), "what is attached has lost its parts"
        restored = site.wire.inside(forwarder.repin)
        assert set(restored) == before - {"links"}
        assert site.wire.inside(forwarder.repin) == ()
    # By their pins alone.
    assert site.forwards()
    site.attach()
    assert site.forwards()


def test_while_tables_are_being_made_none_of_the_old_ones_is_pinned_beside_them(site: Site) -> None:
    with site.forwarder() as forwarder:
        site.wire.inside(lambda: forwarder.attach(site.program, ("near",), "native"))
        (site.directory / "endpoints").unlink()
        with held(site.directory) as free:
            assert free
            assert site.wire.inside(forwarder.repin) == ()
        assert site.wire.inside(forwarder.repin) == ("endpoints",)


def test_one_that_comes_after_the_removal_takes_what_is_attached_in_its_care(site: Site) -> None:
    site.attach()
    with site.forwarder() as forwarder:
        assert site.wire.inside(forwarder.repin) == ()
        (parts,) = site.directory.glob("parts-*")
        parts.unlink()
        assert site.forwards()
        assert site.wire.inside(forwarder.repin) == (parts.name,)


def test_parts_that_were_removed_while_nobody_held_them_are_missed(site: Site) -> None:
    site.attach()
    (parts,) = site.directory.glob("parts-*")
    parts.unlink()
    # The kernel empties it when it comes to it: by a work queue.
    eventually(lambda: not site.forwards(), "its parts are gone")
    with pytest.raises(HostError, match=f"somebody has removed {parts}.* new flows are refused") as caught:
        site.attach()
    assert "haxlb swap" in caught.value.remedy
    site.attach(asyncio.run(compile_forwarder(site.directory, flow_buckets_log2=10, features=FEATURES)))
    assert site.forwards()


def test_a_file_where_the_runtime_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "bpf").write_text("")
    with pytest.raises(HostError, match=r"cannot make .*bpf") as caught:
        asyncio.run(compile_forwarder(tmp_path / "bpf" / layout.ABI))
    assert "--runtime-dir" in caught.value.remedy


def test_what_an_interface_is_made_on(site: Site) -> None:
    """Of a macvlan it is the one below; a veth's other end is none, though the kernel tells it alike."""
    site.wire.ip("link add over link near type macvlan mode bridge")
    carriers = {each: site.wire.inside(lambda each=each: carrier_of(each)[0]) for each in ("near", "far", "over")}
    assert carriers == {"near": "near", "far": "far", "over": "near"}


def test_an_interface_that_comes_back_under_another_name(site: Site) -> None:
    site.attach()
    site.wire.ip("link delete near")
    site.wire.ip("link add wan type veth peer name far")
    with pytest.raises(HostError, match="there is no interface near") as caught:
        site.attach()
    assert caught.value.remedy
    with site.forwarder() as forwarder:
        assert site.wire.inside(forwarder.links) == ()
        (link,) = site.wire.inside(lambda: forwarder.attach(site.program, ("wan",), "native"))
        assert link.interface == "wan"


def test_more_interfaces_than_can_be_sent_to_in_batches(site: Site) -> None:
    """The others are sent to frame by frame, which is said."""
    site.attach()
    many = 260
    for number in range(many):
        site.wire.ip(f"link add m{number} link far type macvlan mode bridge")
    ways = tuple(server(1 + each, interface_index=site.wire.index(f"m{each}")) for each in range(many))
    with site.forwarder() as forwarder:
        site.wire.inside(lambda: forwarder.apply(table(*ways)))
    assert site.log.count("no_batched_redirect") == many - 256
    assert site.verdict() == bpf.XDP_REDIRECT


def test_reloads_that_need_other_programs_lose_no_packet(site: Site) -> None:
    """A program that can do what both tables ask for comes before the new table, one for that alone after it."""
    near = site.wire.index("near")
    ways = tuple(server(number, interface_index=near) for number in (1, 2))
    turns = [
        (Scheduler.WLC, "stateful,list"),
        (Scheduler.MH, "stateful,list,stateless,ipv6"),
        (Scheduler.MH, "stateless"),
        (Scheduler.RR, "stateless,stateful,shared,jumbo"),
        (Scheduler.RR, "stateful"),
    ]
    site.attach()
    traffic = Witnessed(site.wire, tcp(), "02:00:00:00:00:aa")
    moving = threading.Event()
    moving.set()

    def send() -> None:
        while moving.is_set():
            traffic.send(1000)

    sender = threading.Thread(target=send)
    sender.start()
    programs, sent_at = set(), []
    try:
        for scheduler, features in turns:
            built = asyncio.run(
                compile_forwarder(site.directory, flow_buckets_log2=10, features=Features.parse(features))
            )
            site.attach(built)
            with site.forwarder() as forwarder:
                site.wire.inside(lambda: forwarder.apply(table(*ways, scheduler=scheduler)))  # noqa: B023 - at once
            programs.add(site.attached())
            before = traffic.sent
            eventually(lambda: traffic.sent > before, "frames are being sent")  # noqa: B023 - at once
            sent_at.append(traffic.sent)
    finally:
        moving.clear()
        sender.join()
    try:
        assert len(programs) == len(set(sent_at)) == len(turns)
        traffic.expect_all_back()
    finally:
        traffic.close()

"""A host that does not give the data plane what it needs: one line says so, and what is attached goes on forwarding."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from haxlb.linux import bpf
from haxlb.model.instance import Role
from tests.build_cache.place import USER_BASE
from tests.netns.site import Director, Site, carries_xdp
from tests.netns.standin import eventually

# Some compile the forwarder, by a machine that may do the same for others.
pytestmark = [pytest.mark.netns, pytest.mark.timeout(900)]

BCC = Path("/usr/lib/python3/dist-packages/bcc")
OTHER_SCHEDULER = ("lb_algo wrr", "lb_algo wlc")
"""Needs what the first program cannot."""


def program(director: Director, interface: str = "eth0") -> int:
    """Id of the XDP program there; 0 = none."""
    shown = json.loads(director.host.run("ip", "-json", "link", "show", interface).stdout)
    return int(shown[0].get("xdp", {}).get("prog", {}).get("id", 0))


def attached(director: Director) -> int:
    """Its program: the speaker does not wait for it longer than five seconds."""
    return eventually(lambda: program(director), "a program is there")


def problem(director: Director) -> str:
    return director.answered().data_plane.problem


def says(director: Director, *words: str) -> Callable[[], bool]:
    return lambda: all(word in problem(director) for word in words)


@pytest.fixture
def one(site: Site) -> Director:
    return site.director("lb1", 150)


def with_own_bcc(director: Director, directory: Path) -> Path:
    """Start it with a copy of bcc, whose beginning is returned."""
    copy = Path(shutil.copytree(BCC, directory / "bcc"))
    script = f'mount --bind "$1" {BCC} && unset {USER_BASE} && shift && exec "$@"'
    director.start("unshare", "--mount", "sh", "-c", script, "sh", str(copy)).becomes(Role.MASTER)
    return copy / "__init__.py"


@pytest.mark.parametrize(
    ("what", "said", "remedy"),
    [
        ("import os; os.kill(os.getpid(), 9)", "building the forwarder was ended by signal 9", "dmesg"),
        ("raise ImportError('no libbcc.so.0')", "has no bcc: no libbcc.so.0", "apt install python3-bpfcc"),
        ("raise OSError(28, 'No space left on device')", "No space left on device", "temporary files"),
        (
            "BPF.dump_func = lambda *_: bytes.fromhex('9500000000000000')",
            "the kernel refuses the BPF program haxlb",
            "R0 !read_ok",
        ),
    ],
    ids=["killed", "broken", "full", "refused"],
)
def test_a_reload_whose_program_cannot_be_built(
    one: Director, tmp_path: Path, what: str, said: str, remedy: str
) -> None:
    beginning = with_own_bcc(one, tmp_path)
    whole, before, text = beginning.read_text(), attached(one), one.config.read_text()
    beginning.write_text(f"{whole}\n{what}\n")
    one.config.write_text(text.replace(*OTHER_SCHEDULER))
    refused = one.cli("reload")
    assert refused.returncode == 71, refused
    waiting, line = refused.stderr.splitlines()
    assert waiting == "haxlb: the forwarder is being compiled, traffic flows on …"
    assert said in line
    assert remedy in line
    assert "Traceback" not in one.log.read_text()
    assert program(one) == before
    one.becomes(Role.MASTER)
    beginning.write_text(whole)
    done = one.cli("reload")
    assert done.returncode == 0, done
    assert program(one) not in (0, before)


def test_a_build_goes_with_the_daemon_that_was_killed(one: Director, tmp_path: Path) -> None:
    """It would pin its program beside that of the next daemon."""
    beginning = with_own_bcc(one, tmp_path)
    begun = tmp_path / "begun"
    beginning.write_text(
        f"{beginning.read_text()}\nimport pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)\n"
    )
    one.config.write_text(one.config.read_text().replace(*OTHER_SCHEDULER))
    assert one.process is not None
    one.process.send_signal(signal.SIGHUP)
    eventually(begun.exists, "the build has begun")
    one.process.kill()
    eventually(lambda: not one.host.pids(), "no process is left")


def test_two_of_a_host_on_one_interface(site: Site, one: Director, tmp_path: Path) -> None:
    """The second one says who is there, and takes over when the first has been taken off."""
    one.start().becomes(Role.MASTER)
    before = attached(one)
    text = one.config.read_text()
    services = text[text.index("virtual_server ") :].replace("10.8.0.100", "10.8.0.101")
    two = Director(one.host, tmp_path / "other", services, settings="  interfaces: [eth0]\n")
    site.directors.append(two)
    two.start()
    eventually(says(two, "eth0 already carries an XDP program: haxlb", "haxlb detach --runtime-dir"), "it is said")
    assert program(one) == before
    assert problem(one) == ""
    assert one.stop() == 0
    assert program(two) == before
    assert one.cli("detach").returncode == 0
    eventually(lambda: problem(two) == "" and program(two) not in (0, before), "the second one has it")


def test_a_program_of_somebody_else(one: Director) -> None:
    """VRRP does not wait for it, and the forwarder comes as soon as it has gone."""
    bpf.attach_pass_program(Path("/run/netns") / one.host.namespace, "eth0")
    there = program(one)
    one.start().becomes(Role.MASTER)
    eventually(says(one, "eth0 already carries an XDP program: pass", "ip link set dev eth0 xdp off"), "it is said")
    assert program(one) == there
    one.host.run("ip", "link", "set", "dev", "eth0", "xdp", "off")
    eventually(lambda: problem(one) == "" and program(one) not in (0, there), "the forwarder is there")


def test_a_runtime_directory_that_is_full(one: Director) -> None:
    script = 'mkdir -p "$1" && mount -t tmpfs -o nr_inodes=1 none "$1" && shift && exec "$@"'
    refused = one.refused("unshare", "--mount", "sh", "-c", script, "sh", str(one.runtime_dir))
    assert refused.returncode == 71
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("haxlb: ")
    assert "No space left on device" in last
    assert "Traceback" not in refused.stderr


def test_a_bpffs_that_became_read_only(one: Director) -> None:
    """At the next start: what is attached stays, VRRP runs, and once it can be written all is well."""
    one.start().becomes(Role.MASTER)
    before = attached(one)
    assert one.stop() == 0
    bpffs = one.runtime_dir / "bpf"
    subprocess.run(["mount", "-o", "remount,ro", bpffs], check=True)
    try:
        one.start().becomes(Role.MASTER)
        eventually(says(one, "Read-only file system"), "it is said")
        assert program(one) == before
    finally:
        subprocess.run(["mount", "-o", "remount,rw", bpffs], check=True)
    eventually(lambda: problem(one) == "", "it goes on")
    assert program(one) == before
    assert "Traceback" not in one.log.read_text()


def test_an_interface_that_goes_away_and_comes_back(site: Site) -> None:
    """Under its own name it is taken again; under another one it is missed, and the other interface does not wait."""
    one = site.director("lb1", 150, settings="  interfaces: [eth0, x0]\n")
    one.host.run("ip", "link", "add", "x0", "type", "veth", "peer", "name", "x1")
    one.start().becomes(Role.MASTER)
    before = attached(one)
    eventually(lambda: program(one, "x0") == before, "on the other one, too")
    one.host.run("ip", "link", "delete", "x0")
    eventually(says(one, "there is no interface x0"), "it is missed")
    assert program(one) == before
    one.host.run("ip", "link", "add", "x0", "type", "veth", "peer", "name", "x1")
    eventually(lambda: problem(one) == "" and program(one, "x0") == before, "it is taken again")
    one.host.run("ip", "link", "set", "x0", "name", "y0")
    eventually(says(one, "there is no interface x0"), "its name is missed")
    assert program(one, "y0") == before, "it goes on forwarding meanwhile"
    one.host.run("ip", "link", "set", "y0", "name", "x0")
    eventually(lambda: problem(one) == "", "it is found again")
    assert program(one, "x0") == before
    assert carries_xdp(one)
    one.becomes(Role.MASTER)


def test_an_upgrade_whose_tables_are_others(one: Director) -> None:
    """What the version before has left goes on until the new tables are full; then nothing of it is left."""
    one.start().becomes(Role.MASTER)
    before = attached(one)
    assert one.stop() == 0
    bpffs = one.runtime_dir / "bpf"
    (now,) = (each for each in bpffs.iterdir() if each.is_dir())
    former = bpffs / "1-0000abcd"
    (former / "links").mkdir(parents=True)
    for pin in (each for each in (*now.glob("links/*"), *now.iterdir()) if not each.is_dir()):
        pin.rename(former / pin.relative_to(now))
    assert program(one) == before
    one.start().becomes(Role.MASTER)
    eventually(lambda: program(one) not in (0, before), "the new one is attached")
    eventually(lambda: not former.exists(), "the former tables are gone")
    eventually(lambda: problem(one) == "", "all is well")
    eventually(lambda: "former_version_removed" in one.events(), "it is said")


def test_without_the_headers_of_linux(one: Director, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    script = 'mount --bind "$1" /usr/include/linux && shift && exec "$@"'
    refused = one.refused("unshare", "--mount", "sh", "-c", script, "sh", str(empty))
    assert refused.returncode == 71
    assert refused.stderr.splitlines()[-1] == ("haxlb: there are no C headers of Linux (apt install linux-libc-dev)")

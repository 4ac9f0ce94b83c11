"""`haxlb keepalived` as a daemon, in a network namespace that it enters by itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from haxlb.cli.client import ask
from haxlb.daemon.control import Show
from haxlb.linux.bpffs import unmount
from haxlb.model.errors import Unreachable
from haxlb.model.instance import Role
from tests.netns.standin import LIMIT_S, eventually

pytestmark = pytest.mark.netns

HAXLB = Path(sys.executable).with_name("haxlb")
CONFIGURATION = """
global_defs {
    @other router_id other
    @^other router_id one
}
vrrp_instance VI_1 {
    version 3
    interface eth0
    virtual_router_id 51
    priority %d
    advert_int 0.1
    mcast_src_ip 10.8.0.1
    virtual_ipaddress {
        10.8.0.100/24
    }
}
virtual_server 10.8.0.100 80 {
    lb_algo wrr
    lb_kind DR
    protocol TCP
    real_server 10.8.0.10 80 {
    }
}
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"hxkr{os.getpid()}"
    runtime = Path(f"/run/haxlb-{name}")
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for words in (
            "link add eth0 type veth peer name eth1",
            "addr add 10.8.0.1/24 dev eth0",
            "link set lo up",
            "link set eth1 up",
            "link set eth0 up",
        ):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
        unmount(runtime / "bpf")
        shutil.rmtree(runtime, ignore_errors=True)


def test_it_stands_where_keepalived_stood(namespace, tmp_path):
    path, pid_file, log = tmp_path / "keepalived.conf", tmp_path / "pid", tmp_path / "log"
    path.write_text(CONFIGURATION % 100)
    runtime = Path(f"/run/haxlb-{namespace}")

    def instance():
        try:
            found = ask(runtime, Show()).status
        except Unreachable:
            return None
        return found.instances[0] if found and found.instances else None

    words = ["-s", namespace, "-nlDPd", "-i", "other", "-p", str(pid_file), "-f", str(path)]
    with log.open("wb") as out:
        process = subprocess.Popen([str(HAXLB), "keepalived", *words], stdout=out, stderr=out)
    try:
        eventually(lambda: (found := instance()) and found.role is Role.MASTER, f"it is MASTER: {log.read_text()}")
        status = ask(runtime, Show()).status
        assert status.node == "other"  # -i
        assert status.virtual_servers == ()  # -P
        assert pid_file.read_text() == f"{process.pid}\n"
        assert "    priority 100\n" in log.read_text()  # -d
        process.send_signal(signal.SIGUSR1)  # for keepalived: write a dump
        path.write_text(CONFIGURATION % 120)
        process.send_signal(signal.SIGHUP)
        eventually(lambda: (found := instance()) and found.priority == 120, "it has reloaded")
        assert ask(runtime, Show()).status.virtual_servers == ()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
    assert not pid_file.exists()
    assert "-D, --log-detail does nothing here" in log.read_text()

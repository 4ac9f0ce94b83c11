"""A pair with `use_vmac` and virtual servers: real connections through XDP to the virtual MAC, whoever is MASTER."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from lab import Host

from haxlb.forwarding.layout import ABI
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.model.instance import Role
from tests.netns.site import VIP, Director, Site, configuration
from tests.netns.standin import eventually, inside, whole_lines

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

MAC = "00:00:5e:00:01:33"
SERVERS = ("10.8.0.21", "10.8.0.22")
SERVE = """
import socket, sys, threading
name, out = sys.argv[1], open(sys.argv[2], "ab", buffering=0)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", 5300))
tcp = socket.create_server(("", 80))
def count():
    while True:
        out.write(udp.recv(100) + b"\\n")
threading.Thread(target=count, daemon=True).start()
print("ready", flush=True)
while True:
    connection, _ = tcp.accept()
    connection.sendall(name.encode())
    connection.close()
"""


def virtual_router(name: str, priority: int) -> str:
    """With three seconds until somebody takes a director for dead that waits for a processor."""
    text = configuration(name, priority, servers=False, unicast="use_vmac")
    return text.replace("advert_int 0.1", "advert_int 1")


def services() -> str:
    """Of any protocol: TCP for what connections see, UDP for what nobody repairs."""

    def one(port: int, protocol: str) -> str:
        real = "\n".join(f"    real_server {each} {port} {{\n    }}" for each in SERVERS)
        kind = f"    lb_algo rr\n    lb_kind DR\n    protocol {protocol}"
        return f"virtual_server {VIP} {port} {{\n{kind}\n{real}\n}}\n"

    return one(80, "TCP") + one(5300, "UDP")


class Pair:
    """Two directors, two real servers, the client of the site."""

    def __init__(self, site: Site, directory: Path, settings: str = "") -> None:
        self.site = site
        self.received = [directory / f"received-{number}" for number in range(len(SERVERS))]
        for number, address in enumerate(SERVERS):
            host = site.lab.real_server(f"s{number}", f"{address}/24", str(VIP))
            argv = (sys.executable, "-c", SERVE, host.name, str(self.received[number]))
            served = host.start(*argv, stdout=subprocess.PIPE)
            assert served.stdout is not None
            assert served.stdout.readline() == b"ready\n"
            served.stdout.close()
        # preempts at once when it is back
        self.one, self.two = (
            site.add(name, virtual_router(name, priority) + services(), settings=settings)
            for name, priority in (("lb1", 150), ("lb2", 100))
        )

    def start(self) -> None:
        self.one.start().becomes(Role.MASTER)
        self.two.start().becomes(Role.BACKUP)
        for each in (self.one, self.two):
            serves(each)

    def flood(self) -> None:
        """The switch knows no place of a director any more, and learns none: all that is sent there goes everywhere."""
        for director in (self.one, self.two):
            self.site.lab.switch_run("bridge", "link", "set", "dev", director.host.port, "learning", "off")
            self.site.lab.switch_run("ip", "link", "set", director.host.port, "type", "bridge_slave", "fdb_flush")

    def connect(self) -> str:
        """Who has answered a connection."""
        with inside(self.site.client.namespace), socket.create_connection((str(VIP), 80), timeout=30) as connection:
            return connection.recv(100).decode()

    def send(self, count: int, tag: str) -> None:
        """So many datagrams, each of a flow of its own."""
        for number in range(count):
            with inside(self.site.client.namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.sendto(f"{tag}-{number}".encode(), (str(VIP), 5300))

    def arrived(self, tag: str) -> list[str]:
        lines = [line for path in self.received for line in whole_lines(path)]
        return sorted((line for line in lines if line.startswith(f"{tag}-")), key=lambda line: int(line.split("-")[1]))

    def believes(self) -> str:
        """The MAC that the client has of the VIP."""
        shown = self.site.client.run("ip", "neigh", "show", str(VIP)).stdout.split()
        return shown[shown.index("lladdr") + 1]


def verdicts(director: Director) -> dict[str, int]:
    return director.answered().data_plane.verdicts


def serves(director: Director) -> None:
    """Wait until its forwarder gives flows to both servers."""

    def look() -> bool:
        services = director.answered().virtual_servers
        return bool(services) and all(each.in_pool for service in services for each in service.real_servers)

    eventually(look, f"{director.host.name} forwards to both")


def takes(director: Director, wanted: set[str], when: str) -> None:
    """Wait until its forwarder takes frames to these: the speaker waits for the data plane, but not for ever."""
    eventually((director.runtime_dir / "bpf" / ABI / "virtual_macs").exists, "a data plane is there")
    eventually(lambda: taken(director) == wanted, f"{when}: {wanted}")


def taken(director: Director) -> set[str]:
    """Virtual MACs that the forwarder of a director takes frames to, with the index of its interface."""
    with closing(bpf.obj_get(director.runtime_dir / "bpf" / ABI / "virtual_macs")) as fd:
        return {f"{int.from_bytes(key[:4], sys.byteorder)} {key[4:10].hex(':')}" for key in bpf.map_keys(fd, 12)}


def entry(host: Host) -> set[str]:
    index = int(host.run("ip", "-o", "link", "show", "eth0").stdout.split(":")[0])
    return {f"{index} {MAC}"}


@pytest.fixture
def pair(site: Site, tmp_path: Path) -> Pair:
    made = Pair(site, tmp_path)
    made.start()
    return made


def test_connections_to_the_virtual_mac_and_a_fail_over_while_the_backup_is_flooded(pair: Pair) -> None:
    one, two = pair.one, pair.two
    takes(one, entry(one.host), "it is MASTER")
    takes(two, set(), "it is BACKUP")
    assert {pair.connect() for _ in range(8)} == {"s0", "s1"}
    assert pair.believes() == MAC
    pair.flood()
    for tag, master, backup in (("first", one, two), ("second", two, one)):
        if master is two:
            handed = one.cli("failover")
            assert handed.returncode == 0, handed.stdout + handed.stderr
        master.becomes(Role.MASTER)
        backup.becomes(Role.BACKUP)
        takes(master, entry(master.host), "it is MASTER")
        takes(backup, set(), "it is BACKUP")
        before = {each: verdicts(each) for each in (master, backup)}
        pair.send(50, tag)
        eventually(lambda tag=tag: len(pair.arrived(tag)) >= 50, "all datagrams")
        assert {pair.connect() for _ in range(8)} == {"s0", "s1"}, "what comes after them has been there and back"
        assert pair.arrived(tag) == [f"{tag}-{number}" for number in range(50)], "each once"
        ignored = verdicts(backup)["not_for_us"] - before[backup]["not_for_us"]
        assert ignored >= 50, "it was flooded"
        assert verdicts(backup)["new_flow"] == before[backup]["new_flow"]
        assert verdicts(master)["new_flow"] - before[master]["new_flow"] == 58
    assert pair.believes() == MAC


def test_whoever_finds_the_speaker_dead_takes_the_entry_out_and_a_reload_and_a_stop_do_so(
    site: Site, tmp_path: Path
) -> None:
    pair = Pair(site, tmp_path, settings="processes:\n  spare_speaker: false\n")
    one, two = pair.one, pair.two
    text = one.config.read_text()
    # Once it has lost its role it does not take it back, and what has been taken out stays out.
    one.config.write_text(text.replace("use_vmac", "use_vmac\n    nopreempt"))
    pair.start()
    takes(one, entry(one.host), "it is MASTER")
    # A stranger's entry, and a lost one, are put right by the speaker.
    with closing(bpf.obj_get(one.runtime_dir / "bpf" / ABI / "virtual_macs")) as fd:
        (key,) = bpf.map_keys(fd, 12)
        bpf.map_delete(fd, key)
        bpf.map_update(fd, key[:9] + b"\x77" + key[10:], b"\1\0\0\0")
    takes(one, entry(one.host), "as it was")
    os.kill(one.pid("speaker"), signal.SIGKILL)
    takes(one, set(), "the supervisor took it out")
    two.becomes(Role.MASTER)
    assert two.stop() == 0
    takes(one, entry(one.host), "the next speaker is MASTER")
    one.config.write_text(text.replace("use_vmac", ""))
    assert one.cli("reload").returncode == 0
    takes(one, set(), "there is no virtual MAC")
    one.config.write_text(text)
    assert one.cli("reload").returncode == 0
    takes(one, entry(one.host), "it is back")
    assert one.cli("swap").returncode == 0
    takes(one, entry(one.host), "also after a swap")
    assert one.stop() == 0
    assert taken(one) == set()


def test_a_spare_goes_on_with_the_entry(pair: Pair) -> None:
    one = pair.one
    ready = "the spare has started, and waits"
    eventually(lambda: any(each.name == "spare" and not each.problem for each in one.answered().processes), ready)
    takes(one, entry(one.host), "it is MASTER")
    os.kill(one.pid("speaker"), signal.SIGKILL)
    eventually(lambda: "process_died" in one.events(), "it is dead")
    assert taken(one) == entry(one.host)
    assert {pair.connect() for _ in range(8)} == {"s0", "s1"}
    assert pair.two.answered().instances[0].role is Role.BACKUP

"""What dies alone: speaker, spare, checker, tracker; and what the peer, a client and a connection notice of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self

import pytest

from haxlb.model.instance import Role
from tests.netns.site import ONE, TWO, VIP, Director, Site, carries_xdp, has_vip
from tests.netns.standin import LIMIT_S, addresses, eventually, inside, whole_lines

pytestmark = pytest.mark.netns

SERVER = IPv4Address("10.8.0.30")
RARE = "advert_int 1"
"""What a spare may take is then two seconds: these tests do not measure."""
LASTING = "vips:\n  lifetime: 5\n"
"""While the kernel makes and removes the namespaces of other tests, its answer to a renewal may take seconds."""


class Conversation:
    """A TCP connection through a director, over which a byte goes and comes back again and again."""

    def __init__(self, client: str, server: str) -> None:
        with inside(server):
            self._listening = socket.create_server((str(VIP), 80))
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()
        with inside(client):
            self._socket = socket.create_connection((str(VIP), 80), timeout=LIMIT_S)
        self.rounds = 0
        self.problem: Exception | None = None
        self._ending = threading.Event()
        self._talking = threading.Thread(target=self._talk, daemon=True)
        self._talking.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._talking.join()
        self._socket.close()
        self._serving.join()
        self._listening.close()

    def goes_on(self) -> None:
        """Wait for a hundred more rounds."""
        wanted = self.rounds + 100
        eventually(lambda: self.rounds >= wanted or self.problem, "the connection lives")
        assert self.problem is None

    def retransmitted(self) -> int:
        """tcpi_total_retrans of the client's side."""
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        return int.from_bytes(info[100:104], "little")

    def _talk(self) -> None:
        try:
            while not self._ending.is_set():
                self._socket.sendall(b"x")
                if self._socket.recv(1) != b"x":
                    raise ConnectionError("closed by the other side")
                self.rounds += 1
                time.sleep(0.001)  # the pace of the traffic; nothing waits for it
        except OSError as problem:
            self.problem = problem

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            while byte := connection.recv(1):
                connection.sendall(byte)


class Watch:
    """Every address that comes or goes on a host."""

    def __init__(self, director: Director) -> None:
        self._path = director.config.with_name("addresses")
        with self._path.open("w") as log:
            director.host.start("ip", "-o", "monitor", "address", stdout=log)

    def removals(self) -> list[str]:
        return [line for line in whole_lines(self._path) if line.startswith("Deleted")]


def has_spare(director: Director) -> bool:
    status = director.status()
    return status is not None and any(each.name == "spare" and not each.problem for each in status.processes)


def pid(director: Director, name: str, other_than: int = 0) -> int:
    """0 while there is none."""
    status = director.status()
    pids = [each.pid for each in status.processes if each.name == name] if status else []
    return pids[0] if pids and pids[0] != other_than else 0


def kill(director: Director, name: str) -> None:
    """Kill it and wait for another one."""
    former = eventually(lambda: pid(director, name), f"a {name}")
    os.kill(former, signal.SIGKILL)
    eventually(lambda: pid(director, name, former), f"another {name}")


def forwards(director: Director) -> bool:
    """Its server gets what clients send."""
    return any(each.in_pool for service in director.answered().virtual_servers for each in service.real_servers)


@pytest.fixture
def pair(site: Site) -> tuple[Director, Director]:
    """Two directors that forward port 80 to a real server; the first is MASTER and has a spare."""
    site.lab.real_server("rs", f"{SERVER}/24", str(VIP))
    directors = []
    for name, priority in (("lb1", 150), ("lb2", 100)):
        director = site.director(name, priority, settings=LASTING)
        text = director.config.read_text().replace("advert_int 0.1", RARE).replace("10.8.0.10 80", f"{SERVER} 80")
        director.config.write_text(text.replace("TCP_CHECK {\n            connect_timeout 1\n        }", ""))
        directors.append(director.start())
    one, two = directors
    # Two forwarders are compiled first.
    eventually(lambda: one.role() is Role.MASTER and two.role() is Role.BACKUP, "one MASTER", 90)
    for each in directors:
        eventually(lambda: forwards(each), "it forwards to the server", 90)  # noqa: B023
    eventually(lambda: has_spare(one), "a spare stands by")
    return one, two


def test_a_killed_speaker_is_succeeded_and_nobody_notices(site: Site, pair: tuple[Director, Director]) -> None:
    one, two = pair
    rs = site.lab.hosts["rs"]
    before = one.answered()
    with ExitStack() as stack:
        talk = stack.enter_context(Conversation(site.client.namespace, rs.namespace))
        watch = Watch(one)
        talk.goes_on()
        ping = site.client.start(
            *("ping", "-q", "-i", "0.001", "-c", "3000", "-W", "2", str(VIP)), stdout=subprocess.PIPE, text=True
        )
        begun_ns = time.time_ns()
        eventually(lambda: len(site.ear.adverts_of(ONE, 150, since_ns=begun_ns)) >= 1, "adverts")
        kill(one, "speaker")
        killed_ns = time.time_ns()
        eventually(lambda: len(site.ear.adverts_of(ONE, 150, since_ns=killed_ns)) >= 3, "adverts go on")
        talk.goes_on()
        said, _ = ping.communicate(timeout=90)
        assert " 0% packet loss" in said, said
        assert talk.retransmitted() == 0
    assert watch.removals() == []
    assert site.ear.adverts_of(ONE, 0, since_ns=begun_ns) == []
    assert site.ear.adverts_of(TWO, since_ns=begun_ns) == []
    assert len(site.ear.garps(VIP, begun_ns)) <= 1
    after = one.answered()
    assert after.instances[0].role is Role.MASTER
    assert after.instances[0].since_at == pytest.approx(before.instances[0].since_at, abs=0.5)
    assert after.instances[0].reason == before.instances[0].reason
    assert [each.restarts for each in after.processes if each.name == "speaker"] == [1]
    # It is over when the speaker has lived for ten seconds, as it may have by now.
    assert [line["key"] for line in one.lines("alarm_raised")] == ["process/speaker"]
    assert any("its spare takes its place" in line for line in after.history)
    assert "spare_promoted" in one.events()
    assert two.role() is Role.BACKUP

    # Again and again: it keeps dying, and the peer gets the address.
    again_ns = time.time_ns()

    def killed_again() -> bool:
        """Whenever there is one: who has lived for ten seconds would have a successor at once."""
        if found := pid(one, "speaker"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(found, signal.SIGKILL)
        return bool(site.ear.adverts_of(ONE, 0, since_ns=again_ns)) and has_vip(two)

    eventually(killed_again, "priority 0 in its stead, and the address is the peer's")
    assert "MASTER" in {line["to"] for line in two.lines("role_changed")}


def test_a_speaker_that_hung_before_it_was_killed_is_given_up(site: Site, pair: tuple[Director, Director]) -> None:
    one, two = pair
    hung = eventually(lambda: pid(one, "speaker"), "a speaker")
    os.kill(hung, signal.SIGSTOP)
    two.becomes(Role.MASTER)
    # The kernel has taken the address off, since nobody has renewed it.
    eventually(lambda: not has_vip(one), "the address has expired")
    os.kill(hung, signal.SIGKILL)
    eventually(lambda: pid(one, "speaker", hung), "another speaker")
    assert any("MASTER -> INIT" in line for line in one.answered().history)
    # As configured it preempts: by the election, not by what was before.
    one.becomes(Role.MASTER)
    two.becomes(Role.BACKUP)


def test_a_killed_spare_a_killed_checker_change_nothing(site: Site, pair: tuple[Director, Director]) -> None:
    one, _ = pair
    watch = Watch(one)
    begun_ns = time.time_ns()
    with Conversation(site.client.namespace, site.lab.hosts["rs"].namespace) as talk:
        for name in ("spare", "checker"):
            kill(one, name)
            talk.goes_on()
        eventually(lambda: has_spare(one), "another spare")
        talk.goes_on()
    assert carries_xdp(one)
    assert watch.removals() == []
    assert site.ear.adverts_of(ONE, 0, since_ns=begun_ns) == []
    assert site.ear.adverts_of(TWO, since_ns=begun_ns) == []


def test_everything_killed_with_the_link_up_leaves_no_address_and_traffic_flows(
    site: Site, pair: tuple[Director, Director]
) -> None:
    one, two = pair
    with Conversation(site.client.namespace, site.lab.hosts["rs"].namespace) as talk:
        talk.goes_on()
        one.host.kill()
        talk.goes_on()
        two.becomes(Role.MASTER)
        eventually(lambda: VIP not in addresses(one.host), "the kernel takes the address off")
        talk.goes_on()
    assert has_vip(two)
    assert carries_xdp(one)


def test_the_spare_goes_with_the_supervisor_and_leaves_what_others_have_put_on(
    site: Site, pair: tuple[Director, Director]
) -> None:
    one, _ = pair
    spare = eventually(lambda: pid(one, "spare"), "a spare")
    one.host.run("ip", "address", "add", "10.8.0.77/24", "dev", "eth0")
    assert one.process is not None
    one.process.kill()
    one.process.wait()
    eventually(lambda: not Path(f"/proc/{spare}").exists(), "the spare has ended")
    assert IPv4Address("10.8.0.77") in addresses(one.host)


def test_without_a_spare_as_the_settings_say(site: Site) -> None:
    one = site.director("lb1", 150, servers=False, settings="processes:\n  spare_speaker: false\n").start()
    one.becomes(Role.MASTER)
    killed_ns = time.time_ns()
    kill(one, "speaker")
    eventually(lambda: site.ear.adverts_of(ONE, 0, since_ns=killed_ns), "priority 0 in its stead")
    one.becomes(Role.MASTER)
    assert [each.name for each in one.answered().processes] == ["speaker"]

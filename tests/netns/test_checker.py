"""The checker process beside a real forwarder: web servers die and return, traffic follows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from haxlb.daemon.messages import (
    AskStatus,
    CheckerStatus,
    ConfigureChecker,
    Happened,
    Logged,
    Message,
    PeersKnown,
    Ready,
    Stop,
    SwapProgram,
)
from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.linux.bpffs import unmount
from haxlb.linux.forwarder_build import compile_forwarder
from haxlb.linux.pinned import VERDICTS
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.check import Check, CheckKind, HttpUrl
from haxlb.model.commands import Command
from haxlb.model.facts import BackendChanged, QuorumChanged
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.settings import CheckerSettings, ForwardingSettings
from haxlb.model.status import RealServerStatus, VirtualServerStatus
from haxlb.model.virtual_server import RealServer, Scheduler, VirtualServer
from tests.netns.standin import LIMIT_S, SpeakerHandle, eventually, whole_lines

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

NEEDED = Features(
    list=False, thresholds=False, persistence=False, one_packet=False, any_port=False,
    ipv6=False, tunnel=False, nat=False, jumbo=False,
)  # fmt: skip

VIP = IPv4Address("10.76.0.100")
FIRST, SECOND, SORRY = (IPv4Address(f"10.76.0.{host}") for host in (21, 22, 29))
ENDPOINT = Endpoint(address=VIP, port=80, protocol=Protocol.TCP)

# Answers with its own address, one connection after the other, in threads that a hanging client cannot block.
WEB = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        body = sys.argv[1].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", 80), Handler).serve_forever()
"""


class CheckerHandle(SpeakerHandle):
    """A checker process in a namespace, and the supervisor's end of its pipe."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._socket, theirs = socket.socketpair()
        command = (sys.executable, "-P", "-m", "haxlb.linux.checker_main", "--fd", str(theirs.fileno()))
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = host.start(*command, pass_fds=(theirs.fileno(),), env=environment)
        theirs.close()
        self.messages: list[Message] = []
        self._news = threading.Condition()
        self._tickets = 0
        self.eof = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def order(self, message: ConfigureChecker | SwapProgram) -> str:
        """Send and wait for the answer: the problem, empty when there is none."""
        before = len(self.messages)
        self.send(message)
        of = type(message).__name__
        answer: Ready = self.wait_for(lambda m: isinstance(m, Ready) and m.of == of, f"Ready {of}", start=before)
        return answer.problem

    def ask(self) -> CheckerStatus:
        self._tickets += 1
        ticket = self._tickets
        self.send(AskStatus(ticket=ticket))
        status: CheckerStatus = self.wait_for(
            lambda m: isinstance(m, CheckerStatus) and m.ticket == ticket, "CheckerStatus"
        )
        return status

    def shown(self) -> VirtualServerStatus:
        (virtual_server,) = self.ask().virtual_servers
        return virtual_server

    def server(self, address: IPv4Address) -> RealServerStatus:
        return next(each for each in self.shown().real_servers if each.address == address)

    def in_pool(self) -> set[IPv4Address]:
        return {each.address for each in self.shown().real_servers if each.in_pool}

    def serves(self, *addresses: IPv4Address) -> None:
        """Wait until new flows go to these servers, and to no others.

        The first table waits a second for ARP, and an answer is of maps that say what it says.
        """
        found: list[set[IPv4Address]] = []

        def look() -> bool:
            found[:] = [self.in_pool()]
            return found == [set(addresses)]

        try:
            eventually(look, f"{addresses} are in the pool")
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {found}") from None

    def backend(self, address: IPv4Address, *, up: bool, start: int = 0) -> BackendChanged:
        """Wait for this server to change."""

        def matches(message: Message) -> bool:
            fact = message.fact if isinstance(message, Happened) else None
            return isinstance(fact, BackendChanged) and fact.real_server == f"{address}:80" and fact.up is up

        happened: Happened = self.wait_for(matches, f"{address} {'up' if up else 'down'}", start=start)
        assert isinstance(happened.fact, BackendChanged)
        return happened.fact


@contextlib.contextmanager
def stopped(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Meanwhile it does nothing."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class Stage:
    """A client, a director with a forwarder, two web servers and a sorry server."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab = lab
        self.directory = directory
        self.client = lab.host("c", "10.76.0.2/24")
        self.director = lab.host("d1", "10.76.0.11/24", director=True)
        self.director.run("ip", "address", "add", f"{VIP}/32", "dev", "eth0")
        self.webs: dict[IPv4Address, subprocess.Popen[Any]] = {}
        for name, address in (("s1", FIRST), ("s2", SECOND), ("s3", SORRY)):
            lab.real_server(name, f"{address}/24", str(VIP))
            self.start_web(address)
        self.program = asyncio.run(compile_forwarder(directory, features=NEEDED))

    def host(self, address: IPv4Address) -> Host:
        return next(each for each in self.lab.hosts.values() if each.address and each.address.ip == address)

    def start_web(self, address: IPv4Address) -> None:
        host = self.host(address)
        self.webs[address] = host.start(sys.executable, "-c", WEB, str(address))
        eventually(lambda: ":80 " in host.run("ss", "-ltnH").stdout, f"web server on {address}")

    def stop_web(self, address: IPv4Address) -> None:
        """SIGKILL to the web server: connections are refused from now on."""
        self.webs[address].kill()
        self.webs[address].wait(timeout=LIMIT_S)

    @contextlib.contextmanager
    def frozen(self, *addresses: IPv4Address) -> Iterator[None]:
        """Meanwhile these servers take connections and answer none."""
        with contextlib.ExitStack() as stack:
            for address in addresses:
                stack.enter_context(stopped(self.webs[address]))
            yield

    def fetch(self, times: int = 20, patience_s: float = LIMIT_S) -> Counter[str]:
        """Who answered requests of the client to the VIP, one after the other; `none` for those that failed."""
        loop = f"for n in $(seq {times}); do curl -s --max-time {patience_s:g} http://{VIP}/ || printf none; echo; done"
        return Counter(self.client.run("bash", "-c", loop).stdout.split())

    def config(self, **changes: Any) -> NodeConfig:
        servers = tuple(RealServer(address=each, port=80, checks=(check(each),)) for each in (FIRST, SECOND))
        values: dict[str, Any] = {"endpoint": ENDPOINT, "scheduler": Scheduler.RR, "real_servers": servers}
        return NodeConfig(
            node="d1",
            instances=(VrrpInstance(name="VI_1", interface="eth0", vrid=51),),
            virtual_servers=(VirtualServer(**(values | changes)),),
            # The lab's links are veths whose other ends carry a program.
            forwarding=ForwardingSettings(mode="native"),
        )

    def orders(self, config: NodeConfig | None = None) -> ConfigureChecker:
        return ConfigureChecker(config=config or self.config(), bpf_directory=str(self.directory), program=self.program)


def check(address: IPv4Address, **changes: Any) -> Check:
    """Patient, for servers whose processes wait for a processor; one that is dead refuses at once."""
    values: dict[str, Any] = {
        "kind": CheckKind.HTTP,
        "address": address,
        "port": 80,
        "urls": (HttpUrl(path="/"),),
        "connect_timeout_us": 60_000_000,
        "delay_loop_us": 500_000,
        "delay_before_retry_us": 100_000,
    }
    return Check(**(values | changes))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("checker") / "bpf" / layout.ABI
    with contextlib.ExitStack() as stack:
        stack.callback(unmount, directory.parent)
        lab = stack.enter_context(Lab(f"hxck{os.getpid()}"))
        yield Stage(lab, directory)


@pytest.fixture
def stage(built: Stage) -> Stage:
    """Everybody healthy, and no checker remembers anything."""
    for address, web in built.webs.items():
        built.host(address).plug()
        if web.poll() is not None:
            built.start_web(address)
    (built.directory.parents[1] / VERDICTS).unlink(missing_ok=True)
    return built


def test_a_server_dies_and_returns_and_traffic_follows(stage: Stage) -> None:
    with CheckerHandle(stage.director) as checker:
        assert checker.order(stage.orders()) == ""
        checker.serves(FIRST, SECOND)
        flows = checker.shown().flows
        assert stage.fetch(20) == {str(FIRST): 10, str(SECOND): 10}
        status = checker.ask()
        assert [(each.interface, each.mode) for each in status.data_plane.links] == [("eth0", "native")]
        assert status.data_plane.abi == layout.ABI
        assert status.data_plane.problem == ""
        assert status.virtual_servers[0].flows == flows + 20
        assert checker.server(FIRST).mac == stage.host(FIRST).mac()

        eventually(lambda: checker.server(SECOND).checked_at, "a probe of the second server")
        stage.stop_web(SECOND)
        # How soon that must be: tests/health, by a clock that no other process holds up.
        fact = checker.backend(SECOND, up=False)
        assert fact.reason == "HTTP_GET: connection refused, twice in a row"
        assert checker.in_pool() == {FIRST}
        assert stage.fetch(20) == {str(FIRST): 20}

        stage.start_web(SECOND)
        assert checker.backend(SECOND, up=True).reason == "HTTP_GET: HTTP 200, twice in a row"
        checker.serves(FIRST, SECOND)
        assert stage.fetch(20) == {str(FIRST): 10, str(SECOND): 10}


def test_an_unplugged_server_leaves_and_says_why(stage: Stage) -> None:
    first, second = stage.config().virtual_servers[0].real_servers
    hasty = replace(second, checks=(check(SECOND, connect_timeout_us=1_000_000),))
    with CheckerHandle(stage.director) as checker:
        assert checker.order(stage.orders(stage.config(real_servers=(first, hasty)))) == ""
        checker.serves(FIRST, SECOND)
        stage.host(SECOND).unplug()
        fact = checker.backend(SECOND, up=False)
        assert fact.reason.startswith("HTTP_GET: no connection in 1 s, twice in a row")
        assert stage.fetch(6) == {str(FIRST): 6}
        stage.host(SECOND).plug()
        checker.backend(SECOND, up=True)
        checker.serves(FIRST, SECOND)


def test_when_all_are_dead_the_sorry_server_answers_and_without_one_nobody(stage: Stage) -> None:
    with CheckerHandle(stage.director) as checker:
        sorry = RealServer(address=SORRY, port=80)
        assert checker.order(stage.orders(stage.config(sorry_server=sorry))) == ""
        stage.stop_web(FIRST)
        stage.stop_web(SECOND)
        checker.wait_for(
            lambda m: isinstance(m, Happened) and isinstance(m.fact, QuorumChanged) and not m.fact.up, "lost quorum"
        )
        assert checker.shown().sorry
        checker.serves(SORRY)
        assert stage.fetch(4) == {str(SORRY): 4}

        assert checker.order(stage.orders()) == ""
        assert checker.in_pool() == set()
        dropped = checker.ask().data_plane.verdicts["no_server"]
        assert stage.fetch(1, patience_s=5) == {"none": 1}
        assert checker.ask().data_plane.verdicts["no_server"] > dropped

        stage.start_web(FIRST)
        checker.backend(FIRST, up=True)
        checker.serves(FIRST)
        assert stage.fetch(4) == {str(FIRST): 4}


def test_the_data_plane_outlives_the_checker_and_the_next_one_takes_over(stage: Stage) -> None:
    """`alpha`: a checker that knew nothing would empty the pool; and the dead server must not come back."""
    orders = stage.orders(stage.config(alpha=True))
    with CheckerHandle(stage.director) as checker:
        with stage.frozen(FIRST, SECOND):
            assert checker.order(orders) == ""
            eventually(lambda: all(each.mac for each in checker.shown().real_servers), "both can be reached")
            assert checker.in_pool() == set()
        checker.serves(FIRST, SECOND)
        stage.stop_web(SECOND)
        checker.backend(SECOND, up=False)
        # Whoever answers this has written the maps, and the file beside them.
        assert checker.in_pool() == {FIRST}
        assert stage.fetch(4) == {str(FIRST): 4}
        checker.kill()
    assert stage.fetch(10) == {str(FIRST): 10}
    with CheckerHandle(stage.director) as checker:
        assert checker.order(orders) == ""
        assert eventually(checker.in_pool, "somebody can be reached") == {FIRST}
        assert stage.fetch(10) == {str(FIRST): 10}
        assert checker.facts(BackendChanged) == []
        stage.start_web(SECOND)
        checker.backend(SECOND, up=True)


@pytest.mark.parametrize("how", ["stop", "eof", "sigterm"])
def test_it_leaves_in_order_and_leaves_the_data_plane_as_it_is(stage: Stage, how: str) -> None:
    with CheckerHandle(stage.director) as checker:
        assert checker.order(stage.orders()) == ""
        checker.serves(FIRST, SECOND)
        checker.process.send_signal(signal.SIGINT)  # the terminal's, for the whole group
        assert checker.ask().data_plane.problem == ""
        if how == "stop":
            checker.send(Stop())
        elif how == "eof":
            checker.hang_up()
        else:
            checker.process.terminate()
        assert checker.process.wait(timeout=LIMIT_S) == 0
        eventually(lambda: checker.eof, "all that it said has been read")
        assert [each for each in checker.messages if isinstance(each, Logged) and each.level == "error"] == []
    assert stage.fetch(10) == {str(FIRST): 5, str(SECOND): 5}


def test_a_swap_and_a_reload(stage: Stage) -> None:
    with CheckerHandle(stage.director) as checker:
        assert checker.order(stage.orders()) == ""
        assert checker.order(SwapProgram(program=stage.program)) == ""
        assert checker.ask().data_plane.swaps == 1
        drained = stage.config().virtual_servers[0].real_servers
        drained = (replace(drained[0], weight=0), drained[1])
        assert checker.order(stage.orders(stage.config(real_servers=drained))) == ""
        checker.serves(SECOND)
        assert stage.fetch(6) == {str(SECOND): 6}
        assert checker.order(SwapProgram(program="/nowhere/program")).startswith("cannot open")
        assert stage.fetch(4) == {str(SECOND): 4}


def test_it_runs_as_the_operator_says_and_as_any_other_otherwise(stage: Stage) -> None:
    with CheckerHandle(stage.director) as checker:
        pid = checker.process.pid
        assert checker.order(stage.orders()) == ""
        assert (os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)) == (
            os.sched_getscheduler(0),
            os.getpriority(os.PRIO_PROCESS, 0),
        )
        hurried = replace(stage.config(), checker=CheckerSettings(nice=-7, cpus=(0,)))
        assert checker.order(stage.orders(hurried)) == ""
        assert os.getpriority(os.PRIO_PROCESS, pid) == -7
        assert os.sched_getaffinity(pid) == {0}
        timely = replace(stage.config(), checker=CheckerSettings(realtime_priority=3))
        assert checker.order(stage.orders(timely)) == ""
        assert os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
        assert os.sched_getparam(pid).sched_priority == 3
        assert checker.order(stage.orders()) == ""
        assert os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER
        assert os.getpriority(os.PRIO_PROCESS, pid) == 0


def test_a_program_on_tables_of_its_own_is_attached_only_when_they_are_full(stage: Stage) -> None:
    """Somebody removed the pins under a checker at work, and what was built then found no tables: it made new ones."""
    with CheckerHandle(stage.director) as checker:
        assert checker.order(stage.orders()) == ""
        # It would pin them again before those of another one are there.
        with stopped(checker.process):
            for pin in stage.directory.iterdir():
                if not pin.is_dir():
                    pin.unlink()
            program = stage.program = asyncio.run(compile_forwarder(stage.directory, features=NEEDED))
        # The program that is attached goes on meanwhile, on the tables that it has.
        assert "reads other tables than this process writes" in checker.order(SwapProgram(program=program))
        while checker.ask().data_plane.problem:
            # The turn begins anew with the new tables: it may fall between the two requests.
            assert sum(stage.fetch(2).values()) == 2
        checker.serves(FIRST, SECOND)
        assert stage.fetch(4) == {str(FIRST): 2, str(SECOND): 2}
        assert checker.shown().flows >= 4


def test_a_data_plane_of_another_version_is_left_as_it_is(stage: Stage) -> None:
    """haxlb was exchanged on disk and the checker died: the one that comes after it cannot write these tables."""
    with CheckerHandle(stage.director) as checker:
        assert checker.order(stage.orders()) == ""
        checker.serves(FIRST, SECOND)
    former = stage.directory.with_name("1-former")
    stage.directory.rename(former)
    try:
        with CheckerHandle(stage.director) as checker:
            orders = replace(stage.orders(), bpf_directory=str(former))
            assert "of another version of haxlb" in checker.order(orders)
            assert "restart haxlb" in checker.ask().data_plane.problem
            assert stage.fetch(4) == {str(FIRST): 2, str(SECOND): 2}
    finally:
        former.rename(stage.directory)


def test_scripts_of_the_operator_run(stage: Stage, tmp_path: Path) -> None:
    def script(name: str) -> Command:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/log\n')
        path.chmod(0o700)
        return Command(argv=(str(path), "argument"), user="root")

    servers = tuple(
        replace(each, notify_up=script("up"), notify_down=script("down"))
        for each in stage.config().virtual_servers[0].real_servers[:1]
    )
    orders = stage.orders(
        stage.config(real_servers=servers, quorum_up=script("quorum_up"), quorum_down=script("quorum_down"))
    )
    log = tmp_path / "log"
    with CheckerHandle(stage.director) as checker:
        assert checker.order(orders) == ""
        stage.stop_web(FIRST)
        checker.backend(FIRST, up=False)
        stage.start_web(FIRST)
        checker.backend(FIRST, up=True)
        eventually(lambda: len(whole_lines(log)) == 5, "five scripts")
    names = [line.split()[0] for line in log.read_text().splitlines()]
    assert names == ["quorum_up", "down", "quorum_down", "up", "quorum_up"]
    assert {line.split()[1] for line in log.read_text().splitlines()} == {"argument"}


def unreachable(checker: CheckerHandle) -> list[str]:
    lines = [each for each in checker.messages if isinstance(each, Logged)]
    return [each.fields["address"] for each in lines if each.event == "neighbour_unreachable"]


def test_what_cannot_be_reached_is_said_and_a_missing_data_plane_is_a_problem(stage: Stage, tmp_path: Path) -> None:
    own = RealServer(address=IPv4Address("10.76.0.11"), port=80)
    absent = RealServer(address=IPv4Address("10.76.0.99"), port=80)
    far = RealServer(address=IPv4Address("10.88.0.5"), port=80)
    servers = (*stage.config().virtual_servers[0].real_servers, own, absent, far)
    stage.director.run("ip", "route", "replace", "10.88.0.0/24", "via", str(FIRST))
    with CheckerHandle(stage.director) as checker:
        assert checker.order(stage.orders(stage.config(real_servers=servers))) == ""
        checker.send(PeersKnown(interface="eth0", peers=(IPv4Address("10.76.0.12"),)))
        eventually(lambda: checker.server(absent.address).reason.startswith("no ARP"), "no ARP answer")
        assert checker.server(absent.address).reason == "no ARP answer from 10.76.0.99 on eth0"
        assert checker.server(absent.address).mac is None
        behind = f"10.88.0.5 is behind the gateway {FIRST}: DR needs the real server on the link; "
        eventually(lambda: "not resolved yet" not in checker.server(far.address).reason, "the gateway answers")
        assert checker.server(far.address).reason == f"{behind}`lvs_method TUN` or NAT reaches it"
        checker.serves(FIRST, SECOND, own.address)  # this host may be one of the servers
        # The peer, too, and each of them once.
        eventually(lambda: len(unreachable(checker)) == 3, "three lines")
        assert sorted(unreachable(checker)) == ["10.76.0.12", "10.76.0.99", "10.88.0.5"]
        assert checker.order(stage.orders(stage.config())) == ""
        checker.serves(FIRST, SECOND)
    with CheckerHandle(stage.director) as checker:
        orders = ConfigureChecker(config=stage.config(), bpf_directory=str(tmp_path / layout.ABI), program="")
        assert "the forwarder's maps are not there" in checker.order(orders)
        assert "the forwarder's maps are not there" in checker.ask().data_plane.problem
    assert stage.fetch(4) == {str(FIRST): 2, str(SECOND): 2}

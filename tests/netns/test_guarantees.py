"""What users of a pair see while everything changes: thousands of connections that stay, packets of which none is lost.

DESIGN section 6 with TCP, the real program and whole daemons. With 100,000 flows that are synthetic:
tests/bpf/test_many_flows.py.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from lab import Host

from haxlb.forwarding import layout
from haxlb.forwarding.records import ServiceRecord
from haxlb.linux.forwarder import Forwarder
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.instance import Role
from haxlb.model.status import NodeStatus
from tests.netns.site import VIP, Director, Site
from tests.netns.standin import LIMIT_S, eventually

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

CROWD = Path(__file__).with_name("tcp_crowd.py")
FLOOD = Path(__file__).with_name("syn_flood.py")
RR, WLC, MH = PORTS = (80, 81, 82)
# With the port: there is one client.
SCHEDULERS = {RR: "rr", WLC: "wlc", MH: "mh\n    mh-port"}
EACH = 1000
"""Connections of each port; half of them talk all the time."""
SPOOFED = 1_000_000
PORTION = 100_000
PACE_S = 1.0
Broken = set[tuple[int, int]]
"""Port and server."""


def address(server: int) -> str:
    return f"10.8.0.{20 + server}"


def configuration(name: str, priority: int, weights: dict[int, int], timeouts: str = "") -> str:
    servers = "\n".join(
        f"""    real_server {address(server)} %(port)d {{
        weight {weight}
        TCP_CHECK {{
            connect_port 80
            connect_timeout 2
            retry 0
        }}
    }}"""
        for server, weight in weights.items()
    )
    services = "\n".join(
        f"""virtual_server {VIP} {port} {{
    delay_loop 1
    lb_algo {scheduler}
    lb_kind DR
    protocol {protocol}
{servers % {"port": port}}
}}"""
        for port, scheduler in SCHEDULERS.items()
        for protocol in ("TCP", "UDP")
    )
    return f"""
global_defs {{
    router_id {name}
    {timeouts}
}}
vrrp_instance VI_1 {{
    version 3
    interface eth0
    virtual_router_id 51
    priority {priority}
    advert_int 0.2
    virtual_ipaddress {{
        {VIP}/24
    }}
}}
{services}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What became of the connections since the last one."""

    open: dict[tuple[int, int], int]
    broken: dict[tuple[int, int, str], int]
    exchanges: int

    @property
    def of(self) -> Broken:
        return {(port, server) for port, server, _ in self.broken}


class Crowd:
    """The client's connections."""

    def __init__(self, host: Host) -> None:
        self.process = spawn(host, "talk", str(VIP))

    def order(self, **command: Any) -> Round:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        return Round(
            open={(port, server): count for port, server, count in said["open"]},
            broken={(port, server, reason): count for port, server, reason, count in said["broken"]},
            exchanges=said["exchanges"],
        )

    def open(self, each: int, *, pace: float, ports: tuple[int, ...] = PORTS) -> Round:
        return self.order(do="open", ports=ports, each=each, pace=pace)

    def close(self, *ports: int) -> Round:
        return self.order(do="close", ports=ports)

    def all_talk(self) -> Round:
        return self.order(do="round")


def spawn(host: Host, *words: str) -> subprocess.Popen[str]:
    argv = host.argv(sys.executable, str(CROWD), *words)
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    host.processes.append(process)
    return process


class Pool:
    """The servers, and what the directors are told of them."""

    def __init__(self, site: Site) -> None:
        self.weights = {1: 1, 2: 2, 3: 1}
        self.processes: dict[int, subprocess.Popen[str]] = {}
        for server in range(1, 6):
            host = site.lab.real_server(f"s{server}", f"{address(server)}/24", str(VIP))
            self.processes[server] = spawn(host, "serve", str(server), str(VIP), *map(str, PORTS))
        for process in self.processes.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def accepts(self, server: int, *, yes: bool) -> None:
        """Its port answers the checks, or refuses them; connections stay."""
        self.processes[server].send_signal(signal.SIGUSR2 if yes else signal.SIGUSR1)


class Stage:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.pool = Pool(site)
        self.directors = {
            name: site.add(name, configuration(name, priority, self.pool.weights))
            for name, priority in (("lb1", 150), ("lb2", 100))
        }
        self.timeouts = ""
        self.client = site.client
        self.client_ports(20000, 39999)
        self.crowd = Crowd(site.client)

    def reload(self) -> None:
        """What the pool's weights say, to all directors that run, and to the others when they start."""
        for director, priority in zip(self.directors.values(), (150, 100), strict=True):
            text = configuration(director.host.name, priority, self.pool.weights, self.timeouts)
            director.config.write_text(text)
            if director.status() is not None:
                done = director.cli("reload")
                assert done.returncode == 0, done.stderr

    def client_ports(self, first: int, last: int) -> None:
        """What the client's next connections come from."""
        self.client.run("sysctl", "-qw", f"net.ipv4.ip_local_port_range={first} {last}")

    def in_pool(self, *servers: int) -> None:
        """Wait until all services of all directors that run give new flows to these servers, and no others."""
        wanted = {address(server) for server in servers}

        def serves(status: NodeStatus) -> bool:
            return bool(status.virtual_servers) and all(
                {str(each.address) for each in service.real_servers if each.in_pool and each.mac} == wanted
                for service in status.virtual_servers
            )

        def look() -> bool:
            found = [each.answered() for each in self.directors.values() if each.status() is not None]
            return bool(found) and all(map(serves, found))

        eventually(look, f"servers {servers} are in the pool")

    def counted(self, director: Director) -> int:
        """Packets that were sent on."""
        return self._verdicts(director, "new_flow", "table_full", "hashed")

    def refused(self, director: Director) -> int:
        """Packets for its services that it has dropped."""
        return self._verdicts(director, "no_server", "no_room", "malformed")

    def _verdicts(self, director: Director, *reasons: str) -> int:
        verdicts = director.answered().data_plane.verdicts
        return sum(verdicts.get(each, 0) for each in reasons)


@pytest.fixture
def stage(site: Site) -> Iterator[Stage]:
    made = Stage(site)
    yield made
    for process in (made.crowd.process, *made.pool.processes.values()):
        process.kill()
        process.communicate()


class Counted:
    """UDP packets through the directors meanwhile, in a closed loop."""

    def __init__(self, host: Host) -> None:
        self._process = spawn(host, "count", str(VIP), *map(str, PORTS))
        self.found: dict[str, Any] = {}

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def go_on(self, flows: int) -> None:
        """Wait until so many more have begun."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{flows}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "begun\n"

    def __exit__(self, *_: object) -> None:
        said, _ = self._process.communicate(timeout=2 * LIMIT_S)
        self.found = json.loads(said)
        print(self.found)


def flood(stage: Stage, director: Director) -> None:
    """A million SYNs of as many clients that do not exist, and more until the director has placed nine tenths of them.

    Where another process has the processor for a while, queues on the way lose some; the director loses none.
    """
    before, refused, sent = stage.counted(director), stage.refused(director), 0
    while sent < SPOOFED or stage.counted(director) - before < SPOOFED * 9 // 10:
        assert sent < 10 * SPOOFED, f"{stage.counted(director) - before} of {sent} were placed"
        argv = (director.host.mac(), str(VIP), sent, PORTION, *PORTS)
        done = stage.client.run(sys.executable, str(FLOOD), *map(str, argv))
        assert json.loads(done.stdout)["sent"] == PORTION
        sent += PORTION
    assert stage.refused(director) == refused


@pytest.mark.timeout(900)
def test_connections_and_packets_survive_whatever_happens(stage: Stage) -> None:
    crowd, pool = stage.crowd, stage.pool
    one, two = stage.directors.values()
    said: list[tuple[str, Round]] = []

    def unbroken(step: str, *but: int) -> Round:
        """Every connection answers, those of these servers excepted."""
        now = crowd.all_talk()
        said.append((step, now))
        others = {key: count for key, count in now.broken.items() if key[1] not in but}
        assert not others, f"{step}: {others}\n{one.log.read_text()[-2000:]}"
        return now

    one.start().becomes(Role.MASTER)
    stage.in_pool(1, 2, 3)
    crowd.open(EACH // 2, pace=PACE_S)
    crowd.open(EACH // 2, pace=0)
    first = unbroken("opened")
    assert sum(first.open.values()) == len(PORTS) * 2 * (EACH // 2) >= 2000
    assert {port for port, _ in first.open} == set(PORTS)

    pool.weights[4] = 2  # S1
    stage.reload()
    stage.in_pool(1, 2, 3, 4)
    unbroken("one more")
    for port in PORTS:
        for protocol in ("TCP", "UDP"):
            done = one.cli("drain", f"{protocol} {VIP}:{port}", f"{address(2)}:{port}")  # S2
            assert done.returncode == 0, done.stderr
    stage.in_pool(1, 3, 4)
    crowd.open(50, pace=PACE_S)
    unbroken("drained")
    # A change that meets the one before it.
    del pool.weights[3]
    pool.weights[5] = 1
    stage.reload()
    stage.in_pool(1, 4, 5)
    after = unbroken("removed", 3)
    assert {port for port, server in after.open if server == 2} == set(PORTS), "who is drained keeps what it has"
    for port in PORTS:
        for protocol in ("TCP", "UDP"):
            assert one.cli("enable", f"{protocol} {VIP}:{port}", f"{address(2)}:{port}").returncode == 0
    stage.in_pool(1, 2, 4, 5)
    crowd.open(50, pace=PACE_S)
    pool.accepts(4, yes=False)
    stage.in_pool(1, 2, 5)
    unbroken("failed", 4)
    crowd.open(50, pace=0)
    pool.accepts(4, yes=True)
    stage.in_pool(1, 2, 4, 5)
    unbroken("returned", 4)

    with Counted(stage.client) as packets:  # S5
        for weight in (3, 1):
            packets.go_on(250)
            pool.weights[1] = weight
            stage.reload()
        packets.go_on(250)
        assert one.cli("swap").returncode == 0
        packets.go_on(250)
    assert packets.found["lost"] == packets.found["moved"] == 0, packets.found
    assert packets.found["flows"] > 1000
    unbroken("reloaded and swapped")

    # S7. Who does not renew its claim of the address loses it; that is for the other director's sake.
    stage.client.run("ip", "neigh", "replace", str(VIP), "lladdr", one.host.mac(), "dev", "eth0", "nud", "permanent")
    one.host.kill()
    unbroken("dead")
    with Counted(stage.client) as packets:
        crowd.open(50, pace=0)
        unbroken("dead for a while")
        one.start().becomes(Role.MASTER)
        stage.in_pool(1, 2, 4, 5)
    unbroken("alive again")
    assert packets.found["lost"] == packets.found["moved"] == 0, packets.found
    stage.client.run("ip", "neigh", "del", str(VIP), "dev", "eth0")

    flood(stage, one)  # S6
    unbroken("flooded")

    # S3, and as far as the other director can ask the first one for all schedulers.
    two.start().becomes(Role.BACKUP)
    stage.in_pool(1, 2, 4, 5)
    # Where the pool has changed in their time, lb1 alone has on record where connections of the ring are.
    crowd.close(MH)
    # Nor may they begin where one was reset, which is on record until its time is over.
    stage.client_ports(40000, 60999)
    crowd.open(EACH, pace=PACE_S, ports=(MH,))
    assert one.cli("failover").returncode == 0
    two.becomes(Role.MASTER)
    unbroken("handed over")
    assert one.cli("resume").returncode == 0
    one.becomes(Role.MASTER)
    unbroken("handed back")
    assert one.stop() == 0
    two.becomes(Role.MASTER)
    unbroken("stopped")
    one.start().becomes(Role.MASTER)
    stage.in_pool(1, 2, 4, 5)
    unbroken("started again")
    one.host.kill()
    two.becomes(Role.MASTER)
    unbroken("killed")
    one.start().becomes(Role.MASTER)
    stage.in_pool(1, 2, 4, 5)
    unbroken("back")
    # What only lb1 knows goes with it; a ring knows nothing that the other one does not know.
    crowd.open(200, pace=0)
    one.host.power_off()
    two.becomes(Role.MASTER)
    last = crowd.all_talk()
    said.append(("powered off", last))
    assert {port for port, _ in last.of} <= {RR, WLC}
    assert min(sum(each.open.values()) for _, each in said[:-1]) >= 2000
    report(said)


def ring(director: Director) -> ServiceRecord:
    """The service of TCP that goes by a ring, as its tables say."""
    with contextlib.closing(Forwarder(director.runtime_dir / "bpf" / layout.ABI)) as forwarder:
        ledger = forwarder._read()
        endpoint = Endpoint(address=VIP, port=MH, protocol=Protocol.TCP)
        return ledger.services[ledger.frontends[endpoint].service]


def test_a_transition_ends_without_breaking_a_connection(stage: Stage) -> None:
    """With timeouts of some seconds, for which there are minutes elsewhere."""
    crowd, pool = stage.crowd, stage.pool
    one = stage.directors["lb1"]
    stage.timeouts = "lvs_timeouts tcp 15 tcpfin 2 udp 2"
    stage.reload()
    one.start().becomes(Role.MASTER)
    stage.in_pool(1, 2, 3)
    eventually(lambda: not ring(one).in_transition, "what its start has changed is over")
    crowd.open(300, pace=PACE_S, ports=(MH,))
    assert connections(one) == 0
    pool.weights |= {4: 3, 5: 1}
    stage.reload()
    stage.in_pool(1, 2, 3, 4, 5)
    assert ring(one).in_transition
    assert crowd.all_talk().broken == {}
    eventually(lambda: ring(one).former is None, "the former ring is given up")
    last = crowd.all_talk()
    assert (sum(last.open.values()), last.broken) == (300, {})
    assert {server for _, server in last.open} == {1, 2, 3}
    assert connections(one) > 0
    assert ring(one).in_transition, "its slots are exceptions while flows are on record"
    crowd.close(MH)
    eventually(lambda: not ring(one).in_transition, "no slot is an exception any more")
    crowd.open(100, pace=0, ports=(MH,))
    assert connections(one) == 0
    assert set(crowd.all_talk().open) == {(MH, server) for server in pool.weights}


def connections(director: Director) -> int:
    """On record."""
    return len(director.cli("show", "-c", "--json-lines").stdout.splitlines())


def report(said: list[tuple[str, Round]]) -> None:
    """For who runs it with -s."""
    for step, each in said:
        broken = {f"{port}/{server} {reason}": count for (port, server, reason), count in each.broken.items()}
        print(f"{step:22} open {sum(each.open.values()):5} broken {broken or 0} exchanges {each.exchanges}")

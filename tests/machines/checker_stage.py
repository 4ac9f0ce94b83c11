"""A checker on a stage: its time, its targets and a forwarder that records, all moved by the test."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from haxlb.daemon.checker import Checker
from haxlb.forwarding.wanted import Counters, NextHop, WantedTable
from haxlb.health.outcome import Outcome, failed, passed
from haxlb.health.timetable import StartProbe
from haxlb.model.addresses import IPAddress
from haxlb.model.check import Check
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.facts import BackendChanged, Fact
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.status import LinkStatus
from haxlb.model.virtual_server import VirtualServer

GOOD, BAD = passed("connected"), failed("connection refused")
PROBE_US = 1000
INSTANCE = VrrpInstance(name="VI_1", interface="eth0", vrid=51)


def hop(host: int, generation: int = 0) -> NextHop:
    return NextHop(
        interface_index=2, source_mac="02:00:00:00:00:01", destination_mac=f"02:00:00:00:{generation:02x}:{host:02x}"
    )


def address(host: int) -> IPv4Address:
    return IPv4Address(f"192.168.10.{host}")


def node(*virtual_servers: VirtualServer) -> NodeConfig:
    return NodeConfig(node="lb1", instances=(INSTANCE,), virtual_servers=virtual_servers)


@dataclass
class RecordingForwarder:
    """ForwarderPort that keeps every call; `refusal` makes it refuse."""

    stage: Stage
    applied: list[tuple[int, WantedTable]] = field(default_factory=list)
    attached: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    refusal: str = ""
    attempts: list[int] = field(default_factory=list)
    settled: list[tuple[int, int]] = field(default_factory=list)
    readings: Counters = field(default_factory=Counters)
    unpinned: tuple[str, ...] = ()
    unpinnable: str = ""

    def attach(self, program: str, interfaces: tuple[str, ...], mode: str) -> tuple[LinkStatus, ...]:
        self._refuse()
        self.stage.calls.append("attach")
        self.attached.append((program, interfaces, mode))
        return self.links()

    def apply(self, wanted: WantedTable) -> None:
        self.attempts.append(self.stage.now_us)
        self._refuse()
        self.stage.calls.append("apply")
        self.applied.append((self.stage.now_us, wanted))

    def settle(self, now_s: int, lifetime_s: int) -> None:
        self._refuse()
        self.settled.append((now_s, lifetime_s))

    def counters(self) -> Counters:
        self._refuse()
        return self.readings

    def links(self) -> tuple[LinkStatus, ...]:
        self._refuse()
        if not self.attached:
            return ()
        program, interfaces, _ = self.attached[-1]
        return tuple(LinkStatus(interface=each, mode="native", program=program) for each in interfaces)

    def repin(self) -> tuple[str, ...]:
        if self.unpinnable:
            raise HostError(self.unpinnable)
        restored, self.unpinned = self.unpinned, ()
        return restored

    def _refuse(self) -> None:
        if self.refusal:
            raise HostError(self.refusal, remedy="free memory")


class Stage:
    """Everything around one checker; it is its ports."""

    def __init__(
        self,
        remembered: dict[str, bool] | None = None,
        forwarder: Callable[[Stage], RecordingForwarder] = RecordingForwarder,
    ) -> None:
        self.now_us = 0
        self.calls: list[str] = []
        """What was asked of the world, in order."""
        self.facts: list[Fact] = []
        self.logs: list[tuple[str, str, dict[str, object]]] = []
        self.answers: list[tuple[str, str]] = []
        self.saved: list[dict[str, bool]] = [remembered] if remembered else []
        self.followed: tuple[IPAddress, ...] = ()
        self.deadline: int | None = None
        self.sick: dict[Check, Outcome] = {}
        self.forwarder = forwarder(self)
        self._answers_due: list[tuple[int, int, Outcome]] = []
        self.checker = Checker(
            clock=self,
            wake=self,
            probes=self,
            neighbours=self,
            forwarder=self.forwarder,
            scripts=self,
            verdicts=self,
            reports=self,
        )

    # -- ports

    def now(self) -> int:
        return self.now_us

    def wake_at(self, deadline_us: int | None) -> None:
        self.deadline = deadline_us

    def start(self, probe: StartProbe) -> None:
        outcome = self.sick.get(probe.check, GOOD)
        heapq.heappush(self._answers_due, (self.now_us + PROBE_US, probe.ticket, outcome))

    def abandon(self, ticket: int) -> None:
        self.calls.append(f"abandon {ticket}")

    def follow(self, addresses: Iterable[IPAddress]) -> None:
        self.followed = tuple(addresses)

    def run(self, queue: str, command: Command) -> None:
        del queue
        self.calls.append(str(command))

    def load(self) -> dict[str, bool]:
        return self.saved[-1] if self.saved else {}

    def save(self, verdicts: Mapping[str, bool]) -> None:
        self.calls.append("save")
        self.saved.append(dict(verdicts))

    def report(self, fact: Fact) -> None:
        self.calls.append(f"report {type(fact).__name__}")
        self.facts.append(fact)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.logs.append((level, event, fields))

    def ready(self, of: str, problem: str) -> None:
        self.answers.append((of, problem))

    # -- what the test does

    def configure(self, *virtual_servers: VirtualServer, program: str = "/bpf/program") -> None:
        self.checker.configure(node(*virtual_servers), program)

    def resolve(self, *hosts: int, generation: int = 0) -> None:
        for host in hosts:
            self.checker.on_neighbour(address(host), hop(host, generation), "")

    def lose(self, host: int) -> None:
        self.checker.on_neighbour(address(host), None, f"no ARP answer from {address(host)} on eth0")

    def go(self, for_seconds: float = 0.0) -> None:
        """Let everything happen that is due within this time; 0 = what is due now."""
        end = self.now_us + round(for_seconds * 1_000_000)
        while True:
            wake = self.deadline if self.deadline is not None else end + 1
            answer = self._answers_due[0][0] if self._answers_due else end + 1
            if min(wake, answer) > end:
                break
            self.now_us = max(self.now_us, min(wake, answer))
            if answer <= wake:
                _, ticket, outcome = heapq.heappop(self._answers_due)
                self.checker.on_probe_result(ticket, outcome)
            else:
                self.deadline = None
                self.checker.on_wake()
        self.now_us = end

    @property
    def table(self) -> WantedTable:
        return self.forwarder.applied[-1][1]

    def serving(self, service: int = 0) -> dict[str, int]:
        """Key and weight of the servers that the forwarder may use."""
        servers = self.table.services[service].servers
        return {each.key: each.weight for each in servers if each.alive and each.next_hop is not None}

    def changes(self) -> list[BackendChanged]:
        return [each for each in self.facts if isinstance(each, BackendChanged)]

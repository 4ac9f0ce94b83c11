"""The checker process: `python -m haxlb.linux.checker_main --fd N`, started by the supervisor.

Gives the loop-agnostic `Checker` its real adapters and drives it from asyncio. It ends on `Stop`, on SIGTERM and when
the pipe closes, and leaves the data plane as it is: what is pinned goes on forwarding, and the checker that comes after
it takes over what it knew.

Everything runs on one thread. Writing the maps takes a few milliseconds at most, in which no probe is answered: that
is nothing beside a probe's deadline, while a second thread would have to be kept in order.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from haxlb.daemon.checker import Checker
from haxlb.daemon.messages import (
    AskStatus,
    CheckerStatus,
    ConfigureChecker,
    Happened,
    Message,
    PeersKnown,
    Ready,
    SwapProgram,
)
from haxlb.forwarding.wanted import NextHop
from haxlb.linux import child
from haxlb.linux.child import FLUSH_TIMEOUT_S
from haxlb.linux.neighbours import Neighbours
from haxlb.linux.notify import ScriptRunner
from haxlb.linux.pinned import PinnedForwarder, VerdictFile
from haxlb.linux.pipe import Pipe
from haxlb.linux.probing import Prober
from haxlb.linux.probing_turns import Results
from haxlb.linux.realtime import Scheduling, freeze_collector
from haxlb.linux.sweeper import Sweeper
from haxlb.linux.timerfd import MonotonicClock, TimerfdWake
from haxlb.model.addresses import IPAddress
from haxlb.model.facts import Fact
from haxlb.model.settings import CheckerSettings

SCRIPTS_TIMEOUT_S = 3.0
OPEN_FILES = 65536
"""One for each probe under way; the usual 1024 would be too few when a thousand servers hang."""


class CheckerProcess:
    """The wiring. Raises HostError where a capability is missing."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._scripts = ScriptRunner(pipe.log)
        self._prober = Prober(self._on_probe_results)
        self._neighbours = Neighbours(self._on_neighbour, pipe.log, on_interfaces=self._on_interfaces)
        # Later ones are of failures, which must not wait for a look at all that is known of thousands of servers.
        self._forwarder = PinnedForwarder(pipe.log, on_first_table=freeze_collector)
        self._verdicts = VerdictFile(pipe.log)
        self._sweeper = Sweeper()
        self._wake = TimerfdWake(self._on_wake)
        self._frozen = False
        self._scheduling = Scheduling(pipe.log)
        self._scheduled = False
        self._checker = Checker(
            clock=MonotonicClock(),
            wake=self._wake,
            probes=self._prober,
            neighbours=self._neighbours,
            forwarder=self._forwarder,
            scripts=self._scripts,
            verdicts=self._verdicts,
            reports=self,
            sweeps=self._sweeper,
        )

    # -- orders of the supervisor

    def handle(self, message: Message) -> None:
        """Carry out one message; Configure and Swap are answered when they are in force."""
        match message:
            case ConfigureChecker(config=config, bpf_directory=bpf_directory, program=program):
                self._schedule(config.checker)
                self._scripts.configure(config.notification.scripts, message.config_directory)
                self._forwarder.use(Path(bpf_directory))
                self._verdicts.use(Path(bpf_directory))
                self._sweeper.use(Path(bpf_directory))
                self._prober.avoid(
                    vip.address for each in config.instances for vip in (*each.vips, *each.excluded_vips)
                )
                self._checker.configure(config, program)
                if not self._frozen:
                    freeze_collector()
                    self._frozen = True
            case SwapProgram(program=program):
                self._checker.swap(program)
            case PeersKnown(interface=interface, peers=peers):
                self._checker.peers_known(interface, peers)
            case AskStatus(ticket=ticket):
                self._send_status(ticket)
            case _:
                self._pipe.log("warning", "message_not_for_the_checker", message=type(message).__name__)

    def _schedule(self, settings: CheckerSettings) -> None:
        # Who is told nothing stays as whoever has started us wants it.
        if self._scheduled or settings != CheckerSettings():
            self._scheduled = True
            self._scheduling.apply(settings)

    async def leave(self, reason: str) -> None:
        """End the probes, let the scripts run, deliver what is still to be said; the data plane stays."""
        del reason
        self._neighbours.close()
        self._prober.close()
        self._wake.close()
        await self._scripts.finish(SCRIPTS_TIMEOUT_S)
        await self._pipe.drained(FLUSH_TIMEOUT_S)
        self._sweeper.close()
        self._forwarder.close()
        self._pipe.close()

    # -- the checker's reports

    def report(self, fact: Fact) -> None:
        """Facts go to the supervisor."""
        self._pipe.send(Happened(fact=fact))

    def log(self, level: str, event: str, **fields: object) -> None:
        """So do lines for the log."""
        self._pipe.log(level, event, **fields)

    def ready(self, of: str, problem: str) -> None:
        """And answers."""
        self._pipe.send(Ready(of=of, problem=problem))

    # -- what the world says

    def _on_wake(self) -> None:
        self._checker.on_wake()

    def _on_probe_results(self, results: Results) -> None:
        self._checker.on_probe_results(results)

    def _on_neighbour(
        self, address: IPAddress, next_hop: NextHop | None, reason: str, gateway: IPAddress | None
    ) -> None:
        self._checker.on_neighbour(address, next_hop, reason, gateway)

    def _on_interfaces(self) -> None:
        self._checker.on_interfaces()

    def _send_status(self, ticket: int) -> None:
        servers, plane = self._checker.status(time.time_ns() // 1000)
        plane = replace(plane, abi=self._forwarder.version)
        self._pipe.send(CheckerStatus(ticket=ticket, virtual_servers=servers, data_plane=plane))


def raise_file_limit() -> None:
    """Take as many file descriptors as this process may have, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _build(pipe: Pipe) -> CheckerProcess:
    raise_file_limit()
    return CheckerProcess(pipe)


if __name__ == "__main__":
    about = (__doc__ or "").partition("\n")[0]
    sys.exit(child.main("checker", "haxlb.linux.checker_main", ConfigureChecker, _build, about))

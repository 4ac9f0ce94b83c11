"""The supervisor process: gives the `Supervisor` its real adapters. `haxlb run` calls `serve`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haxlb.config.part import Part
from haxlb.daemon.complaints import log_complaints
from haxlb.daemon.control import Reload, Step
from haxlb.daemon.messages import Message
from haxlb.daemon.supervisor import Supervisor
from haxlb.daemon.supervisor_ports import Loaded, Outlets, World
from haxlb.linux.arp_watch import ArpWatch
from haxlb.linux.builder import Builder
from haxlb.linux.children import Children
from haxlb.linux.config_file import ConfigFile
from haxlb.linux.control_socket import ControlSocket
from haxlb.linux.firewall import name_of_table
from haxlb.linux.instance_lock import InstanceLock, RouterLocks
from haxlb.linux.lacks import LACKS, REMEDY
from haxlb.linux.log import Complaints
from haxlb.linux.logging_setup import Log
from haxlb.linux.mail import Mailer
from haxlb.linux.mqtt import Broker
from haxlb.linux.niceness import SUPERVISOR_NICE
from haxlb.linux.notify import ScriptRunner
from haxlb.linux.notify_fifo import NotifyFifos
from haxlb.linux.offspring import Cradle
from haxlb.linux.peer_probe import PeerProbe
from haxlb.linux.realtime import set_nice
from haxlb.linux.resign import Bequest
from haxlb.linux.systemd import notify, take_notify_socket
from haxlb.linux.timerfd import MonotonicClock
from haxlb.model.errors import HostError, NotPermitted, PeerError
from haxlb.model.facts import Fact

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13}
"""<linux/capability.h>; what the forwarder needs beyond them is said by its compiler."""
_RELOADS_AT_ONCE = 2
"""One under way and one that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `haxlb run` was told."""

    config: Path
    settings: Path | None
    runtime_dir: Path
    log_level: str = "info"
    log_format: str = "auto"
    config_id: str = ""
    """Selects @ID lines; empty = the host's name does."""
    part: Part = Part.ALL


class WallClock:
    """WallClockPort."""

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def serve(options: Options, show_report: Callable[[str], None], cradle: Cradle | None = None) -> None:
    """Run until stopped; `show_report` prints what there is to say about the configuration where people read the log.

    `cradle` has the speaker, if it was started before. Raises RefusedConfig, HostError.
    """
    source = _config_file(options, colour=sys.stderr.isatty())
    loaded = source.load_now()
    # Which finds out by itself that nobody reads, and counts the lines.
    log = Log(options.log_level, options.log_format, sys.__stderr__)
    if log.for_people and loaded.report:
        show_report(loaded.report)
    else:
        log_complaints(log, loaded.findings)
    check_capabilities()
    if cradle is not None and not loaded.config.instances:
        cradle.empty()
    lock = InstanceLock(options.runtime_dir)
    routers: RouterLocks | None = None
    try:
        routers = RouterLocks(loaded.config.instances)
        asyncio.run(_serve(options, loaded, log, routers, cradle))
    except OSError as problem:
        if problem.errno not in LACKS:
            raise
        raise HostError(f"haxlb cannot run: {problem.strerror}", remedy=REMEDY) from problem
    finally:
        if routers is not None:
            routers.release()
        lock.release()


def _config_file(options: Options, *, colour: bool) -> ConfigFile:
    return ConfigFile(options.config, options.settings, colour=colour, config_id=options.config_id, part=options.part)


def check_capabilities(status: Path = Path("/proc/self/status")) -> None:
    """Raises NotPermitted naming every capability that is missing."""
    line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    missing = [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
    if missing:
        raise NotPermitted(
            f"haxlb run lacks {' and '.join(missing)}",
            remedy="run it as root, or by the systemd unit in deploy/systemd",
        )


async def _serve(options: Options, loaded: Loaded, log: Log, routers: RouterLocks, cradle: Cradle | None) -> None:
    loop = asyncio.get_running_loop()
    set_nice(log, SUPERVISOR_NICE)
    notify_address = take_notify_socket()
    clock, wall = MonotonicClock(), WallClock()
    loop.set_exception_handler(log_bug(log, Complaints(log, clock)))

    # The adapters speak to a supervisor that is made of them.
    def on_message(name: str, message: Message) -> None:
        supervisor.on_message(name, message)

    def on_exit(name: str, returncode: int) -> None:
        supervisor.on_exit(name, returncode)

    def on_fact(fact: Fact) -> None:
        supervisor.on_fact(fact)

    def on_malformed(name: str, problem: PeerError) -> None:
        log("error", "malformed_message", process=name, reason=problem.message)

    builder = Builder(options.runtime_dir)
    bequest = Bequest(builder.directory)
    vip_watch = ArpWatch(clock, on_fact, log)
    world = World(
        clock=clock,
        wall=wall,
        # Answers go to clients, which may be pipes and other terminals than ours.
        config=_config_file(options, colour=False),
        children=Children(on_message=on_message, on_exit=on_exit, on_malformed=on_malformed, cradle=cradle),
        builder=builder,
        bequest=bequest,
        log=log,
        broker=Broker(clock, wall, on_fact, log),
        probe=PeerProbe(),
        vip_watch=vip_watch,
        routers=routers,
        outlets=Outlets(scripts=ScriptRunner(log), fifos=NotifyFifos(log), mail=Mailer(log)),
        bpf_directory=str(builder.directory),
        firewall_table=name_of_table(options.runtime_dir),
    )
    supervisor = Supervisor(world, loaded, on_started=lambda: notify(notify_address, "READY=1"))
    control = ControlSocket(options.runtime_dir, supervisor.command, log)
    await control.open()

    def stop(number: signal.Signals) -> None:
        notify(notify_address, "STOPPING=1")
        supervisor.stop(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    reloads = Reloads(supervisor)
    loop.add_signal_handler(signal.SIGHUP, reloads.begin)
    # keepalived writes its state to files on these: whoever sends them by habit must not end a director.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, _ignore, log, number)
    try:
        await supervisor.run()
    finally:
        await reloads.end()
        await control.close()
        vip_watch.close()
        bequest.close()


class Reloads:
    """SIGHUP: reloads that nobody waits for; their outcome is in the log."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self) -> None:
        """Reload, after the one that is under way; the one that waits for that will read the file as it is then."""
        if len(self._tasks) >= _RELOADS_AT_ONCE:
            return
        task = asyncio.ensure_future(self._supervisor.command(Reload(), _nobody))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Give up those that are left."""
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _ignore(log: Log, number: signal.Signals) -> None:
    log("warning", "signal_ignored", signal=number.name, remedy="use `haxlb show` or `haxlb show --json`")


def _nobody(_: Step) -> None:
    """Nobody listens to the steps."""


def log_bug(log: Log, complaints: Complaints) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """What a loop does with what nobody has caught. Lacks are none of ours, and asyncio tells of a hundred at once."""

    def handler(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if isinstance(problem, OSError) and problem.errno in LACKS:
            complaints.complain(
                "resources_lacking",
                message=context.get("message", ""),
                reason=problem.strerror,
                remedy=REMEDY,
            )
            return
        where = problem.__traceback__ if isinstance(problem, BaseException) else None
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where is not None else ""
        log("error", "bug", message=context.get("message", ""), reason=repr(problem), place=place)

    return handler

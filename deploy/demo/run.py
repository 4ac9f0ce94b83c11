"""`make demo`: real HTTP traffic through a pair of directors while servers, daemons and directors are lost.

Prints a table of what the client saw in each phase (`--json`: one object, docs/reference/demo.md) on stdout and its
progress on stderr. Exit code 0 when all that was promised was kept, 1 when not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo.records import NEW, Request, decode
from demo.report import (
    GAP_ALLOWANCE_MS,
    Mark,
    PhaseReport,
    as_json,
    as_table,
    reports,
    shortfalls,
)
from demo.stage import PORT, VIP, WEB_SERVERS, Director, NotSeen, Stage, wait_for
from haxlb.model.errors import HaxlbError
from haxlb.model.instance import Role

VICTIM = "web2"
SWAPS = 5
ADVERT_MS = 1000.0
"""advert_int of the tutorial's pair; version 2 of the protocol."""
FALL_MS = 3000.0
"""Until a killed server is out, at most: a whole delay_loop, then one retry (docs/tutorial/keepalived.conf)."""
FEWEST = 120
"""Requests of a phase on new connections: of fewer the servers' shares would be those of chance."""


def now_us() -> int:
    """The clock of the load generator's journal."""
    return time.monotonic_ns() // 1000


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


class Play:
    """The phases, one method each, in order."""

    def __init__(self, stage: Stage, measure_s: float, patience_s: float = 0.0) -> None:
        self.stage = stage
        self._measure_s = measure_s
        self._patience_s = patience_s
        self.marks: list[Mark] = []
        self.removed_us = 0
        self.notes: list[str] = []
        self.journal = stage.directory / "journal"

    def begin(self, name: str, theory_ms: float, what: str) -> None:
        """Mark the start of a phase."""
        self.marks.append(Mark(name=name, at_us=now_us(), theory_ms=theory_ms))
        say(f"{name}: {what}")

    def measure(self) -> None:
        """Let the load go on for a while: the one place where time is what is wanted."""
        time.sleep(self._measure_s)
        began = self.marks[-1].at_us

        def counts(request: Request) -> bool:
            return request.kind == NEW and request.started_us >= began

        self.wait_for("the client goes on", lambda: self._ended(counts) >= FEWEST, 60)

    def wait_for(self, what: str, fact: Callable[[], bool], seconds: float) -> None:
        """As `demo.stage.wait_for`, and with the patience that was asked for."""
        wait_for(what, fact, seconds + self._patience_s)

    def _ended(self, matches: Callable[[Request], bool]) -> int:
        """How many such requests the journal has."""
        if not self.journal.exists():
            return 0
        with self.journal.open(encoding="ascii") as lines:
            return sum(map(matches, decode(lines).requests))

    def perform(self) -> list[PhaseReport]:
        """Play it all and say what the client saw."""
        self.start()
        load = self.start_load()
        self.steady()
        self.server_down()
        self.server_back()
        self.hot_swap()
        self.failover()
        self.speaker_killed()
        self.master_back(self.power_off())
        end_us = now_us()
        load.send_signal(signal.SIGTERM)
        load.wait(timeout=15 + self._patience_s)
        with self.journal.open(encoding="ascii") as lines:
            return reports(decode(lines), self.marks, end_us, patience_us=round(self._patience_s * 1_000_000))

    def start(self) -> None:
        """Servers, then directors, until the pair stands."""
        say("starting three web servers and two directors")
        for server in self.stage.web_servers:
            server.start()
        for director in self.stage.directors:
            director.start()
        lb1, lb2 = self.stage.directors
        self.wait_for("lb1 is MASTER", lambda: lb1.is_in(Role.MASTER), 30)
        self.wait_for("lb2 is BACKUP", lambda: lb2.is_in(Role.BACKUP), 30)
        self.wait_for_pool(frozenset(WEB_SERVERS), 30)

    def wait_for_pool(self, names: frozenset[str], seconds: float) -> None:
        """Until each director that is on forwards to exactly these web servers."""
        wanted = ", ".join(sorted(names))
        for director in self.stage.directors:
            self.wait_for(
                f"{director.name} forwards to {wanted}", partial(director.forwards_exactly_to, names), seconds
            )

    def start_load(self) -> subprocess.Popen[Any]:
        """Start the client and wait for its first answers."""
        say(f"a client asks http://{VIP}/ two hundred times a second, and on twenty long-lived connections")
        deploy = str(Path(__file__).resolve().parents[1])
        load = self.stage.client.start(
            sys.executable,
            "-m",
            "demo.load",
            VIP,
            str(PORT),
            str(self.journal),
            str(round(self._patience_s * 1_000_000)),
            env={**os.environ, "PYTHONPATH": deploy},
        )

        def answered() -> bool:
            if load.poll() is not None:
                raise NotSeen(f"the load generator has ended with exit code {load.returncode}")
            return self._ended(lambda each: not each.failed) >= 100

        self.wait_for("the client is answered", answered, 10)
        return load

    def steady(self) -> None:
        """Nothing happens."""
        self.begin("steady", 0, "nothing happens")
        self.measure()

    def server_down(self) -> None:
        """A web server's processes are killed; its kernel refuses connections until the checks notice."""
        others = frozenset(WEB_SERVERS) - {VICTIM}
        before = {each.name: each.resets() for each in self.stage.web_servers}
        self.begin("server-down", FALL_MS, f"kill -9 of {VICTIM}'s nginx")
        killed_us = now_us()
        self.stage.web_server(VICTIM).kill()
        self.wait_for_pool(others, 15)
        self.removed_us = now_us()
        took = (self.removed_us - killed_us) / 1000
        self.measure()
        resets = ", ".join(f"{each.name} {each.resets() - before[each.name]}" for each in self.stage.web_servers)
        self.notes.append(
            f"server-down: {VICTIM} was out of both rings {took:.0f} ms after the kill (seen by polling);"
        )
        self.notes.append(f"  connections refused or reset by each server's kernel, health checks included: {resets}")

    def server_back(self) -> None:
        """It is started again."""
        self.begin("server-back", 0, f"{VICTIM} starts again")
        self.stage.web_server(VICTIM).start()
        self.wait_for_pool(frozenset(WEB_SERVERS), 15)
        self.measure()

    def hot_swap(self) -> None:
        """The forwarder's program is compiled anew and exchanged, several times."""
        self.begin("hot-swap", 0, f"haxlb swap, {SWAPS} times, on the director in charge")
        master = self.stage.master()
        for _ in range(SWAPS):
            master.command("swap")
        done = wait_for(f"{master.name} answers", master.status, 60).data_plane.swaps
        if done < SWAPS:
            raise NotSeen(f"{master.name} counts {done} program swaps, want {SWAPS}")
        self.measure()

    def failover(self) -> None:
        """A planned hand-over, and back."""
        master = self.stage.master()
        self.begin("failover", 0, f"haxlb failover on {master.name}, and back")
        for giver in (master, self.stage.partner(master)):
            giver.command("failover")
            self.wait_for_change(giver)
            self.measure()

    def speaker_killed(self) -> None:
        """The process that speaks VRRP dies; a spare one goes on in its place, and nobody changes roles."""
        master = self.stage.master()
        speaker = wait_for(f"{master.name} names its speaker", partial(master.process, "speaker"), 60)
        self.begin("speaker-killed", 0, f"kill -9 of {master.name}'s speaker")
        os.kill(speaker.pid, signal.SIGKILL)

        def restarted() -> bool:
            again = master.process("speaker")
            return again is not None and again.pid not in {0, speaker.pid}

        self.wait_for(f"{master.name} has another speaker", restarted, 15)
        self.measure()
        self.wait_for(f"{master.name} is MASTER", lambda: master.is_in(Role.MASTER), 15)
        self.wait_for("its partner is BACKUP", lambda: self.stage.partner(master).is_in(Role.BACKUP), 15)

    def wait_for_change(self, former: Director) -> None:
        """Until the partner is MASTER and the former master is BACKUP."""
        heir = self.stage.partner(former)
        self.wait_for(f"{heir.name} is MASTER", lambda: heir.is_in(Role.MASTER), 15)
        self.wait_for(f"{former.name} is BACKUP", lambda: former.is_in(Role.BACKUP), 15)

    def power_off(self) -> Director:
        """The master is gone without a word; gives that one."""
        master = self.stage.master()
        heir = self.stage.partner(master)
        instance = wait_for(f"{heir.name} answers", heir.instance, 60)
        skew_ms = (256 - instance.priority) / 256 * 1000  # RFC 3768 section 6.1: of a second, whatever advert_int is
        self.begin("power-off", round(3 * ADVERT_MS + skew_ms, 1), f"{master.name} loses its power")
        master.power_off()
        self.wait_for(f"{heir.name} is MASTER", lambda: heir.is_in(Role.MASTER), 15)
        self.measure()
        return master

    def master_back(self, gone: Director) -> None:
        """It boots, and takes its role back by its higher priority."""
        self.begin("master-back", 0, f"{gone.name} boots")
        gone.power_on()
        self.wait_for(f"{gone.name} is MASTER", lambda: gone.is_in(Role.MASTER), 30)
        self.wait_for_pool(frozenset(WEB_SERVERS), 15)
        self.measure()


def stop_on_signals() -> None:
    """SIGTERM and SIGHUP end the demo as SIGINT does: by an exception that runs every clean-up."""

    def stop(number: int, frame: types.FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def perform(name: str, measure_s: float, patience_s: float) -> tuple[list[PhaseReport], list[str], list[str]]:
    """Rows, notes, and what was promised and not kept."""
    stage = Stage(f"hx{name}", Path(f"/run/haxlb-{name}"))
    with stage:
        play = Play(stage, measure_s, patience_s)
        allowance_ms = GAP_ALLOWANCE_MS + patience_s * 1000
        tells = True
        try:
            rows = play.perform()
            missed = shortfalls(rows, removed_us=play.removed_us, allowance_ms=allowance_ms)
            tells = bool(missed)
        except KeyboardInterrupt:
            tells = False
            raise
        finally:
            for director in stage.directors if tells else ():
                say(director.tail())
            say("removing all of it")
    return rows, play.notes, missed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make demo ARGS=", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object (schema haxlb.demo/1)")
    parser.add_argument(
        "--measure",
        type=float,
        default=4.0,
        metavar="SECONDS",
        help="how long each phase goes on after its event is over (default: %(default)s)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="on a machine that is busy: how much longer an answer, and the gap of power-off, may take without"
        " counting as a failure (default: %(default)s)",
    )
    parser.add_argument(
        "--name",
        default="demo",
        metavar="NAME",
        help="of this demo: its namespaces are hxNAME-…, its files are in /run/haxlb-NAME; "
        "two of different names may run at once (default: %(default)s)",
    )
    options = parser.parse_args()
    stop_on_signals()
    begin = time.monotonic()
    try:
        rows, notes, missed = perform(options.name, options.measure, options.patience)
    except HaxlbError as problem:
        say(f"demo: {problem}")
        return problem.exit_code
    except KeyboardInterrupt:
        say("demo: interrupted")
        return 130
    print(json.dumps(as_json(rows)) if options.json else "\n".join(["", as_table(rows), "", *notes]))
    for line in missed:
        say(f"not kept: {line}")
    say(f"{'all promises kept' if not missed else 'NOT all promises kept'}, {time.monotonic() - begin:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

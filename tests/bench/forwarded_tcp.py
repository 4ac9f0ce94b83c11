"""What TCP through a pair of directors loses when daemons end: by SIGTERM, their speaker killed, all of them killed.

Needs root: the stage and the load of `make demo` (docs/reference/demo.md) in namespaces of its own. In each phase the
client opens two hundred connections a second and talks on twenty that stay open; what it could not do is counted.
It has so few ports that each is used again while both directors have its former connection on record as closed.
`vip_held_s` is for how long the address stayed on the dead director, seen by polling.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haxlb.model.instance import Role

if TYPE_CHECKING:
    from demo.run import Play
    from demo.stage import Director

MEASURE_S = 4.0
ROUNDS = 3
PORTS = (45000, 60999)
"""At two hundred connections a second used up in 80 s; a client keeps one for 60 s, a director for 120 s."""


def measure() -> Iterator[dict[str, Any]]:
    """A row for each phase."""
    from demo.records import decode
    from demo.report import reports
    from demo.run import Play, now_us
    from demo.stage import Stage

    with Stage(f"hxtcp{os.getpid()}", Path(f"/run/hxtcp{os.getpid()}")) as stage:
        play = Play(stage, MEASURE_S)
        low, high = PORTS
        stage.client.run("sysctl", "-qw", f"net.ipv4.ip_local_port_range={low} {high}")
        play.start()
        for event in (_sigterm, _speaker_killed, _all_killed):
            for _ in range(ROUNDS):
                # Anew each time: what is killed shall be the one director that has placed the connections.
                play.marks.clear()
                play.journal.unlink(missing_ok=True)
                load = play.start_load()
                play.steady()
                more = event(play)
                end_us = now_us()
                load.send_signal(signal.SIGTERM)
                load.wait(timeout=15)
                with play.journal.open(encoding="ascii") as lines:
                    for row in reports(decode(lines), play.marks, end_us):
                        yield {
                            "phase": row.name,
                            "requests": row.requests,
                            "failed": row.failed,
                            "reasons": row.reasons,
                            "broken": row.broken,
                            "gap_ms": row.gap_ms,
                            **more.get(row.name, {}),
                        }


def _sigterm(play: Play) -> dict[str, Any]:
    master = play.stage.master()
    play.begin("sigterm", 0, f"SIGTERM to haxlb run on {master.name}")
    master.host.kill(signal.SIGTERM)
    _heir_takes_over(play, master)
    _comes_back(play, master, "back from sigterm")
    return {}


def _speaker_killed(play: Play) -> dict[str, Any]:
    from demo.stage import wait_for

    master = play.stage.master()
    speaker = master.process("speaker")
    if speaker is None:
        raise RuntimeError(f"{master.name} has no speaker")
    play.begin("speaker-killed", 0, f"SIGKILL to the speaker of {master.name}")
    os.kill(speaker.pid, signal.SIGKILL)

    def another() -> bool:
        now = master.process("speaker")
        return now is not None and now.pid not in {0, speaker.pid}

    wait_for(f"{master.name} has another speaker", another, 15)
    play.measure()
    wait_for(f"{master.name} is MASTER", lambda: master.is_in(Role.MASTER), 30)
    return {}


def _all_killed(play: Play) -> dict[str, Any]:
    from demo.stage import VIP, wait_for

    master = play.stage.master()
    play.begin("all-killed", 0, f"SIGKILL to every process on {master.name}, link up")
    killed = time.monotonic()
    master.host.kill(signal.SIGKILL)
    show = ("ip", "-br", "address", "show", "dev", "eth0")
    wait_for(f"{VIP} is off {master.name}", lambda: f"{VIP}/" not in master.host.run(*show).stdout, 10, every=0.02)
    held = round(time.monotonic() - killed, 2)
    _heir_takes_over(play, master)
    _comes_back(play, master, "back from all-killed")
    return {"all-killed": {"vip_held_s": held}}


def _heir_takes_over(play: Play, former: Director) -> None:
    from demo.stage import wait_for

    heir = play.stage.partner(former)
    wait_for(f"{heir.name} is MASTER", lambda: heir.is_in(Role.MASTER), 15)
    play.measure()


def _comes_back(play: Play, former: Director, phase: str) -> None:
    from demo.stage import WEB_SERVERS, wait_for

    play.begin(phase, 0, f"{former.name} starts again")
    former.start()
    wait_for(f"{former.name} is MASTER", lambda: former.is_in(Role.MASTER), 30)
    play.wait_for_pool(frozenset(WEB_SERVERS), 15)
    play.measure()

"""Drives the BFD sessions of a process: sockets, one timerfd, and what has changed.

What has arrived is taken before an expired timer is looked at: a process that was stalled must find the packets that
were waiting before it declares their sender lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from haxlb.bfd.packet import State
from haxlb.bfd.session import Session
from haxlb.bfd.table import Changed, SessionKey, SessionTable, TableEffect, Transmit, by_ends, lowest_ttl
from haxlb.daemon.ports import ClockPort
from haxlb.linux.bfd_sockets import BfdSockets
from haxlb.linux.log import Complaints, Log
from haxlb.linux.timerfd import TimerfdWake
from haxlb.model.errors import HaxlbError
from haxlb.model.status import TrackedStatus
from haxlb.model.tracking import BfdSession, TrackKind, TrackResult

RETRY_S = 1.0
"""Between two attempts at sockets that could not be opened."""

SHIELD_S = 1.0
"""How long the kernel goes on dropping what is unwanted after the last sign of a flood."""
PAUSE_S = 0.005
"""Without a look at the sockets in a flood, unless a timer ends."""


class BfdRunner:
    """On the running loop. `on_results` gets all results after `configure`, later those that change, at once."""

    def __init__(
        self,
        clock: ClockPort,
        on_results: Callable[[tuple[TrackResult, ...]], None],
        log: Log,
        *,
        seed: int | None = None,
    ) -> None:
        """`seed` of discriminators and jitter: None takes one from the operating system.

        A new process must have other discriminators than the one before it, so that the neighbours see it restart.
        """
        self._clock = clock
        self._on_results = on_results
        self._log = log
        self._complaints = Complaints(log, clock)
        self._sockets = BfdSockets(self._complaints)
        self._table = SessionTable(random.Random(seed).randint)  # noqa: S311 - jitter, and numbers that are no secret
        self._loop = asyncio.get_running_loop()
        self._wake = TimerfdWake(self._on_wake)
        self._watched: frozenset[int] = frozenset()
        self._configured: tuple[BfdSession, ...] = ()
        self._problems: dict[str, HaxlbError] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._full = 0
        """Batches in a row that left packets behind."""
        self._paused = False
        """Packets are taken when a timer ends only."""
        self._shielded: asyncio.TimerHandle | None = None

    def configure(self, sessions: Iterable[BfdSession]) -> dict[str, HaxlbError]:
        """Hold these sessions and no others; those with the same ends keep their state.

        The answer says why each that cannot be held, by name, cannot. It counts as not well; where the host is to
        blame it is tried again.
        """
        self._configured = tuple(sessions)
        wanted, unusable = by_ends(self._configured)
        unopened = self._sockets.open({key: each.ttl for key, each in wanted.items()})
        self._problems = {**unusable, **{wanted.pop(key).name: problem for key, problem in unopened.items()}}
        self._take_arrived()
        effects = self._table.configure(wanted, self._clock.now())
        self._watch()
        # The last word of a session that goes is still sent from its socket.
        self._execute(effects)
        self._sockets.retire(frozenset(wanted))
        self._watch()
        self._tell()
        if self._problems:
            self._on_results(tuple(TrackResult(kind=TrackKind.BFD, name=each, value=0) for each in self._problems))
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(RETRY_S, self._try_again, frozenset(unopened)) if unopened else None
        return dict(self._problems)

    def status(self, wall_us: int) -> tuple[TrackedStatus, ...]:
        """Every session; `wall_us` is the time of day, µs since the epoch."""
        now = self._clock.now()
        return (
            *(_status(key, self._table.session(key), wall_us - now) for key in self._table.keys),
            *(
                TrackedStatus(kind=TrackKind.BFD.value, name=name, value=0, detail=str(problem))
                for name, problem in self._problems.items()
            ),
        )

    def close(self) -> None:
        """Tell the neighbours that the sessions are taken down, and close everything."""
        if self._retry is not None:
            self._retry.cancel()
        if self._shielded is not None:
            self._shielded.cancel()
        self._execute(self._table.configure({}, self._clock.now()))
        self._sockets.retire(frozenset())
        self._watch()
        self._wake.close()

    def _try_again(self, keys: frozenset[SessionKey]) -> None:
        """Whether sockets that could not be opened can be now: the interface is there, the other daemon is gone."""
        wanted, _ = by_ends(self._configured)
        if len(self._sockets.open({key: wanted[key].ttl for key in keys})) < len(keys):
            self.configure(self._configured)
        else:
            self._retry = self._loop.call_later(RETRY_S, self._try_again, keys)

    def _watch(self) -> None:
        # Closing a socket has already taken it out of epoll; the loop's own record must go, too, before its
        # number is given to another one.
        present = frozenset() if self._paused else self._sockets.fds
        for fd in self._watched - present:
            self._loop.remove_reader(fd)
        for fd in present - self._watched:
            self._loop.add_reader(fd, self._on_readable)
        self._watched = present

    def _on_readable(self) -> None:
        self._take_arrived()
        self._tell()

    def _on_wake(self) -> None:
        self._take_arrived()
        self._execute(self._table.expire(self._clock.now()))
        self._tell()

    def _take_arrived(self) -> None:
        for arrival in self._sockets.receive():
            self._execute(self._table.receive(arrival, self._clock.now()))
        self._full = self._full + 1 if self._sockets.flooded else 0
        # A process that was stalled finds one full batch; only a flood has the next one ready.
        if self._full > 1 and not self._paused:
            self._resist()

    def _resist(self) -> None:
        """A real-time process that never sleeps is ended by the kernel (RLIMIT_RTTIME), and takes a CPU until then."""
        self._complaints.complain("bfd_flood", detail="more packets than the sessions can send: most are dropped")
        self._sockets.shield({key: lowest_ttl(self._table.session(key).settings) for key in self._table.keys})
        if self._shielded is not None:
            self._shielded.cancel()
        self._shielded = self._loop.call_later(SHIELD_S, self._sockets.shield, None)
        self._paused = True
        self._watch()
        self._loop.call_later(PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._paused = False
        self._watch()

    def _tell(self) -> None:
        self._wake.wake_at(self._table.next_deadline())
        results = self._table.take_results()
        if results:
            self._on_results(results)

    def _execute(self, effects: list[TableEffect]) -> None:
        for each in effects:
            if isinstance(each, Transmit):
                self._sockets.send(each)
            elif isinstance(each, Changed):
                self._log_change(each)
            else:
                self._complaints.complain(
                    "bfd_packet_refused", source=each.source, reason=each.reason, detail=each.detail
                )

    def _log_change(self, changed: Changed) -> None:
        level = "info" if changed.after is State.UP else "warning" if changed.before is State.UP else "debug"
        self._log(
            level,
            "bfd_session",
            session=changed.name,
            neighbor=changed.neighbor,
            before=changed.before,
            after=changed.after,
            reason=changed.reason,
        )


def _status(key: SessionKey, session: Session, epoch_us: int) -> TrackedStatus:
    return TrackedStatus(
        kind=TrackKind.BFD.value,
        name=session.settings.name,
        value=None if session.well is None else int(session.well),
        since_at=(session.since_us + epoch_us) / 1_000_000,
        detail=f"{key.neighbor} {_detail(session)}",
    )


def _detail(session: Session) -> str:
    """`Up: the neighbour says Init; sends every 10 ms, detects in 50 ms; 120 sent, 118 received; refused 2 ttl`."""
    interval, detection = session.transmit_interval_us, session.detection_time_us
    parts = [
        f"{session.state}: {session.reason}",
        ("sends nothing" if interval is None else f"sends every {interval / 1000:g} ms")
        + ("" if detection is None else f", detects in {detection / 1000:g} ms"),
        f"{session.counters.sent} sent, {session.counters.received} received",
    ]
    if session.counters.refused:
        counted = ", ".join(f"{count} {reason}" for reason, count in session.counters.refused.items())
        parts.append(f"refused {counted}")
    return "; ".join(parts)

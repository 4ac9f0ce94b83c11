"""Many probes on one thread: each is a coroutine that runs until its socket would block.

asyncio could run them as tasks. Per probe it would make a task, two futures, a timer and several handles, and register
the socket by a table of its own: more than the probe itself costs the kernel. Here a turn is one `send` into the
coroutine, all sockets are in an epoll of their own, of which the loop sees one descriptor, and one timer serves all
deadlines.
"""

from __future__ import annotations

import asyncio
import heapq
import select
from collections.abc import Callable, Coroutine, Generator
from types import coroutine

from haxlb.health.outcome import Outcome, failed
from haxlb.model.errors import HostError

READABLE, WRITABLE = select.EPOLLIN, select.EPOLLOUT
BROKEN = select.EPOLLERR | select.EPOLLHUP
_BATCH = 256
"""Sockets that are seen to before the loop gets its turn: 10 ms of work at most."""
_SPARE = 1024
"""Deadlines of probes that have ended, beyond which they are swept out."""

Wait = tuple[int, int]
Probing = Coroutine[Wait, int, Outcome]
Results = list[tuple[int, Outcome]]


class TimeUp(Exception):
    """The limit of a turn is over."""


@coroutine
def ready(descriptor: int, events: int) -> Generator[Wait, int, int]:
    """Wait for one of these events; those that have come. Raises TimeUp. For coroutines that `Turns` runs."""
    return (yield descriptor, events)


class Turn:
    """One probe under way."""

    __slots__ = ("_turns", "deadline", "descriptor", "probing", "ticket")

    def __init__(self, turns: Turns, ticket: int) -> None:
        self._turns = turns
        self.ticket = ticket
        self.probing: Probing | None = None
        self.deadline = 0.0
        """By the loop's clock."""
        self.descriptor = -1
        """That it waits for."""

    def limit(self, limit_s: float) -> None:
        """`ready` raises TimeUp after so long from now, instead of an earlier limit."""
        self._turns.limit(self, limit_s)


class Turns:
    """Runs coroutines that wait by `ready` and end with an outcome."""

    def __init__(self, on_results: Callable[[Results], None]) -> None:
        """`on_results` is called from the running loop with tickets and outcomes that have come at once.

        Raises HostError.
        """
        self._on_results = on_results
        self._loop = asyncio.get_running_loop()
        try:
            self._epoll = select.epoll()
        except OSError as problem:
            raise HostError(f"epoll_create: {problem.strerror}", remedy="raise the limit of open files") from problem
        self._loop.add_reader(self._epoll.fileno(), self._readable)
        self._by_ticket: dict[int, Turn] = {}
        self._by_descriptor: dict[int, Turn] = {}
        self._deadlines: list[tuple[float, int, Turn]] = []
        self._stamp = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ended: Results = []
        self._delivery: asyncio.Handle | None = None

    def start(self, ticket: int, begin: Callable[[Turn], Probing]) -> None:
        """Run a probe until it waits for the first time."""
        turn = Turn(self, ticket)
        turn.probing = begin(turn)
        self._by_ticket[ticket] = turn
        self._run(turn, 0)
        self._deliver_soon()

    def abandon(self, ticket: int) -> None:
        """End a probe without an outcome; one that has ended is no error."""
        turn = self._by_ticket.pop(ticket, None)
        if turn is not None:
            assert turn.probing is not None
            turn.probing.close()
            self._forget(turn)

    def close(self) -> None:
        """End all; nothing is delivered any more."""
        for ticket in list(self._by_ticket):
            self.abandon(ticket)
        if self._timer is not None:
            self._timer.cancel()
        if self._delivery is not None:
            self._delivery.cancel()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def limit(self, turn: Turn, limit_s: float) -> None:
        """As `Turn.limit`."""
        turn.deadline = at = self._loop.time() + limit_s
        self._stamp += 1  # so that two entries never compare their turns
        if len(self._deadlines) > _SPARE + 2 * len(self._by_ticket):
            self._deadlines = [each for each in self._deadlines if each[2].deadline == each[0]]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (at, self._stamp, turn))
        if self._timer is None or at < self._timer.when():
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Most probes have ended long before their limit: those are passed over here, many at a time.
        while self._deadlines and self._deadlines[0][2].deadline != self._deadlines[0][0]:
            heapq.heappop(self._deadlines)
        if self._deadlines:
            self._timer = self._loop.call_at(self._deadlines[0][0], self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        self._timer = None
        while self._deadlines and self._deadlines[0][0] <= now:
            at, _, turn = heapq.heappop(self._deadlines)
            if turn.deadline == at:
                self._run(turn, 0, TimeUp())
        self._arm()
        self._deliver()

    def _readable(self) -> None:
        for descriptor, events in self._epoll.poll(0, _BATCH):
            turn = self._by_descriptor.get(descriptor)
            if turn is not None:
                self._run(turn, events)
        self._deliver()

    def _run(self, turn: Turn, events: int, problem: TimeUp | None = None) -> None:
        """Until it waits again or ends."""
        probing = turn.probing
        assert probing is not None
        try:
            if problem is not None:
                wanted = probing.throw(problem)
            else:
                # A coroutine takes its first value from nobody.
                wanted = probing.send(events) if turn.descriptor >= 0 else probing.send(None)  # type: ignore[arg-type]
            self._wait(turn, *wanted)
        except StopIteration as end:
            outcome: Outcome = end.value
        except Exception as broken:  # noqa: BLE001 - one odd server must not end the checks of all others
            probing.close()
            outcome = failed(f"the probe itself broke: {type(broken).__name__}: {broken}")
        else:
            return
        self._forget(turn)
        del self._by_ticket[turn.ticket]
        self._ended.append((turn.ticket, outcome))

    def _wait(self, turn: Turn, descriptor: int, events: int) -> None:
        if turn.descriptor == descriptor:
            try:
                self._epoll.modify(descriptor, events)
            except FileNotFoundError:  # the next connection got the number of the former one
                self._epoll.register(descriptor, events)
            return
        self._epoll.register(descriptor, events)
        self._by_descriptor.pop(turn.descriptor, None)
        turn.descriptor = descriptor
        self._by_descriptor[descriptor] = turn

    def _forget(self, turn: Turn) -> None:
        # Closing its socket has taken that out of the epoll (epoll(7)).
        turn.deadline, turn.probing = 0.0, None
        if self._by_descriptor.get(turn.descriptor) is turn:
            del self._by_descriptor[turn.descriptor]

    def _deliver_soon(self) -> None:
        if self._ended and self._delivery is None:
            self._delivery = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        if self._delivery is not None:
            self._delivery.cancel()
            self._delivery = None
        if self._ended:
            results, self._ended = self._ended, []
            self._on_results(results)

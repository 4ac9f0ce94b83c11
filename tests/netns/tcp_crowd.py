"""Thousands of TCP connections in one process each for a server and for a client, and UDP packets that are counted.

`serve NUMBER VIP PORT…` answers on TCP and, from the VIP, on UDP: eight bytes, the first of which is NUMBER. SIGUSR1
closes what listens on TCP, SIGUSR2 opens it again; connections stay.

`talk VIP` reads commands, a JSON line each, and answers with one: {"do": "open", "ports": […], "each": N, "pace": S}
opens connections that send something every S seconds (0: only when told to), {"do": "round"} has every one of them send
something and waits for all answers, {"do": "close", "ports": […]} ends those of these ports.

`count VIP PORT…` sends UDP packets of old and new flows, never more than a few that are not answered yet, until its
stdin ends; then it says what became of them. A line there is answered when that many more flows have begun.
"""

from __future__ import annotations

import errno
import heapq
import json
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator

SIZE = 8
CONNECTING = 64
"""At a time: more would not fit into a server's backlog."""
PATIENCE_S = 90.0
"""An exchange that takes longer is none: TCP has sent it again seven times by then."""
WINDOW = 24
DRAIN_S = 60.0
PACKETS_OF_A_FLOW = 20
FLOWS = 200


def serve(number: int, vip: str, ports: list[int]) -> None:
    poll = select.epoll()
    listening: dict[int, socket.socket] = {}
    datagrams: dict[int, socket.socket] = {}
    streams: dict[int, socket.socket] = {}
    mark = bytes([number])

    def listen(*_: object) -> None:
        for port in ports:
            one = socket.create_server(("", port), backlog=1024)
            one.setblocking(False)
            listening[one.fileno()] = one
            poll.register(one, select.EPOLLIN)

    def refuse(*_: object) -> None:
        for one in listening.values():
            one.close()
        listening.clear()

    listen()
    for port in ports:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        one.bind((vip, port))
        datagrams[one.fileno()] = one
        poll.register(one, select.EPOLLIN)
    signal.signal(signal.SIGUSR1, refuse)
    signal.signal(signal.SIGUSR2, listen)
    print("ready", flush=True)
    while True:
        for fd, _ in poll.poll():
            if fd in listening:
                try:
                    made, _ = listening[fd].accept()
                except OSError:
                    continue
                made.setblocking(False)
                streams[made.fileno()] = made
                poll.register(made, select.EPOLLIN)
            elif fd in datagrams:
                try:
                    data, sender = datagrams[fd].recvfrom(64)
                    datagrams[fd].sendto(mark + data[1:], sender)
                except BlockingIOError:
                    continue
            elif fd in streams:
                try:
                    data = streams[fd].recv(SIZE)
                    if data:
                        streams[fd].send(mark + data[1:])
                        continue
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                streams.pop(fd).close()


class Connection:
    def __init__(self, vip: str, port: int, pace: float) -> None:
        self.port = port
        self.pace = pace
        self.server = 0
        self.number = 0
        self.asked = False
        self.wanted = 0
        """Which answer the round waits for."""
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect_ex((vip, port))

    def ask(self) -> None:
        """Raises OSError."""
        if not self.asked:
            self.number += 1
            self.socket.send(self.number.to_bytes(SIZE, "big"))
            self.asked = True

    def answered(self) -> None:
        """Raises OSError for what ends the connection."""
        data = self.socket.recv(SIZE)
        if not data:
            raise OSError(errno.EPIPE, "closed")
        if len(data) != SIZE or int.from_bytes(data[1:], "big") != self.number or self.server not in (0, data[0]):
            raise OSError(errno.EPROTO, "another answer")
        self.server = data[0]
        self.asked = False


class Crowd:
    def __init__(self, vip: str) -> None:
        self.vip = vip
        self.poll = select.epoll()
        self.poll.register(sys.stdin, select.EPOLLIN)
        self.open: dict[int, Connection] = {}
        self.connecting: set[int] = set()
        self.to_come: list[tuple[int, float]] = []
        self.timers: list[tuple[float, int, Connection]] = []
        self.waiting: set[int] = set()
        """Of which an answer is missing before the command is done."""
        self.command = ""
        self.deadline = 0.0
        self.broken: Counter[tuple[int, int, str]] = Counter()
        self.exchanges = 0

    def run(self) -> None:
        while True:
            pause = min(max(0.0, self.timers[0][0] - time.monotonic()), 0.5) if self.timers else 0.5
            for fd, events in self.poll.poll(pause):
                if fd == sys.stdin.fileno():
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self.told(json.loads(line))
                elif fd in self.open:
                    self.event(fd, events)
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now:
                due, _, each = heapq.heappop(self.timers)
                if each.socket.fileno() in self.open:
                    self.ask(each)
                    self.at(max(now, due + each.pace), each)
            self.connect()
            self.finish()

    def at(self, when: float, each: Connection) -> None:
        heapq.heappush(self.timers, (when, id(each), each))

    def told(self, command: dict[str, object]) -> None:
        self.command = str(command["do"])
        self.deadline = time.monotonic() + PATIENCE_S
        if self.command == "open":
            for _ in range(int(str(command["each"]))):
                self.to_come += [(int(port), float(str(command["pace"]))) for port in list(command["ports"])]  # type: ignore[call-overload]
        elif self.command == "close":
            for fd, each in list(self.open.items()):
                if each.port in list(command["ports"]):  # type: ignore[call-overload]
                    self.poll.unregister(fd)
                    del self.open[fd]
                    each.socket.close()
        else:
            for fd, each in list(self.open.items()):
                self.waiting.add(fd)
                each.wanted = each.number + 1
                self.ask(each)

    def connect(self) -> None:
        while self.to_come and len(self.connecting) < CONNECTING:
            port, pace = self.to_come.pop()
            made = Connection(self.vip, port, pace)
            fd = made.socket.fileno()
            self.open[fd] = made
            self.connecting.add(fd)
            self.waiting.add(fd)
            self.poll.register(fd, select.EPOLLOUT)

    def event(self, fd: int, events: int) -> None:
        each = self.open[fd]
        if fd in self.connecting:
            problem = each.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                self.ends(each, errno.errorcode[problem])
                return
            self.connecting.discard(fd)
            self.poll.modify(fd, select.EPOLLIN)
            each.wanted = 1
            self.ask(each)
            if each.pace:
                self.at(time.monotonic() + each.pace, each)
            return
        try:
            each.answered()
        except OSError as problem:
            if problem.errno != errno.EAGAIN:
                self.ends(each, errno.errorcode[problem.errno or 0])
            return
        self.exchanges += 1
        if each.number >= each.wanted:
            self.waiting.discard(fd)
        else:
            self.ask(each)

    def ask(self, each: Connection) -> None:
        try:
            each.ask()
        except OSError as problem:
            self.ends(each, errno.errorcode[problem.errno or 0])

    def ends(self, each: Connection, reason: str) -> None:
        fd = each.socket.fileno()
        self.broken[each.port, each.server, reason] += 1
        for fds in (self.connecting, self.waiting):
            fds.discard(fd)
        self.poll.unregister(fd)
        del self.open[fd]
        each.socket.close()

    def finish(self) -> None:
        if not self.command or self.to_come:
            return
        if time.monotonic() > self.deadline:
            for fd in list(self.waiting):
                self.ends(self.open[fd], "SILENT")
        if self.waiting:
            return
        shares = Counter((each.port, each.server) for each in self.open.values())
        answer = {
            "open": [[*key, count] for key, count in shares.items()],
            "broken": [[*key, count] for key, count in self.broken.items()],
            "exchanges": self.exchanges,
        }
        self.broken.clear()
        self.command = ""
        print(json.dumps(answer), flush=True)


def count(vip: str, ports: list[int]) -> None:
    """In a closed loop: no queue on the way can overflow, so that what is not answered has been lost."""
    poll = select.epoll()
    poll.register(sys.stdin, select.EPOLLIN)
    flows: dict[int, tuple[socket.socket, int]] = {}
    """With the packets that it still may send."""
    servers: dict[int, int] = {}
    idle: list[int] = []
    sent = answered = begun = 0
    moves: Counter[str] = Counter()

    def fresh() -> Iterator[int]:
        while True:
            yield from ports

    port_of = fresh()

    def begin() -> int:
        nonlocal begun
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        made.connect((vip, next(port_of)))
        # A quarter of the first ones is there for as long as it takes; the others make room for new ones.
        flows[made.fileno()] = (made, PACKETS_OF_A_FLOW if begun >= FLOWS or begun % 4 else 1 << 30)
        begun += 1
        poll.register(made, select.EPOLLIN)
        return made.fileno()

    def end(fd: int) -> None:
        poll.unregister(fd)
        flows.pop(fd)[0].close()
        servers.pop(fd, None)

    idle += [begin() for _ in range(FLOWS)]
    print("ready", flush=True)
    going, deadline, awaited = True, 0.0, 0
    while going or (answered < sent and time.monotonic() < deadline):
        while going and sent - answered < WINDOW and idle:
            fd = idle.pop(0)
            one, left = flows[fd]
            flows[fd] = (one, left - 1)
            one.send(bytes(SIZE))
            sent += 1
        for fd, _ in poll.poll(0.1):
            if fd == sys.stdin.fileno():
                line = sys.stdin.readline()
                awaited = begun + int(line or 0)
                if not line:
                    going, deadline = False, time.monotonic() + DRAIN_S
                    poll.unregister(fd)
                continue
            data = flows[fd][0].recv(64)
            answered += 1
            if servers.setdefault(fd, data[0]) != data[0]:
                moves[f"{flows[fd][0].getpeername()[1]} {servers[fd]} > {data[0]}"] += 1
            servers[fd] = data[0]
            if flows[fd][1]:
                idle.append(fd)
            else:
                end(fd)
                idle.append(begin())
        if going and 0 < awaited <= begun:
            print("begun", flush=True)
            awaited = 0
    said = {"sent": sent, "lost": sent - answered, "moved": sum(moves.values()), "flows": begun, "moves": moves}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "serve":
        serve(int(words[0]), words[1], [int(each) for each in words[2:]])
    elif role == "talk":
        os.set_blocking(sys.stdin.fileno(), True)
        Crowd(words[0]).run()
    else:
        count(words[0], [int(each) for each in words[1:]])

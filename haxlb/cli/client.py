"""The client's end of the control socket: blocking, standard library only."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from haxlb.daemon.control import Answer, Request, Step, decode_reply, encode
from haxlb.model.errors import HaxlbError, HostError, NotPermitted, PeerError, Unreachable

SOCKET_NAME = "control.sock"
SILENCE_S = 120.0
"""The longest pause between two lines: a compilation, or a hand-over behind another one."""


class Refused(HaxlbError):
    """The daemon has refused or failed; carries its exit code."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message, remedy=answer.remedy)
        self.exit_code = answer.exit_code or 1
        self.answer = answer


def ask(runtime_dir: Path, request: Request, on_step: Callable[[Step], None] | None = None) -> Answer:
    """Send one request and wait for its answer. Raises Unreachable, NotPermitted, or HostError."""
    for reply in _replies(runtime_dir / SOCKET_NAME, request):
        if isinstance(reply, Answer):
            return reply
        if on_step is not None:
            on_step(reply)
    raise Unreachable("haxlb closed the connection without an answer", remedy="see its log: journalctl -u haxlb")


def ask_or_raise(runtime_dir: Path, request: Request, on_step: Callable[[Step], None] | None = None) -> Answer:
    """As `ask`, but an answer that is no success raises Refused."""
    answer = ask(runtime_dir, request, on_step)
    if not answer.ok:
        raise Refused(answer)
    return answer


def _replies(path: Path, request: Request) -> Iterator[Step | Answer]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(SILENCE_S)
        try:
            channel.connect(str(path))
            channel.sendall(encode(request))
            with channel.makefile("rb") as lines:
                for line in lines:
                    yield decode_reply(line)
        except PermissionError as problem:
            raise NotPermitted(f"may not use {path}", remedy="use sudo") from problem
        except (FileNotFoundError, ConnectionRefusedError) as problem:
            raise Unreachable(
                f"no haxlb runs in {path.parent}",
                remedy="start it with `haxlb run`, or name its directory with --runtime-dir",
            ) from problem
        except TimeoutError as problem:
            raise Unreachable(f"haxlb has not answered for {SILENCE_S:.0f} s", remedy="see its log") from problem
        except PeerError as problem:
            raise HostError(
                f"the daemon speaks another protocol: {problem.message}",
                remedy="use the haxlb command of the version that runs, or restart the daemon",
            ) from problem
        except OSError as problem:
            raise Unreachable(
                f"no connection to haxlb at {path}: {problem.strerror or problem}",
                remedy="name its directory with --runtime-dir",
            ) from problem

"""The control protocol: what a client may ask of a running daemon, and what it hears (docs/reference/control.md).

One JSON object a line in both directions, tagged with its class name. A request is answered by any number of `Step`s
and exactly one `Answer`; a client may ask again on the same connection.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from haxlb.model.errors import HaxlbError, PeerError
from haxlb.model.status import NodeStatus
from haxlb.model.wire import from_json, to_json

REQUEST_LIMIT = 1 << 16
"""Bytes of one request line; a longer one ends the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Answer with the whole NodeStatus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Read the configuration file again; a bad one is refused and changes nothing."""

    force: bool = False
    """Also when an instance or a virtual server that is in force would go while the file has errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """Hand instances over to the peer."""

    instances: tuple[str, ...] = ()
    """Names; empty = every instance that is MASTER here."""
    force: bool = False
    """Also when no peer is heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Let instances that were handed over preempt again as the configuration says."""

    instances: tuple[str, ...] = ()
    """Names; empty = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Compile the forwarder anew and exchange the attached program without a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWeight:
    """Give a real server another weight than the configuration does, until this is ended or haxlb is restarted."""

    virtual_server: str
    """As `haxlb show` names it: `10.0.0.1:80`, `TCP 10.0.0.1:80`, `[10.0.0.1]:tcp:80`, the name of its group."""
    real_server: str
    """`address:port`, or the address alone where that is enough."""
    weight: int | None = None
    """0 = no new flows; None = that of the configuration again."""


Request = Show | Reload | Failover | Resume | Swap | SetWeight


def command_name(request: Request) -> str:
    """The command that sends it, as users know it."""
    if isinstance(request, SetWeight):
        return "enable" if request.weight is None else "weight" if request.weight else "drain"
    return type(request).__name__.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a longer command, as it happens."""

    subject: str
    """The instance or part that it is about; empty = the whole node."""
    step: str
    """Stable name: `check`, `peer`, `hand_over`, `take_over`, `take_back`, …"""
    ok: bool
    reason: str
    """In words, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a command."""

    schema: str = "haxlb.control/1"
    ok: bool
    exit_code: int = 0
    """What the client's process shall exit with (docs/reference/exit-codes.md)."""
    message: str = ""
    remedy: str = ""
    status: NodeStatus | None = None
    report: str = ""
    """Diagnostics of a configuration, rendered as `haxlb check` does."""
    diagnostics: tuple[dict[str, Any], ...] = ()
    """The same as in `haxlb check --json`."""


Reply = Step | Answer


def refusal(problem: HaxlbError) -> Answer:
    """The answer that carries an error of ours to the client."""
    return Answer(ok=False, exit_code=problem.exit_code, message=problem.message, remedy=problem.remedy)


def encode(message: Request | Reply) -> bytes:
    """One line, newline included."""
    return json.dumps(to_json(message, tag=True), separators=(",", ":")).encode() + b"\n"


def decode_request(line: bytes) -> Request:
    """The request of one line. Raises PeerError (`malformed_message`) for anything else."""
    request: Request = from_json(Request, _parsed(line))
    return request


def decode_reply(line: bytes) -> Reply:
    """The reply of one line. Raises PeerError (`malformed_message`) for anything else."""
    reply: Reply = from_json(Reply, _parsed(line))
    return reply


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as problem:  # nesting is bounded by the interpreter's stack, not by json
        raise PeerError("malformed_message", f"not JSON: {problem}") from problem

"""Which connections an operator means: `--service`, `--server`, `--client`, `--state` of `haxlb show -c`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from haxlb.forwarding.connections import STATE_NAMES, Book, FrontendName, Wanted
from haxlb.forwarding.records import FrontendFlag, identity_of


class Unknown(ValueError):
    """Nothing is called that; `known` is what there is."""

    def __init__(self, message: str, word: str, known: Iterable[str]) -> None:
        super().__init__(message)
        self.word = word
        self.known = tuple(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """As the operator has written it; empty = any."""

    service: str = ""
    server: str = ""
    client: str = ""
    states: tuple[str, ...] = ()


def wanted(asked: Asked, book: Book, identities: Mapping[int, bytes]) -> Wanted:
    """What was asked for, in numbers; `identities` are those of the services' records. Raises Unknown, ValueError."""
    services, frontends = _of_service(asked.service, book, identities) if asked.service else (None, None)
    states = frozenset(each.upper() for each in asked.states)
    if strange := sorted(states.difference(STATE_NAMES)):
        raise Unknown(f"no connection is in a state {strange[0]}", strange[0], STATE_NAMES)
    return Wanted(
        services=services,
        frontends=frontends,
        servers=_servers(asked.server, book) if asked.server else None,
        client=ip_network(asked.client, strict=False) if asked.client else None,
        states=states,
    )


def stateless(book: Book, wanted: Wanted) -> tuple[str, ...]:
    """Names of the endpoints among those wanted whose services keep no record of their flows."""
    return tuple(
        frontend_text(frontend)
        for index, frontend in book.frontends.items()
        if frontend.flags & FrontendFlag.STATELESS
        and (wanted.frontends is None or index in wanted.frontends)
        and (wanted.services is None or frontend.service in wanted.services)
    )


def frontend_text(frontend: FrontendName) -> str:
    """`TCP 10.0.0.1:80`, as `haxlb show` has it."""
    return f"{frontend.protocol.value} {_place(str(frontend.address), frontend.port)}"


def _of_service(
    text: str, book: Book, identities: Mapping[int, bytes]
) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    words = " ".join(text.split())
    identity = identity_of(words)
    named = frozenset(index for index, each in identities.items() if each == identity)
    if named:
        return named, None
    protocol, _, rest = words.rpartition(" ")
    matches = _matcher(rest)
    found = frozenset(
        index
        for index, each in book.frontends.items()
        if matches(str(each.address), each.port) and protocol.upper() in ("", each.protocol.value)
    )
    if not found:
        known = tuple(frontend_text(each) for each in book.frontends.values())
        raise Unknown(f"no virtual server is called {text}", text, (*known, *(each.split()[1] for each in known)))
    return None, found


def _servers(text: str, book: Book) -> frozenset[int]:
    matches = _matcher(text)
    found = frozenset(index for index, each in book.backends.items() if matches(str(each.address), each.port))
    if not found:
        raise Unknown(
            f"no real server is called {text}",
            text,
            dict.fromkeys(_place(str(each.address), each.port) for each in book.backends.values()),
        )
    return found


def _matcher(text: str) -> Callable[[str, int], bool]:
    """Of `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`."""
    address, port = text, ""
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    try:
        address = str(ip_address(address))
    except ValueError:
        return lambda there, number: False  # noqa: ARG005 - it is no address: nothing has it
    return lambda there, number: there == address and port in ("", str(number))


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

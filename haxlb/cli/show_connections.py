"""`haxlb show -c`: the connections on record, straight from the flow tables of the data plane."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Final

import click

from haxlb.forwarding.connection_filter import Asked, Unknown, stateless, wanted
from haxlb.forwarding.connections import Book, Form, Listing, Wanted, header
from haxlb.linux.connections import ConnectionTables, text_of_ipv6
from haxlb.linux.standard_streams import reader_gone
from haxlb.model.addresses import Protocol
from haxlb.model.errors import HaxlbError
from keepalived_compat.nearest import did_you_mean

SCHEMA: Final = "haxlb.connections/1"
_SHOWN: Final = 5
"""Names in a note or a hint, before `…`."""
_ENDPOINT: Final = re.compile(r"\[(.+)\]:(tcp|udp|sctp):(\d+)")
"""As the log and `haxlb show --json` write it."""


def show_connections(runtime_dir: Path, asked: Asked, *, count: int | None, form: Form, whole: bool) -> None:
    """Print them; `whole`: JSON as one object, not as a line for each. Raises HaxlbError."""
    with ConnectionTables(runtime_dir) as tables:
        book = tables.book()
        try:
            chosen = asked_for(asked, book, tables.identities())
        except Unknown as problem:
            raise HaxlbError(str(problem), remedy=_remedy(problem)) from problem
        except ValueError as problem:
            raise HaxlbError(f"--client {asked.client}: {problem}", remedy="name an address or a network") from problem
        listing = Listing(book, chosen, form, text_of_ipv6)
        pieces = takewhile(lambda _: not reader_gone(), _counted(_pieces(tables, listing), count))
        _print(pieces, sys.stdout.buffer, form, whole=whole)
    silent = stateless(book, chosen)
    if silent and not reader_gone():
        click.echo(
            f"haxlb: {_listed(silent)}: no flows are on record, the hash of a packet says which server it goes to",
            err=True,
        )


def asked_for(asked: Asked, book: Book, identities: Mapping[int, bytes]) -> Wanted:
    """What was asked for, with a virtual server under each name that `haxlb drain` takes. Raises Unknown, ValueError.

    The tables know a virtual server by the hash of its one full name (`group web tcp`), and by its endpoints.
    """
    try:
        return wanted(asked, book, identities)
    except Unknown:
        found = [each for name in _full_names(asked.service) if (each := _named(name, book, identities))]
        if not found:
            raise
    others = wanted(replace(asked, service=""), book, identities)
    return replace(
        others,
        services=frozenset().union(*(each.services for each in found if each.services)) or None,
        frontends=frozenset().union(*(each.frontends for each in found if each.frontends)) or None,
    )


def _named(name: str, book: Book, identities: Mapping[int, bytes]) -> Wanted | None:
    try:
        return wanted(Asked(service=name), book, identities)
    except Unknown:
        return None


def _full_names(text: str) -> Iterator[str]:
    """What an operator may have meant: `web`, `group web`, `fwmark 5`, `FWM 5`, `[192.0.2.1]:tcp:80`."""
    name = " ".join(text.split())
    if match := _ENDPOINT.fullmatch(name):
        address, protocol, port = match.groups()
        yield f"{protocol} [{address}]:{port}" if ":" in address else f"{protocol} {address}:{port}"
    if name.upper().startswith("FWM "):
        name = f"fwmark {name[4:]}"
    for protocol in Protocol:
        yield f"{name} {protocol.value.lower()}"
        yield f"group {name} {protocol.value.lower()}"


def _pieces(tables: ConnectionTables, listing: Listing) -> Iterator[list[str]]:
    for chunk in tables.chunks():
        yield listing.wide_lines(chunk.buckets) if chunk.wide else listing.lines(chunk.buckets)


def _counted(pieces: Iterator[list[str]], count: int | None) -> Iterator[list[str]]:
    for lines in pieces:
        if count is None:
            yield lines
            continue
        yield lines[:count]
        count -= len(lines)
        if count <= 0:
            return


def _print(pieces: Iterator[list[str]], stream: BinaryIO, form: Form, *, whole: bool) -> None:
    if form is Form.TABLE:
        stream.write(("\n".join(header()) + "\n").encode())
    elif whole:
        stream.write(f'{{"schema":"{SCHEMA}","connections":['.encode())
    between, end = (",\n", "\n]}\n") if whole and form is Form.JSON else ("\n", "")
    first = True
    for lines in pieces:
        if not lines:
            continue
        if end:
            stream.write((("\n" if first else between) + between.join(lines)).encode())
        else:
            stream.write((between.join(lines) + "\n").encode())
        first = False
    stream.write(end.encode())
    stream.flush()


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _remedy(problem: Unknown) -> str:
    hint = did_you_mean(problem.word, problem.known)
    return hint or (f"there are: {_listed(problem.known)}" if problem.known else "there are none")

"""Lines of `virtual_server_group`, `linkbeat_interfaces` and `interface_up_down_delays` as values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.grammar import seconds
from keepalived_compat.source import Word
from keepalived_compat.values import Unusable, microseconds
from keepalived_compat.values_line import FAMILIES, INET, Address, Dropped, LineReader

_LAST_OCTET = re.compile(r"\d{1,3}", re.ASCII)
_LAST_GROUP = re.compile(r"[0-9a-fA-F]{1,4}")
_DELAY = seconds(0, 255)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRange:
    """Consecutive addresses with one port."""

    word: Word
    first: Address
    last: Address
    """Inclusive; the same as `first` for one address."""
    port: int | None
    """None = every port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMark:
    """Packets with a mark of the packet filter."""

    word: Word
    fwmark: int
    family: int
    """4, 6, or 0 where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkbeatLine:
    """An interface that is polled, and how: MII, ETHTOOL, IOCTL, or empty."""

    word: Word
    method: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayLine:
    """How long a link must be down, or up, before it counts."""

    word: Word
    down_us: int
    up_us: int = 0


def read_group(lines: Iterable[list[Word]], complaints: Complaints) -> tuple[GroupRange | GroupMark, ...]:
    """The entries of a `virtual_server_group`, in file order."""
    found: list[GroupRange | GroupMark] = []
    for line in lines:
        try:
            found.append(
                _entry(LineReader(line, complaints, block="virtual_server_group", loss="the entry is not used"))
            )
        except Dropped:
            continue
    return tuple(found)


def read_linkbeat(lines: Iterable[list[Word]], complaints: Complaints) -> tuple[LinkbeatLine, ...]:
    """The lines of `linkbeat_interfaces`."""
    found = []
    for line in lines:
        method = line[1].text if len(line) > 1 else ""
        if method not in ("", "MII", "ETHTOOL", "IOCTL"):
            complaints.error(
                "bad-value", line[1], f"linkbeat_interfaces: `{method}` is no way of polling", "MII, ETHTOOL or IOCTL"
            )
            method = ""
        found.append(LinkbeatLine(word=line[0], method=method))
    return tuple(found)


def read_delays(lines: Iterable[list[Word]], complaints: Complaints) -> tuple[DelayLine, ...]:
    """The lines of `interface_up_down_delays`."""
    found = []
    for line in lines:
        if len(line) == 1:
            complaints.error(
                "missing-argument",
                line[0],
                f"interface_up_down_delays: `{line[0].text}` lacks its delay; the line is not used",
                "INTERFACE DOWN_DELAY [UP_DELAY], in seconds",
            )
            continue
        delays = []
        for word in line[1:3]:
            try:
                taken = microseconds(word.text, _DELAY)
            except Unusable as problem:
                complaints.error(
                    "bad-value",
                    word,
                    f"interface_up_down_delays: {problem.message}; the line is not used",
                    problem.hint,
                )
                break
            delays.append(taken.value if isinstance(taken.value, int) else 0)
        else:
            found.append(DelayLine(word=line[0], down_us=delays[0], up_us=delays[1] if len(delays) > 1 else 0))
    return tuple(found)


def _entry(line: LineReader) -> GroupRange | GroupMark:
    word = line.word()
    if word is None:
        raise Dropped
    if word.text == "fwmark":
        mark = line.number(word, 0, 2**32 - 1)
        family = line.accept(*FAMILIES)
        _expect_end(line)
        return GroupMark(word=word, fwmark=mark, family=FAMILIES[family.text] if family else 0)
    first, last = _span_of(line, word)
    port = _port(line)
    _expect_end(line)
    return GroupRange(word=word, first=first, last=last, port=port)


def _expect_end(line: LineReader) -> None:
    word = line.word()
    if word is not None:
        line.complaints.warning(
            "surplus-words", word, f"{line.block} takes no further words: `{word.text}` is ignored", "one entry a line"
        )


def _port(line: LineReader) -> int | None:
    word = line.word()
    if word is None:
        return None
    if not (word.text.isascii() and word.text.isdigit() and int(word.text[:6]) < 65536):  # noqa: PLR2004 - 16 bits
        raise line.drop(word, f"`{word.text}` is not a port", "a number, 1 to 65535; names of services are not known")
    return int(word.text) or None


def _span_of(line: LineReader, word: Word) -> tuple[Address, Address]:
    """First and last address of `ADDR`, `ADDR-END`, `ADDR1-ADDR2` or `PREFIX/LENGTH`."""
    text = word.text
    if "/" in text:
        try:
            network = ip_network(text)
        except ValueError as problem:
            raise line.drop(word, f"`{text}` is no prefix: {problem}", "host bits must be 0: 192.0.2.0/24") from None
        return network.network_address, network.broadcast_address
    begin, dash, end = text.partition("-")
    try:
        first = ip_address(begin)
    except ValueError:
        raise line.drop(word, f"`{begin}` is not an IP address") from None
    if not dash:
        return first, first
    try:
        last = _end_of(first, end)
    except ValueError:
        raise line.drop(
            word, f"`{end}` is no end of a range", "192.0.2.1-9, 2001:db8::1-f, or two full addresses"
        ) from None
    if last.version != first.version or int(last) <= int(first):
        raise line.drop(word, f"`{text}` ends before it begins")
    return first, last


def _end_of(first: Address, end: str) -> Address:
    """The end of a range: its last octet (IPv4, decimal), its last 16 bits (IPv6, hexadecimal), or all of it."""
    if first.version == INET and _LAST_OCTET.fullmatch(end):
        if int(end) > 255:  # noqa: PLR2004 - an octet
            raise ValueError(end)
        return ip_address((int(first) & ~0xFF) | int(end))
    if first.version != INET and _LAST_GROUP.fullmatch(end):
        return ip_address((int(first) & ~0xFFFF) | int(end, 16))
    return ip_address(end)

"""Arguments of keywords to Python values, or why not."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from keepalived_compat.grammar import Argument, Kind
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.source import Pieces

SECOND_US = 1_000_000
_LONGEST_NUMBER = 20

TRUE = ("true", "on", "yes")
FALSE = ("false", "off", "no")

_INTEGER = re.compile(r"(-?\d+)((?![xXeE.]\d).*)", re.ASCII | re.DOTALL)
_SECONDS = re.compile(r"(\d*)(?:\.(\d*))?(.*)", re.ASCII | re.DOTALL)


class Unusable(Exception):
    """An argument that cannot be used."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A command, and as whom it runs."""

    argv: tuple[str, ...]
    user: str = ""
    """Empty = not named."""
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A value, and (`caveat`) how it differs from what stands there."""

    value: object
    caveat: str = ""
    hint: str = ""
    """How to write what is taken."""


# Python 3.11 takes longer to look a member up in its class than to compare it.
_FLAG, _WHOLE, _SECONDS_KIND, _CHOICE, _TEXT, _WORDS, _ENDPOINT = (
    Kind.FLAG,
    Kind.INTEGER,
    Kind.SECONDS,
    Kind.CHOICE,
    Kind.TEXT,
    Kind.WORDS,
    Kind.ENDPOINT,
)
_OCTETS = {str(each): each for each in range(256)}
_SHORT = 9
"""Digits of a number that is surely below every bound of a machine word."""
_LONG_PORT = 5
"""Digits of a port that may be out of range."""


UNSURE: Final = object()
"""No value: the statement needs a closer look."""


def plain_value(words: Pieces, argument: Argument) -> object:  # noqa: PLR0911 - a dispatch
    """The value of a statement that is as it should be, UNSURE for all others.

    Nearly every statement is; this way costs a third of the other.
    """
    kind, count = argument.kind, len(words)
    if count == 1:
        return True if kind is _FLAG else UNSURE
    text = words[1][0]
    if count == 2:  # noqa: PLR2004 - the keyword and its argument
        if kind is _WHOLE or kind is _SECONDS_KIND:
            value = int(text) if text.isdigit() and text.isascii() and len(text) <= _SHORT else -1
            if not argument.low <= value <= argument.high or value < 0:
                return UNSURE
            return value if kind is _WHOLE else value * SECOND_US
        if kind is _CHOICE:
            return text if text in argument.choices else UNSURE
        if kind is _TEXT:
            return text
    elif count == 3 and kind is _ENDPOINT:  # noqa: PLR2004 - the keyword, an address and a port
        number, quad = words[2][0], _dotted_quad(text)
        if quad is not None and number.isdigit() and number.isascii() and len(number) < _LONG_PORT:
            return quad, int(number) or None
        return UNSURE
    return None if kind is _WORDS else UNSURE


def number(text: str, argument: Argument) -> Taken:
    """A whole number in the argument's range. Raises Unusable."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        raise Unusable(f"`{text}` is not a whole number", _range(argument))
    digits, rest = found.groups()
    if rest and argument.strict:
        raise Unusable(f"`{text}` is not a whole number", _range(argument))
    if len(digits) > _LONGEST_NUMBER or not argument.low <= int(digits) <= argument.high:
        raise Unusable(f"`{text}` is out of range", _range(argument))
    if not rest:
        return Taken(value=int(digits))
    caveat = f"`{text}` is not a whole number, taken as {int(digits)}"
    return Taken(value=int(digits), caveat=caveat, hint=f"write the number alone: `{int(digits)}`")


def microseconds(text: str, argument: Argument) -> Taken:
    """Decimal seconds or milliseconds in the argument's range, as whole µs. Raises Unusable."""
    decimals = 3 if argument.kind is Kind.MILLISECONDS else 6
    unit, unit_us = argument.kind.value, 10**decimals
    found = _SECONDS.fullmatch(text)
    whole, fraction, rest = found.groups() if found else ("", None, "")
    if not whole and not fraction:
        raise Unusable(f"`{text}` is not a number of {unit}", _range(argument))
    fraction = fraction or ""
    if len(whole) > _LONGEST_NUMBER:
        raise Unusable(f"`{text}` is out of range", _range(argument))
    kept = int(fraction[:decimals].ljust(decimals, "0") or "0")
    value = int(whole or "0") * unit_us + kept + (fraction[decimals : decimals + 1] >= "5")
    if not round(argument.low * unit_us) <= value <= round(argument.high * unit_us):
        raise Unusable(f"`{text}` is out of range", _range(argument))
    caveat = hint = ""
    if rest:
        caveat = f"`{text}` is not a number of {unit}, taken as {value / unit_us:g}"
        hint = f"write the number alone, in {unit}: `{value / unit_us:g}`"
    elif len(fraction) > decimals:
        caveat = f"`{text}` is rounded to whole microseconds"
    return Taken(value=value, caveat=caveat, hint=hint)


def boolean(text: str) -> Taken:
    """true, on, yes, false, off, no. Raises Unusable."""
    if text in TRUE or text in FALSE:
        return Taken(value=text in TRUE)
    if text.lower() in TRUE + FALSE:
        value = text.lower() in TRUE
        return Taken(value=value, caveat=f"`{text}` is read as {str(value).lower()}; keepalived wants it in lower case")
    raise Unusable(f"`{text}` is neither true nor false", "true, on, yes, false, off or no")


def chosen(text: str, argument: Argument) -> Taken:
    """One of the argument's words. Raises Unusable."""
    if text in argument.choices:
        return Taken(value=text)
    for each in argument.choices:
        if each.lower() == text.lower() and not argument.exact_case:
            return Taken(
                value=each,
                caveat="" if argument.any_case else f"`{text}` is taken as `{each}`; keepalived wants it in that case",
            )
    offered = argument.offered or argument.choices
    hint = did_you_mean(text, offered)
    raise Unusable(f"`{text}` is not known here", f"{hint + ' ' if hint else ''}one of {', '.join(offered)}")


def address(text: str) -> IPv4Address | IPv6Address:
    """An address. Raises Unusable."""
    found = _dotted_quad(text)
    if found is not None:
        return found
    try:
        return ip_address(text)
    except ValueError as problem:
        raise Unusable(f"`{text}` is not an IP address") from problem


def _dotted_quad(text: str) -> IPv4Address | None:
    """What is surely an IPv4 address: twice as fast as ip_address(), of which a large file needs tens of thousands."""
    try:
        first, second, third, fourth = text.split(".")
        return IPv4Address(_OCTETS[first] << 24 | _OCTETS[second] << 16 | _OCTETS[third] << 8 | _OCTETS[fourth])
    except (KeyError, ValueError):
        return None


def endpoint_address(text: str) -> Taken:
    """An address before a port, where keepalived drops what follows `/` or `-`. Raises Unusable."""
    quad = _dotted_quad(text)
    if quad is not None:
        return Taken(value=quad)
    bare = re.split(r"[/-]", text, maxsplit=1)[0]
    value = address(bare)
    return Taken(
        value=value, caveat="" if bare == text else f"`{text}` is taken as {bare}: no prefix or range belongs here"
    )


PORT = Argument(kind=Kind.INTEGER, low=0, high=65535, strict=True)


def port(text: str) -> int | None:
    """A port, None for 0. Raises Unusable."""
    if text.isascii() and text.isdigit() and len(text) < _LONG_PORT:
        return int(text) or None
    try:
        value = number(text, PORT).value
    except Unusable as problem:
        raise Unusable(f"`{text}` is not a port", "a number, 1 to 65535; names of services are not known") from problem
    return value if isinstance(value, int) and value else None


def command(text: str) -> tuple[str, ...]:
    """A command as an argument vector; no shell is used, but for a redirection alone. Raises Unusable."""
    if text.startswith("<"):
        # keepalived gives `</dev/tcp/127.0.0.1/80` to system(3).
        return ("/bin/sh", "-c", text)
    try:
        words = tuple(shlex.split(text))
    except ValueError as problem:
        raise Unusable(f"the command cannot be split into words: {problem}") from problem
    if not words or not words[0]:
        raise Unusable("the command is empty")
    return words


_ACCOUNT = re.compile(r"[a-z_][a-z0-9_.-]*\$?", re.ASCII)
_STATES = ("master", "backup", "fault", "stop", "init", "up", "down")
"""What stands after a command without quotes more often than a user does."""


def plausible_account(text: str) -> bool:
    """Whether a word looks like the name of a user or group, as useradd(8) would take it."""
    return _ACCOUNT.fullmatch(text) is not None and text not in _STATES


def _range(argument: Argument) -> str:
    what = {
        Kind.SECONDS: "seconds, at most six decimals",
        Kind.MILLISECONDS: "milliseconds, at most three decimals",
    }.get(argument.kind, "a whole number")
    return f"{what}, {argument.range}"

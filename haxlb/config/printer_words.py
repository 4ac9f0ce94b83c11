"""Words, numbers, blocks and commands of keepalived.conf, quoted where they must be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from haxlb.model.commands import Command
from haxlb.model.errors import ConfigError

_PLAIN = re.compile(r"[\w./:@%+=,-]+", re.ASCII)
_INDENT = "    "
SECOND_US = 1_000_000


def word(text: str) -> str:
    """The text as one word. Raises ConfigError for a double quote in it, which no word can hold."""
    if '"' in text:
        raise ConfigError(f'keepalived.conf cannot say `{text}`: a word holds no `"`')
    return text if _PLAIN.fullmatch(text) else f'"{text}"'


def in_seconds(microseconds: int) -> str:
    """Whole µs as decimal seconds, without needless zeros: `0.25`."""
    return _decimal(microseconds, SECOND_US, 6)


def in_milliseconds(microseconds: int) -> str:
    """Whole µs as decimal milliseconds."""
    return _decimal(microseconds, 1000, 3)


def _decimal(value: int, unit: int, digits: int) -> str:
    whole, fraction = divmod(value, unit)
    return f"{whole}.{fraction:0{digits}d}".rstrip("0").rstrip(".")


def block(head: str, lines: Iterable[str]) -> Iterator[str]:
    """A block with its lines indented."""
    yield f"{head} {{"
    yield from (_INDENT + each for each in lines)
    yield "}"


def script(command: Command) -> str:
    """A command with its user and group."""
    return " ".join((argv(command), *account(command.user, command.group)))


def argv(command: Command) -> str:
    """A command as one word."""
    return word(" ".join(map(_argument, command.argv)))


def account(user: str, group: str) -> tuple[str, ...]:
    """A user and a group as words; none where no user is named."""
    return tuple(word(each) for each in (user, group) if each) if user else ()


def scripts(*named: tuple[str, Command]) -> Iterator[str]:
    """Lines of a keyword and a command, for those that there are."""
    yield from (f"{name} {script(command)}" for name, command in named if command)


def switches(*named: tuple[str, bool]) -> Iterator[str]:
    """Lines of the keywords that are switched on."""
    yield from (name for name, on in named if on)


def boolean(name: str, value: bool, *, default: bool) -> Iterator[str]:  # noqa: FBT001 - the value to print
    """A line of a keyword with true or false, where the default is the other."""
    if value is not default:
        yield f"{name} {str(value).lower()}"


def _argument(text: str) -> str:
    """As shlex.quote, which would put a single quote into double ones, and those cannot be said here."""
    return "\\'".join(shlex.quote(each) if each or text == "" else "" for each in text.split("'"))

"""Lines of `virtual_rules` and `static_rules` (the words of `ip rule`) as values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.source import Word
from keepalived_compat.values_line import FAMILIES, INET, Dropped, LineReader, Network, whole_number

_U32 = 2**32 - 1
FIRST_PREFERENCE = 16384
"""What keepalived gives a rule that names none; it counts down from there."""
_LEVELS = {"preference": "preference", "order": "preference", "priority": "preference"}
_TEXTS = {"tos": "tos", "dsfield": "tos", "protocol": "protocol", "realms": "realms", "track_group": "track_group"}
_NUMBERS = {
    "suppress_prefixlength": "suppress_prefixlength",
    "sup_pl": "suppress_prefixlength",
    "tunnel-id": "tunnel_id",
}
_PLAIN_ACTIONS = ("nop", "blackhole", "prohibit", "unreachable")
OPTIONS = (
    *("not", "from", "to", "fwmark", "dev", "iif", "oif", "l3mdev", "uidrange", "ipproto", "sport", "dport", "table"),
    *("lookup", "type", "goto", "no_track", "suppress_ifgroup", "sup_group"),
    *FAMILIES,
    *_LEVELS,
    *_TEXTS,
    *_NUMBERS,
    *_PLAIN_ACTIONS,
)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """A routing rule that follows the master, or that the host is to have."""

    word: Word
    """The first word of the line."""
    action: str
    """table, goto, nop, blackhole, prohibit, unreachable."""
    family: int
    table: str = ""
    """Number or name; names of /etc/iproute2 are not looked up."""
    goto: int | None = None
    preference: int | None = None
    """None = not named: keepalived takes 16384, then 16383, …"""
    negated: bool = False
    from_prefix: Network | None = None
    to_prefix: Network | None = None
    fwmark: int | None = None
    fwmask: int | None = None
    iif: str = ""
    oif: str = ""
    l3mdev: bool = False
    uid_range: tuple[int, int] | None = None
    sport: tuple[int, int] | None = None
    dport: tuple[int, int] | None = None
    ipproto: str = ""
    tos: str = ""
    protocol: str = ""
    realms: str = ""
    tunnel_id: int | None = None
    suppress_prefixlength: int | None = None
    suppress_ifgroup: str = ""
    track_group: str = ""
    no_track: bool = False


def read_rules(lines: Iterable[list[Word]], complaints: Complaints, *, block: str) -> tuple[RuleLine, ...]:
    """The rules of a block, in file order. A line with anything wrong is not used, as in keepalived."""
    found = []
    for line in lines:
        try:
            found.append(_Rule(LineReader(line, complaints, block=block, loss="the rule is not used")).read(line[0]))
        except Dropped:
            continue
    return tuple(found)


class _Rule:
    """Reads one line."""

    def __init__(self, line: LineReader) -> None:
        self._line = line
        self._family = 0
        self._action: Word | None = None
        self._fields: dict[str, object] = {}

    def read(self, first: Word) -> RuleLine:
        while (word := self._line.word()) is not None:
            self._word(word)
        if self._action is None and not self._fields.get("l3mdev"):
            raise self._line.drop(first, "the rule does nothing", "add `table N`, `goto N`, `blackhole`, …")
        if "preference" not in self._fields:
            self._line.complaints.warning(
                "no-preference",
                first,
                f"{self._line.block}: the rule has no preference: {FIRST_PREFERENCE} is taken, counting down",
                "add `preference N`",
            )
        names = {"lookup": "table"}
        action = "table" if self._action is None else names.get(self._action.text, self._action.text)
        return RuleLine(word=first, action=action, family=self._family or INET, **self._fields)  # type: ignore[arg-type]

    def _word(self, word: Word) -> None:  # noqa: C901, PLR0912 - a table of words
        line, fields = self._line, self._fields
        match word.text:
            case "not":
                fields["negated"] = True
            case "inet" | "inet6":
                self._family = FAMILIES[word.text]
            case "from" | "to":
                self._prefix(word)
            case "fwmark":
                self._mark(word)
            case "dev" | "iif":
                fields["iif"] = line.interface(word)
            case "oif":
                fields["oif"] = line.interface(word)
            case "l3mdev" | "no_track":
                fields[word.text] = True
            case "uidrange" | "sport" | "dport":
                self._span(word)
            case "ipproto":
                fields["ipproto"] = line.value(word).text
            case "suppress_ifgroup" | "sup_group":
                fields["suppress_ifgroup"] = line.value(word).text
            case "table" | "lookup":
                self._act(word)
                fields["table"] = line.value(word).text
            case "type":
                if line.peek() not in ("goto", *_PLAIN_ACTIONS):
                    raise line.drop(line.value(word), "this is no type of a rule", ", ".join(_PLAIN_ACTIONS))
            case "goto":
                self._act(word)
                fields["goto"] = line.number(word, 0, _U32)
            case text if text in _PLAIN_ACTIONS:
                self._act(word)
            case text if text in _LEVELS:
                fields["preference"] = line.number(word, 0, _U32)
            case text if text in _NUMBERS:
                fields[_NUMBERS[text]] = line.number(word, 0, 2**31 - 1)
            case text if text in _TEXTS:
                fields[_TEXTS[text]] = line.value(word).text
            case _:
                raise line.unknown(word, OPTIONS)

    def _act(self, word: Word) -> None:
        if self._action is not None:
            raise self._line.drop(word, f"`{word.text}` after `{self._action.text}`: a rule does one thing")
        self._action = word

    def _prefix(self, option: Word) -> None:
        value = self._line.value(option)
        if value.text in ("all", "any", "default"):
            return
        network = self._line.network(value, self._family)
        self._family = network.version
        self._fields[f"{option.text}_prefix"] = network

    def _mark(self, option: Word) -> None:
        value = self._line.value(option)
        mark_text, slash, mask_text = value.text.partition("/")
        mark, mask = whole_number(mark_text), whole_number(mask_text) if slash else None
        if mark is None or not 0 <= mark <= _U32 or (slash and (mask is None or not 0 <= mask <= _U32)):
            raise self._line.drop(value, f"`{value.text}` is not a mark", "MARK[/MASK], decimal or 0x…")
        self._fields |= {"fwmark": mark, "fwmask": mask}

    def _span(self, option: Word) -> None:
        value = self._line.value(option)
        found = _RANGE.fullmatch(value.text)
        highest = _U32 if option.text == "uidrange" else 65535
        low, high = (int(found[1][:11]), int((found[2] or found[1])[:11])) if found else (1, 0)
        lacks_end = found is not None and found[2] is None and option.text == "uidrange"
        if not low <= high <= highest or lacks_end:
            raise self._line.drop(value, f"`{option.text} {value.text}` is no range", "LOW-HIGH")
        self._fields["uid_range" if option.text == "uidrange" else option.text] = (low, high)

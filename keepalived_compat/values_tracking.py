"""Lines of `track_interface`, `track_script`, `track_file`, `track_process`, `track_bfd`, and weights, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.source import Word
from keepalived_compat.values_line import whole_number

LIMITS = {"track_interface": 253, "track_script": 253, "track_bfd": 253, "track_file": 254, "track_process": 254}
"""The largest weight either way; for track_interface 254 is taken as 253."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """How a tracked thing counts."""

    value: int
    """Added to the priority: a positive one while it is well, a negative one while it is not. 0 = FAULT when not."""
    reverse: bool = False
    """Well and not well change places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackLine:
    """One thing that an instance or a sync group tracks."""

    word: Word
    """Its name."""
    name: str
    weight: Weight | None = None
    """None = that of its own block."""


def read_tracks(lines: Iterable[list[Word]], complaints: Complaints, *, block: str) -> tuple[TrackLine, ...]:
    """The lines of a track block, in file order; a line with a word that is not known is not used."""
    found: dict[str, TrackLine] = {}
    for line in lines:
        track = _track(line, complaints, block)
        if track is None:
            continue
        first = found.setdefault(track.name, track)
        if first is not track:
            complaints.warning(
                "given-twice",
                track.word,
                f"{block}: `{track.name}` stands twice; the first one counts",
                f"the first stands at {first.word.span}; keep one",
            )
    return tuple(found.values())


def read_weight(words: list[Word], complaints: Complaints, *, block: str, limit: int) -> Weight | None:
    """`N [reverse|noreverse]`: the words after `weight`, one at least. None when it cannot be used, which is said."""
    first = words[0]
    number = whole_number(first.text)
    if number is None or abs(number) > limit:
        complaints.error(
            "bad-value", first, f"{block}: weight `{first.text}` is out of range", f"{-limit} to {limit}; 0 means FAULT"
        )
        return None
    reverse = False
    for word in words[1:]:
        if word.text not in ("reverse", "noreverse"):
            complaints.error(
                "unknown-keyword",
                word,
                f"{block}: unknown word `{word.text}` after a weight; it is ignored",
                did_you_mean(word.text, ("reverse", "noreverse")),
            )
            break
        reverse = word.text == "reverse"
    return Weight(value=number, reverse=reverse)


def _track(line: list[Word], complaints: Complaints, block: str) -> TrackLine | None:
    name, rest = line[0], line[1:]
    if not rest:
        return TrackLine(word=name, name=name.text)
    if rest[0].text != "weight":
        complaints.error(
            "unknown-keyword",
            rest[0],
            f"{block}: unknown word `{rest[0].text}`; `{name.text}` is not tracked, as in keepalived",
            "NAME [weight N [reverse]], one a line",
        )
        return None
    if len(rest) == 1:
        complaints.error(
            "missing-argument", rest[0], f"{block}: `weight` lacks its number; `{name.text}` is not tracked"
        )
        return None
    limit = LIMITS[block]
    if block == "track_interface" and whole_number(rest[1].text) in (-254, 254):
        value = 253 if rest[1].text == "254" else -253
        complaints.warning(
            "inexact-value", rest[1], f"{block}: weight {rest[1].text} is taken as {value}", "write that"
        )
        return TrackLine(word=name, name=name.text, weight=Weight(value=value))
    weight = read_weight(rest[1:], complaints, block=block, limit=limit)
    return None if weight is None else TrackLine(word=name, name=name.text, weight=weight)

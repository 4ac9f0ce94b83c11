"""`vrrp_script` and its like, and the track blocks of instances, to values.

They are read from the syntax tree: haxlb does not act on them yet, so the judge gives no sections of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from haxlb.model.tracking import Track, Tracked, TrackKind, TrackScript
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.grammar import Argument, integer, seconds
from keepalived_compat.nearest import Hints
from keepalived_compat.source import Span, Word
from keepalived_compat.tree import Body, Statement
from keepalived_compat.values import Unusable, command, microseconds, number
from keepalived_compat.values_tracking import LIMITS, Weight, read_tracks, read_weight

_DEFINING = {
    "vrrp_script": TrackKind.SCRIPT,
    "track_file": TrackKind.FILE,
    "vrrp_track_file": TrackKind.FILE,
    "vrrp_track_process": TrackKind.PROCESS,
    "bfd_instance": TrackKind.BFD,
}
_BLOCKS = {kind: block for block, kind in reversed(_DEFINING.items())}
_KINDS = {each.value: each for each in TrackKind}
_NEEDED = {
    TrackKind.SCRIPT: "script",
    TrackKind.FILE: "file",
    TrackKind.PROCESS: "process",
    TrackKind.BFD: "neighbor_ip",
}
"""Without which a block means nothing."""
_SECONDS = seconds(0.001)
_COUNT = integer(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A block that defines something to track."""

    kind: TrackKind
    name: str
    head: Span
    weight: Weight
    position: int
    """Its place among the statements of the top level."""
    thing: TrackScript | Tracked | None
    """None = it cannot be used, which has been said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTrack:
    """A tracked thing with the place of its name."""

    track: Track
    where: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """All that is tracked."""

    scripts: tuple[TrackScript, ...]
    others: tuple[Tracked, ...]
    by_instance: dict[Span, tuple[PlacedTrack, ...]]
    """By the place of the keyword `vrrp_instance`."""

    def of(self, instance: Span) -> tuple[PlacedTrack, ...]:
        """What the instance whose block begins here tracks."""
        return self.by_instance.get(instance, ())


def read_tracking(tree: Body, complaints: Complaints) -> Tracking:
    """Everything that is defined and tracked; names that are not defined are complained of."""
    return _TrackingReader(tree, complaints).read()


class _TrackingReader:
    def __init__(self, tree: Body, complaints: Complaints) -> None:
        self._tree = tree
        self._complaints = complaints
        self._hints = Hints()
        self._definitions: dict[tuple[TrackKind, str], Definition] = {}
        self._used: set[tuple[TrackKind, str]] = set()
        self._misspelt: set[TrackKind] = set()
        """Kinds of which a name is tracked that is not defined: it may mean one that seems to be unused."""

    def read(self) -> Tracking:
        users: list[tuple[int, Statement]] = []
        for position, statement in enumerate(self._tree.statements):
            word = statement.keyword.text
            if word in _DEFINING and statement.arguments and statement.body is not None:
                self._define(position, statement, _DEFINING[word])
            elif word in ("vrrp_instance", "vrrp_sync_group"):
                users.append((position, statement))
        found = {each.keyword.span: tuple(sorted(self._tracks(position, each), key=_rank)) for position, each in users}
        self._complain_of_unused()
        things = [each.thing for each in self._definitions.values()]
        return Tracking(
            scripts=tuple(each for each in things if isinstance(each, TrackScript)),
            others=tuple(each for each in things if isinstance(each, Tracked)),
            by_instance=found,
        )

    # Definitions

    def _define(self, position: int, statement: Statement, kind: TrackKind) -> None:
        name = statement.arguments[0]
        weight = self._weight(statement, kind)
        first = self._definitions.get((kind, name.text))
        if first is not None:
            self._complaints.warning(
                "duplicate-name",
                name,
                f"a second {statement.keyword.text} is called {name.text}; it is not used",
                f"the first stands at {first.head}",
            )
            return
        self._definitions[kind, name.text] = Definition(
            kind=kind,
            name=name.text,
            head=name.span,
            weight=weight,
            position=position,
            thing=self._thing(statement, kind, name.text, weight),
        )

    def _weight(self, statement: Statement, kind: TrackKind) -> Weight:
        found = _last(statement.body, "weight")
        weight = None
        if found is not None and found.arguments:
            weight = read_weight(
                found.arguments, self._complaints, block=statement.keyword.text, limit=LIMITS[kind.value]
            )
        return weight or Weight(value=1 if kind is TrackKind.FILE else 0)

    def _thing(self, statement: Statement, kind: TrackKind, name: str, weight: Weight) -> TrackScript | Tracked | None:
        body, needed = statement.body, _NEEDED[kind]
        if kind is TrackKind.SCRIPT:
            target = self._command(body)
        else:
            found = _last(body, needed)
            target = tuple(each.text for each in found.arguments) if found is not None else ()
        if not target:
            self._complaints.warning(
                "missing-keyword",
                statement.arguments[0],
                f"{statement.keyword.text} {name} has no usable `{needed}`; it is not tracked, as in keepalived",
                f"add `{needed} …`",
            )
            return None
        if kind is TrackKind.SCRIPT:
            return self._script(statement, name, target, weight)
        if kind is not TrackKind.PROCESS:
            target = target[:1]
        return Tracked(kind=kind, name=name, target=target, weight=weight.value, reverse=weight.reverse)

    def _script(self, statement: Statement, name: str, argv: tuple[str, ...], weight: Weight) -> TrackScript:
        body = statement.body
        interval = self._number(body, "interval", _SECONDS, 1_000_000)
        timeout = self._number(body, "timeout", _SECONDS, interval)
        if timeout > interval:
            self._complaints.note(
                "slow-script",
                _place(body, "timeout", statement),
                f"{name} may run longer than its interval: runs that are due meanwhile are skipped,"
                " and a hanging script is noticed late",
                "make the timeout at most the interval",
            )
        return TrackScript(
            name=name,
            command=argv,
            interval_us=interval,
            timeout_us=timeout,
            weight=weight.value,
            reverse=weight.reverse,
            rise=self._number(body, "rise", _COUNT, 1),
            fall=self._number(body, "fall", _COUNT, 1),
            init_fail=_last(body, "init_fail") is not None,
        )

    def _command(self, body: Body | None) -> tuple[str, ...]:
        found = _last(body, "script")
        if found is None or not found.arguments:
            return ()
        quoted = found.arguments[0].quoted or not found.arguments[0].text.startswith("'")
        text = found.arguments[0].text if quoted else " ".join(each.text for each in found.arguments)
        try:
            # In single quotes the whole command is one word for the shell.
            return command(text if quoted else command(text)[0])
        except Unusable as problem:
            self._complaints.error("bad-value", found.arguments[0], f"script: {problem.message}")
            return ()

    def _number(self, body: Body | None, name: str, argument: Argument, default: int) -> int:
        found = _last(body, name)
        if found is None or not found.arguments:
            return default
        word = found.arguments[0]
        try:
            taken = (microseconds if argument is _SECONDS else number)(word.text, argument)
        except Unusable as problem:
            self._complaints.error("bad-value", word, f"{name}: {problem.message}; the default counts", problem.hint)
            return default
        if taken.caveat:
            self._complaints.warning("inexact-value", word, taken.caveat, taken.hint)
        return int(str(taken.value))

    # Uses

    def _tracks(self, position: int, user: Statement) -> Iterator[PlacedTrack]:
        for statement in user.body.statements if user.body is not None else ():
            kind = _KINDS.get(statement.keyword.text)
            if kind is None or statement.body is None:
                continue
            lines = [each.words for each in statement.body.statements]
            for line in read_tracks(lines, self._complaints, block=kind.value):
                own = self._defined(kind, line.word, position)
                if own is None:
                    continue
                self._used.add((kind, line.name))
                weight = line.weight or own
                track = Track(kind=kind, name=line.name, weight=weight.value, reverse=weight.reverse)
                yield PlacedTrack(track=track, where=line.word.span)

    def _defined(self, kind: TrackKind, word: Word, position: int) -> Weight | None:
        """The weight of the block that defines a name; None when there is none, which is said."""
        if kind is TrackKind.INTERFACE:
            return Weight(value=0)
        found = self._definitions.get((kind, word.text))
        if found is None:
            self._misspelt.add(kind)
            names = (name for defined, name in self._definitions if defined is kind)
            self._complaints.error(
                "undefined-track",
                word,
                f"{kind.value}: {word.text} is defined nowhere; it is not tracked, as in keepalived",
                self._hints.did_you_mean(word.text, names) or f"define it above: {_BLOCKS[kind]} {word.text} {{ … }}",
            )
            return None
        if found.position > position:
            self._complaints.warning(
                "order",
                word,
                f"{kind.value}: {word.text} is defined below, at {found.head}: keepalived does not track it",
                "define it above what tracks it",
            )
        if found.thing is None:
            self._used.add((kind, word.text))
            return None
        return found.weight

    def _complain_of_unused(self) -> None:
        for key, each in self._definitions.items():
            if key not in self._used and each.kind not in self._misspelt:
                self._complaints.note("unused-track", each.head, f"nothing tracks {each.name}: it changes nothing")


def _rank(placed: PlacedTrack) -> int:
    """By kind: the order of blocks in an instance means nothing."""
    return _ORDER.index(placed.track.kind)


_ORDER = list(TrackKind)


def _last(body: Body | None, name: str) -> Statement | None:
    spellings = (name, "neighbour_ip") if name == "neighbor_ip" else (name,)
    statements = body.statements if body is not None else []
    return next((each for each in reversed(statements) if each.keyword.text in spellings), None)


def _place(body: Body | None, name: str, otherwise: Statement) -> Span:
    found = _last(body, name) or otherwise
    return found.words[min(1, len(found.words) - 1)].span

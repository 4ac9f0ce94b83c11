"""All BFD sessions of a node: which of them a packet is for, when the next timer ends, and what is well.

One heap for all timers. A session is known by its two ends, so that it lives on when it is renamed or its intervals
change; only other ends make another session.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from haxlb.bfd.packet import ControlPacket, State, decode, encode
from haxlb.bfd.session import Chance, Disable, Effect, Input, Received, Reconfigure, Send, Session, TimerExpired
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import Bug, ConfigError, PeerError
from haxlb.model.tracking import BfdSession, TrackKind, TrackResult

_ANY_TTL = -1
_LARGEST_DISCRIMINATOR = 0xFFFFFFFF
_decoded = lru_cache(maxsize=1024)(decode)
"""A neighbour that is Up says the same thing a hundred times a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """The two ends of a session."""

    neighbor: IPAddress
    """A link-local one has its interface as its scope."""
    source: IPAddress | None = None
    """Without a scope. None = whatever address the kernel picks."""
    multihop: bool = False

    @classmethod
    def of(cls, settings: BfdSession) -> SessionKey:
        """The ends of a configured session. Raises ConfigError where they are no addresses of one family."""
        try:
            neighbor = ip_address(settings.neighbor)
            source = ip_address(settings.source) if settings.source else None
        except ValueError as problem:
            raise ConfigError(f"bfd_instance {settings.name}: {problem}", remedy="give IP addresses") from problem
        if source is not None and source.version != neighbor.version:
            raise ConfigError(
                f"bfd_instance {settings.name}: {source} and {neighbor} are of two families",
                remedy="give source_ip and neighbor_ip of one family",
            )
        if isinstance(neighbor, IPv6Address) and neighbor.is_link_local and not neighbor.scope_id:
            raise ConfigError(
                f"bfd_instance {settings.name}: {neighbor} exists on every interface",
                remedy=f"name the one that is meant: {neighbor}%eth0",
            )
        return cls(neighbor=neighbor, source=source and unscoped(source), multihop=settings.multihop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A UDP payload with what its IP header said."""

    source: IPAddress
    destination: IPAddress | None
    """Without a scope. None = the kernel did not say."""
    ttl: int
    """TTL or hop limit."""
    multihop: bool
    """The port that it came to."""
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transmit:
    """Effect: send this from the session's socket."""

    key: SessionKey
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Effect: a session has entered another state."""

    name: str
    neighbor: IPAddress
    before: State
    after: State
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Effect: a packet was counted and dropped."""

    source: IPAddress
    reason: str
    """The counter's name."""
    detail: str


TableEffect = Transmit | Changed | Refused


@dataclass(slots=True, eq=False)
class _Row:
    key: SessionKey
    session: Session
    stamp: int = 0
    """Of its only valid entry in the heap; -1 = there is none any more."""
    entered_at: int | None = None
    """The time of that entry; the session may be due later, which is then found out."""


class SessionTable:
    """Deterministic: the same stream of chance, sessions and packets give the same effects."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._rows: dict[SessionKey, _Row] = {}
        self._by_discriminator: dict[int, _Row] = {}
        self._heap: list[tuple[int, int, _Row]] = []
        self._stamp = 0
        self._altered: dict[_Row, None] = {}
        self.refused: dict[str, int] = {}
        """Packets that could be given to no session, by reason."""

    @property
    def keys(self) -> tuple[SessionKey, ...]:
        """The sessions there are."""
        return tuple(self._rows)

    def session(self, key: SessionKey) -> Session:
        """One of them, to look at."""
        return self._rows[key].session

    def configure(self, wanted: Mapping[SessionKey, BfdSession], now: int) -> list[TableEffect]:
        """Hold exactly these sessions from now on; those that stay keep their state."""
        effects: list[TableEffect] = []
        for key in [each for each in self._rows if each not in wanted]:
            row = self._rows.pop(key)
            row.stamp = -1
            del self._by_discriminator[row.session.discriminator]
            effects += _translated(row, row.session.handle(Disable(), now))
        for key, settings in wanted.items():
            if key in self._rows:
                effects += self._handle(self._rows[key], Reconfigure(settings=settings), now)
            else:
                session = Session(settings, self._new_discriminator(), self._chance, now)
                row = self._rows[key] = _Row(key=key, session=session)
                self._by_discriminator[session.discriminator] = row
                self._enter(row)
        self._altered = dict.fromkeys(self._rows[key] for key in wanted)
        return effects

    def receive(self, arrival: Arrival, now: int) -> list[TableEffect]:
        """Take one packet."""
        row = None
        try:
            packet = _decoded(arrival.payload)
            row = self._find(packet, arrival)
            _check(row.session.settings, packet, arrival)
        except PeerError as problem:
            counters = self.refused if row is None else row.session.counters.refused
            counters[problem.reason] = counters.get(problem.reason, 0) + 1
            return [Refused(source=arrival.source, reason=problem.reason, detail=problem.message)]
        return self._handle(row, Received(packet=packet), now)

    def expire(self, now: int) -> list[TableEffect]:
        """Whatever was due until now."""
        effects: list[TableEffect] = []
        # A session that comes due again at once waits for the next call: none may keep the others from their turn.
        due: list[_Row] = []
        while self._heap and self._heap[0][0] <= now:
            _, stamp, row = heapq.heappop(self._heap)
            if row.stamp == stamp:
                row.entered_at = None
                due.append(row)
        for row in due:
            effects += self._handle(row, TimerExpired(), now)
        return effects

    def next_deadline(self) -> int | None:
        """When `expire` has something to do again."""
        while self._heap:
            at, stamp, row = self._heap[0]
            if row.stamp == stamp:
                return at
            heapq.heappop(self._heap)
        return None

    def take_results(self) -> tuple[TrackResult, ...]:
        """After a `configure` all results, later those that have changed since the last call."""
        taken = tuple(row.session for row in self._altered)
        self._altered.clear()
        return tuple(
            TrackResult(
                kind=TrackKind.BFD,
                name=each.settings.name,
                value=None if each.well is None else int(each.well),
            )
            for each in taken
        )

    # -- which session

    def _find(self, packet: ControlPacket, arrival: Arrival) -> _Row:
        """RFC 5880 section 6.8.6 and RFC 5881 section 3. Raises PeerError."""
        if packet.your_discriminator:
            row = self._by_discriminator.get(packet.your_discriminator)
            # A discriminator can be guessed or be a former one's; the ends it came from must be the session's, too.
            if row is not None and _is_between(row.key, arrival):
                return row
            raise PeerError("unknown_session", f"no session with {arrival.source} has this discriminator")
        for source in (arrival.destination, None):
            row = self._rows.get(SessionKey(neighbor=arrival.source, source=source, multihop=arrival.multihop))
            if row is not None:
                return row
        raise PeerError("unknown_session", f"there is no session with {arrival.source}")

    # -- sessions and the heap

    def _handle(self, row: _Row, event: Input, now: int) -> list[TableEffect]:
        before = row.session.well
        effects = _translated(row, row.session.handle(event, now))
        if row.session.well is not before:
            self._altered[row] = None
        self._enter(row)
        return effects

    def _enter(self, row: _Row) -> None:
        deadline = row.session.next_deadline()
        # Each packet moves a deadline away: one entry, too early at worst, keeps a flood of them out of the heap.
        if deadline is None or (row.entered_at is not None and row.entered_at <= deadline):
            return
        self._stamp += 1
        row.stamp, row.entered_at = self._stamp, deadline
        # The stamp is unique, so two entries never compare their rows.
        heapq.heappush(self._heap, (deadline, self._stamp, row))

    def _new_discriminator(self) -> int:
        for _ in range(1000):
            chosen = self._chance(1, _LARGEST_DISCRIMINATOR)
            if chosen not in self._by_discriminator:
                return chosen
        raise Bug("the source of chance says the same number again and again")


def by_ends(sessions: Iterable[BfdSession]) -> tuple[dict[SessionKey, BfdSession], dict[str, ConfigError]]:
    """The sessions that can be held, and why each of the others, by name, cannot."""
    usable: dict[SessionKey, BfdSession] = {}
    problems: dict[str, ConfigError] = {}
    for each in sessions:
        try:
            key = SessionKey.of(each)
        except ConfigError as problem:
            problems[each.name] = problem
            continue
        first = usable.setdefault(key, each)
        if first is not each:  # keepalived leaves out the second one, too
            problems[each.name] = ConfigError(
                f"bfd_instance {each.name} has the same ends as {first.name}",
                remedy="there is one session between two addresses (RFC 5881 section 3): remove one of the blocks",
            )
    return usable, problems


def _check(settings: BfdSession, packet: ControlPacket, arrival: Arrival) -> None:
    """Raises PeerError."""
    lowest = lowest_ttl(settings)
    if arrival.ttl < lowest:
        raise PeerError("ttl", f"its TTL is {arrival.ttl}, less than {lowest}: it came through routers")
    if packet.demand:
        raise PeerError("demand", "it asks for demand mode, which is not supported")


def _translated(row: _Row, effects: list[Effect]) -> list[TableEffect]:
    return [
        Transmit(key=row.key, payload=encode(each.packet))
        if isinstance(each, Send)
        else Changed(
            name=row.session.settings.name,
            neighbor=row.key.neighbor,
            before=each.before,
            after=each.after,
            reason=each.reason,
        )
        for each in effects
    ]


def _is_between(key: SessionKey, arrival: Arrival) -> bool:
    if (key.neighbor, key.multihop) != (arrival.source, arrival.multihop):
        return False
    return None in (key.source, arrival.destination) or key.source == arrival.destination


def lowest_ttl(settings: BfdSession) -> int:
    """The smallest TTL of a packet that is taken (RFC 5881 section 5; GTSM, RFC 5082).

    It counts from the TTL that we send, as in keepalived: two ends with one configuration agree. A multihop session
    has no limit of its own (RFC 5883 section 5).
    """
    if settings.max_hops == _ANY_TTL or (settings.multihop and settings.max_hops == 0):
        return 0
    return max(0, settings.ttl - settings.max_hops)


def unscoped(address: IPAddress) -> IPAddress:
    """The address without its interface."""
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) else address

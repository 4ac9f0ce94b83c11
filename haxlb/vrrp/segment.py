"""Who speaks VRRP on one link, and what they disagree on. Told of every advert and of the time; asks nobody.

Times are µs of any one clock. A speaker that has fallen silent stays known, so that the director that speaks only after
a failover is compared with the one before it. What a flood of invented speakers can cost is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from haxlb.model.addresses import IPAddress
from haxlb.model.units import SECOND_US
from haxlb.vrrp.disagreement import About, Said, authentication, differences
from haxlb.vrrp.dissect import Dissection, Form
from haxlb.vrrp.intrusions import Intrusions
from haxlb.vrrp.timers import master_down_interval

MOST_ROUTERS = 1024
MOST_SPEAKERS = 32
"""Of one virtual router."""
MOST_DESTINATIONS = 64
MOST_DISAGREEMENTS = 1024
_PATIENCE_US = 3 * SECOND_US
"""For a speaker whose interval is not known."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Router:
    """A virtual router on the link."""

    vlans: tuple[int, ...]
    family: int
    vrid: int

    def __str__(self) -> str:
        vlan = f" VLAN {'.'.join(map(str, self.vlans))}" if self.vlans else ""
        return f"VRID {self.vrid} IPv{self.family}{vlan}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that an operator wants to know at once."""

    at_us: int
    kind: str
    """speaks, says, resigned, silent, dropped, odd, disagree, agree."""
    router: Router
    source: str
    """Whose advert; empty for a disagreement."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """One that was heard, with its last believable advert."""

    router: Router
    source: IPAddress
    mac: str
    adverts: int
    first_us: int
    last_us: int
    state: str
    """speaking, resigned, silent."""
    version: int = 0
    priority: int = 0
    interval_us: int = 0
    authentication: str = "none"
    addresses: tuple[IPAddress, ...] = ()
    ttl: int = 0
    checksum: str = ""
    destinations: tuple[IPAddress, ...] = ()
    problems: dict[str, int] = field(default_factory=dict)
    """Adverts by the reason for which they are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One that was seen."""

    router: Router
    about: About
    message: str
    since_us: int
    until_us: int | None
    """None = still so."""


@dataclass(slots=True, eq=False)
class _Voice:
    """A speaker in the making."""

    number: int
    """Among those of its virtual router."""
    router: Router
    source: IPAddress
    mac: str
    first_us: int
    last_us: int = 0
    adverts: int = 0
    state: str = "speaking"
    advert: Dissection | None = None
    destinations: dict[IPAddress, None] = field(default_factory=dict)
    problems: dict[str, int] = field(default_factory=dict)
    oddities: set[str] = field(default_factory=set)

    @property
    def patience_us(self) -> int:
        """Silence after which even the most patient backup has taken over."""
        if self.advert is None or not self.advert.interval_us:
            return _PATIENCE_US
        return master_down_interval(self.advert.version, 1, self.advert.interval_us)

    def value(self) -> Speaker:
        advert = self.advert
        known = Speaker(
            router=self.router,
            source=self.source,
            mac=self.mac,
            adverts=self.adverts,
            first_us=self.first_us,
            last_us=self.last_us,
            state=self.state,
            destinations=tuple(self.destinations),
            problems=dict(self.problems),
        )
        if advert is None:
            return known
        return replace(
            known,
            version=advert.version,
            priority=advert.priority,
            interval_us=advert.interval_us,
            authentication=authentication(advert),
            addresses=advert.addresses,
            ttl=advert.envelope.ttl or 0,
            checksum=advert.form.value,
        )


@dataclass(slots=True, eq=False)
class _Voices:
    """Of one virtual router."""

    voices: list[_Voice] = field(default_factory=list)
    intrusions: Intrusions = field(default_factory=Intrusions)

    def find(self, source: IPAddress, mac: str) -> _Voice | None:
        return next((each for each in self.voices if each.mac == mac and each.source == source), None)

    def names(self) -> dict[int, str]:
        """By number; with the MAC where two have one address."""
        sources = [each.source for each in self.voices]
        return {
            each.number: str(each.source) if sources.count(each.source) == 1 else f"{each.source} [{each.mac}]"
            for each in self.voices
        }


class Segment:
    """One link."""

    def __init__(self) -> None:
        self._routers: dict[Router, _Voices] = {}
        self._open: dict[tuple[Router, About], Disagreement] = {}
        self._closed: list[Disagreement] = []
        self.unlisted = 0
        """Adverts of more routers and speakers than are remembered."""

    @property
    def speakers(self) -> tuple[Speaker, ...]:
        """All that were heard, by virtual router."""
        return tuple(
            voice.value()
            for router in sorted(self._routers)
            for voice in sorted(self._routers[router].voices, key=lambda each: (int(each.source), each.mac))
        )

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """All that were seen, oldest first."""
        return tuple(sorted((*self._closed, *self._open.values()), key=lambda each: each.since_us))

    def hear(self, heard: Dissection, at_us: int) -> tuple[Event, ...]:
        """Take one advert, whole or broken; only one without an IP header is of no use here."""
        source = heard.envelope.source
        if source is None:
            return ()
        router = Router(vlans=heard.envelope.vlans, family=heard.family, vrid=heard.vrid)
        voice = self._voice(router, source, heard.envelope.source_mac, at_us)
        if voice is None:
            self.unlisted += 1
            return ()
        events = list(self._notice_silence(router, at_us))
        voice.adverts += 1
        voice.last_us = at_us
        events += self._judge(voice, heard, at_us)
        if heard.legible:
            events += self._take(voice, heard, at_us)
        return tuple(events)

    def tick(self, now_us: int) -> tuple[Event, ...]:
        """Notice who has fallen silent; call it now and then."""
        return tuple(event for router in self._routers for event in self._notice_silence(router, now_us))

    def _notice_silence(self, router: Router, now_us: int) -> Iterator[Event]:
        known = self._routers[router]
        for voice in known.voices:
            span = now_us - voice.last_us
            if voice.state == "speaking" and span > voice.patience_us:
                voice.state = "silent"
                yield _event(voice, now_us, "silent", f"nothing for {span / SECOND_US:.3g} s")
        if known.intrusions.expire(now_us):
            yield from self._compare(router, now_us)

    def _voice(self, router: Router, source: IPAddress, mac: str, at_us: int) -> _Voice | None:
        """The one that this is, a new one, or None when there are too many."""
        known = self._routers.get(router)
        if known is None:
            if len(self._routers) >= MOST_ROUTERS:
                return None
            known = self._routers[router] = _Voices()
        voice = known.find(source, mac)
        if voice is None and len(known.voices) < MOST_SPEAKERS:
            number = len(known.voices)
            voice = _Voice(number=number, router=router, source=source, mac=mac, first_us=at_us, last_us=at_us)
            known.voices.append(voice)
        return voice

    def _judge(self, voice: _Voice, heard: Dissection, at_us: int) -> Iterator[Event]:
        """Say each kind of fault of a speaker once, and count."""
        for each in heard.findings:
            if each.fatal:
                if each.reason not in voice.problems:
                    yield _event(voice, at_us, "dropped", f"{each.reason} at offset {each.offset}: {each.message}")
                voice.problems[each.reason] = voice.problems.get(each.reason, 0) + 1
            elif each.reason not in voice.oddities:
                voice.oddities.add(each.reason)
                yield _event(voice, at_us, "odd", f"at offset {each.offset}: {each.message}")

    def _take(self, voice: _Voice, heard: Dissection, at_us: int) -> Iterator[Event]:
        before, voice.advert = voice.advert, heard
        destination = heard.envelope.destination
        elsewhere = destination not in voice.destinations and len(voice.destinations) < MOST_DESTINATIONS
        if destination is not None and elsewhere:
            voice.destinations[destination] = None
        state, voice.state = voice.state, "speaking" if heard.priority else "resigned"
        changed = before is None or _manner(before) != _manner(heard)
        if before is None or (state != voice.state and voice.state == "speaking"):
            yield _event(voice, at_us, "speaks", describe(heard))
        elif voice.state == "resigned" and state != "resigned":
            yield _event(voice, at_us, "resigned", "priority 0")
        elif changed:
            yield _event(voice, at_us, "says", describe(heard))
        if self._note_intrusion(voice, at_us) or changed or elsewhere or state != voice.state:
            yield from self._compare(voice.router, at_us)

    def _note_intrusion(self, voice: _Voice, at_us: int) -> bool:
        """Whether this advert, beside a better speaker's, makes two masters."""
        known, own = self._routers[voice.router], voice.advert
        if own is None or voice.state != "speaking":
            known.intrusions.forget(voice.number)
            return False
        news = False
        for other in known.voices:
            better = other.advert
            if other.state != "speaking" or better is None or not _outranks(other, voice):
                continue
            down_us = master_down_interval(better.version, own.priority, better.interval_us)
            if at_us - other.last_us < down_us:
                interval_us = max(own.interval_us, better.interval_us)
                numbers = (voice.number, other.number)
                news |= known.intrusions.note(*numbers, at_us, down_us=down_us, interval_us=interval_us)
        return news

    def _compare(self, router: Router, at_us: int) -> Iterator[Event]:
        known = self._routers[router]
        names = known.names()
        said = [
            Said(
                who=names[each.number],
                advert=each.advert,
                casts=frozenset(to.is_multicast for to in each.destinations),
            )
            for each in known.voices
            if each.advert is not None
        ]
        now: dict[About, list[str]] = {}
        for about, message in differences(said):
            now.setdefault(about, []).append(message)
        masters = [known.voices[number] for number in known.intrusions.masters]
        if masters:
            both = " and ".join(names[each.number] for each in masters)
            now[About.MASTERS] = [f"{len(masters)} masters at once: {both}"]
        for about in About:
            yield from self._settle(router, about, "; ".join(now.get(about, ())), at_us)

    def _settle(self, router: Router, about: About, message: str, at_us: int) -> Iterator[Event]:
        known = self._open.get((router, about))
        if known is not None and not message:
            del self._open[router, about]
            if len(self._closed) < MOST_DISAGREEMENTS:
                self._closed.append(replace(known, until_us=at_us))
            yield Event(at_us=at_us, kind="agree", router=router, source="", message=f"no longer: {known.message}")
        elif known is not None and message != known.message:
            self._open[router, about] = replace(known, message=message)
        elif known is None and message:
            self._open[router, about] = Disagreement(
                router=router, about=about, message=message, since_us=at_us, until_us=None
            )
            yield Event(at_us=at_us, kind="disagree", router=router, source="", message=message)


def describe(advert: Dissection) -> str:
    """What an advert says, in one line; never a password."""
    envelope = advert.envelope
    checksum = "" if advert.form is Form.GOOD else f", checksum {advert.form.value}"
    to = f" to {envelope.destination}" if envelope.destination is not None else ""
    ttl = f", TTL {envelope.ttl}" if envelope.ttl is not None else ""
    auth = f", {authentication(advert)}" if advert.auth_type else ""
    vips = ", ".join(map(str, advert.addresses)) or "none"
    every = f"every {advert.interval_us / SECOND_US:g} s"
    return f"v{advert.version}, priority {advert.priority}, {every}{auth}{ttl}{checksum}{to}, VIPs {vips}"


def _manner(advert: Dissection) -> tuple[object, ...]:
    """What makes a speaker's next advert worth a line; a unicast speaker's destinations alternate."""
    ttl = advert.envelope.ttl
    fields = (advert.version, advert.priority, advert.interval_us, advert.auth_type, advert.auth_data)
    return (*fields, advert.addresses, advert.form, ttl, advert.envelope.multicast)


def _outranks(one: _Voice, two: _Voice) -> bool:
    """Of two masters the higher priority, else the higher address goes on (RFC 9568 section 6.4.3)."""
    if one is two or one.advert is None or two.advert is None:
        return False
    rank = (one.advert.priority, int(one.source), one.mac)
    return rank > (two.advert.priority, int(two.source), two.mac)


def _event(voice: _Voice, at_us: int, kind: str, message: str) -> Event:
    return Event(at_us=at_us, kind=kind, router=voice.router, source=str(voice.source), message=message)

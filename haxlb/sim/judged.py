"""Ports of a speaker with somebody who looks on: every advert, announcement and notification passes by its judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from haxlb.daemon.ports import AnnouncePort, ClockPort, Datagram
from haxlb.daemon.speaker_frames import departure
from haxlb.model.addresses import Vip
from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotifyDue
from haxlb.sim.accounts import Accounts
from haxlb.sim.adapters import VirtualAdverts
from haxlb.sim.pace import Pace
from haxlb.vrrp.advert import is_unicast
from haxlb.vrrp.holdings import addresses

_Way = tuple[str, int, int]
"""Interface, VRID and family."""


class Bench:
    """The judges of one director's speaker."""

    def __init__(
        self,
        node: str,
        clock: ClockPort,
        accuse: Callable[[str, str], None],
        last_word: Callable[[tuple[str, int]], None],
    ) -> None:
        """`accuse` takes a law and a sentence, `last_word` the key of an instance that has spoken as a BACKUP."""
        self._last_word = last_word
        self._node = node
        self._clock = clock
        self._accuse = accuse
        self.accounts = Accounts(lambda law, sentence: accuse(law, f"{node}: {sentence}"))
        self._paces: dict[tuple[str, int], Pace] = {}
        self._out: dict[_Way, Pace] = {}
        self._in: dict[_Way, Pace] = {}
        self._announcing: dict[Vip, list[Pace]] = {}
        self._groups: dict[str, list[Pace]] = {}

    def configure(self, config: NodeConfig) -> None:
        """The speaker has these instances from now on."""
        now = self._clock.now()
        former, self._paces = self._paces, {}
        for each in config.instances:
            pace = former.get(each.key)
            if pace is None:
                pace = Pace(f"{self._node} ({each.name})", each, self._accuse)
            elif pace.instance != each:
                pace.disturb(now, each)
            self._paces[each.key] = pace
        self._out = {(departure(each), each.vrid, each.family): self._paces[each.key] for each in config.instances}
        self._in = {(each.interface, each.vrid, each.family): self._paces[each.key] for each in config.instances}
        self._announcing = {}
        for each in config.instances:
            for vip in addresses(each):
                self._announcing.setdefault(vip, []).append(self._paces[each.key])
        by_name = {each.name: self._paces[each.key] for each in config.instances}
        self._groups = {}
        for group in config.sync_groups:
            members = [by_name[name] for name in group.members if name in by_name]
            self._groups.update(dict.fromkeys(group.members, members))

    def begin(self) -> None:
        """A new speaker."""
        self.accounts.begin()
        for pace in self._paces.values():
            pace.reset(self._clock.now())
            pace.begin(self._clock.now())

    def resumed(self, name: str, key: tuple[str, int]) -> None:
        """A successor goes on as MASTER."""
        self.accounts.resumed(name)
        self._paces[key].resumed(self._clock.now())

    def pause(self) -> None:
        """The processes are stopped."""
        for pace in self._paces.values():
            pace.pause(self._clock.now())

    def proceed(self) -> None:
        """They run again."""
        for pace in self._paces.values():
            pace.begin(self._clock.now())

    def disturb(self) -> None:
        """Something has happened that gives every instance a cause."""
        for pace in self._paces.values():
            pace.disturb(self._clock.now())

    def end(self) -> None:
        """The speaker is gone."""
        for pace in self._paces.values():
            pace.reset(self._clock.now())

    def finish(self) -> None:
        """The end of the run."""
        for pace in self._paces.values():
            pace.finish(self._clock.now())

    def heard(self, datagram: Datagram) -> None:
        """An advert has reached the speaker."""
        pace = self._in.get((datagram.interface, datagram.payload[1], datagram.source.version))
        if pace is None:
            return
        now = self._clock.now()
        pace.heard(now)
        for each in self._groups.get(pace.instance.name, ()):
            # Who is in a sync group announces when another member hears a rival.
            if each is not pace:
                each.companion_heard(now)

    def sent(self, datagram: Datagram) -> None:
        """The speaker sends; of several destinations the first one counts."""
        pace = self._out.get((datagram.interface, datagram.payload[1], datagram.source.version))
        if pace is not None and _is_first(pace.instance, datagram):
            pace.sent(self._clock.now())
            if pace.role is Role.BACKUP:
                self._last_word(pace.instance.key)

    def announced(self, vips: Iterable[Vip]) -> None:
        """The speaker announces."""
        now = self._clock.now()
        for vip in vips:
            paces = self._announcing.get(vip, ())
            if len(paces) == 1:
                paces[0].announced(vip, now)

    def is_hoarse(self, key: tuple[str, int]) -> bool:
        """As `Pace.is_hoarse`."""
        return self._paces[key].is_hoarse(self._clock.now())

    def changed(self, fact: RoleChanged, key: tuple[str, int]) -> None:
        """A role has changed."""
        self.accounts.changed(fact)
        pace = self._paces.get(key)
        if pace is not None:
            pace.changed(fact.after, self._clock.now())


class JudgedAdverts:
    """AdvertPort."""

    def __init__(self, adverts: VirtualAdverts, bench: Bench) -> None:
        self._adverts = adverts
        self._bench = bench

    def send(self, datagram: Datagram) -> None:
        """Judged and sent."""
        self._bench.sent(datagram)
        self._adverts.send(datagram)

    def receive(self) -> list[Datagram]:
        """What waits was not heard before it is taken."""
        waiting = self._adverts.receive()
        for each in waiting:
            self._bench.heard(each)
        return waiting


class JudgedAnnouncer:
    """AnnouncePort."""

    def __init__(self, announcer: AnnouncePort, bench: Bench) -> None:
        self._announcer = announcer
        self._bench = bench

    def announce(self, vips: Iterable[Vip]) -> None:
        """Judged and sent."""
        listed = tuple(vips)
        self._bench.announced(listed)
        self._announcer.announce(listed)


class JudgedNotify:
    """NotifyPort."""

    def __init__(self, notify: Callable[[NotifyDue], None], bench: Bench) -> None:
        self._notify = notify
        self._bench = bench

    def notify(self, due: NotifyDue) -> None:
        """Judged and passed on to the supervisor."""
        self._bench.accounts.notified(due)
        self._notify(due)


def _is_first(instance: VrrpInstance, datagram: Datagram) -> bool:
    return not is_unicast(instance) or not instance.peers or datagram.destination == instance.peers[0]

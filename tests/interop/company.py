"""For tests: a few directors of different make on one link, and what must be true whenever they have settled."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from lab import Host, Lab

from tests.interop.conversation import Advert, adverts, announced, complaints_of_tshark
from tests.interop.directors import (
    Director,
    Haxlb,
    Keepalived,
    Own,
    add_interface,
    every_address,
    reachable_by_both_families,
)
from tests.interop.routers import PRIORITIES, UNICAST, Router, configuration
from tests.netns.standin import Ear, eventually

LIMIT_S = 90.0
KINDS = {"haxlb": Haxlb, "keepalived": Keepalived}


def prepare(lab: Lab, name: str, number: int) -> Host:
    """A host, not running anything yet."""
    host = lab.host(name, f"10.9.0.{number}/24")
    reachable_by_both_families(host, f"2001:db8::{number}/64")
    return host


def know_each_other(hosts: list[Host]) -> None:
    """Whose MAC is which, for ever: else no unicast advert leaves once the kernel has found that its peer is dead."""
    for number, host in enumerate(hosts, 1):
        for other in (each for each in hosts if each is not host):
            for form in UNICAST.values():
                words = ("ip", "neigh", "replace", form.format(number), "lladdr", host.mac(), "dev", "eth0")
                other.run(*words, "nud", "permanent")


class Company:
    """Directors that have the same virtual routers; the first is the best one. A context manager that hears them."""

    def __init__(self, kinds: tuple[str, ...], routers: tuple[Router, ...], lab: Lab, directory: Path) -> None:
        self._lab = lab
        self._directory = directory
        self._routers = routers
        hosts = [prepare(lab, f"d{number}", number) for number in range(1, len(kinds) + 1)]
        for number, host in enumerate(hosts, 1):
            add_interface(host, "eth1", f"10.9.2.{number}/24")
        know_each_other(hosts)
        self._client = prepare(lab, "client", 9)
        self._client.run("ip", "route", "add", "10.9.1.0/24", "dev", "eth0")
        for kind, host in zip(kinds, hosts, strict=True):
            if kind == "keepalived":
                # It does without these; other MACs would get into the client's table (replace-keepalived.md).
                host.sysctl(net__ipv4__conf__all__arp_announce=2, net__ipv4__conf__default__arp_ignore=1)
        self._directors: list[Director] = [
            KINDS[kind](host, number, directory / f"d{number}")
            for number, (kind, host) in enumerate(zip(kinds, hosts, strict=True), 1)
        ]
        self._own = [Own(host) for host in hosts]
        self._ears = {
            (number, interface): Ear(host.namespace, interface)
            for number, host in enumerate(hosts, 1)
            for interface in ("eth0", "eth1")
        }
        self._client_ear = Ear(self._client.namespace)
        self._running: set[int] = set()
        self._masters: dict[int, int] = {}
        self._settled_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for ear in (*self._ears.values(), self._client_ear):
            ear.close()

    @property
    def _numbers(self) -> range:
        return range(1, len(self._directors) + 1)

    def _director(self, number: int) -> Director:
        return self._directors[number - 1]

    def start(self, number: int) -> None:
        host = self._director(number).host
        host.plug()
        # The kernel tells of a carrier a moment later: a keepalived that starts before has no BACKUP (init) to log.
        eventually(lambda: "state UP" in host.run("ip", "link", "show", "eth0").stdout, f"d{number} has its link")
        self._director(number).start(configuration(self._routers, number, len(self._directors)))
        self._running.add(number)

    def stop(self, number: int) -> None:
        self._running.remove(number)
        self._director(number).stop()

    def crash(self, number: int) -> None:
        self._running.remove(number)
        self._own[number - 1].power_failure()

    def settles(self, when: str, masters: dict[Router, int]) -> None:
        """Each router has this master, the VIP nowhere else, nobody refuses anything, and the client knows."""

        def wrong() -> list[str]:
            found = {number: every_address(self._director(number).host) for number in self._numbers}
            return [
                f"{router.name} at d{number}: {'has' if str(router.vip) in found[number] else 'lacks'} the VIP"
                for router, master in masters.items()
                for number in self._numbers
                if (str(router.vip) in found[number]) != (number == master)
            ]

        self._until(wrong, f"{when}: addresses")
        since = time.time_ns()
        by_vrid = {router.vrid: master for router, master in masters.items()}

        def unheard() -> list[str]:
            latest: dict[int, list[int]] = {vrid: [] for vrid in by_vrid}
            for each in self._heard(since, masters):
                latest[each.vrid].append(each.priority)
            # A haxlb that yields has a last word, and repeats it to a winner that does not answer (ADR 7).
            return [
                f"{vrid}: {latest[vrid][-4:]}"
                for vrid, master in by_vrid.items()
                if latest[vrid][-3:] != [PRIORITIES[master]] * 3
            ]

        self._until(unheard, f"{when}: the master alone speaks")
        later = wrong()
        assert later == [], f"{when}: it does not last: {later}"
        for number in self._running:
            refused = self._director(number).refused()
            for router in (each for each in self._routers if each.interval_ms):  # counted, accepted and learned
                refused.get(router.name, {}).pop("advert_interval_differs", None)
            assert not any(refused.values()), f"{when}: d{number} refused {refused}"
        moved = [each for each, master in masters.items() if self._masters.get(each.vrid) != master]
        self._masters = by_vrid
        self._client_is_told(when, [each for each in moved if each.interface == "eth0"])
        self._virtual_macs_stay(when)

    def _until(self, wrong: Callable[[], list[str]], what: str) -> None:
        try:
            eventually(lambda: not wrong(), what, LIMIT_S)
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {wrong()}") from None

    def _heard(self, since: int, masters: dict[Router, int]) -> Iterator[Advert]:
        """Adverts since then, as the master of each router hears them, its own included."""
        for (number, interface), ear in self._ears.items():
            here = {each.vrid for each, master in masters.items() if (master, each.interface) == (number, interface)}
            yield from (each for each in adverts(ear.frames(since)) if each.vrid in here)

    def _client_is_told(self, when: str, routers: list[Router]) -> None:
        wanted = {each: each.virtual_mac or self._director(self._masters[each.vrid]).host.mac() for each in routers}

        def untold() -> list[str]:
            # The adverts were heard by other ears than the client's.
            frames = self._client_ear.frames(self._settled_ns)
            return [
                f"{each.name}: {announced(frames, each.vip)}"
                for each, mac in wanted.items()
                if mac not in announced(frames, each.vip)
            ]

        self._until(untold, f"{when}: the client is told")
        self._settled_ns = time.time_ns()

    def _virtual_macs_stay(self, when: str) -> None:
        """The client reaches each VIP by the same virtual MAC, and the switch knows the port."""
        with_vmac = [each for each in self._routers if each.vmac]

        def neighbours() -> str:
            return self._client.run("ip", "neigh", "show", "dev", "eth0").stdout

        before = neighbours()
        for each in with_vmac:
            other = f"{each.vip} lladdr " in before and f"{each.vip} lladdr {each.virtual_mac} " not in before
            assert not other, f"{when}: {each.name} has another MAC: {before}"

        def astray() -> list[str]:
            table = self._lab.switch_run("bridge", "fdb", "show", "br", "br0").stdout
            known = neighbours()
            found = []
            for each in with_vmac:
                port = f"p-d{self._masters[each.vrid]}"
                at_port = f"{each.virtual_mac} dev {port} " in table
                if at_port and f"{each.vip} lladdr {each.virtual_mac} " in known:
                    continue
                found.append(f"{each.name}: {'' if at_port else 'not '}at {port}")
                # A keepalived that starts is heard with the virtual MAC before its packet filter is in force (MLD,
                # IGMP). Where the MASTER's adverts do not have that MAC, its next answer tells the switch.
                self._client.run("ip", "neigh", "del", str(each.vip), "dev", "eth0", check=False)
                device = ("-I", "eth0") if each.family == 6 else ()
                self._client.run("ping", "-c", "1", "-W", "1", *device, str(each.vip), check=False)
            return found

        self._until(astray, f"{when}: virtual MACs")

    def took_its_time(self, since: int, last_priority: int, masters: dict[Router, int]) -> None:
        """d2 waited from the last word of d1 for what the RFCs want, for each of the routers that d1 had.

        Time in which d2 was kept from running is not its own. It is told by the adverts of a router that it has had all
        the while, by the same process: they are late by as much.
        """
        heard = [each for (number, _), ear in self._ears.items() if number == 2 for each in adverts(ear.frames(since))]
        usual_ms, vrid = min((each.advert_interval_ms(2), each.vrid) for each, master in masters.items() if master == 2)
        beats = [each.at_ns for each in heard if each.vrid == vrid and each.priority == PRIORITIES[2]]
        late = [(one, two, max(0.0, (two - one) / 1e6 - usual_ms)) for one, two in itertools.pairwise(beats)]
        for router in (each for each, master in masters.items() if master == 1 and not each.group):
            of_it = [each for each in heard if each.vrid == router.vrid]
            last = [each for each in of_it if each.priority == last_priority][-1]
            first = next(each for each in of_it if each.priority == PRIORITIES[2] and each.at_ns > last.at_ns)
            learned_ms = router.advert_interval_ms(2 if router.version == 2 else 1)
            theory_ms = router.skew_ms(2, learned_ms=learned_ms) + 3 * learned_ms * (last_priority > 0)
            took_ms = (first.at_ns - last.at_ns) / 1e6
            stalled_ms = sum(ms for one, two, ms in late if two > last.at_ns and one < first.at_ns)
            stalled_ms += usual_ms * (stalled_ms > usual_ms / 10)  # what it would have waited anyway does not show
            assert theory_ms - 2 <= took_ms <= theory_ms + 1000 + stalled_ms, (router, took_ms, stalled_ms)

    def has_no_complaints(self) -> None:
        """Neither of the directors nor of tshark."""
        for each in self._directors:
            complaints = each.complaints()
            assert complaints == [], f"d{each.number}: {complaints}"
        heard = [each for ear in self._ears.values() for each in adverts(ear.frames())]
        assert {each.vrid for each in heard} == {each.vrid for each in self._routers}
        complaints = complaints_of_tshark(heard, self._directory / "adverts.pcap")
        assert complaints == [], complaints[0]

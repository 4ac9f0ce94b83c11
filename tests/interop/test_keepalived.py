"""A mixed pair: haxlb and Debian's keepalived as each other's peer.

Each pair lives through the same story in a lab of its own; the labs run side by side, since most of the time is waiting
for VRRPv2's seconds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from lab import Lab

from tests.interop.directors import ADDRESSES, VIP, Director, Haxlb, Keepalived, Settings
from tests.netns.standin import Ear, addresses, eventually

pytestmark = pytest.mark.interop


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Who plays which part; the first has the higher priority."""

    first: str
    version: int
    unicast: bool

    def __str__(self) -> str:
        version = "v2-pass" if self.version == 2 else "v3"
        return f"{version}-{'unicast' if self.unicast else 'multicast'}-{self.first}-first"


PAIRS = [
    Pair(first=first, version=version, unicast=unicast)
    for version in (2, 3)
    for unicast in (False, True)
    for first in ("haxlb", "keepalived")
]


class Story:
    """One pair's life, from election to the last take-over."""

    def __init__(self, pair: Pair, lab: Lab, directory: Path) -> None:
        self._lab = lab
        host1, host2 = lab.host("d1", f"{ADDRESSES['d1']}/24"), lab.host("d2", f"{ADDRESSES['d2']}/24")
        client = lab.host("cl", "10.9.0.10/24")
        parts = {"haxlb": Haxlb, "keepalived": Keepalived}
        second = "keepalived" if pair.first == "haxlb" else "haxlb"
        settings = Settings(name="d1", version=pair.version, unicast=pair.unicast, priority=150)
        self.first: Director = parts[pair.first](host1, settings, directory)
        self.second: Director = parts[second](host2, replace(settings, name="d2", priority=100), directory)
        self.ears = {"d1": Ear(host1.namespace), "d2": Ear(host2.namespace), "client": Ear(client.namespace)}

    def run(self) -> None:
        try:
            self._run()
        finally:
            for ear in self.ears.values():
                ear.close()

    def _run(self) -> None:
        first, second = self.first, self.second
        second.start()
        first.start()
        self._settles(first, "election")

        since = self._now(second)
        first.crash()
        self._settles(second, "crash of the MASTER")
        self._took(second, since, after_priority=150, theory_ms=second.settings.down_ms)

        first.host.plug()
        first.start()
        self._settles(first, "return of the old MASTER, preempting")

        since = self._now(second)
        first.stop()
        self._settles(second, "graceful stop of the MASTER")
        self._took(second, since, after_priority=0, theory_ms=second.settings.skew_ms)

        first.settings = replace(first.settings, nopreempt=True)
        first.start()
        self._settles(second, "return of the old MASTER with nopreempt")

        since = self._now(first)
        second.stop()
        self._settles(first, "graceful stop of the lower one")
        self._took(first, since, after_priority=0, theory_ms=first.settings.skew_ms)

        second.start()
        self._settles(first, "return of the lower one")
        since = self._now(second)
        second.crash()
        self._settles(first, "crash of the BACKUP")
        assert first.complaints() == []
        assert second.complaints() == []

    def _now(self, survivor: Director) -> int:
        """The stamp of the last advert that the survivor has seen."""
        return self.ears[survivor.settings.name].adverts()[-1].at_ns

    def _settles(self, master: Director, when: str) -> None:
        """Only this one has the VIP and speaks, for several intervals."""
        other = self.second if master is self.first else self.first
        name = master.settings.name
        eventually(lambda: VIP in addresses(master.host), f"{when}: {name} has the VIP")
        eventually(lambda: VIP not in addresses(other.host), f"{when}: {other.settings.name} has no VIP")
        ear = self.ears[name]
        since = ear.adverts()[-1].at_ns + 1
        spoken = eventually(
            lambda: (heard := ear.adverts_of(ADDRESSES[name], since_ns=since)) and len(heard) > 2 and heard,
            f"{when}: {name} goes on speaking",
        )
        assert ear.adverts_of(ADDRESSES[other.settings.name], since_ns=since) == [], f"{when}: two speak"
        assert {each.priority for each in spoken} == {master.settings.priority}
        assert VIP in addresses(master.host)
        assert VIP not in addresses(other.host)

    def _took(self, survivor: Director, since: int, *, after_priority: int, theory_ms: float) -> None:
        """Check the time from the old MASTER's last word to the new one's first, and that the client was told."""
        name = survivor.settings.name
        ear = self.ears[name]
        others = ADDRESSES["d2" if name == "d1" else "d1"]
        last = ear.adverts_of(others, after_priority, since_ns=since)[-1]
        first = next(each for each in ear.adverts_of(ADDRESSES[name], since_ns=last.at_ns))
        took_ms = (first.at_ns - last.at_ns) / 1e6
        assert theory_ms - 1 <= took_ms <= theory_ms + survivor.late_ms
        mac = survivor.host.mac()
        told = [each for each in self.ears["client"].garps(VIP, first.at_ns - 1_000_000) if each.source_mac == mac]
        assert len(told) >= 5
        assert (told[0].at_ns - first.at_ns) / 1e6 < survivor.late_ms


def live(number: int, pair: Pair, directory: Path) -> None:
    directory.mkdir()
    with Lab(f"hxip{os.getpid()}-{number}") as lab:
        Story(pair, lab, directory).run()


@pytest.fixture(scope="module")
def stories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """The stories of all pairs that were selected, begun at once."""
    if not shutil.which("keepalived"):
        pytest.fail("keepalived is not installed: run `make setup`")
    selected = [pair for pair in PAIRS if any(f"[{pair}]" in item.name for item in request.session.items)]
    directory = tmp_path_factory.mktemp("interop")
    with ThreadPoolExecutor(max_workers=len(PAIRS)) as pool:
        yield {
            str(pair): pool.submit(live, number, pair, directory / str(pair)) for number, pair in enumerate(selected)
        }


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_mixed_pair(pair: Pair, stories: dict[str, Future[None]]) -> None:
    stories[str(pair)].result(timeout=110)

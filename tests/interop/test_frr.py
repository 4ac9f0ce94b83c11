"""haxlb and FRR's vrrpd as each other's peer: version 3, both families, virtual MACs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from lab import Lab

from tests.interop.conversation import Advert, adverts, complaints_of_tshark
from tests.interop.directors import Haxlb, every_address, reachable_by_both_families
from tests.interop.frr import Frr
from tests.interop.stories import Story
from tests.netns.standin import Ear, eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
VRID = 5
VIPS = {4: "10.9.0.105/24", 6: "2001:db8::105/64"}
MACS = {4: f"00:00:5e:00:01:{VRID:02x}", 6: f"00:00:5e:00:02:{VRID:02x}"}
INTERVAL_MS = 100


def configuration(priority: int) -> str:
    """haxlb's."""
    lines = ["global_defs {\n router_id d2\n}"]
    for family, vip in VIPS.items():
        lines.append(
            f"vrrp_instance VI_{family} {{\n version 3\n state BACKUP\n interface eth0\n virtual_router_id {VRID}\n"
            f" priority {priority}\n advert_int {INTERVAL_MS / 1000:g}\n use_vmac vm{family}\n"
            f" virtual_ipaddress {{\n {vip}\n }}\n}}"
        )
    return "\n".join(lines) + "\n"


class Meeting:
    """One virtual router of both families, and two directors of different make."""

    def __init__(self, *, haxlb_first: bool, lab: Lab, directory: Path) -> None:
        self._lab = lab
        self._directory = directory
        self._haxlb_first = haxlb_first
        d1, d2, self._client = (lab.host(name, f"10.9.0.{n}/24") for n, name in enumerate(("d1", "d2", "cl"), 1))
        for number, host in enumerate((d1, d2, self._client), 1):
            reachable_by_both_families(host, f"2001:db8::{number}/64")
        # What FRR's documentation asks for, so that no other interface answers for a VIP or asks in its name.
        d1.sysctl(net__ipv4__conf__all__arp_ignore=1, net__ipv4__conf__all__arp_announce=2)
        self._frr = Frr(d1, directory / "frr", vrid=VRID, priority=150, vips=VIPS)
        self._haxlb = Haxlb(d2, 2, directory / "haxlb")
        self._priorities = {"frr": 150, "haxlb": 200 if haxlb_first else 100}
        self._ear = Ear(self._client.namespace)

    def run(self) -> None:
        with self._ear, contextlib.closing(self._frr):
            self._run()

    def _run(self) -> None:
        conf = configuration(self._priorities["haxlb"])
        best = "haxlb" if self._haxlb_first else "frr"
        self._frr.add_links()
        self._frr.start(interval_ms=INTERVAL_MS)
        self._settles("frr alone", "frr")
        self._haxlb.start(conf)
        self._settles("both", best)

        # A cut: the other one takes over; the split is healed by the better one.
        self._lab.hosts["d1"].unplug()
        self._settles("frr's link fails", "haxlb")
        self._lab.hosts["d1"].plug()
        self._settles("frr's link is back", best)
        self._lab.hosts["d2"].unplug()
        self._settles("haxlb's link fails", "frr")
        self._lab.hosts["d2"].plug()
        self._settles("haxlb's link is back", best)

        self._haxlb.stop()
        self._settles("haxlb stops in order", "frr")
        self._haxlb.start(conf)
        self._settles("haxlb returns", best)
        refused = self._haxlb.refused()
        assert refused == {}
        self._frr.stop()
        self._settles("frr stops in order", "haxlb")
        self._frr.start(interval_ms=INTERVAL_MS)
        self._settles("frr returns", best)
        assert self._haxlb.refused() == {}
        self._lab.hosts["d2"].power_off()
        self._settles("haxlb's host dies", "frr")
        # FRR sends from the link-local address of its macvlan, so none is among the VIPs here.
        assert [each for each in self._haxlb.complaints() if "link-local-first" not in each] == []
        heard = list(adverts(self._ear.frames()))
        assert {each.priority for each in heard} - {0} == set(self._priorities.values())
        assert complaints_of_tshark(heard, self._directory / "adverts.pcap") == []

    def _settles(self, when: str, master: str) -> None:
        since = time.time_ns()

        def heard() -> dict[int, list[Advert]]:
            found: dict[int, list[Advert]] = {4: [], 6: []}
            for each in adverts(self._ear.frames(since)):
                found[each.family].append(each)
            return found

        def speaks_alone() -> bool:
            return all(
                [each.priority for each in latest[-5:]] == [self._priorities[master]] * 5 for latest in heard().values()
            )

        eventually(speaks_alone, f"{when}: {master} alone speaks")
        for family, latest in heard().items():
            assert latest[-1].source_mac == MACS[family]
        wanted = {vip.partition("/")[0] for vip in VIPS.values()}
        haxlb = self._lab.hosts["d2"]
        # Of a haxlb that was killed the kernel takes them off, within two seconds.
        eventually(
            lambda: wanted & every_address(haxlb) == (wanted if master == "haxlb" else set()), f"{when}: haxlb's VIPs"
        )
        self._client_reaches(when, "p-d2" if master == "haxlb" else "p-d1")

    def _client_reaches(self, when: str, port: str) -> None:
        """The client's entries name the virtual MAC, and the switch knows where that is."""
        for family, vip in VIPS.items():
            address = vip.partition("/")[0]

            def answers(address: str = address) -> bool:
                return self._client.run("ping", "-c", "1", "-W", "2", address, check=False).returncode == 0

            eventually(answers, f"{when}: {vip} answers")
            entry = self._client.run("ip", "neigh", "show", address).stdout
            assert MACS[family] in entry, f"{when}: {entry}"

        def table() -> str:
            return self._lab.switch_run("bridge", "fdb", "show", "br", "br0").stdout

        def at_port() -> bool:
            # One that has not run for a while may hold itself for Master, and speak once more, before it listens.
            known = table()
            return all(f"{mac} dev {port} " in known for mac in MACS.values())

        try:
            eventually(at_port, f"{when}: the switch knows {port}")
        except AssertionError as problem:
            raise AssertionError(f"{problem}: {table()}") from None


def live(lab: Lab, directory: Path, *, haxlb_first: bool) -> None:
    Meeting(haxlb_first=haxlb_first, lab=lab, directory=directory).run()


STORIES = [
    Story("haxlb-over-frr", partial(live, haxlb_first=True)),
    Story("frr-over-haxlb", partial(live, haxlb_first=False)),
]


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_mixed_pair(story: Story, outcome: Callable[[Story], None]) -> None:
    outcome(story)

"""Mixed companies: haxlb and Debian's keepalived as each other's peers, in every combination at once.

All combinations are instances of one configuration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from lab import Lab

from tests.interop.company import Company, prepare
from tests.interop.directors import Director, Haxlb, Keepalived, every_address
from tests.interop.routers import MATRIX, PRIORITIES, Router, configuration
from tests.interop.stories import Story
from tests.netns.standin import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
OF_THREE = tuple(each for each in MATRIX if each.vrid in {21, 22, 23, 24, 31, 34})
"""Version 3: multicast and unicast of both families, virtual MACs."""


def pair(kinds: tuple[str, str], lab: Lab, directory: Path) -> None:
    """From election to the last take-over."""
    with Company(kinds, MATRIX, lab, directory) as company:
        company.start(2)
        company.settles("alone", dict.fromkeys(MATRIX, 2))
        company.start(1)
        returned = {each: 2 if each.nopreempt else 1 for each in MATRIX}
        company.settles("the better one comes, preempting", returned)

        lab.switch_run("ip", "link", "set", "eth1-d1", "down")
        company.settles("one link of a sync group's fails", returned | {each: 2 for each in MATRIX if each.group})
        lab.switch_run("ip", "link", "set", "eth1-d1", "up")
        company.settles("the link is back", returned)

        for end, last_priority in ((company.crash, PRIORITIES[1]), (company.stop, 0)):
            since = time.time_ns() - 10_000_000_000  # there is an advert of each since then
            end(1)
            company.settles(f"{end.__name__} of the better one", dict.fromkeys(MATRIX, 2))
            company.took_its_time(since, last_priority, returned)
            company.start(1)
            company.settles(f"return after {end.__name__}", returned)

        company.stop(2)
        company.settles("stop of the lower one", dict.fromkeys(MATRIX, 1))
        company.start(2)
        company.settles("return of the lower one", dict.fromkeys(MATRIX, 1))
        company.crash(2)
        company.settles("crash of the lower one", dict.fromkeys(MATRIX, 1))
        company.has_no_complaints()


def three(kinds: tuple[str, str, str], lab: Lab, directory: Path) -> None:
    """Whoever is the best of those that are there is MASTER."""
    with Company(kinds, OF_THREE, lab, directory) as company:
        for number in (3, 2, 1):
            company.start(number)
            company.settles(f"d{number} comes", dict.fromkeys(OF_THREE, number))
        company.crash(1)
        company.settles("the middle one takes over", dict.fromkeys(OF_THREE, 2))
        company.stop(2)
        company.settles("the last one is left", dict.fromkeys(OF_THREE, 3))
        company.start(1)
        company.settles("the best one returns", dict.fromkeys(OF_THREE, 1))
        company.start(2)
        company.settles("the middle one returns", dict.fromkeys(OF_THREE, 1))
        company.stop(1)
        company.settles("the best one stops", dict.fromkeys(OF_THREE, 2))
        company.has_no_complaints()


def different_lists(lab: Lab, directory: Path) -> None:
    """keepalived 2.2.7 refuses adverts whose addresses are not its own; haxlb accepts and counts them."""
    directors: list[Director] = []
    router = Router(vrid=21)
    for kinds, hosts in (((Haxlb, Keepalived), ("a1", "a2")), ((Keepalived, Haxlb), ("b1", "b2"))):
        for number, (kind, name) in enumerate(zip(kinds, hosts, strict=True), 1):
            host = prepare(lab, name, len(directors) + 1)
            # Each pair is on a link of its own, by a VRID of its own.
            vrid = replace(router, vrid=router.vrid + (name[0] == "b"))
            directors.append(kind(host, number, directory / name))
            own = f"{vrid.vip}/32\n 10.9.1.{30 + number}/32"
            directors[-1].start(configuration([vrid], number).replace(f"{vrid.vip}/32", own))
    haxlb_first, keepalived_second, keepalived_first, haxlb_second = directors

    def held(director: Director, vip: str) -> bool:
        return vip in every_address(director.host)

    eventually(lambda: held(haxlb_first, "10.9.1.21") and held(keepalived_second, "10.9.1.21"), "two masters")
    eventually(lambda: "Address List" in keepalived_second.refused().get("VI_21", {}), "keepalived refuses")
    eventually(lambda: held(keepalived_first, "10.9.1.22"), "keepalived is MASTER")
    eventually(lambda: "addr_list_err" in haxlb_second.refused().get("VI_22", {}), "haxlb counts")
    # Addresses come and go by another way than counters.
    eventually(lambda: not held(haxlb_second, "10.9.1.22"), "haxlb yields to what it counts")
    assert held(keepalived_first, "10.9.1.22")


STORIES = [
    Story("different-lists", different_lists),
    Story("haxlb-first", partial(pair, ("haxlb", "keepalived"))),
    Story("keepalived-first", partial(pair, ("keepalived", "haxlb"))),
    Story("haxlb-best-of-three", partial(three, ("haxlb", "keepalived", "keepalived"))),
    Story("haxlb-between-two", partial(three, ("keepalived", "haxlb", "keepalived"))),
    Story("haxlb-last-of-three", partial(three, ("keepalived", "keepalived", "haxlb"))),
]


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_mixed_company(story: Story, outcome: Callable[[Story], None]) -> None:
    outcome(story)

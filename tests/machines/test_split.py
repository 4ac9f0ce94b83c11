"""A split brain and its end, as a client sees it (docs/adr/0007)."""

from __future__ import annotations

import pytest

from haxlb.model.instance import GarpConfig, Role

PACES = [(2, 1_000_000), (3, 100_000), (3, 10_000)]
PHASES = range(8)


@pytest.fixture(params=PACES, ids=lambda pace: f"v{pace[0]}-{pace[1] // 1000}ms")
def pace(request):
    return request.param


def _pair(lan, instance, pace, **settings):
    version, interval = pace
    settings = {"version": version, "advert_interval_us": interval, **settings}
    high = lan.node(1, instance(priority=150, **settings))
    low = lan.node(2, instance(priority=100, **settings))
    lan.run(8 * interval / 1e6)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    return high, low


def _announced(node, since_us: int) -> list[int]:
    return [at for at, what in node.journal if what.startswith("announce") and at >= since_us]


@pytest.mark.parametrize(
    ("first", "gap"), [(first, gap) for first in ("high", "low", "both") for gap in (0.0, 0.1, 0.6, 1.3, 5.5)]
)
def test_two_way_split_healed(lan, instance, client, pace, first, gap):  # noqa: PLR0917 - fixtures
    """`first` hears the other one `gap` intervals before it is heard itself; each at eight phases of the timers."""
    interval = pace[1]
    for phase in PHASES:
        lan.nodes.clear()
        lan.flying.clear()
        high, low = _pair(lan, instance, pace)
        lan.cut = {(high, low), (low, high)}
        lan.run(12 * interval / 1e6 + phase * interval / 8e6)
        assert (high.role(), low.role()) == (Role.MASTER, Role.MASTER)
        assert client.believes is low
        before = client.darkness_us(lan.now)
        lan.cut -= {(low, high)} if first == "high" else {(high, low)}
        if first == "both":
            lan.cut = set()
        lan.run(gap * interval / 1e6)
        lan.cut = set()
        lan.run(20 * interval / 1e6)
        assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
        assert client.believes is high
        dark = client.darkness_us(lan.now) - before
        # What the low one says while it is not heard is lost: then the gap is dark as well, and what it waits after it.
        allowed = 2 * gap * interval if first == "low" else 0
        assert dark <= interval + 5_000 + allowed
        if gap == 0.0:
            assert dark <= 500, "twice the way through the network"


@pytest.mark.parametrize("phase", PHASES)
def test_one_way_split(lan, instance, client, pace, phase):
    """The low one does not hear the high one for ten seconds; the client is never dark, and little is said."""
    interval = pace[1]
    high, low = _pair(lan, instance, pace)
    lan.run(6)  # the second sets after the start
    lan.cut = {(high, low)}
    began = lan.now
    lan.run(10 + phase * interval / 8e6)
    assert (high.role(), low.role()) == (Role.MASTER, Role.MASTER)
    lan.cut = set()
    healed = lan.now
    lan.run(15)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    assert client.believes is high
    assert client.darkness_us(lan.now) <= 500, "twice the way through the network"
    times = _announced(high, began)
    assert max(sum(at <= each < at + 1_000_000 for each in times) for at in times) < 20
    assert max(times) <= healed + 1_000_000 + (interval if interval == 1_000_000 else 0)
    assert not _announced(low, healed + 1_000_000)


def test_no_more_than_one_set_a_second_while_it_lasts(lan, instance):
    high, low = _pair(lan, instance, (3, 10_000))
    lan.run(6)
    lan.cut = {(high, low)}
    began = lan.now
    lan.run(60)
    sets = len(_announced(high, began)) / 5
    assert 55 <= sets <= 70
    rate = len([at for at, _ in high.sent if at >= began]) / 60
    assert rate <= 205, "two adverts an interval: an answer, and one halfway"


def test_a_split_that_ends_by_the_death_of_the_low_one(lan, instance, client):
    high, low = _pair(lan, instance, (3, 10_000))
    lan.cut = {(high, low)}
    lan.run(10)
    low.speaker.stop("stop")
    lan.run(1)
    assert client.believes is high
    assert client.darkness_us(lan.now) <= 500


def test_the_last_word_is_one_advert_of_our_own_priority_after_the_addresses(lan, instance):
    high, low = _pair(lan, instance, (2, 1_000_000))
    lan.cut = {(high, low), (low, high)}
    lan.run(10)
    low.journal.clear()
    lan.cut = set()
    lan.run(5)
    words = low.words()
    assert words[words.index("remove 192.0.2.100/24") :] == [
        "remove 192.0.2.100/24",
        "send 100",
        "notify INSTANCE VI_1 BACKUP 100",
    ]


def test_a_winner_that_does_not_answer_is_told_seventeen_times(lan, instance):
    high, low = _pair(lan, instance, (3, 10_000), lower_prio_no_advert=True)
    lan.cut = {(high, low), (low, high)}
    lan.run(1)
    lan.cut = set()
    lan.run(0.011)
    yielded = next(at for at, what in low.journal if what == "notify INSTANCE VI_1 BACKUP 100" and at > 0)
    lan.run(10)
    times = [at - yielded for at, _ in low.sent if at >= yielded]
    assert times == [0, 10_000, 30_000, *range(70_000, 630_000, 40_000)]
    assert len(times) == 17


def test_strict_says_no_last_word(lan, instance):
    high, low = _pair(lan, instance, (3, 10_000), strict=True)
    lan.cut = {(high, low), (low, high)}
    lan.run(1)
    lan.cut = set()
    lan.run(0.02)
    yielded = low.journal[-1][0]
    assert low.role() is Role.BACKUP
    assert not [at for at, _ in low.sent if at >= yielded]


# A keepalived on the other side: it says no last word, and as the winner it announces at every lower advert.


@pytest.mark.parametrize("phase", PHASES)
def test_a_silent_loser_that_is_heard_first_leaves_nobody_dark(lan, instance, client, pace, phase):
    interval = pace[1]
    high, low = _pair(lan, instance, pace)
    low.no_last_word = True
    lan.cut = {(high, low), (low, high)}
    lan.run(12 * interval / 1e6 + phase * interval / 8e6)
    lan.cut = {(high, low)}
    lan.run(interval / 1e6)
    lan.cut = set()
    lan.run(20 * interval / 1e6)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    assert client.believes is high
    assert client.darkness_us(lan.now) <= interval * 3 // 2 + 5_000


@pytest.mark.parametrize("phase", PHASES)
def test_a_silent_loser_of_a_one_way_split(lan, instance, client, pace, phase):
    interval = pace[1]
    high, low = _pair(lan, instance, pace)
    low.no_last_word = True
    lan.cut = {(high, low)}
    lan.run(10 + phase * interval / 8e6)
    lan.cut = set()
    lan.run(5)
    assert client.believes is high
    assert client.darkness_us(lan.now) <= interval * 3 // 2 + 5_000


def test_a_silent_loser_that_hears_us_first_is_never_heard_of(lan, instance, client):
    """Nothing can tell the winner; only periodic announcements help (vrrp_garp_master_refresh)."""
    garp = GarpConfig(master_refresh_us=2_000_000)
    for refresh, dark in ((GarpConfig(), True), (garp, False)):
        lan.nodes.clear()
        lan.flying.clear()
        high, low = _pair(lan, instance, (3, 100_000), garp=refresh)
        low.no_last_word = True
        lan.run(10)
        lan.cut = {(high, low), (low, high)}
        lan.run(10)
        lan.cut = {(low, high)}
        lan.run(0.2)
        lan.cut = set()
        lan.run(2)
        assert (client.believes is low) == dark


@pytest.mark.parametrize("phase", PHASES)
def test_a_heal_just_after_the_low_one_has_announced(lan, instance, client, phase):
    """The client believes the low one, and the high one has announced less than a second ago: the last word counts."""
    high, low = _pair(lan, instance, (3, 10_000), garp=GarpConfig(master_delay_us=0))
    lan.run(6)
    lan.cut = {(high, low)}
    lan.run(5.3 + phase / 800)
    low.announce(low.held)
    lan.run(0.002)
    assert client.believes is low
    lan.cut = set()
    lan.run(2)
    assert client.believes is high
    assert client.darkness_us(lan.now) <= 500

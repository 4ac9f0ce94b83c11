"""When gratuitous ARP is sent, to the microsecond."""

from __future__ import annotations

from ipaddress import IPv4Address

from haxlb.model.addresses import Vip
from haxlb.model.node import GarpConfig
from haxlb.vrrp.announcements import Announcements

SECOND = 1_000_000
ONE, TWO = (Vip(address=IPv4Address(f"192.0.2.{host}"), prefix_length=24, interface="eth0") for host in (100, 101))
BOTH = (ONE, TWO)


def _play(it: Announcements, first, until_us: int, vips=BOTH) -> list[tuple[float, int, int]]:
    """Time in s, addresses, rounds of each set."""
    out = [(0.0, len(each.vips), each.rounds) for each in first]
    while (at := it.next_deadline()) is not None and at <= until_us:
        out += [(at / SECOND, len(each.vips), each.rounds) for each in it.due(vips, at)]
    return out


def test_keepalives_defaults_five_now_five_after_five_seconds():
    it = Announcements(GarpConfig())
    assert _play(it, it.begin(BOTH, 0), 60 * SECOND) == [(0.0, 2, 5), (5.0, 2, 5)]
    assert it.next_deadline() is None


def test_refresh_begins_one_period_after_the_second_set():
    it = Announcements(GarpConfig(master_refresh_us=10 * SECOND, master_refresh_repeat=2))
    assert _play(it, it.begin(BOTH, 0), 36 * SECOND) == [
        (0.0, 2, 5),
        (5.0, 2, 5),
        (15.0, 2, 2),
        (25.0, 2, 2),
        (35.0, 2, 2),
    ]


def test_a_stall_skips_refreshes_and_keeps_the_phase():
    it = Announcements(GarpConfig(master_delay_us=0, master_refresh_us=10 * SECOND))
    it.begin(BOTH, 0)
    assert len(it.due(BOTH, 47 * SECOND)) == 1
    assert it.next_deadline() == 50 * SECOND


def test_an_interval_spreads_the_frames():
    it = Announcements(GarpConfig(master_repeat=2, master_delay_us=0, interval_us=250_000))
    assert _play(it, it.begin(BOTH, 0), 60 * SECOND) == [(0.0, 1, 1), (0.25, 1, 1), (0.5, 1, 1), (0.75, 1, 1)]


def test_spread_frames_do_not_outlive_their_address():
    it = Announcements(GarpConfig(master_repeat=3, master_delay_us=0, interval_us=250_000))
    it.begin(BOTH, 0)
    sent = [each for at in range(250_000, 3 * SECOND, 250_000) for each in it.due((TWO,), at)]
    assert [each.vips for each in sent] == [(TWO,)] * 3


def test_nothing_after_the_end():
    it = Announcements(GarpConfig(master_refresh_us=SECOND, interval_us=1))
    it.begin(BOTH, 0)
    it.lower_priority(BOTH, 0)
    it.end()
    assert it.next_deadline() is None
    assert it.due(BOTH, 60 * SECOND) == []


def test_no_addresses_no_frames():
    it = Announcements(GarpConfig())
    assert it.begin((), 0) == []


def test_zero_rounds_are_none():
    it = Announcements(GarpConfig(lower_prio_repeat=0))
    assert it.lower_priority(BOTH, 0) == []


def test_added_while_frames_are_being_spread_join_the_queue():
    it = Announcements(GarpConfig(master_repeat=1, master_delay_us=0, interval_us=100))
    it.begin((ONE, ONE), 0)
    assert it.added((TWO,), 10) == []
    assert [it.due(BOTH, at)[0].vips for at in (100, 200)] == [(ONE,), (TWO,)]


def test_refresh_can_be_turned_on_and_off_by_a_reload():
    it = Announcements(GarpConfig(master_delay_us=0))
    it.begin(BOTH, 0)
    it.reconfigure(GarpConfig(master_refresh_us=SECOND), 5 * SECOND)
    assert it.next_deadline() == 6 * SECOND
    it.reconfigure(GarpConfig(), 5 * SECOND)
    assert it.next_deadline() is None

"""When addresses are announced, to the microsecond."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest

from haxlb.model.addresses import Vip
from haxlb.model.instance import GarpConfig, VirtualMac, VrrpInstance
from haxlb.vrrp.announcements import Announcements

SECOND = 1_000_000
ONE, TWO = (Vip(address=IPv4Address(f"192.0.2.{host}"), prefix_length=24, interface="eth0") for host in (100, 101))
BOTH = (ONE, TWO)


def _instance(config: GarpConfig, vips=BOTH, **settings: Any) -> VrrpInstance:
    return VrrpInstance(name="VI_1", interface="eth0", vrid=51, vips=vips, garp=config, **settings)


def _of(config: GarpConfig, vips=BOTH, **settings: Any) -> Announcements:
    return Announcements(_instance(config, vips, **settings))


def _play(it: Announcements, first, until_us: int) -> list[tuple[float, int, int]]:
    """Time in s, addresses, rounds of each set."""
    out = [(0.0, len(each.vips), each.rounds) for each in first]
    while (at := it.next_deadline()) is not None and at <= until_us:
        out += [(at / SECOND, len(each.vips), each.rounds) for each in it.due(at)]
    return out


def test_keepalives_defaults_five_now_five_after_five_seconds():
    it = _of(GarpConfig())
    assert _play(it, it.begin(0), 60 * SECOND) == [(0.0, 2, 5), (5.0, 2, 5)]
    assert it.next_deadline() is None


def test_excluded_addresses_follow_the_others():
    other = Vip(address=IPv4Address("198.51.100.1"), prefix_length=32, interface="eth1")
    (only,) = _of(GarpConfig(), excluded_vips=(other,)).begin(0)
    assert only.vips == (ONE, TWO, other)


def test_refresh_begins_one_period_after_the_second_set():
    it = _of(GarpConfig(master_refresh_us=10 * SECOND, master_refresh_repeat=2))
    assert _play(it, it.begin(0), 36 * SECOND) == [
        (0.0, 2, 5),
        (5.0, 2, 5),
        (15.0, 2, 2),
        (25.0, 2, 2),
        (35.0, 2, 2),
    ]


def test_a_stall_skips_refreshes_and_keeps_the_phase():
    it = _of(GarpConfig(master_delay_us=0, master_refresh_us=10 * SECOND))
    it.begin(0)
    assert len(it.due(47 * SECOND)) == 1
    assert it.next_deadline() == 50 * SECOND


def test_nothing_after_the_end():
    it = _of(GarpConfig(master_refresh_us=SECOND))
    it.begin(0)
    it.lower_priority(SECOND, 0)
    it.end()
    assert it.next_deadline() is None
    assert it.due(60 * SECOND) == []


def test_no_addresses_no_frames():
    assert _of(GarpConfig(), ()).begin(0) == []


def test_zero_rounds_are_none():
    it = _of(GarpConfig(lower_prio_repeat=0))
    it.begin(0)
    assert it.lower_priority(SECOND, 0) == []


def test_refresh_can_be_turned_on_and_off_by_a_reload():
    it = _of(GarpConfig(master_delay_us=0))
    it.begin(0)
    it.reconfigure(_instance(GarpConfig(master_refresh_us=SECOND)), 5 * SECOND)
    assert it.next_deadline() == 6 * SECOND
    it.reconfigure(_instance(GarpConfig()), 5 * SECOND)
    assert it.next_deadline() is None


def test_a_reload_of_a_backup_announces_nothing():
    it = _of(GarpConfig())
    it.reconfigure(_instance(GarpConfig(master_refresh_us=SECOND)), 5 * SECOND)
    assert it.next_deadline() is None


# Adverts of lower priority


def _contest(interval_us: int, duration_us: int, **config: Any) -> list[float]:
    """When one announces that hears a lower priority in turn for so long; seconds since the first."""
    it = _of(GarpConfig(master_delay_us=0, **config))
    it.begin(0)
    out: list[float] = []
    for now in range(0, 20 * SECOND, 1_000):
        if (at := it.next_deadline()) is not None and at <= now:
            out += [now / SECOND for _ in it.due(now)]
        if now % interval_us == 0 and now < duration_us:
            out += [now / SECOND for _ in it.lower_priority(interval_us, now) or ()]
    return out


def test_one_advert_is_answered_at_once_and_after_the_delay():
    assert _contest(SECOND, 1) == [0.0, 5.0]
    assert _contest(10_000, 1) == [0.0, 5.0]


def test_a_split_of_ten_seconds_at_ten_milliseconds():
    """About one set a second, one when it ends, and none later: keepalived sends 737 frames a second and five more."""
    times = _contest(10_000, 10 * SECOND)
    assert len(times) == 13
    assert times[-1] == 10.005, "an interval and a half after the last advert"


def test_at_one_second_each_advert_is_answered_and_there_is_no_second_set():
    assert _contest(SECOND, 10 * SECOND) == [float(second) for second in range(10)]


def test_a_second_set_of_the_operators_choice():
    assert _contest(SECOND, 1, lower_prio_delay_us=0) == [0.0]
    assert _contest(SECOND, 1, lower_prio_delay_us=2 * SECOND) == [0.0, 2.0]


@pytest.mark.parametrize("phase", [0.01, 0.2, 0.5, 0.7])
def test_what_is_out_of_turn_is_answered_whatever_was_before(phase):
    it = _of(GarpConfig())
    it.begin(0)
    now = 0
    for _ in range(250):
        now += 10_000
        it.lower_priority(10_000, now)
    assert it.lower_priority(10_000, now + round(10_000 * phase)) is not None


def test_a_flood_is_answered_three_times_a_second():
    it = _of(GarpConfig(master_delay_us=0, lower_prio_delay_us=0))
    it.begin(0)
    answered = [now for now in range(0, 3 * SECOND, 100) if it.lower_priority(SECOND, now)]
    assert len(answered) == 9
    assert all(later - earlier >= SECOND for earlier, later in zip(answered, answered[3:], strict=False))


def test_what_a_flood_has_left_unsaid_is_said_after_it():
    it = _of(GarpConfig(master_delay_us=0, lower_prio_delay_us=0))
    it.begin(0)
    for now in range(0, 10_000, 100):
        it.lower_priority(10_000, now)
    assert _play(it, [], 5 * SECOND) == [(1.0, 2, 5)]


# Virtual MACs that say nothing (garp_extra_if)


def _vmac(*, xmit_base: bool, everywhere: bool = False) -> Announcements:
    vips = tuple(
        Vip(address=IPv4Address(f"192.0.2.{host}"), prefix_length=24, interface=interface)
        for host, interface in ((1, "vrrp.51"), (2, "vrrp.51"), (3, "mac1"), (4, "eth2"))
    )
    mac = VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33", xmit_base=xmit_base)
    config = GarpConfig(master_delay_us=0, master_repeat=0, extra_if_us=SECOND, extra_if_all=everywhere)
    others = (VirtualMac(interface="mac1", mac="00:00:5e:00:01:33", base="eth1"),)
    return _of(config, vips, virtual_mac=mac, address_macs=others)


def test_virtual_macs_without_adverts_are_kept_in_the_switches_memory():
    silent, speaking, everywhere = (
        _vmac(xmit_base=True),
        _vmac(xmit_base=False),
        _vmac(xmit_base=False, everywhere=True),
    )
    for it, hosts in ((silent, ["1", "3"]), (speaking, ["3"]), (everywhere, ["1", "3"])):
        it.begin(0)
        for second in (1, 2, 3):
            assert it.next_deadline() == second * SECOND
            (only,) = it.due(second * SECOND)
            assert [str(vip.address).rsplit(".", 1)[1] for vip in only.vips] == hosts
            assert only.rounds == 1

"""The rules of one instance, each by hand. Times are µs; priority is 100 and the interval 1 s unless said."""

from __future__ import annotations

import dataclasses
import itertools
from ipaddress import IPv4Address

import pytest

from haxlb.model.addresses import Vip
from haxlb.model.facts import ForeignAdvertHeard, PeerHeard, RoleChanged
from haxlb.model.instance import Role, VirtualMac
from haxlb.vrrp.inputs import EndReserve, Grouped, HandOver, LinkChanged, Reconfigure, Resume, Shutdown, Start

SECOND = 1_000_000
DOWN_100 = 3_609_375
SKEW_100 = 609_375
UP = LinkChanged(up=True, address=IPv4Address("192.0.2.5"))
DOWN = LinkChanged(up=False, address=IPv4Address("192.0.2.5"))


# Start


def test_starts_as_backup_and_waits_the_whole_interval(bench):
    it = bench()
    assert it.role is Role.BACKUP
    assert it.at(DOWN_100 - 1) == []
    assert it.at(DOWN_100)[0] == "advert 100"
    assert it.role is Role.MASTER
    assert it.reason == "no advert for 3.609 s"


def test_state_master_waits_one_interval_only(bench):
    it = bench(initial_role=Role.MASTER)
    assert it.at(1_003_905) == []
    it.at(1_003_906)
    assert it.role is Role.MASTER
    assert it.reason == "state MASTER, and no higher priority heard for 1.004 s after the start"


def test_state_master_gives_way_to_its_equal_at_the_start(bench):
    it = bench(initial_role=Role.MASTER)
    it.now = 500_000
    it.hear(100)
    assert it.at(4_000_000) == []
    assert it.role is Role.BACKUP


def test_state_master_does_not_wait_for_a_lower_one(bench):
    it = bench(initial_role=Role.MASTER)
    it.now = 500_000
    it.hear(50)
    it.at(1_003_906)
    assert it.role is Role.MASTER
    assert it.reason == "our priority 100 is higher than 50 of 192.0.2.1"


def test_state_master_is_not_heeded_where_others_of_the_sync_group_lack_it(bench):
    it = bench(start=False, initial_role=Role.MASTER)
    it.say(Start(hurry=False))
    assert it.router.next_deadline() == DOWN_100


def test_the_owner_is_master_at_once(bench):
    it = bench(priority=255)
    assert it.role is Role.MASTER


@pytest.mark.parametrize(
    ("link", "why"),
    [
        (LinkChanged(up=False, address=None, present=False), "there is no interface eth0"),
        (DOWN, "eth0 is down"),
        (LinkChanged(up=True, address=None), "eth0 has no IPv4 address"),
    ],
)
def test_starts_in_fault_and_says_why(bench, link, why):
    it = bench(start=False)
    it.say(link)
    assert it.say(Start()) == ["notify FAULT", "RoleChanged"]
    assert (it.role, it.reason) == (Role.FAULT, why)
    assert it.router.next_deadline() is None


def test_a_configured_source_needs_no_address(bench):
    it = bench(start=False, source=IPv4Address("192.0.2.77"))
    it.say(LinkChanged(up=True, address=None))
    it.say(Start())
    assert it.role is Role.BACKUP
    assert it.router.source == IPv4Address("192.0.2.77")


# Into and out of MASTER


def test_entering_master_advert_first_then_addresses_then_arp(bench):
    it = bench()
    assert it.at(DOWN_100) == [
        "advert 100",
        "add 192.0.2.100/24",
        "announce 5 x 192.0.2.100/24",
        "notify MASTER",
        "RoleChanged",
    ]


def test_outranked_addresses_off_first_then_a_last_word_and_no_priority_0(bench):
    it = bench().as_master()
    assert it.hear(150) == [
        "remove 192.0.2.100/24",
        "advert 100",
        "PeerHeard",
        "ForeignAdvertHeard",
        "notify BACKUP",
        "RoleChanged",
    ]
    assert it.reason == "priority 150 of 192.0.2.1 is higher than our 100"
    assert it.router.next_deadline() == it.now + DOWN_100


def test_shutdown_priority_0_and_addresses_off_in_the_next_step(bench):
    it = bench().as_master()
    assert it.say(Shutdown(reason="stop")) == ["advert 0", "remove 192.0.2.100/24", "notify STOP", "RoleChanged"]
    assert it.role is Role.INIT
    assert it.router.next_deadline() is None
    assert it.say(Shutdown(reason="again")) == []


def test_removed_from_the_configuration_tells_the_scripts_fault(bench):
    it = bench().as_master()
    assert "notify FAULT" in it.say(Shutdown(reason="removed", removed=True))


def test_shutdown_of_a_backup_sends_nothing(bench):
    it = bench()
    assert it.say(Shutdown(reason="stop")) == ["notify STOP", "RoleChanged"]


def test_link_lost_and_back(bench):
    it = bench().as_master()
    assert it.say(DOWN) == ["advert 0", "advert 0", "remove 192.0.2.100/24", "notify FAULT", "RoleChanged"]
    assert (it.role, it.reason) == (Role.FAULT, "eth0 is down")
    assert it.hear(50) == []
    assert it.say(LinkChanged(up=True, address=None)) == []
    assert it.reason == "eth0 has no IPv4 address"
    it.now += 10 * SECOND
    assert it.say(UP) == ["notify BACKUP", "RoleChanged"]
    assert it.router.next_deadline() == it.now + DOWN_100


def test_the_owner_comes_back_from_fault_after_one_interval(bench):
    it = bench(priority=255)
    it.say(DOWN)
    it.say(UP)
    assert it.role is Role.BACKUP
    assert it.router.next_deadline() == it.now + SECOND + 3_906


# Adverts while MASTER


def test_the_schedule_is_absolute(bench, quiet):
    it = bench(garp=quiet).as_master()
    start = it.now
    it.oversleep(start + SECOND + 300_000)
    assert it.router.next_deadline() == start + 2 * SECOND
    # What a stall has missed is not made up for, and the phase stays.
    assert it.oversleep(start + 5 * SECOND + 1) == ["advert 100"]
    assert it.router.next_deadline() == start + 6 * SECOND


def test_priority_0_of_another_is_answered_at_once(bench, quiet):
    it = bench(garp=quiet).as_master()
    it.now += 400_000
    # Who believed it gets no answer from it any more: announced, too.
    assert it.hear(0) == ["advert 100", "announce 5 x 192.0.2.100/24", "PeerHeard"]
    assert it.router.next_deadline() == it.now + SECOND


def test_a_lower_priority_is_answered_with_advert_and_arp(bench):
    it = bench().as_master()
    assert it.hear(90) == [
        "advert 100",
        "announce 5 x 192.0.2.100/24",
        "notify MASTER_RX_LOWER_PRI",
        "PeerHeard",
        "ForeignAdvertHeard",
    ]
    assert it.role is Role.MASTER


def test_three_bursts_a_second_at_most_however_many_adverts(bench):
    it = bench().as_master()
    words: list[str] = []
    for _ in range(100):
        it.now += 10_000
        words += it.hear(90)
    assert words.count("announce 5 x 192.0.2.100/24") == words.count("notify MASTER_RX_LOWER_PRI") == 3
    assert words.count("advert 100") == 100


def test_lower_priority_second_burst_after_its_delay(bench, quiet):
    it = bench(garp=dataclasses.replace(quiet, lower_prio_repeat=2, lower_prio_delay_us=3 * SECOND)).as_master()
    heard_at = it.now
    assert "announce 2 x 192.0.2.100/24" in it.hear(90)
    assert "announce 2 x 192.0.2.100/24" not in it.at(heard_at + 3 * SECOND - 1)
    assert "announce 2 x 192.0.2.100/24" in it.at(heard_at + 3 * SECOND)


@pytest.mark.parametrize(("source", "role"), [("192.0.2.4", Role.MASTER), ("192.0.2.6", Role.BACKUP)])
def test_equal_priority_the_higher_address_stays(bench, source, role):
    it = bench().as_master()
    it.hear(100, source)
    assert it.role is role
    if role is Role.BACKUP:
        assert it.reason == "equal priority 100, but 192.0.2.6 is higher than our 192.0.2.5"


def test_our_own_address_in_use_elsewhere(bench):
    it = bench().as_master()
    assert it.hear(100, "192.0.2.5") == ["PeerHeard", "ForeignAdvertHeard", "AdvertRejected"]
    assert it.role is Role.MASTER
    it.now += 500_000
    assert it.hear(100, "192.0.2.5") == []


def test_foreign_adverts_once_an_interval_and_source(bench):
    it = bench().as_master()
    for step in range(10):
        it.now += 100_000
        it.hear(90, "192.0.2.1")
        if step == 5:
            it.hear(91, "192.0.2.2")
    foreign = [fact for fact in it.facts if isinstance(fact, ForeignAdvertHeard)]
    assert [str(fact.address) for fact in foreign] == ["192.0.2.1", "192.0.2.2", "192.0.2.1"]
    assert foreign[0].master_down_interval_us == DOWN_100


def test_peer_heard_first_and_changed(bench):
    it = bench()
    for priority in (150, 150, 120, 120, 0):
        it.now += SECOND
        it.hear(priority)
    assert [fact.priority for fact in it.facts if isinstance(fact, PeerHeard)] == [150, 120, 0]


def test_a_flood_of_sources_is_not_remembered(bench):
    it = bench()
    for host in range(1, 200):
        it.now += 1
        it.hear(150, f"198.51.100.{host}")
    peers = it.router.status().peers
    assert len(peers) == 16
    assert str(peers[-1].address) == "198.51.100.199"


# Adverts while BACKUP


def test_the_masters_advert_begins_the_wait_anew(bench):
    it = bench()
    it.now = 2 * SECOND
    assert it.hear(150) == ["PeerHeard"]
    it.now = 3 * SECOND
    assert it.hear(100) == ["PeerHeard"]
    assert it.router.next_deadline() == 3 * SECOND + DOWN_100


def test_priority_0_leaves_the_skew_only(bench):
    it = bench()
    it.now = SECOND
    it.hear(0)
    it.at(SECOND + SKEW_100)
    assert it.role is Role.MASTER
    assert it.reason == "192.0.2.1 resigned (priority 0)"


def test_preemption_is_the_timer_running_out(bench):
    it = bench()
    for now in (500_000, 1_500_000, 2_500_000, 3_500_000):
        it.now = now
        it.hear(90)
    it.at(DOWN_100)
    assert it.role is Role.MASTER
    assert it.reason == "our priority 100 is higher than 90 of 192.0.2.1"


def _listens_to_a_lower_one(it, until_us):
    while it.now < until_us:
        it.at(it.now + SECOND)
        it.hear(90)


def test_nopreempt_stays_until_the_master_is_lost(bench):
    it = bench(nopreempt=True)
    _listens_to_a_lower_one(it, 60 * SECOND)
    assert it.role is Role.BACKUP
    it.at(60 * SECOND + DOWN_100)
    assert it.role is Role.MASTER
    assert it.reason == "no advert for 3.609 s"


@pytest.mark.parametrize("settings", [{"initial_role": Role.MASTER}, {"priority": 255}])
def test_nopreempt_has_no_force_with_state_master_or_255(bench, settings):
    it = bench(nopreempt=True, **settings)
    it.say(DOWN)
    it.say(UP)
    _listens_to_a_lower_one(it, 10 * SECOND)
    assert it.role is Role.MASTER


def test_preempt_delay_counts_from_the_first_lower_advert(bench):
    it = bench(preempt_delay_us=10 * SECOND)
    it.now = SECOND
    it.hear(90)
    _listens_to_a_lower_one(it, 10 * SECOND)
    assert it.role is Role.BACKUP
    # From the last advert within the delay (at 10 s) a whole wait follows.
    _listens_to_a_lower_one(it, 13 * SECOND)
    assert it.role is Role.BACKUP
    it.at(10 * SECOND + DOWN_100)
    assert it.role is Role.MASTER


def test_preempt_delay_begins_anew_after_a_higher_advert(bench):
    it = bench(preempt_delay_us=4 * SECOND)
    it.hear(90)
    it.now = 3 * SECOND
    it.hear(150)
    it.now = 5 * SECOND
    it.hear(90)
    assert it.router.next_deadline() == 5 * SECOND + DOWN_100
    it.now = 8 * SECOND
    it.hear(90)
    assert it.router.next_deadline() == 8 * SECOND + DOWN_100


def test_preempt_delay_has_no_force_with_state_master(bench):
    it = bench(preempt_delay_us=600 * SECOND, initial_role=Role.MASTER)
    it.now = 500_000
    it.hear(90)
    it.at(1_003_906)
    assert it.role is Role.MASTER


def test_the_reason_is_the_last_thing_that_happened(bench):
    it = bench()
    it.hear(0)
    it.hear(150, "192.0.2.2")
    it.at(DOWN_100)
    assert it.reason == "no advert for 3.609 s"


def test_version_3_learns_the_masters_interval_and_forgets_it(bench):
    it = bench(version=3)
    it.hear(150, interval_us=200_000)
    assert it.router.next_deadline() == 3 * 200_000 + 156 * 200_000 // 256
    it.as_master()
    assert it.router.master_down_interval_us == DOWN_100
    it.hear(150, interval_us=500_000)
    assert it.router.next_deadline() - it.now == 3 * 500_000 + 156 * 500_000 // 256


def test_version_3_does_not_learn_from_a_lower_one(bench):
    it = bench(version=3)
    it.hear(90, interval_us=200_000)
    assert it.router.master_down_interval_us == DOWN_100


# A timer that comes late


def test_a_backup_that_overslept_listens_once_more(bench):
    it = bench()
    it.now = SECOND
    it.hear(150)
    assert it.oversleep(SECOND + DOWN_100 + SECOND) == []
    assert it.role is Role.BACKUP
    assert it.router.next_deadline() == it.now + SECOND + SKEW_100
    it.now += 500_000
    it.hear(150)
    assert it.router.next_deadline() == it.now + DOWN_100


def test_a_backup_that_always_oversleeps_becomes_master_all_the_same(bench):
    it = bench()
    it.oversleep(10 * SECOND)
    it.oversleep(20 * SECOND)
    assert it.role is Role.MASTER


def test_a_little_late_is_not_overslept(bench):
    it = bench()
    it.oversleep(DOWN_100 + SECOND - 1)
    assert it.role is Role.MASTER


def test_a_master_that_was_away_and_hears_nobody_goes_on(bench):
    it = bench().as_master()
    assert it.oversleep(it.now + SECOND + DOWN_100)[0] == "advert 100"
    assert it.role is Role.MASTER


def test_a_nopreempt_master_that_was_away_does_not_take_it_back(bench):
    it = bench(nopreempt=True).as_master()
    words = it.oversleep(it.now + SECOND + DOWN_100)
    assert words == ["remove 192.0.2.100/24", "notify BACKUP", "RoleChanged"]
    assert it.role is Role.BACKUP


# Hand-over


def test_a_resignation_to_a_rival_is_said_again(bench):
    """The rival is MASTER already: one that is lost would not be said again by anybody (docs/adr/0007)."""
    it = bench().as_master()
    it.hear(90)
    it.say(HandOver(reason="maintenance"))
    it.now += SECOND
    assert "advert 0" in it.hear(90)


def test_a_resignation_to_nobody_is_said_once(bench):
    it = bench().as_master()
    it.say(HandOver(reason="maintenance"))
    it.now += SECOND
    assert "advert 0" not in it.hear(90)


def test_hand_over(bench):
    it = bench(priority=150).as_master()
    assert it.say(HandOver(reason="maintenance")) == [
        "advert 0",
        "remove 192.0.2.100/24",
        "notify BACKUP",
        "RoleChanged",
    ]
    assert it.reason == "handed over: maintenance"
    assert it.router.next_deadline() == it.now + 3_414_062
    status = it.router.status()
    assert (status.role, status.yielded) == (Role.BACKUP, True)


def test_yielded_does_not_preempt_while_the_peer_is_heard(bench):
    it = bench(priority=150).as_master()
    it.say(HandOver(reason="maintenance"))
    _listens_to_a_lower_one(it, it.now + 60 * SECOND)
    assert it.role is Role.BACKUP
    it.at(it.now + 3_414_062)
    assert it.role is Role.MASTER
    assert not it.router.yielded


def test_resume_preempts_after_the_wait(bench):
    it = bench(priority=150).as_master()
    it.say(HandOver(reason="maintenance"))
    _listens_to_a_lower_one(it, it.now + 5 * SECOND)
    assert it.say(Resume()) == []
    _listens_to_a_lower_one(it, it.now + 4 * SECOND)
    assert it.role is Role.MASTER


@pytest.mark.parametrize("priority", [150, 255])
def test_in_reserve_it_leaves_a_lower_master_alone_and_preempts_afterwards(bench, priority):
    it = bench(priority=priority, start=False)
    it.say(Start(reserve="our data plane is not in force yet"))
    _listens_to_a_lower_one(it, 20 * SECOND)
    assert it.role is Role.BACKUP
    assert it.reason.endswith("but our data plane is not in force yet")
    assert it.say(EndReserve()) == []
    _listens_to_a_lower_one(it, it.now + 4 * SECOND)
    assert it.role is Role.MASTER


def test_in_reserve_it_takes_over_where_nobody_is_heard(bench):
    it = bench(priority=150, initial_role=Role.MASTER, start=False)
    it.say(Start(reserve="our data plane is not in force yet"))
    it.at(3_414_061)
    assert it.role is Role.BACKUP
    it.at(3_414_062)
    assert it.role is Role.MASTER


def test_hand_over_of_a_backup_only_yields(bench):
    it = bench()
    assert it.say(HandOver(reason="maintenance")) == []
    _listens_to_a_lower_one(it, 10 * SECOND)
    assert it.role is Role.BACKUP


def test_yielded_survives_a_fault(bench):
    it = bench().as_master()
    it.say(HandOver(reason="maintenance"))
    it.say(DOWN)
    it.say(UP)
    _listens_to_a_lower_one(it, it.now + 10 * SECOND)
    assert (it.role, it.router.yielded) == (Role.BACKUP, True)


# Reload


def _reload(it, **settings):
    return it.say(Reconfigure(instance=dataclasses.replace(it.instance, **settings)))


def test_the_same_configuration_changes_nothing(bench):
    it = bench().as_master()
    before = it.router.next_deadline()
    assert _reload(it) == []
    assert it.router.next_deadline() == before


def test_scripts_and_arp_pace_alone_send_nothing(bench, quiet):
    it = bench().as_master()
    assert _reload(it, garp=quiet, name="VI_renamed") == []


def test_a_changed_priority_shows_in_an_advert_and_changes_no_role(bench):
    it = bench().as_master()
    assert _reload(it, priority=50) == ["advert 50"]
    assert it.role is Role.MASTER


def test_another_virtual_mac_shows_in_an_advert(bench):
    """Switches learn from it where the MAC is."""
    it = bench().as_master()
    assert _reload(it, virtual_mac=VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33")) == ["advert 100"]


def test_a_changed_priority_shifts_the_timer_of_a_backup(bench):
    it = bench()
    it.hear(200)
    it.now = 2 * SECOND
    assert _reload(it, priority=150) == []
    assert it.router.next_deadline() == 3_414_062


def test_a_shift_into_the_past_is_due_now(bench):
    it = bench(advert_interval_us=10 * SECOND)
    it.hear(200)
    it.now = 8 * SECOND
    _reload(it, advert_interval_us=SECOND)
    assert it.router.next_deadline() == 8 * SECOND


def test_addresses_come_and_go_live(bench):
    it = bench().as_master()
    other = Vip(address=IPv4Address("192.0.2.101"), prefix_length=24, interface="eth0")
    assert _reload(it, vips=(other,)) == [
        "add 192.0.2.101/24",
        "announce 5 x 192.0.2.101/24",
        "remove 192.0.2.100/24",
        "advert 100",
    ]


def test_another_prefix_length_of_one_address_is_removed_first(bench):
    it = bench().as_master()
    narrow = dataclasses.replace(it.instance.vips[0], prefix_length=32)
    assert _reload(it, vips=(narrow,)) == [
        "remove 192.0.2.100/24",
        "add 192.0.2.100/32",
        "announce 5 x 192.0.2.100/32",
    ]


def test_a_backup_touches_no_address(bench):
    it = bench()
    assert _reload(it, vips=()) == []


def test_losing_the_source_by_reload_is_a_fault(bench):
    it = bench(start=False, source=IPv4Address("192.0.2.77"))
    it.say(LinkChanged(up=True, address=None))
    it.say(Start())
    assert _reload(it, source=None) == ["notify FAULT", "RoleChanged"]
    assert it.reason == "eth0 has no IPv4 address"


def test_status(bench):
    it = bench().as_master()
    it.hear(90)
    status = it.router.status(epoch_offset_us=1_700_000_000_000_000)
    assert status.since_at == pytest.approx(1_700_000_003.609375)
    assert (status.adverts_sent, status.adverts_received, status.transitions) == (2, 1, 2)
    assert status.vips == ("192.0.2.100/24",)
    assert [(str(peer.address), peer.priority) for peer in status.peers] == [("192.0.2.1", 90)]


def test_every_role_change_has_one_notify_and_one_fact(bench):
    it = bench(start=False)
    words = it.say(Start())
    words += it.at(DOWN_100)
    words += it.hear(200)
    words += it.say(DOWN)
    words += it.say(UP)
    words += it.say(Shutdown(reason="stop"))
    assert [word for word in words if word.startswith("notify")] == [
        "notify BACKUP",
        "notify MASTER",
        "notify BACKUP",
        "notify FAULT",
        "notify BACKUP",
        "notify STOP",
    ]
    changes = [fact for fact in it.facts if isinstance(fact, RoleChanged)]
    assert [fact.after for fact in changes] == [
        Role.BACKUP,
        Role.MASTER,
        Role.BACKUP,
        Role.FAULT,
        Role.BACKUP,
        Role.INIT,
    ]
    assert all(one.after is other.before for one, other in itertools.pairwise(changes))
    assert all(fact.reason for fact in changes)


# Why it stays BACKUP

LOWER = "priority 50 of 192.0.2.1 is lower than our 100"


@pytest.mark.parametrize(
    ("settings", "priority", "why"),
    [
        ({}, 150, "priority 150 of 192.0.2.1 is higher than our 100"),
        ({}, 100, "192.0.2.1 is MASTER with the same priority 100"),
        ({"nopreempt": True}, 50, f"{LOWER}, but nopreempt leaves it alone"),
        (
            {"preempt_delay_us": 30 * SECOND},
            50,
            f"{LOWER}, but preempt_delay leaves it alone for 30.000 s after it was first heard",
        ),
        ({}, 50, "waits to take over: our priority 100 is higher than 50 of 192.0.2.1"),
    ],
)
def test_a_backup_says_whom_it_leaves_the_role_to(bench, settings, priority, why):
    it = bench(**settings)
    it.now = 100_000
    before = it.router.status()
    assert "RoleChanged" not in it.hear(priority)
    after = it.router.status()
    assert (it.role, it.reason) == (Role.BACKUP, why)
    assert (after.transitions, after.since_at, after.latest) == (before.transitions, before.since_at, before.latest)


def test_the_reason_follows_the_master_and_the_priorities(bench):
    it = bench()
    it.hear(150)
    it.hear(150, source="192.0.2.2")
    assert it.reason == "priority 150 of 192.0.2.2 is higher than our 100"
    it.hear(200, source="192.0.2.2")
    assert it.reason == "priority 200 of 192.0.2.2 is higher than our 100"
    it.say(Reconfigure(instance=dataclasses.replace(it.instance, priority=120)))
    it.hear(200, source="192.0.2.2")
    assert it.reason == "priority 200 of 192.0.2.2 is higher than our 120"


def test_the_reason_follows_a_reload(bench):
    it = bench(preempt_delay_us=30 * SECOND)
    it.hear(50)
    it.say(Reconfigure(instance=dataclasses.replace(it.instance, preempt_delay_us=0, nopreempt=True)))
    it.hear(50)
    assert it.reason.endswith("nopreempt leaves it alone")


def test_after_a_hand_over_the_reason_is_the_new_master(bench):
    it = bench().as_master()
    it.say(HandOver(reason="maintenance"))
    assert it.reason == "handed over: maintenance"
    it.hear(50)
    assert it.reason == f"{LOWER}, but we have handed over"
    it.say(Resume())
    it.hear(50)
    assert it.reason == "waits to take over: our priority 100 is higher than 50 of 192.0.2.1"
    assert it.router.status().latest[-1].reason == "handed over: maintenance"


def test_the_reason_is_put_into_words_once_only(bench):
    it = bench()
    it.hear(150)
    first = it.router.status().reason
    it.hear(150)
    assert it.router.status().reason is first


def test_the_member_of_a_group_says_that_the_group_holds_it_back(bench):
    it = bench()
    it.say(Grouped(group="G", trouble=""))
    it.hear(50)
    assert it.reason == "started"
    it.at(DOWN_100)
    why = "wants MASTER (our priority 100 is higher than 50 of 192.0.2.1), but not all of sync group G do"
    assert (it.role, it.reason) == (Role.BACKUP, why)
    it.hear(150)
    assert it.reason == "priority 150 of 192.0.2.1 is higher than our 100"

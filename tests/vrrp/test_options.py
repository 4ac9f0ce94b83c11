"""Options of an instance that bend the rules of the election, each by hand; times in µs."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address, IPv6Address

import pytest

from haxlb.model.addresses import Vip
from haxlb.model.instance import Role, VirtualMac
from haxlb.model.notification import NotifyScripts
from haxlb.vrrp.inputs import GroupBackup, Grouped, HandOver, LinkChanged, Reconfigure, Shutdown, Start, TimerExpired

SECOND = 1_000_000
DOWN_100 = 3_609_375
UP = LinkChanged(up=True, address=IPv4Address("192.0.2.5"))
DOWN = LinkChanged(up=False, address=IPv4Address("192.0.2.5"))
GONE = LinkChanged(up=False, address=None, present=False)


def _started(bench, quiet_until: int, **settings):
    it = bench(start=False, **settings)
    it.say(Start(quiet_until=quiet_until))
    return it


# vrrp_startup_delay


def test_no_advert_counts_during_the_startup_delay(bench):
    it = _started(bench, 10 * SECOND)
    it.now = 5 * SECOND
    assert it.hear(200) == it.hear(0) == []
    assert it.router.status().adverts_received == 0
    assert it.router.next_deadline() == 10 * SECOND + DOWN_100
    it.now = 10 * SECOND
    it.hear(200)
    assert it.router.status().adverts_received == 1


@pytest.mark.parametrize(
    ("settings", "waits"), [({}, DOWN_100), ({"initial_role": Role.MASTER}, 1_003_906), ({"priority": 255}, 0)]
)
def test_backup_is_not_left_during_the_startup_delay(bench, settings, waits):
    it = _started(bench, 10 * SECOND, **settings)
    assert it.role is Role.BACKUP
    assert it.at(10 * SECOND + waits - 1) == []
    it.at(10 * SECOND + waits)
    assert it.role is Role.MASTER


def test_a_fault_that_ends_during_the_startup_delay(bench):
    it = _started(bench, 10 * SECOND)
    it.say(DOWN)
    it.now = 2 * SECOND
    it.say(UP)
    assert it.router.next_deadline() == 10 * SECOND + DOWN_100


# Owners


def test_the_owner_that_ignores_adverts(bench):
    it = bench(priority=255, owner_ignore_adverts=True)
    assert it.hear(255, "192.0.2.9") == []
    assert (it.role, it.router.status().adverts_received) == (Role.MASTER, 0)
    other = bench(priority=200, owner_ignore_adverts=True).as_master()
    other.hear(201)
    assert other.role is Role.BACKUP


def test_of_two_owners_the_lower_address_backs_off(bench):
    it = bench(priority=255)
    it.hear(255, "192.0.2.9")
    assert it.role is Role.BACKUP
    assert it.router.priority == 255


def test_a_second_owner_that_backs_off_in_time_changes_nothing(bench):
    it = bench(priority=255)
    for now in (0, SECOND, 2 * SECOND, 3 * SECOND):
        it.now = now
        it.hear(255, "192.0.2.1")
    assert (it.role, it.router.priority) == (Role.MASTER, 255)
    it.at(20 * SECOND)
    it.hear(255, "192.0.2.1")
    assert it.role is Role.MASTER, "its patience begins anew"


def test_a_second_owner_that_goes_on_prevails_until_it_is_gone(bench):
    it = bench(priority=255, notify_priority_changes=True)
    for now in range(0, 4 * SECOND, SECOND):
        it.now = now
        it.hear(255, "192.0.2.1")
    assert it.role is Role.MASTER
    it.now = 4 * SECOND
    it.hear(255, "192.0.2.1")
    assert (it.role, it.router.priority) == (Role.BACKUP, 254)
    assert it.reason == "192.0.2.1 has priority 255, too, and goes on: we are 254 until it is gone"
    for now in range(5 * SECOND, 30 * SECOND, SECOND):
        it.at(now)
        it.hear(255, "192.0.2.1")
    assert it.role is Role.BACKUP
    words = it.at(40 * SECOND)
    assert words[0] == "advert 255"
    assert (it.role, it.router.priority) == (Role.MASTER, 255)


# What a MASTER says to others


def test_no_advert_to_a_lower_priority(bench):
    it = bench(lower_prio_no_advert=True).as_master()
    due = it.router.next_deadline()
    assert it.hear(90)[:2] == ["announce 5 x 192.0.2.100/24", "notify MASTER_RX_LOWER_PRI"]
    assert it.router.next_deadline() == due
    assert it.hear(0)[0] == "advert 100", "priority 0 is answered all the same"


def test_one_more_advert_before_it_yields(bench):
    it = bench(higher_prio_send_advert=True).as_master()
    assert it.hear(150)[:3] == ["advert 100", "remove 192.0.2.100/24", "advert 100"]


def test_strict_yields_without_a_word(bench):
    it = bench(strict=True).as_master()
    assert "advert 100" not in it.hear(150)


def test_without_addresses_there_is_no_last_word(bench):
    it = bench(vips=()).as_master()
    assert "advert 100" not in it.hear(150)


def test_a_flood_of_resignations_is_not_answered_one_by_one(bench):
    it = bench().as_master()
    begin = it.now
    answers = 0
    for number in range(1000):
        it.now = begin + number * 10  # 100,000 a second
        answers += it.hear(0).count("advert 100")
    assert answers == 10 * 9


def test_a_flood_of_lower_priorities_is_not_answered_one_by_one(bench):
    it = bench().as_master()
    sent = 0
    for _ in range(10_000):
        it.now += 10
        sent += it.hear(90).count("advert 100")
    assert sent <= 100 * (1 + 8)


# Timers


def test_down_timer_adverts(bench):
    it = bench(down_timer_adverts=5)
    assert it.router.next_deadline() == 5_609_375


@pytest.mark.parametrize("interval_us", [SECOND, 2 * SECOND])
def test_the_skew_of_version_2_is_of_a_second_whatever_the_interval(bench, interval_us):
    it = bench(advert_interval_us=interval_us)
    assert it.router.next_deadline() == 3 * interval_us + 609_375


def test_a_learned_interval_is_forgotten_in_fault(bench):
    it = bench(version=3)
    it.hear(150, interval_us=100_000)
    assert it.router.master_down_interval_us == 300_000 + 60_937
    it.say(DOWN)
    it.say(UP)
    assert it.router.master_down_interval_us == DOWN_100


def test_preempt_delay_counts_anew_after_a_fault(bench):
    it = bench(preempt_delay_us=4 * SECOND)
    for now in range(0, 12 * SECOND, SECOND):
        it.at(now)
        it.hear(90)
        if it.role is Role.MASTER:
            break
    assert it.role is Role.MASTER
    it.say(DOWN)
    it.now += 60 * SECOND
    it.say(UP)
    back = it.now
    for now in range(back + SECOND, back + 6 * SECOND, SECOND):
        it.at(now)
        it.hear(90)
    # The last advert within the delay is that of the fourth second after the first.
    assert it.router.next_deadline() == back + 4 * SECOND + DOWN_100


# Interface, source, peers


def test_a_lost_interface_is_no_fault_without_track_primary(bench):
    it = bench(track_primary=False).as_master()
    assert it.say(DOWN) == []
    assert it.role is Role.MASTER
    it.say(GONE)
    assert (it.role, it.reason) == (Role.FAULT, "there is no interface eth0")


def test_a_source_that_this_host_has_lost(bench):
    lost = dataclasses.replace(UP, has_source=False)
    it = bench(source=IPv4Address("192.0.2.7"), track_source=True)
    it.say(lost)
    assert (it.role, it.reason) == (Role.FAULT, "192.0.2.7 is not an address of this host")
    it.say(UP)
    assert it.role is Role.BACKUP
    careless = bench(source=IPv4Address("192.0.2.7"))
    assert careless.say(lost) == []


def test_unicast_without_peers(bench):
    it = bench(unicast_fault_no_peer=True)
    assert (it.role, it.reason) == (Role.FAULT, "unicast without a unicast_peer")
    it.say(Reconfigure(instance=dataclasses.replace(it.instance, peers=(IPv4Address("192.0.2.9"),))))
    assert it.role is Role.BACKUP


def test_an_interface_without_an_address_of_the_family(bench):
    vip = Vip(address=IPv6Address("2001:db8::1"), prefix_length=64, interface="eth0")
    it = bench(start=False, family=6, version=3, vips=(vip,))
    it.say(LinkChanged(up=True, address=None))
    it.say(Start())
    assert it.reason == "eth0 has no IPv6 address"
    it.say(LinkChanged(up=True, address=IPv6Address("fe80::5")))
    it.as_master()
    assert it.router.status().source == "fe80::5"


def test_out_of_a_fault_a_unicast_instance_announces_itself(bench):
    it = bench(peers=(IPv4Address("192.0.2.9"),))
    it.say(DOWN)
    assert it.say(UP) == ["announce 1 x 192.0.2.5/32", "notify BACKUP", "RoleChanged"]


def test_the_reason_of_a_fault_follows_its_cause(bench):
    it = bench()
    it.say(DOWN)
    it.say(GONE)
    assert it.reason == "there is no interface eth0"
    it.say(DOWN)
    assert it.reason == "eth0 is down"


# Leaving the configuration


@pytest.mark.parametrize(("tells", "word"), [(False, "notify FAULT"), (True, "notify DELETED")])
def test_removed_from_the_configuration(bench, tells, word):
    it = bench(notify=NotifyScripts(tells_deleted=tells)).as_master()
    words = it.say(Shutdown(reason="removed", removed=True))
    assert words == ["advert 0", "remove 192.0.2.100/24", word, "RoleChanged"]


# In a sync group


def test_a_grouped_one_only_wishes(bench):
    it = bench()
    it.say(Grouped(group="VG"))
    assert it.at(DOWN_100) == []
    assert (it.role, it.router.wish) == (Role.BACKUP, Role.MASTER)
    assert it.router.next_deadline() == 2 * DOWN_100
    it.hear(200)
    assert it.router.wish is Role.BACKUP


def test_following_the_group_out_of_master(bench):
    it = bench().as_master()
    assert it.say(GroupBackup(reason="VI_2 of sync group VG is BACKUP")) == [
        "remove 192.0.2.100/24",
        "notify BACKUP",
        "RoleChanged",
    ]
    # The last word is said to the first MASTER that is heard, and as a resignation to one that it would outdo.
    assert it.hear(150)[0] == "advert 100"


@pytest.mark.parametrize(
    ("priority", "source", "word"),
    [(150, "192.0.2.1", "advert 100"), (100, "192.0.2.9", "advert 100"), (100, "192.0.2.1", "advert 0")],
)
def test_who_lost_its_link_owes_the_last_word(bench, priority, source, word):
    it = bench().as_master()
    it.say(DOWN)
    it.now += 10 * SECOND
    it.say(UP)
    it.now += SECOND // 2
    assert it.hear(priority, source)[0] == word
    it.now += 1
    assert it.hear(priority, source) == [], "answered"


def test_who_has_resigned_or_failed_otherwise_owes_nothing(bench):
    it = bench().as_master()
    it.say(HandOver(reason="maintenance"))
    assert it.hear(150) == ["PeerHeard"]
    strict = bench(strict=True).as_master()
    strict.say(DOWN)
    strict.say(UP)
    assert strict.hear(150) == ["PeerHeard"]


# Status


def test_what_comes_next(bench, quiet):
    it = bench(garp=quiet)
    assert (it.router.status().next_what, it.router.status().next_at) == ("becomes MASTER", DOWN_100 / SECOND)
    it.as_master()
    assert (it.router.status().next_what, it.router.status().next_at) == ("advert", (DOWN_100 + SECOND) / SECOND)
    it.say(DOWN)
    assert (it.router.status().next_what, it.router.status().next_at) == ("", None)


def test_the_last_twenty_changes_of_role(bench):
    it = bench()
    for now in range(30):
        it.now = now * SECOND
        it.say(DOWN if now % 2 else UP)
    status = it.router.status()
    assert status.transitions == 30
    assert len(status.latest) == 20
    newest = status.latest[-1]
    assert (newest.at, newest.before, newest.after) == (29.0, Role.BACKUP, Role.FAULT)
    assert newest.reason == "eth0 is down"


def test_what_is_known_of_a_peer(bench):
    it = bench(version=3)
    it.hear(150, interval_us=100_000)
    (peer,) = it.router.status().peers
    assert (peer.priority, peer.version, peer.interval_us, peer.addresses) == (150, 3, 100_000, ("192.0.2.100",))


def test_a_timer_without_an_occasion_does_nothing(bench):
    it = bench().as_master()
    assert it.say(TimerExpired()) == []


def test_the_status_names_the_interface_of_the_virtual_mac(bench):
    mac = VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33")
    assert bench(virtual_mac=mac).router.status().virtual_mac == "vrrp.51"
    assert bench().router.status().virtual_mac == ""

"""Two and three speakers that hear each other."""

from __future__ import annotations

import itertools
from ipaddress import IPv4Address

import pytest

from haxlb.model.facts import ForeignAdvertHeard
from haxlb.model.instance import Role

SIGNED = {"version": 2, "auth_pass": "secret", "auth_ah": True}
VERSIONS = [{"version": 2}, {"version": 2, "auth_pass": "secret"}, SIGNED, {"version": 3}]


@pytest.fixture(params=[*VERSIONS, {"version": 2, "unicast": True}, {"version": 3, "unicast": True}], ids=str)
def pair(request, lan, instance):
    """A higher (priority 150, .1) and a lower (100, .2) director, settled."""
    settings = dict(request.param)
    peers = {1: (), 2: ()}
    if settings.pop("unicast", False):
        peers = {1: (IPv4Address("192.0.2.2"),), 2: (IPv4Address("192.0.2.1"),)}
    high = lan.node(1, instance(priority=150, initial_role=Role.MASTER, peers=peers[1], **settings))
    low = lan.node(2, instance(priority=100, peers=peers[2], **settings))
    lan.run(20.5)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    return high, low


def test_an_election_of_two(pair):
    high, low = pair
    assert [what for _, what in high.changes()] == [
        "INIT -> BACKUP: started",
        "BACKUP -> MASTER: state MASTER, and no higher priority heard for 1.004 s after the start",
    ]
    assert low.changes() == [(0.0, "INIT -> BACKUP: started")]
    assert len(high.held) == 1
    assert not low.held
    assert not low.sent, "a BACKUP is silent"


def test_a_crash_is_noticed_after_master_down_interval(pair, lan):
    high, low = pair
    last = high.sent[-1][0]
    high.crash()
    lan.run(10)
    at, what = low.changes()[-1]
    assert at * 1_000_000 == pytest.approx(last + 100 + 3_609_375)
    assert what == "BACKUP -> MASTER: no advert for 3.609 s"
    assert low.held


def test_an_orderly_stop_leaves_the_skew_only(pair, lan):
    high, low = pair
    high.journal.clear()
    stopped = lan.now
    high.speaker.stop("stop")
    assert high.words()[:2] == ["send 0", "remove 192.0.2.100/24"]
    lan.run(10)
    at, what = low.changes()[-1]
    assert at * 1_000_000 == pytest.approx(stopped + 100 + 609_375)
    assert what == "BACKUP -> MASTER: 192.0.2.1 resigned (priority 0)"
    assert high.alarm is None
    assert len(high.changes()) == 3


def test_hand_over_stays_and_resume_brings_it_back(pair, lan):
    high, low = pair
    assert high.speaker.hand_over((), "maintenance") == ("VI_1",)
    assert not high.held
    lan.run(60)
    assert (high.role(), low.role()) == (Role.BACKUP, Role.MASTER)
    assert high.status().yielded
    assert high.speaker.resume() == ("VI_1",)
    lan.run(4.5)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    assert high.changes()[-1][1] == "BACKUP -> MASTER: our priority 150 is higher than 100 of 192.0.2.2"


def test_after_a_hand_over_the_loss_of_the_peer_ends_the_yield(pair, lan):
    high, low = pair
    high.speaker.hand_over(("VI_1",), "maintenance")
    lan.run(10)
    low.crash()
    lan.run(4.5)
    assert high.role() is Role.MASTER
    assert not high.status().yielded
    low.alive = True
    low.speaker.stop("it was only a test")


def test_hand_over_of_a_name_that_is_not_here(pair):
    high, _ = pair
    assert high.speaker.hand_over(("VI_9",), "maintenance") == ()
    assert high.role() is Role.MASTER


def test_the_return_of_the_old_master(pair, lan, instance):
    high, low = pair
    configured = high.speaker._members["eth0", 51].instance
    high.crash()
    lan.run(10)
    lan.nodes.remove(high)
    again = lan.node(1, configured)
    lan.run(10)
    assert (again.role(), low.role()) == (Role.MASTER, Role.BACKUP)


def test_a_cut_makes_two_masters_and_healing_one(pair, lan):
    high, low = pair
    lan.cut = {(high, low), (low, high)}
    lan.run(10)
    assert (high.role(), low.role()) == (Role.MASTER, Role.MASTER)
    lan.cut = set()
    lan.run(1.1)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    assert low.changes()[-1][1] == "MASTER -> BACKUP: priority 150 of 192.0.2.1 is higher than our 100"
    assert not low.held


def test_one_way_deafness_is_told_by_facts(pair, lan):
    """The lower one hears nothing: it becomes MASTER and the higher one hears it, each interval, for as long."""
    high, low = pair
    lan.cut = {(high, low)}
    high.journal.clear()
    lan.run(20)
    assert high.words().count("announce 192.0.2.100/24") >= 5 * 15, "it announces again each time"
    assert (high.role(), low.role()) == (Role.MASTER, Role.MASTER)
    foreign = [fact for fact in high.facts if isinstance(fact, ForeignAdvertHeard)]
    assert 15 <= len(foreign) <= 18
    assert not [fact for fact in low.facts if isinstance(fact, ForeignAdvertHeard)]


def test_a_frozen_master_finds_the_adverts_that_waited(pair, lan):
    high, low = pair
    high.frozen = True
    lan.run(10)
    assert low.role() is Role.MASTER
    high.frozen = False
    lan.run(0.001)
    assert high.role() is Role.MASTER, "its priority is higher: it answers the adverts that waited"
    lan.run(1)
    assert low.role() is Role.BACKUP


def test_a_frozen_backup_does_not_promote_itself(pair, lan):
    _, low = pair
    low.frozen = True
    lan.run(30)
    low.frozen = False
    lan.run(30)
    assert low.changes() == [(0.0, "INIT -> BACKUP: started")]


def test_a_backup_whose_machine_was_paused_does_not_promote_itself(pair, lan):
    """As above, but a paused machine has no kernel that keeps the adverts."""
    _, low = pair
    low.frozen = True
    lan.run(30)
    low.inbox.clear()
    low.frozen = False
    lan.run(30)
    assert low.changes() == [(0.0, "INIT -> BACKUP: started")]


def test_link_down_and_up(pair, lan):
    high, low = pair
    high.set_link(up=False)
    assert not high.held
    assert high.role() is Role.FAULT
    lan.run(10)
    assert low.role() is Role.MASTER
    high.set_link(up=True)
    lan.run(10)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    assert high.changes()[-2][1] == "FAULT -> BACKUP: eth0 is usable again"


def test_nopreempt(lan, instance):
    high = lan.node(1, instance(priority=150, nopreempt=True))
    low = lan.node(2, instance(priority=100, nopreempt=True))
    lan.run(10)
    assert high.role() is Role.MASTER
    high.speaker.stop("stop")
    lan.run(10)
    again = lan.node(1, instance(priority=150, nopreempt=True))
    lan.run(30)
    assert (again.role(), low.role()) == (Role.BACKUP, Role.MASTER)


def test_equal_priorities_settle_on_the_higher_address(lan, instance):
    one, two = lan.node(1, instance()), lan.node(2, instance())
    lan.run(30)
    assert (one.role(), two.role()) == (Role.BACKUP, Role.MASTER)


def test_version_3_backups_follow_the_masters_interval(lan, instance):
    lan.node(1, instance(priority=150, version=3, advert_interval_us=200_000)).speaker.status(0)
    low = lan.node(2, instance(priority=100, version=3, advert_interval_us=1_000_000))
    lan.run(5)
    assert low.status().master_down_interval_us == 3 * 200_000 + 156 * 200_000 // 256


def test_different_passwords_make_two_masters_and_say_so(lan, instance):
    one = lan.node(1, instance(priority=150, auth_pass="one"))
    two = lan.node(2, instance(priority=100, auth_pass="two"))
    lan.run(20)
    assert (one.role(), two.role()) == (Role.MASTER, Role.MASTER)
    for node in (one, two):
        assert node.status().adverts_rejected["auth_failure"] > 15
        assert node.status().adverts_received == 0


def test_different_addresses_are_counted_and_accepted(lan, instance, make_vip):
    lan.node(1, instance(priority=150, vips=(make_vip(100), make_vip(101))))
    low = lan.node(2, instance(priority=100))
    lan.run(20)
    assert low.role() is Role.BACKUP
    status = low.status()
    assert status.adverts_rejected == {"addr_list_err": status.adverts_received}
    rejected = [fact for fact in low.facts if type(fact).__name__ == "AdvertRejected"]
    assert [fact.detail for fact in rejected] == [
        "accepted, but its addresses differ: only ours none, only theirs 192.0.2.101"
    ]


def test_three_directors_fall_in_order_and_never_speak_together(lan, instance):
    nodes = [lan.node(host, instance(priority=200 - host * 40)) for host in (1, 2, 3)]
    both: list[int] = []

    def watch():
        if sum(node.alive and node.role() is Role.MASTER for node in nodes) > 1:
            both.append(lan.now)

    lan.watch = watch
    for expected in nodes:
        lan.run(20)
        assert [node.role() is Role.MASTER for node in nodes if node.alive] == [
            node is expected for node in nodes if node.alive
        ]
        expected.crash()
    assert not both


def test_adverts_do_not_drift_in_an_hour(lan, instance):
    """One advert each second to the microsecond, and the alarm is set no more than once an advert."""
    high, low = lan.node(1, instance(priority=150)), lan.node(2, instance(priority=100))
    lan.run(20)
    high.sent.clear()
    low.alarms_set = high.alarms_set = 0
    lan.run(3600)
    times = [at for at, _ in high.sent]
    assert len(times) == 3600
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {1_000_000}
    assert high.alarms_set <= 3601
    assert low.alarms_set <= 1300, "a BACKUP does not set its alarm for each advert"


def test_the_vips_are_on_iff_master_at_every_moment(lan, instance):
    nodes = [lan.node(host, instance(priority=100 + host)) for host in (1, 2)]

    def watch():
        for node in nodes:
            assert bool(node.held) == (node.role() is Role.MASTER)

    lan.watch = watch
    lan.run(10)
    nodes[1].speaker.hand_over((), "test")
    lan.run(10)
    nodes[0].set_link(up=False)
    lan.run(10)
    nodes[0].set_link(up=True)
    nodes[1].speaker.resume()
    lan.run(10)
    assert sum(node.role() is Role.MASTER for node in nodes) == 1

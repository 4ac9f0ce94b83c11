"""The detector's promises, one sentence each: when it raises, when it does not, when it clears."""

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from haxlb.model.addresses import Vip
from haxlb.model.facts import (
    AdvertRejected,
    AlarmCleared,
    AlarmRaised,
    Fact,
    ForeignAdvertHeard,
    ForeignMacHeard,
    PeerClaimed,
    RoleChanged,
)
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.splitbrain import SplitBrainDetector, protocol_window_us
from haxlb.splitbrain.evidence import MOST_SOURCES
from haxlb.splitbrain.watch import ARP_SILENCE_US, LAST_WILL_US, last_will_us

VIP = IPv4Address("192.168.10.100")
PEER = IPv4Address("192.168.10.12")
INSTANCE = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=51,
    priority=150,
    vips=(Vip(address=VIP, prefix_length=24, interface="eth0"),),
)
WINDOW = protocol_window_us(INSTANCE)
DOWN = WINDOW - SECOND_US
KEY = "split-brain/VI_1"
CONFLICT = f"vip-conflict/{VIP}"
SERVER_MAC = "02:00:00:00:00:21"


class Timeline:
    """A detector, and its alarms as (seconds, kind, key); timers fire by themselves."""

    def __init__(self, *instances: VrrpInstance) -> None:
        self.detector = SplitBrainDetector("lb1", instances or (INSTANCE,))
        self.alarms: list[AlarmRaised | AlarmCleared] = []
        self.now = 0

    def wait_until(self, now: int) -> None:
        while (deadline := self.detector.next_deadline()) is not None and deadline <= now:
            assert deadline >= self.now, "a deadline that stays in the past would spin"
            self.now = max(self.now, deadline)
            before = len(self.alarms)
            self.alarms += self.detector.handle_timer(self.now)
            again = self.detector.next_deadline()
            assert len(self.alarms) > before or again is None or again > self.now, "a timer that does nothing"
        self.now = now

    def tell(self, now: int, fact: Fact) -> None:
        self.wait_until(now)
        self.alarms += self.detector.handle(fact, now)

    def role(self, now: int, after: Role, before: Role = Role.BACKUP, name: str = "VI_1", vrid: int = 51) -> None:
        self.tell(
            now,
            RoleChanged(instance=name, vrid=vrid, before=before, after=after, reason="a test", priority=150, at_us=now),
        )

    def advert(self, now: int, source: IPv4Address = PEER) -> None:
        self.tell(
            now,
            ForeignAdvertHeard(
                instance="VI_1", vrid=51, address=source, priority=100, master_down_interval_us=DOWN, at_us=now
            ),
        )

    def claim(self, now: int, *, master: bool = True, node: str = "lb2") -> None:
        self.tell(now, PeerClaimed(node=node, vrid=51, master=master, at_us=now))

    def mac(self, now: int, mac: str = SERVER_MAC, director: IPv4Address | None = None) -> None:
        self.tell(now, ForeignMacHeard(vip=VIP, interface="eth0", mac=mac, at_us=now, director=director))

    def adverts(self, start: int, end: int, step: int = SECOND_US) -> None:
        for now in range(start, end + 1, step):
            self.advert(now)

    def macs(self, start: int, end: int, mac: str = SERVER_MAC, director: IPv4Address | None = None) -> None:
        """As the ARP watch asks."""
        for now in range(start, end + 1, 3 * SECOND_US):
            self.mac(now, mac, director)

    @property
    def story(self) -> list[tuple[str, str]]:
        return [("raised" if isinstance(each, AlarmRaised) else "cleared", each.key) for each in self.alarms]


@pytest.fixture
def master() -> Timeline:
    timeline = Timeline()
    timeline.role(0, Role.MASTER)
    return timeline


def test_the_window_is_master_down_interval_and_one_advert() -> None:
    assert protocol_window_us(INSTANCE) == 3 * SECOND_US + 106 * SECOND_US // 256 + SECOND_US
    fast = VrrpInstance(name="V", interface="e", vrid=1, version=3, priority=100, advert_interval_us=100_000)
    assert protocol_window_us(fast) == 300_000 + 156 * 100_000 // 256 + 100_000
    patient = replace(fast, down_timer_adverts=5)
    assert protocol_window_us(patient) == protocol_window_us(fast) + 200_000


def test_adverts_within_the_window_are_an_election(master: Timeline) -> None:
    master.adverts(SECOND_US, SECOND_US + WINDOW - 1)
    master.wait_until(1000 * SECOND_US)
    assert master.story == []


def test_adverts_beyond_the_window_raise_once_and_within_two_windows(master: Timeline) -> None:
    start = SECOND_US
    master.adverts(start, start + 60 * SECOND_US)
    assert master.story == [("raised", KEY)]
    assert WINDOW <= master.alarms[0].at_us - start <= 2 * WINDOW


def test_the_alarm_is_critical_and_names_who_was_heard(master: Timeline) -> None:
    master.adverts(SECOND_US, 10 * SECOND_US)
    alarm = master.alarms[0]
    assert isinstance(alarm, AlarmRaised)
    assert alarm.severity == "critical"
    assert str(PEER) in alarm.summary
    assert str(VIP) in alarm.summary
    assert any(str(PEER) in line and "priority 100" in line for line in alarm.evidence)
    assert master.detector.status() == (alarm,)


def test_silence_for_a_window_clears(master: Timeline) -> None:
    master.adverts(SECOND_US, 10 * SECOND_US)
    master.wait_until(10 * SECOND_US + WINDOW - 1)
    assert master.story == [("raised", KEY)]
    master.wait_until(10 * SECOND_US + WINDOW)
    assert master.story == [("raised", KEY), ("cleared", KEY)]
    assert master.detector.status() == ()
    assert master.detector.next_deadline() is None


def test_leaving_master_clears_at_once_with_the_reason(master: Timeline) -> None:
    master.adverts(SECOND_US, 10 * SECOND_US)
    master.role(10 * SECOND_US + 1, Role.BACKUP, Role.MASTER)
    assert master.story == [("raised", KEY), ("cleared", KEY)]
    cleared = master.alarms[1]
    assert isinstance(cleared, AlarmCleared)
    assert "BACKUP" in cleared.reason
    assert "a test" in cleared.reason


def test_evidence_that_has_fallen_silent_is_not_counted_again(master: Timeline) -> None:
    """The long series of before is over; another fact must not bring it back."""
    master.adverts(SECOND_US, 30 * SECOND_US)
    master.mac(SECOND_US * 30, "02:00:00:00:00:12", PEER)
    master.wait_until(60 * SECOND_US)
    master.claim(60 * SECOND_US, master=False)
    master.advert(80 * SECOND_US)
    assert master.story == [("raised", KEY), ("cleared", KEY)]


def test_a_second_split_brain_is_a_second_alarm(master: Timeline) -> None:
    master.adverts(SECOND_US, 10 * SECOND_US)
    master.adverts(100 * SECOND_US, 110 * SECOND_US)
    assert master.story == [("raised", KEY), ("cleared", KEY), ("raised", KEY)]


def test_a_flapping_backup_never_adds_up(master: Timeline) -> None:
    """It yields to our advert each time and needs its own master_down_interval to come again."""
    for now in range(SECOND_US, 300 * SECOND_US, 3_600_000):
        master.advert(now)
    assert master.story == []


def test_evidence_of_an_earlier_mastership_does_not_count(master: Timeline) -> None:
    master.adverts(SECOND_US, 4 * SECOND_US)
    master.role(4 * SECOND_US + 1, Role.BACKUP, Role.MASTER)
    master.role(4 * SECOND_US + 2, Role.MASTER)
    master.adverts(5 * SECOND_US, 8 * SECOND_US)
    assert master.story == []


def test_adverts_while_not_master_do_not_count() -> None:
    timeline = Timeline()
    timeline.role(0, Role.BACKUP, Role.INIT)
    timeline.adverts(SECOND_US, 60 * SECOND_US)
    assert timeline.story == []


def test_a_heap_of_old_adverts_after_a_stall_is_no_split_brain(master: Timeline) -> None:
    for at in range(SECOND_US, 30 * SECOND_US, SECOND_US):
        master.alarms += master.detector.handle(
            ForeignAdvertHeard(
                instance="VI_1", vrid=51, address=PEER, priority=100, master_down_interval_us=DOWN, at_us=at
            ),
            30 * SECOND_US,
        )
    assert master.story == []


def test_a_claim_that_is_repeated_beside_us_raises_within_two_windows(master: Timeline) -> None:
    for now in range(SECOND_US, 20 * SECOND_US, SECOND_US):
        master.claim(now)
    assert master.story == [("raised", KEY)]
    assert WINDOW <= master.alarms[0].at_us - SECOND_US <= 2 * WINDOW


def test_the_claim_of_a_director_that_lost_its_power_is_not_evidence() -> None:
    """Its last will comes fifteen seconds later; we are MASTER long before."""
    timeline = Timeline()
    timeline.role(0, Role.BACKUP, Role.INIT)
    for now in range(SECOND_US, 10 * SECOND_US, SECOND_US):
        timeline.claim(now)
    timeline.role(13 * SECOND_US, Role.MASTER)
    timeline.claim(9 * SECOND_US + LAST_WILL_US, master=False)
    timeline.wait_until(1000 * SECOND_US)
    assert timeline.story == []


def test_a_claim_that_is_neither_repeated_nor_withdrawn_counts_after_the_last_will() -> None:
    timeline = Timeline()
    timeline.claim(0)
    timeline.role(10 * SECOND_US, Role.MASTER)
    timeline.wait_until(10 * SECOND_US + LAST_WILL_US + WINDOW - 1)
    assert timeline.story == []
    timeline.wait_until(10 * SECOND_US + LAST_WILL_US + WINDOW)
    assert timeline.story == [("raised", KEY)]


def test_a_standing_claim_holds_the_alarm_until_it_is_withdrawn(master: Timeline) -> None:
    for now in range(SECOND_US, 20 * SECOND_US, SECOND_US):
        master.claim(now)
    master.wait_until(500 * SECOND_US)
    assert master.story == [("raised", KEY)]
    master.claim(500 * SECOND_US, master=False)
    assert master.story == [("raised", KEY), ("cleared", KEY)]


def test_our_own_claim_and_one_for_another_vrid_are_nothing(master: Timeline) -> None:
    for now in range(SECOND_US, 60 * SECOND_US, SECOND_US):
        master.claim(now, node="lb1")
        master.tell(now, PeerClaimed(node="lb2", vrid=52, master=True, at_us=now))
    assert master.story == []


def test_a_claim_is_ambiguous_where_two_links_share_a_vrid() -> None:
    """lb1 may be MASTER of VRID 51 on eth0 and lb2 of VRID 51 on eth1, and all is well: only a name tells."""
    other = VrrpInstance(name="VI_2", interface="eth1", vrid=51)
    timeline = Timeline(INSTANCE, other)
    timeline.role(0, Role.MASTER)
    for now in range(SECOND_US, 60 * SECOND_US, SECOND_US):
        timeline.claim(now)
    assert timeline.story == []
    for now in range(60 * SECOND_US, 80 * SECOND_US, SECOND_US):
        timeline.tell(now, PeerClaimed(node="lb2", vrid=51, master=True, at_us=now, instance="VI_2"))
    assert timeline.story == []
    for now in range(80 * SECOND_US, 100 * SECOND_US, SECOND_US):
        timeline.tell(now, PeerClaimed(node="lb2", vrid=51, master=True, at_us=now, instance="VI_1"))
    assert timeline.story == [("raised", KEY)]


def test_what_one_instance_of_a_node_withdraws_another_one_still_claims(master: Timeline) -> None:
    for now in range(SECOND_US, 20 * SECOND_US, SECOND_US):
        for name, claims in (("VI_1", True), ("VI_2", False)):
            master.tell(now, PeerClaimed(node="lb2", vrid=51, master=claims, at_us=now, instance=name))
    assert master.story == [("raised", KEY)]


def test_the_last_will_of_a_longer_keepalive_is_waited_for() -> None:
    timeline = Timeline()
    timeline.detector.expect_last_will(last_will_us(60))
    timeline.detector.configure((INSTANCE,), 0)
    timeline.role(0, Role.MASTER)
    timeline.claim(SECOND_US)
    timeline.wait_until(SECOND_US + 90 * SECOND_US + WINDOW - 1)
    assert timeline.story == []
    timeline.wait_until(SECOND_US + 90 * SECOND_US + WINDOW)
    assert timeline.story == [("raised", KEY)]


def test_a_foreign_mac_is_a_conflict_of_the_vip_and_names_the_likely_cause(master: Timeline) -> None:
    master.macs(SECOND_US, 20 * SECOND_US)
    assert master.story == [("raised", CONFLICT)]
    assert master.alarms[0].at_us <= 9 * SECOND_US
    alarm = master.alarms[0]
    assert isinstance(alarm, AlarmRaised)
    assert "arp_ignore" in alarm.summary
    assert SERVER_MAC in alarm.summary


def test_one_burst_of_a_foreign_mac_is_a_short_overlap(master: Timeline) -> None:
    for at in range(5):
        master.mac(SECOND_US + at)
    master.wait_until(1000 * SECOND_US)
    assert master.story == []


@pytest.mark.parametrize("director", [None, PEER])
def test_the_announcements_of_a_flapping_backup_never_add_up(master: Timeline, director: IPv4Address | None) -> None:
    for now in range(SECOND_US, 300 * SECOND_US, 3_600_000):
        master.mac(now, director=director)
    assert master.story == []


def test_a_conflict_is_over_when_two_questions_had_no_answer(master: Timeline) -> None:
    master.macs(SECOND_US, 10 * SECOND_US)
    master.wait_until(10 * SECOND_US + ARP_SILENCE_US - 1)
    assert master.story == [("raised", CONFLICT)]
    master.wait_until(10 * SECOND_US + ARP_SILENCE_US)
    assert master.story == [("raised", CONFLICT), ("cleared", CONFLICT)]
    assert master.detector.next_deadline() is None


def test_a_conflict_of_two_macs_stays_until_both_are_silent(master: Timeline) -> None:
    for now in range(SECOND_US, 20 * SECOND_US, 3 * SECOND_US):
        if now < 10 * SECOND_US:
            master.mac(now)
        master.mac(now + 1, "02:00:00:00:00:22")
    assert master.story == [("raised", CONFLICT)]
    master.wait_until(100 * SECOND_US)
    assert master.story == [("raised", CONFLICT), ("cleared", CONFLICT)]
    assert master.alarms[1].at_us == 19 * SECOND_US + 1 + ARP_SILENCE_US


def test_leaving_master_ends_the_conflict(master: Timeline) -> None:
    master.macs(SECOND_US, 10 * SECOND_US)
    master.role(11 * SECOND_US, Role.BACKUP, Role.MASTER)
    assert master.story == [("raised", CONFLICT), ("cleared", CONFLICT)]


def test_the_mac_of_another_director_is_a_split_brain_and_no_conflict(master: Timeline) -> None:
    master.macs(SECOND_US, 30 * SECOND_US, director=PEER)
    assert master.story == [("raised", KEY)]
    assert master.alarms[0].at_us <= max(2 * WINDOW, 9 * SECOND_US)
    master.wait_until(100 * SECOND_US)
    assert master.story == [("raised", KEY), ("cleared", KEY)]


def test_a_mac_that_turns_out_to_be_a_directors_is_no_conflict_any_more(master: Timeline) -> None:
    master.macs(SECOND_US, 10 * SECOND_US)
    master.macs(13 * SECOND_US, 16 * SECOND_US, director=PEER)
    assert master.story == [("raised", CONFLICT), ("raised", KEY), ("cleared", CONFLICT)]


def reject(timeline: Timeline, now: int) -> None:
    timeline.tell(
        now,
        AdvertRejected(
            instance="VI_1", address=PEER, reason="auth_failure", detail="its password is not ours", at_us=now
        ),
    )


def test_rejected_adverts_alone_are_no_split_brain(master: Timeline) -> None:
    """Another service may use our VRID by mistake, or somebody may play a trick."""
    for now in range(SECOND_US, 100 * SECOND_US, SECOND_US):
        reject(master, now)
    assert master.story == []


def test_rejected_adverts_and_a_foreign_mac_on_the_vip_are_a_split_brain(master: Timeline) -> None:
    for now in range(SECOND_US, 30 * SECOND_US, SECOND_US):
        reject(master, now)
        if now % (3 * SECOND_US) == 0:
            master.mac(now)
    assert master.story == [("raised", KEY)]
    alarm = master.alarms[0]
    assert isinstance(alarm, AlarmRaised)
    assert any("password" in line for line in alarm.evidence)
    master.wait_until(100 * SECOND_US)
    assert master.story == [("raised", KEY), ("cleared", KEY)]


def test_who_was_refused_while_we_waited_is_the_likely_owner_of_a_mac() -> None:
    """A keepalived with another password is silent for as long as it hears us: its MAC is all that is seen."""
    timeline = Timeline(INSTANCE)
    timeline.role(0, Role.BACKUP, Role.INIT)
    reject(timeline, SECOND_US)
    timeline.role(4 * SECOND_US, Role.MASTER, Role.BACKUP)
    timeline.macs(5 * SECOND_US, 20 * SECOND_US)
    assert timeline.story == [("raised", CONFLICT)]
    assert summary_of(timeline).endswith(f" the director {PEER}, whose adverts are refused: its password is not ours")


def test_a_refusal_of_long_ago_says_nothing_of_a_mac(master: Timeline) -> None:
    reject(master, SECOND_US)
    master.macs(700 * SECOND_US, 720 * SECOND_US)
    assert "Most likely a real server" in summary_of(master)


def summary_of(timeline: Timeline) -> str:
    """Of the first alarm."""
    alarm = timeline.alarms[0]
    assert isinstance(alarm, AlarmRaised)
    return alarm.summary


def test_a_short_window_does_not_make_arp_evidence_flicker() -> None:
    """With an advert interval of 0.1 s the window is shorter than the pause between two questions."""
    timeline = Timeline(replace(INSTANCE, version=3, advert_interval_us=100_000))
    timeline.role(0, Role.MASTER)
    timeline.macs(SECOND_US, 60 * SECOND_US, director=PEER)
    assert timeline.story == [("raised", KEY)]


def test_a_flood_of_sources_costs_no_memory(master: Timeline) -> None:
    for number in range(2_000):
        master.advert(SECOND_US + number, IPv4Address(number))
        master.mac(SECOND_US + number, f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}")
    watch = master.detector._watches["VI_1"]
    assert len(watch.adverts.by_source) <= MOST_SOURCES
    assert len(watch.macs.by_source) <= MOST_SOURCES


def test_two_kinds_of_evidence_stand_in_one_alarm(master: Timeline) -> None:
    for now in range(SECOND_US, 20 * SECOND_US, SECOND_US):
        master.advert(now)
        master.claim(now)
    alarm = master.alarms[0]
    assert isinstance(alarm, AlarmRaised)
    assert len(master.alarms) == 1
    assert len(alarm.evidence) == 2


def test_an_instance_that_leaves_the_configuration_takes_its_alarm_along(master: Timeline) -> None:
    master.adverts(SECOND_US, 10 * SECOND_US)
    master.alarms += master.detector.configure((), 11 * SECOND_US)
    assert master.story == [("raised", KEY), ("cleared", KEY)]
    assert master.detector.next_deadline() is None


def test_a_vip_that_leaves_the_configuration_takes_its_conflict_along(master: Timeline) -> None:
    master.macs(SECOND_US, 10 * SECOND_US)
    master.alarms += master.detector.configure((replace(INSTANCE, vips=()),), 11 * SECOND_US)
    assert master.story == [("raised", CONFLICT), ("cleared", CONFLICT)]


def test_a_reload_keeps_role_and_evidence(master: Timeline) -> None:
    master.adverts(SECOND_US, 4 * SECOND_US)
    changed = VrrpInstance(name="VI_1", interface="eth0", vrid=51, priority=140, vips=INSTANCE.vips)
    assert master.detector.configure((changed,), 4 * SECOND_US) == []
    master.adverts(5 * SECOND_US, 8 * SECOND_US)
    assert master.story == [("raised", KEY)]

from __future__ import annotations

import typing
from ipaddress import IPv4Address

import pytest

from haxlb.daemon.history import LENGTH, History, RejectedFilter, describe
from haxlb.model import facts
from haxlb.model.instance import Role

EXAMPLES = [
    facts.RoleChanged(
        instance="VI_1",
        vrid=51,
        before=Role.BACKUP,
        after=Role.MASTER,
        reason="no advert for 3.609 s",
        priority=100,
        at_us=1,
    ),
    facts.PeerHeard(instance="VI_1", vrid=51, address=IPv4Address("192.0.2.2"), priority=100, at_us=1),
    facts.ForeignAdvertHeard(
        instance="VI_1",
        vrid=51,
        address=IPv4Address("192.0.2.2"),
        priority=100,
        master_down_interval_us=3_609_375,
        at_us=1,
    ),
    facts.AdvertRejected(
        instance=None, address=IPv4Address("192.0.2.2"), reason="ip_ttl_err", detail="TTL 64", at_us=1
    ),
    facts.ForeignMacHeard(vip=IPv4Address("192.0.2.100"), interface="eth0", mac="02:00:00:00:00:01", at_us=1),
    facts.PeerClaimed(node="lb2", vrid=51, master=True, at_us=1),
    facts.BackendChanged(
        virtual_server="[192.0.2.100]:tcp:80", real_server="192.0.2.21:80", up=False, reason="refused", at_us=1
    ),
    facts.QuorumChanged(virtual_server="[192.0.2.100]:tcp:80", up=False, reason="0 of 1", at_us=1),
    facts.GroupChanged(group="VG_1", before="BACKUP", after="MASTER", at_us=1),
    facts.PriorityChanged(
        instance="VI_1", vrid=51, before=150, after=130, reason="150 - 20 (track_script chk)", at_us=1
    ),
    facts.TrackChanged(kind="track_script", name="chk", before=1, after=0, at_us=1),
    facts.AlarmRaised(key="split-brain/VI_1", severity="critical", summary="two MASTERs", evidence=("a",), at_us=1),
    facts.AlarmCleared(key="split-brain/VI_1", reason="silence", at_us=1),
]


def test_every_fact_can_be_told():
    assert {type(each) for each in EXAMPLES} == set(typing.get_args(facts.Fact))


@pytest.mark.parametrize("fact", EXAMPLES, ids=lambda each: type(each).__name__)
def test_events_are_snake_case_and_sentences_single_lines(fact):
    entry = describe(fact)
    assert entry.event.replace("_", "").isalpha()
    assert entry.event.islower()
    assert entry.level in {"debug", "info", "warning", "error"}
    assert entry.sentence
    assert "\n" not in entry.sentence


@pytest.mark.parametrize(
    ("kind", "after", "level", "sentence"),
    [
        ("track_script", 0, "warning", "track_script chk: not well"),
        ("track_script", None, "info", "track_script chk: not known"),
        ("track_bfd", 1, "info", "track_bfd chk: well"),
        ("track_file", 0, "info", "track_file chk: 0"),
        ("track_file", -7, "info", "track_file chk: -7"),
    ],
)
def test_a_tracked_thing_is_told_by_its_kind(kind, after, level, sentence):
    entry = describe(facts.TrackChanged(kind=kind, name="chk", before=1, after=after, at_us=1))
    assert (entry.level, entry.sentence) == (level, sentence)


def test_what_the_wire_can_repeat_does_not_push_out_the_history():
    lasting = {type(each).__name__ for each in EXAMPLES if describe(each).lasting}
    assert lasting.isdisjoint({"AdvertRejected", "ForeignAdvertHeard", "ForeignMacHeard"})
    assert "RoleChanged" in lasting


def test_the_last_fifty_lines_are_kept_newest_last():
    history = History()
    for number in range(LENGTH + 5):
        history.add(f"line {number}", 1_800_000_000.25)
    assert len(history.lines()) == LENGTH
    assert history.lines()[0] == "2027-01-15T08:00:00.250Z line 5"
    assert history.lines()[-1].endswith(f"line {LENGTH + 4}")


def test_a_repeated_line_is_counted():
    history = History()
    for at in (1.0, 2.0, 3.0):
        history.add("the checker exited", at)
    assert history.lines() == ("1970-01-01T00:00:03.000Z the checker exited (3 times)",)


def test_rejected_adverts_are_logged_once_a_minute_per_source_and_reason():
    filter_ = RejectedFilter()

    def rejected(at_s, address="192.0.2.2", reason="ip_ttl_err"):
        return facts.AdvertRejected(
            instance=None, address=IPv4Address(address), reason=reason, detail="", at_us=at_s * 1_000_000
        )

    assert [filter_.passes(rejected(at)) for at in (0, 1, 59, 60)] == [True, False, False, True]
    assert filter_.passes(rejected(61, reason="chk_err"))
    assert filter_.passes(rejected(61, address="192.0.2.3"))

"""What is tracked: every keyword of its blocks, and what sync groups do to it."""

from __future__ import annotations

import pytest

from haxlb.config.printer import keepalived_conf
from haxlb.model.commands import Command
from haxlb.model.tracking import BfdSession, TrackFile, TrackProcess, TrackScript

S = 1_000_000


@pytest.fixture
def thing(loading, codes):
    """The one thing that a block makes, or None, and the complaints about it."""

    def of(head: str, *lines: str):
        loaded = loading(f"{head} {{\n" + "\n".join(lines) + "\n}\n")
        config = loaded.config
        assert loading(keepalived_conf(config)).config == config
        found = (*config.track_scripts, *config.track_files, *config.track_processes, *config.bfd_sessions)
        said = [each for each in codes(loaded) if each[1] not in ("nothing-to-do", "unused-track")]
        return (found[0] if found else None), said

    return of


@pytest.mark.parametrize(
    ("lines", "expected", "said"),
    [
        (("script /x", "user web www"), {"run": Command(argv=("/x",), user="web", group="www")}, []),
        (("script /x", "interval 0.5", "timeout 2"), {"interval_us": 500_000, "timeout_us": 2 * S}, ["slow-script"]),
        (("script /x", "weight -7 reverse"), {"weight": -7, "reverse": True}, []),
        (("script /x", "interval 3"), {"timeout_us": 3 * S}, []),
        (("script '/x y' z",), {"run": Command(argv=("/x", "y"))}, ["surplus-words"]),
    ],
)
def test_scripts(thing, lines, expected, said):
    made, complaints = thing("vrrp_script s", *lines)
    assert isinstance(made, TrackScript)
    assert {name: getattr(made, name) for name in expected} == expected
    assert [code for _, code in complaints] == said


@pytest.mark.parametrize(
    ("lines", "made", "said"),
    [
        (("file /f",), TrackFile(name="f", path="/f"), []),
        (("file /f", "weight 0"), TrackFile(name="f", path="/f", weight=0), []),
        (("file /f", "init_file"), TrackFile(name="f", path="/f", init_value=0), []),
        (("file /f", "init_file 5 overwrite"), TrackFile(name="f", path="/f", init_value=5, init_overwrite=True), []),
        (("file /f", "init_file 500"), TrackFile(name="f", path="/f", init_value=0), ["bad-value"]),
        (("weight 1",), None, ["missing-keyword"]),
    ],
)
@pytest.mark.parametrize("block", ["track_file", "vrrp_track_file"])
def test_files(thing, block, lines, made, said):
    found, complaints = thing(f"{block} f", *lines)
    assert (found, [code for _, code in complaints]) == (made, said)


@pytest.mark.parametrize(
    ("lines", "made", "said"),
    [
        (("process nginx",), {}, []),
        (("process /bin/a -x y",), {"process": "/bin/a", "parameters": ("-x", "y"), "match": "exact"}, []),
        (("process a -x", "param_match initial"), {"process": "a", "parameters": ("-x",), "match": "initial"}, []),
        (("process nginx", "param_match"), {"match": "exact"}, []),
        (("process nginx", "param_match fuzzy"), {}, ["bad-value"]),
        (
            ("process nginx", "full_command", "quorum 2", "quorum_max 4"),
            {"full_command": True, "quorum": 2, "quorum_max": 4},
            [],
        ),
        (("process nginx", "quorum 5", "quorum_max 4"), {"quorum": 5}, ["bad-value"]),
        (("process nginx", "quorum_max 0"), {"quorum": 0, "quorum_max": 0}, []),
        (
            ("process nginx", "delay 1.5"),
            {"delay_us": 1_500_000, "terminate_delay_us": 1_500_000, "fork_delay_us": 1_500_000},
            [],
        ),
        (
            ("process nginx", "delay 1", "fork_delay 2"),
            {"delay_us": S, "terminate_delay_us": S, "fork_delay_us": 2 * S},
            [],
        ),
    ],
)
def test_processes(thing, lines, made, said):
    found, complaints = thing("vrrp_track_process p", *lines)
    assert found == TrackProcess(**{"name": "p", "process": "nginx", **made})
    assert [code for _, code in complaints] == said


@pytest.mark.parametrize(
    ("lines", "made", "said"),
    [
        (("neighbor_ip 10.0.0.9",), {"neighbor": "10.0.0.9"}, []),
        (("neighbour_ip fd00::9", "source_ip fd00::1"), {"neighbor": "fd00::9", "source": "fd00::1", "ttl": 64}, []),
        (
            ("neighbor_ip 10.0.0.9", "min_rx 50.5", "min_tx 20", "idle_tx 2000", "multiplier 3"),
            {"neighbor": "10.0.0.9", "min_rx_us": 50_500, "min_tx_us": 20_000, "idle_tx_us": 2 * S, "multiplier": 3},
            [],
        ),
        (
            ("neighbor_ip 10.0.0.9", "passive", "multihop", "hoplimit 9", "max_hops 20", "checker"),
            {"neighbor": "10.0.0.9", "passive": True, "multihop": True, "ttl": 9, "max_hops": 9, "vrrp": False},
            [],
        ),
        (
            ("neighbor_ip 10.0.0.9", "max_hops -1", "vrrp"),
            {"neighbor": "10.0.0.9", "max_hops": -1, "checker": False},
            [],
        ),
        (("neighbor_ip 10.0.0.9", "vrrp", "checker"), {"neighbor": "10.0.0.9"}, []),
        (("neighbor_ip 10.0.0.9", "source_ip fd00::1"), None, ["mixed-family"]),
        (("passive",), None, ["missing-keyword"]),
        (("neighbor_ip fe80::9",), None, ["bad-value"]),
        (("neighbor_ip fe80::9%eth0",), {"neighbor": "fe80::9%eth0", "ttl": 64}, []),
        (("neighbor_ip here",), None, ["bad-value"]),
    ],
)
def test_bfd_sessions(thing, lines, made, said):
    found, complaints = thing("bfd_instance b", *lines)
    assert found == (None if made is None else BfdSession(name="b", **made))
    assert [code for _, code in complaints] == said


def test_of_two_sessions_between_the_same_ends_the_first_counts(loading, codes):
    block = "bfd_instance %s {\nneighbor_ip 10.0.0.9\n%s\n}\n"
    loaded = loading(block % ("a", "") + block % ("b", "min_rx 50") + block % ("c", "source_ip 10.0.0.1"))
    assert [each.name for each in loaded.config.bfd_sessions] == ["a", "c"]
    assert [code for _, code in codes(loaded) if code not in ("nothing-to-do", "unused-track")] == ["bad-value"]


INSTANCE = "vrrp_instance %s {\ninterface eth0\nvirtual_router_id %d\n%s\nvirtual_ipaddress {\n10.0.0.%d\n}\n}\n"
GROUP = "vrrp_sync_group VG {\ngroup {\nA\nB\n}\n%s\n}\n"
THINGS = (
    "vrrp_script s {\nscript /x\nweight 5\n}\nvrrp_script plain {\nscript /x\n}\n"
    "track_file f {\nfile /f\n}\nvrrp_track_process p {\nprocess nginx\nweight 5\n}\n"
)


def grouped(loading, group: str, tracks: str):
    return loading(THINGS + GROUP % group + INSTANCE % ("A", 1, tracks, 1) + INSTANCE % ("B", 2, "", 2))


@pytest.mark.parametrize(
    ("group", "tracks", "says"),
    [
        ("", "track_script {\ns\n}", "s is not tracked"),
        ("", "track_process {\np\n}", "p is not tracked"),
        ("", "track_interface {\neth1 weight 5\n}", "its loss is a fault"),
        ("", "track_file {\nf\n}", "any number but 0 in the file is a fault"),
        ("", "track_file {\nf weight 2\n}", "f is not tracked"),
        ("track_script {\nplain\n}", "track_script {\nplain\n}", "the group's weight counts"),
        ("sync_group_tracking_weight", "track_script {\ns\n}", None),
        ("", "track_script {\nplain\n}", None),
        ("track_script {\ns\n}", "", None),
    ],
)
def test_what_a_sync_group_drops(loading, group, tracks, says):
    loaded = grouped(loading, group, tracks)
    found = [each.message for each in loaded.diagnostics if each.code == "sync-group-weight"]
    assert len(found) == (says is not None)
    assert says is None or says in found[0]


def test_a_sync_group(loading):
    lines = (
        'notify_master "/m x" web\nnotify /any\nnotify_stop /s\nsmtp_alert\nnotify_priority_changes\n'
        "sync_group_tracking_weight\ntrack_script {\nplain weight 3\n}"
    )
    config = grouped(loading, lines, "").config
    (group,) = config.sync_groups
    assert group.notify.master == Command(argv=("/m", "x"), user="web")
    assert (group.notify.any.argv, group.notify.stop.argv) == (("/any",), ("/s",))
    assert (group.smtp_alert, group.notify_priority_changes, group.tracking_weight) == (True, True, True)
    assert [(each.name, each.weight) for each in group.tracks] == [("plain", 3)]
    assert loading(keepalived_conf(config)).config == config


def test_a_line_that_is_not_used_is_said_once(loading, codes):
    script = "vrrp_script s {\nscript /x\n}\n"
    loaded = loading(script + INSTANCE % ("A", 1, "track_script {\ns wieght -20\n}", 1))
    assert codes(loaded) == [("error", "unknown-keyword")]


def test_a_session_that_is_for_checkers_only_is_not_tracked(loading, codes):
    text = "bfd_instance b {\nneighbor_ip 10.0.0.9\nchecker\n}\n" + INSTANCE % ("A", 1, "track_bfd {\nb\n}", 1)
    loaded = loading(text)
    assert codes(loaded) == [("error", "undefined-track")]
    assert loaded.config.instances[0].tracks == ()


def test_a_group_that_nobody_can_use(loading, codes):
    loaded = loading("vrrp_sync_group VG {\n}\n" + INSTANCE % ("A", 1, "", 1))
    assert (codes(loaded), loaded.config.sync_groups) == ([("error", "missing-keyword")], ())


def test_groups_of_interfaces_share_a_pause(loading, codes):
    text = (
        "global_defs {\nvrrp_garp_interval 1\nvrrp_gna_interval 2\n}\n"
        "garp_group {\ngarp_interval 0.5\ninterfaces {\neth0 eth1\n}\ninterface eth2\n}\n"
        "garp_group {\ninterface eth0\n}\ngarp_group {\n}\n"
    )
    other = (INSTANCE % ("B", 2, "garp_master_delay 1", 2)).replace("eth0", "eth9")
    loaded = loading(text + INSTANCE % ("A", 1, "", 1) + other)
    assert codes(loaded) == [
        ("error", "given-twice"),
        ("warning", "missing-keyword"),
    ]
    a, b = (each.garp for each in loaded.config.instances)
    assert (a.interval_us, a.gna_interval_us, a.group) == (500_000, 0, "eth2 eth0 eth1")
    assert (b.interval_us, b.gna_interval_us, b.group) == (S, 2 * S, "")
    assert loading(keepalived_conf(loaded.config)).config == loaded.config

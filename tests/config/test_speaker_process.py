"""How the processes that speak VRRP and that check servers run: global_defs and haxlb.yml."""

from __future__ import annotations

import pytest

from haxlb.config.printer import keepalived_conf
from haxlb.model.settings import CheckerSettings, SpeakerSettings

S = 1_000_000


@pytest.mark.parametrize(
    ("line", "changed", "said"),
    [
        ("", {}, []),
        ("vrrp_rt_priority 50", {"realtime_priority": 50}, []),
        ("vrrp_rt_priority 0", {"realtime_priority": 0}, []),
        ("vrrp_rt_priority 500", {"realtime_priority": 99}, [("warning", "inexact-value")]),
        ("vrrp_priority -20", {"nice": -20}, []),
        ("vrrp_no_swap", {}, []),
        ("vrrp_cpu_affinity 0 3", {"cpus": (0, 3)}, []),
        ("vrrp_cpu_affinity 0 x -1", {"cpus": (0,)}, [("error", "bad-value")] * 2),
        ("vrrp_rlimit_rttime 5000000", {"runaway_us": 5 * S}, []),
        ("vrrp_rlimit_rttime 10000", {"runaway_us": 200_000}, [("warning", "inexact-value")]),
        ("vrrp_rlimit_rtime 5000000", {"runaway_us": 5 * S}, [("warning", "old-spelling")]),
        ("vrrp_startup_delay 2.5", {"startup_delay_us": 2_500_000}, []),
        ("vrrp_delay_after_boot 60", {"delay_after_boot_us": 60 * S}, []),
        ("disable_local_igmp", {"disable_local_igmp": True}, []),
        ("log_unknown_vrids", {"log_unknown_vrids": True}, []),
    ],
)
def test_global_defs(loading, codes, line, changed, said):
    loaded = loading(f"global_defs {{\n{line}\n}}\n")
    assert loaded.config.speaker == SpeakerSettings(**changed)
    assert [each for each in codes(loaded) if each[1] != "nothing-to-do"] == said
    assert loading(keepalived_conf(loaded.config)).config == loaded.config


@pytest.mark.parametrize(
    ("lines", "changed", "said"),
    [
        ("", {}, []),
        ("checker_priority -20", {"nice": -20}, []),
        ("checker_no_swap", {"lock_memory": True}, []),
        ("checker_rt_priority 10", {"realtime_priority": 10}, []),
        ("checker_rt_priority 20", {"realtime_priority": 19}, [("warning", "inexact-value")]),
        ("vrrp_rt_priority 60\nchecker_rt_priority 59", {"realtime_priority": 59}, []),
        ("vrrp_rt_priority 0\nchecker_rt_priority 500", {"realtime_priority": 99}, [("warning", "inexact-value")]),
        ("checker_cpu_affinity 1", {"cpus": (1,)}, []),
        ("checker_cpu_affinity one", {}, [("error", "bad-value")]),
        ("checker_rlimit_rttime 5000000", {"runaway_us": 5 * S}, []),
        ("checker_rlimit_rtime 5000000", {"runaway_us": 5 * S}, [("warning", "old-spelling")]),
        ("checker_priority -30", {}, [("error", "bad-value")]),
    ],
)
def test_global_defs_of_the_checker(loading, codes, lines, changed, said):
    loaded = loading(f"global_defs {{\n{lines}\n}}\n")
    assert loaded.config.checker == CheckerSettings(**changed)
    assert [each for each in codes(loaded) if each[1] != "nothing-to-do"] == said
    assert loading(keepalived_conf(loaded.config)).config == loaded.config


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ("vips:\n  lifetime: 10\n", {"vip_lifetime_s": 10}),
        ("vips:\n  lifetime: 0\n", {"vip_lifetime_s": 0}),
        ("vips:\n", {}),
        ("speaker:\n  lock_memory: no\n", {"lock_memory": False}),
        ("speaker:\n", {}),
        ("processes:\n  spare_speaker: no\n", {"spare": False}),
        ("processes:\n", {}),
        ("", {}),
    ],
)
def test_haxlb_yml(loading, settings, changed):
    loaded = loading("global_defs {\nvrrp_rt_priority 7\n}\n", settings=settings)
    assert loaded.config.speaker == SpeakerSettings(realtime_priority=7, **changed)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ("vips:\n  lifetime: 2s\n", "bad-setting"),
        ("vips:\n  lifetime: 100000\n", "bad-setting"),
        ("vips:\n  lifetimes: 2\n", "unknown-setting"),
        ("vips: 2\n", "bad-setting"),
        ("processes:\n  spare_speaker: 2\n", "bad-setting"),
        ("processes:\n  spares: 1\n", "unknown-setting"),
        ("processes: yes\n", "bad-setting"),
        ("speaker:\n  lock_memory: maybe\n", "bad-setting"),
        ("speker:\n  lock_memory: true\n", "unknown-setting"),
    ],
)
def test_mistakes_in_haxlb_yml(loading, codes, settings, code):
    loaded = loading("", settings=settings)
    assert loaded.config is None
    assert ("fatal", code) in codes(loaded)

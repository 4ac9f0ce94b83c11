"""`interface_up_down_delays` to values and back."""

from __future__ import annotations

import pytest

from haxlb.config.printer import keepalived_conf
from haxlb.model.settings import LinkDelay

INSTANCE = """\
vrrp_instance A {
    interface eth0
    virtual_router_id 1
    track_interface {
        eth2
    }
    virtual_ipaddress {
        10.0.0.1
    }
}
"""


@pytest.mark.parametrize(
    ("lines", "expected", "said"),
    [
        ("eth0 1", [("eth0", 1_000_000, 0)], []),
        ("eth0 1 5\neth2 3 0", [("eth0", 1_000_000, 5_000_000), ("eth2", 3_000_000, 0)], []),
        # Two adverts of a second are missed after it, and the peer takes over after three and its skew.
        ("eth0 2", [("eth0", 1_996_094, 0)], [("warning", "inexact-value")]),
        ("eth0 1\neth0 2", [("eth0", 1_000_000, 0)], [("warning", "given-twice")]),
        ("eth9 1", [], [("warning", "useless-option")]),
        ("eth0", [], [("error", "missing-argument")]),
        ("eth0 soon", [], [("error", "bad-value")]),
        ("eth0 300", [], [("error", "bad-value")]),
    ],
)
def test_lines(loading, codes, lines, expected, said):
    loaded = loading(f"{INSTANCE}interface_up_down_delays {{\n{lines}\n}}\n")
    delays = tuple(LinkDelay(interface=name, down_us=down, up_us=up) for name, down, up in expected)
    assert loaded.config.speaker.link_delays == delays
    assert codes(loaded) == said
    assert loading(keepalived_conf(loaded.config)).config == loaded.config

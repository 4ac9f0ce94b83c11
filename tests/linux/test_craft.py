from __future__ import annotations

import json
import subprocess
import sys
from ipaddress import IPv4Address

import pytest

from haxlb.linux.announcer import garp_request

ORDERS = [
    {"interface": "eth0", "mac": "02:00:00:00:0a:01", "vip": "192.168.10.100"},
    {"interface": "eth1.7", "mac": "fe:dc:ba:98:76:54", "vip": "10.0.0.1"},
]


def craft(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "haxlb.linux.craft"], input=text, capture_output=True, text=True, check=False
    )


def test_scapy_and_the_announcer_make_the_same_bytes() -> None:
    done = craft(json.dumps(ORDERS))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    frames = json.loads(done.stdout)
    assert [{name: frame[name] for name in ("interface", "mac", "vip")} for frame in frames] == ORDERS
    for frame in frames:
        own = garp_request(frame["mac"], IPv4Address(frame["vip"]))
        assert bytes.fromhex(frame["frame_hex"]) == own
        assert len(own) == 42


def test_the_frame_is_a_gratuitous_request_to_everybody() -> None:
    frame = garp_request("02:00:00:00:0a:01", IPv4Address("192.168.10.100"))
    assert frame.hex(" ", 2) == (
        "ffff ffff ffff 0200 0000 0a01 0806"  # Ethernet
        " 0001 0800 0604 0001 0200 0000 0a01 c0a8 0a64 ffff ffff ffff c0a8 0a64"
    )


@pytest.mark.parametrize("text", ["", "{}", '[{"interface": "eth0"}]', '[{"interface": 1, "mac": "", "vip": "x"}]'])
def test_input_that_is_no_list_of_orders_is_refused_in_one_line(text: str) -> None:
    done = craft(text)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("haxlb.linux.craft: ")
    assert done.stderr.count("\n") == 1

from __future__ import annotations

import json
import subprocess
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest

from haxlb.linux.announcer import announcement, garp_request
from haxlb.linux.neighbour_advertisement import forwards_ipv6, unsolicited_advertisement

ORDERS = [
    {"interface": "eth0", "mac": "02:00:00:00:0a:01", "vip": "192.168.10.100"},
    {"interface": "eth1.7", "mac": "fe:dc:ba:98:76:54", "vip": "10.0.0.1"},
    {"interface": "eth0", "mac": "02:00:00:00:0a:01", "vip": "2001:db8::64"},
    {"interface": "eth0", "mac": "00:00:5e:00:02:33", "vip": "fe80::1"},
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
        vip = ip_address(frame["vip"])
        own = announcement(frame["mac"], vip, "no-such-interface")
        assert bytes.fromhex(frame["frame_hex"]) == own
        assert len(own) == (42 if vip.version == 4 else 86)


def test_the_frame_is_a_gratuitous_request_to_everybody() -> None:
    frame = garp_request("02:00:00:00:0a:01", IPv4Address("192.168.10.100"))
    assert frame.hex(" ", 2) == (
        "ffff ffff ffff 0200 0000 0a01 0806"  # Ethernet
        " 0001 0800 0604 0001 0200 0000 0a01 c0a8 0a64 ffff ffff ffff c0a8 0a64"
    )


def test_the_advertisement_overrides_what_all_nodes_knew() -> None:
    frame = unsolicited_advertisement("00:00:5e:00:02:33", IPv6Address("fe80::1"))
    assert frame.hex(" ", 2) == (
        "3333 0000 0001 0000 5e00 0233 86dd"  # Ethernet
        " 6000 0000 0020 3aff fe80 0000 0000 0000 0000 0000 0000 0001 ff02 0000 0000 0000 0000 0000 0000 0001"
        " 8800 f968 2000 0000 fe80 0000 0000 0000 0000 0000 0000 0001 0201 0000 5e00 0233"
    )


def test_a_router_says_that_it_is_one() -> None:
    plain, router = (
        unsolicited_advertisement("02:00:00:00:00:01", IPv6Address("2001:db8::1"), router=each)
        for each in (False, True)
    )
    assert (plain[58], router[58]) == (0x20, 0xA0)
    # One's complement: what the flag adds to the sum, the checksum lacks.
    assert int.from_bytes(plain[56:58]) - int.from_bytes(router[56:58]) in (0x8000, 0x8000 - 0xFFFF)


def test_whether_an_interface_routes_is_read_where_the_kernel_says_so(tmp_path: Path) -> None:
    for interface, text in (("eth0", "0\n"), ("eth1", "1\n"), ("eth2", "2\n")):
        (tmp_path / interface).mkdir()
        (tmp_path / interface / "forwarding").write_text(text)
    said = {each: forwards_ipv6(each, settings=tmp_path) for each in ("eth0", "eth1", "eth2", "absent")}
    assert said == {"eth0": False, "eth1": True, "eth2": True, "absent": False}


@pytest.mark.parametrize("text", ["", "{}", '[{"interface": "eth0"}]', '[{"interface": 1, "mac": "", "vip": "x"}]'])
def test_input_that_is_no_list_of_orders_is_refused_in_one_line(text: str) -> None:
    done = craft(text)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("haxlb.linux.craft: ")
    assert done.stderr.count("\n") == 1

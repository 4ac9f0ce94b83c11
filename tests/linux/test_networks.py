"""Networks from the kernel's routing table."""

from __future__ import annotations

import sys
from ipaddress import IPv4Network

import pytest

from haxlb.linux.networks import connected_networks

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth1\t0000000A\t020200C0\t0003\t0\t0\t0\t000000FF\t0\t0\t0
eth2\t0000A8C0\t00000000\t0000\t0\t0\t0\t0000FFFF\t0\t0\t0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table above is of a little-endian machine")
def test_what_needs_no_gateway_and_is_up(tmp_path):
    path = tmp_path / "route"
    path.write_text(ROUTES)
    assert connected_networks(path) == (IPv4Network("192.0.2.0/24"),)


def test_no_table(tmp_path):
    assert connected_networks(tmp_path / "none") == ()

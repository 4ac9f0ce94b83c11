"""What the supervisor remembers of other directors."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

from haxlb.daemon.standing import MOST_PEERS, Standing


def test_a_flood_of_spoofed_adverts_is_not_remembered(kit: Any) -> None:
    standing = Standing(config=kit.node(), bpf_directory="")
    peer = IPv4Address("10.8.0.2")
    assert standing.hear("VI_1", peer)
    assert not standing.hear("VI_1", peer), "known already"
    for number in range(1000):
        standing.hear("VI_1", IPv4Address(0x0A090000 + number))
    (known,) = standing.peers()
    assert peer in known.peers
    assert len(known.peers) == MOST_PEERS


def test_of_an_instance_that_is_gone_nothing_is_remembered(kit: Any) -> None:
    standing = Standing(config=kit.node(), bpf_directory="")
    assert not standing.hear("VI_other", IPv4Address("10.8.0.2"))
    assert [each.peers for each in standing.peers()] == [()]

"""What the supervisor remembers of other directors."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

from haxlb.daemon.standing import MOST_PEERS, Standing
from haxlb.model.instance import Role
from haxlb.model.status import InstanceStatus, PeerStatus

EPOCH = 1_800_000_000.0


def test_a_flood_of_spoofed_adverts_is_not_remembered(kit: Any) -> None:
    standing = Standing(config=kit.node(), bpf_directory="")
    peer = IPv4Address("10.8.0.2")
    assert standing.hear("VI_1", peer)
    assert not standing.hear("VI_1", peer), "known already"
    for number in range(1000):
        standing.hear("VI_1", IPv4Address(0x0A090000 + number))
    (known,) = standing.peers()
    assert len(known.peers) == MOST_PEERS
    assert standing.hear("VI_1", peer), "sources that were there first do not keep it out"
    for number in range(MOST_PEERS - 1):
        standing.hear("VI_1", IPv4Address(0x0A090000 + number))
        standing.hear("VI_1", peer)  # it goes on speaking
    (known,) = standing.peers()
    assert peer in known.peers
    assert len(known.peers) == MOST_PEERS


def test_one_that_speaks_all_the_time_is_not_forgotten_for_sources_that_have_spoken_once(kit: Any) -> None:
    """The speaker tells of its first advert, and with each status when it was heard last."""
    standing = Standing(config=kit.node(), bpf_directory="")
    peer, spoofed = IPv4Address("10.8.0.2"), [IPv4Address(0x0A090000 + number) for number in range(MOST_PEERS)]
    standing.hear("VI_1", peer)
    quiet = InstanceStatus(
        name="VI_1",
        interface="eth0",
        vrid=51,
        version=3,
        role=Role.BACKUP,
        since_at=0.0,
        reason="started",
        priority=150,
        master_down_interval_us=3_414_062,
    )

    def status(now: float, *others: IPv4Address) -> tuple[InstanceStatus, ...]:
        # In the order of the first advert, as the speaker has them.
        times = {peer: now, **dict.fromkeys(others, EPOCH)}
        heard = tuple(PeerStatus(address=each, priority=100, heard_at=at) for each, at in times.items())
        return (replace(quiet, peers=heard),)

    for number, each in enumerate(spoofed):
        standing.hear("VI_1", each)
        standing.take_statuses(status(EPOCH + 1 + number, each))
    (known,) = standing.peers()
    assert peer in known.peers
    for each in spoofed:  # with no status between them
        standing.hear("VI_1", each)
    for number in range(100):
        standing.hear("VI_1", IPv4Address(0x0A0A0000 + number))
    assert peer not in standing.peers()[0].peers
    assert standing.take_statuses(status(EPOCH + 200)), "it is to be asked for flows again"
    assert peer in standing.peers()[0].peers
    assert not standing.take_statuses(status(EPOCH + 201)), "nothing new"


def test_of_an_instance_that_is_gone_nothing_is_remembered(kit: Any) -> None:
    standing = Standing(config=kit.node(), bpf_directory="")
    assert not standing.hear("VI_other", IPv4Address("10.8.0.2"))
    assert [each.peers for each in standing.peers()] == [()]

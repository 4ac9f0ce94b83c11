"""BFD sessions between haxlb and FRR's bfdd, and between haxlb and Debian's keepalived.

Nothing here measures time: detection times are longer than either side is ever kept from running on a busy machine
(ours runs in this very process), and who went Down why is told by the reasons and by the packets on the wire, in their
order.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from haxlb.bfd.packet import Diagnostic, State
from haxlb.model.tracking import BfdSession
from tests.interop.bfd_peers import ADDRESSES, BFDD, Frr, Keepalived, Peer
from tests.netns.bfd_hosts import BfdEar, Director, run, until

pytestmark = pytest.mark.interop

OURS, THEIRS = ADDRESSES[4]
SESSION = BfdSession(
    name="peer", neighbor=THEIRS, source=OURS, min_rx_us=30_000, min_tx_us=30_000, idle_tx_us=1_000_000, multiplier=250
)
SAME: dict[str, Any] = {"interval_ms": 30, "multiplier": 250}
DETECTION_US = 7_500_000


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    for needed, package in (("keepalived", "keepalived"), (BFDD, "frr"), ("vtysh", "frr")):
        if not shutil.which(needed):
            pytest.fail(f"{package} is not installed: run `make setup`")
    with Lab(f"hxibfd{os.getpid()}") as made:
        for name, number in (("d1", 1), ("d2", 2)):
            host = made.host(name, f"10.9.0.{number}/24")
            host.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.eth0.accept_dad=0")
            host.run("ip", "address", "add", f"2001:db8::{number}/64", "dev", "eth0", "nodad")
        yield made


@pytest.fixture
def host(lab: Lab) -> Host:
    return lab.hosts["d1"]


@pytest.fixture(params=[Frr, Keepalived], ids=["frr", "keepalived"])
def peer(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> Iterator[Peer]:
    made: Peer = request.param(lab.hosts["d2"], tmp_path / "peer")
    yield made
    made.stop()


@pytest.fixture
def frr(lab: Lab, tmp_path: Path) -> Iterator[Frr]:
    made = Frr(lab.hosts["d2"], tmp_path / "peer")
    yield made
    made.stop()


@pytest.fixture
def keepalived(lab: Lab, tmp_path: Path) -> Iterator[Keepalived]:
    made = Keepalived(lab.hosts["d2"], tmp_path / "peer")
    yield made
    made.stop()


async def both_up(ours: Director, peer: Peer) -> None:
    await until(lambda: ours.up and peer.says_up(), "both Up")


async def settled(ear: BfdEar) -> int:
    """How much the ear had heard when it, too, heard both say Up."""
    await until(
        lambda: all((said := ear.of(each)) and said[-1].packet.state is State.UP for each in (OURS, THEIRS)),
        "both Up on the wire",
    )
    return len(ear.heard)


@pytest.mark.parametrize("passive", ["", "ours", "theirs"])
def test_both_come_up_and_stay(host: Host, peer: Peer, passive: str) -> None:
    async def test() -> None:
        peer.start(**SAME, passive=passive == "theirs")
        with BfdEar(host) as ear, Director(host, replace(SESSION, passive=passive == "ours")) as ours:
            await both_up(ours, peer)
            since = await settled(ear)
            await until(lambda: len(ear.of(OURS, since)) > 30 and len(ear.of(THEIRS, since)) > 30, "thirty packets")
            assert {each.packet.state for each in ear.heard[since:]} == {State.UP}
            await until(lambda: ours.sessions[0].detection_time_us == DETECTION_US, "the intervals have settled")
            assert ours.states()[-1] is State.UP
            assert State.DOWN not in ours.states()
            assert ours.sessions[0].counters.refused == {}
            if passive:
                speaker = THEIRS if passive == "ours" else OURS
                assert ear.heard[0].source == speaker

    run(test())


def test_the_death_of_the_peer_is_noticed_by_silence(host: Host, peer: Peer) -> None:
    async def test() -> None:
        peer.start(**SAME)
        with BfdEar(host) as ear, Director(host, SESSION) as ours:
            await both_up(ours, peer)
            await until(lambda: ours.sessions[0].detection_time_us == DETECTION_US, "the intervals have settled")
            former = ours.sessions[0].remote.discriminator
            peer.kill()
            await until(lambda: State.DOWN in ours.states(), "Down")
            assert ours.reasons()[-1] == "nothing heard of the neighbour for 7500 ms"
            assert ours.results[-1].value == 0
            assert ear.of(THEIRS)[-1].packet.state is State.UP, "it did not say goodbye"
            peer.start(**SAME)
            await both_up(ours, peer)
            assert ours.sessions[0].remote.discriminator not in (0, former)

    run(test())


def test_a_peer_that_restarts_is_noticed_by_its_first_packet(host: Host, peer: Peer) -> None:
    async def test() -> None:
        patient = {"interval_ms": 200, "multiplier": 200}
        peer.start(**patient)
        session = replace(SESSION, min_rx_us=200_000, min_tx_us=200_000, multiplier=200)
        with Director(host, session) as ours:
            await both_up(ours, peer)
            await until(lambda: ours.sessions[0].detection_time_us == 40_000_000, "the intervals have settled")
            peer.kill()
            peer.start(**patient)
            await until(lambda: State.DOWN in ours.states(), "Down")
            assert ours.reasons()[-1].startswith("the neighbour says Down")
            await both_up(ours, peer)

    run(test())


def test_our_own_death_is_noticed_by_the_peer(host: Host, peer: Peer) -> None:
    async def test() -> None:
        peer.start(**SAME)
        with BfdEar(host) as ear:
            ours = Director(host, SESSION)
            await both_up(ours, peer)
            since = await settled(ear)
            await until(lambda: len(ear.of(OURS, since)) > 10, "the peer knows our interval")
            ours.vanish()
            await until(lambda: not peer.says_up(), "the peer is Down")
            await until(lambda: ear.of(THEIRS)[-1].packet.state is State.DOWN, "the peer says Down")
            downs = [each.packet for each in ear.of(THEIRS) if each.packet.state is State.DOWN]
            assert downs[-1].diagnostic == Diagnostic.DETECTION_TIME_EXPIRED
            assert ear.of(OURS)[-1].packet.state is State.UP, "we did not say goodbye"
            with Director(host, SESSION) as again:
                await both_up(again, peer)

    run(test())


def test_a_session_that_we_take_down_is_down_at_the_peer(host: Host, peer: Peer) -> None:
    async def test() -> None:
        patient = {"interval_ms": 200, "multiplier": 200}
        peer.start(**patient)
        session = replace(SESSION, min_rx_us=200_000, min_tx_us=200_000, multiplier=200)
        with BfdEar(host) as ear, Director(host, session) as ours:
            await both_up(ours, peer)
            since = await settled(ear)
            ours.configure()
            await until(
                lambda: (said := ear.of(THEIRS, since)) and said[-1].packet.state is State.DOWN,
                "the peer is Down, long before its detection time",
            )
            assert ear.of(THEIRS, since)[-1].packet.diagnostic == Diagnostic.NEIGHBOR_SIGNALED_DOWN
            assert ear.of(OURS, since)[-1].packet.state is State.ADMIN_DOWN
            # Its instances are told nothing: a session that is out of service is not a broken path.
            assert peer.says_up() is isinstance(peer, Keepalived)
            ours.configure(session)
            await both_up(ours, peer)

    run(test())


def test_intervals_that_change_do_not_drop_the_session(host: Host, peer: Peer) -> None:
    async def test() -> None:
        peer.start(**SAME)
        with BfdEar(host) as ear, Director(host, SESSION) as ours:
            await both_up(ours, peer)
            for interval in (150_000, 40_000):
                since = await settled(ear)
                ours.configure(replace(SESSION, min_rx_us=interval, min_tx_us=interval))
                await until(lambda: any(each.packet.final for each in ear.of(THEIRS, since)), "its consent")  # noqa: B023
                await until(lambda: ours.sessions[0].transmit_interval_us == interval, "our new interval")  # noqa: B023
                assert any(each.packet.poll for each in ear.of(OURS, since))
            assert ours.states()[-1] is State.UP
            assert State.DOWN not in ours.states()
            assert peer.says_up()
            assert {each.packet.state for each in ear.of(THEIRS, since)} == {State.UP}

    run(test())


def test_intervals_that_frr_changes(host: Host, frr: Frr) -> None:
    async def test() -> None:
        frr.start(**SAME)
        with Director(host, SESSION) as ours:
            await both_up(ours, frr)
            for interval in (150, 40):
                frr.change(interval_ms=interval, multiplier=190)
                wanted = 190 * interval * 1000
                await until(lambda: ours.sessions[0].detection_time_us == wanted, "the new detection time")  # noqa: B023
                await until(lambda: ours.sessions[0].transmit_interval_us == interval * 1000, "the interval")  # noqa: B023
            assert State.DOWN not in ours.states()
            assert frr.says_up()

    run(test())


def test_intervals_that_keepalived_changes(host: Host, keepalived: Keepalived) -> None:
    async def test() -> None:
        keepalived.start(**SAME)
        with Director(host, SESSION) as ours:
            await both_up(ours, keepalived)
            keepalived.change(interval_ms=150, multiplier=190)
            await until(lambda: ours.sessions[0].detection_time_us == 190 * 150_000, "the new detection time")
            await until(lambda: ours.sessions[0].transmit_interval_us == 150_000, "the interval")
            await both_up(ours, keepalived)

    run(test())


def test_frr_takes_its_session_down_and_up(host: Host, frr: Frr) -> None:
    async def test() -> None:
        frr.start(**SAME)
        with Director(host, SESSION) as ours:
            await both_up(ours, frr)
            frr.order("shutdown")
            await until(lambda: State.DOWN in ours.states(), "Down")
            assert ours.reasons()[-1] == "the neighbour says AdminDown"
            assert ours.sessions[0].diagnostic == Diagnostic.NEIGHBOR_SIGNALED_DOWN
            assert ours.results[-1].value == 1, "that is no failure"
            frr.order("no shutdown")
            await both_up(ours, frr)

    run(test())


def test_multihop_with_frr(host: Host, frr: Frr) -> None:
    async def test() -> None:
        frr.start(**SAME, multihop=True)
        with BfdEar(host) as ear, Director(host, replace(SESSION, multihop=True)) as ours:
            await both_up(ours, frr)
            assert {each.port for each in ear.heard} == {4784}

    run(test())


def test_ipv6_with_frr(host: Host, frr: Frr) -> None:
    async def test() -> None:
        frr.start(**SAME, family=6)
        with Director(host, replace(SESSION, neighbor=ADDRESSES[6][1], source=ADDRESSES[6][0])) as ours:
            await both_up(ours, frr)

    run(test())


@pytest.mark.parametrize("values", [{"ttl": 64}, {"ttl": 255, "max_hops": 191}], ids=str)
def test_ipv6_with_keepalived(host: Host, keepalived: Keepalived, values: dict[str, int]) -> None:
    """Its default hop limit is 64, whatever RFC 5881 section 5 says."""

    async def test() -> None:
        keepalived.start(**SAME, family=6)
        with Director(host, replace(SESSION, neighbor=ADDRESSES[6][1], source=ADDRESSES[6][0])) as strict:
            await until(lambda: strict.sessions[0].counters.refused.get("ttl", 0) > 0, "refused by GTSM")
            strict.configure(replace(strict.sessions[0].settings, **values))
            await both_up(strict, keepalived)

    run(test())

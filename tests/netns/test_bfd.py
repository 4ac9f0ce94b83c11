from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from lab import Host, Lab

from haxlb.bfd.packet import Diagnostic, State
from haxlb.daemon.messages import ConfigureTracker, Logged
from haxlb.linux import bfd_filter
from haxlb.linux.realtime import BFD_PRIORITY, PRIORITY
from haxlb.model.commands import Command
from haxlb.model.errors import ConfigError, HostError
from haxlb.model.tracking import BfdSession, TrackKind, TrackResult, TrackScript
from tests.netns.bfd_hosts import BfdEar, Director, TrackerHandle, names, run, until
from tests.netns.standin import eventually, inside

pytestmark = pytest.mark.netns

ONE, TWO = "10.9.0.1", "10.9.0.2"
TO_TWO = BfdSession(name="two", neighbor=TWO, min_rx_us=30_000, min_tx_us=30_000, multiplier=255)
"""Patient: a session outlives 7.65 s in which a busy machine does not let us run."""
TO_ONE = replace(TO_TWO, name="one", neighbor=ONE)
HASTY_TO_TWO, HASTY_TO_ONE = (
    replace(each, min_rx_us=20_000, min_tx_us=20_000, multiplier=20) for each in (TO_TWO, TO_ONE)
)
"""Lost after 400 ms: where silence is what the test is about."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(f"hxbfd{os.getpid()}") as made:
        for name, number in (("d1", 1), ("d2", 2)):
            host = made.host(name, f"10.9.0.{number}/24")
            host.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.eth0.accept_dad=0")
            for address in (f"2001:db8::{number}/64", f"fe80::{number}/64"):
                host.run("ip", "address", "add", address, "dev", "eth0", "nodad")
        yield made


@pytest.fixture
def one(lab: Lab) -> Host:
    return lab.hosts["d1"]


@pytest.fixture
def two(lab: Lab) -> Host:
    return lab.hosts["d2"]


def test_both_come_up_and_their_packets_are_those_of_rfc_5881(one: Host, two: Host) -> None:
    async def test() -> None:
        with BfdEar(one) as ear, Director(one, TO_TWO) as first, Director(two, TO_ONE) as second:
            await until(lambda: first.up and second.up, "both Up")
            assert names(first.results) == [("two", None), ("two", 1)]
            assert first.results[-1].kind is TrackKind.BFD
            await until(lambda: len(ear.of(ONE)) > 10 and len(ear.of(TWO)) > 10, "ten packets of each")
            for source in (ONE, TWO):
                assert {each.ttl for each in ear.of(source)} == {255}
                assert {each.port for each in ear.of(source)} == {3784}
                (port,) = {each.source_port for each in ear.of(source)}
                assert port >= 49152
            await until(lambda: first.sessions[0].detection_time_us == 7_650_000, "the intervals have settled")
            (status,) = first.runner.status(time.time_ns() // 1000)
            assert (status.kind, status.name, status.value) == ("track_bfd", "two", 1)
            assert f"{TWO} Up" in status.detail
            assert "detects in 7650 ms" in status.detail
            assert abs(status.since_at - time.time()) < 60

    run(test())


@pytest.mark.parametrize(
    ("neighbor", "source"), [("2001:db8::%d", ""), ("fe80::%d%%eth0", ""), ("fe80::%d%%eth0", "fe80::%d")]
)
def test_ipv6(one: Host, two: Host, neighbor: str, source: str) -> None:
    def session(base: BfdSession, own: int, other: int) -> BfdSession:
        return replace(base, neighbor=neighbor % other, source=source and source % own)

    async def test() -> None:
        with Director(one, session(TO_TWO, 1, 2)) as first, Director(two, session(TO_ONE, 2, 1)) as second:
            await until(lambda: first.up and second.up, "both Up")
            assert not [each for each in first.lines if each[0] != "bfd_session"]

    # The names of interfaces are looked up when packets come and go, so the loop, too, must see an eth0 of that index.
    assert len({each.run("ip", "-o", "link", "show", "eth0").stdout.split(":")[0] for each in (one, two)}) == 1
    with inside(one.namespace):
        run(test())


def test_several_sessions_each_with_a_source_port_of_its_own(one: Host, two: Host) -> None:
    async def test() -> None:
        def sessions(base: BfdSession, own: str, other: str, six: str) -> list[BfdSession]:
            return [
                replace(base, source=own),
                replace(base, name="far", neighbor=other, source=own, multihop=True),
                replace(base, name="six", neighbor=six),
            ]

        with (
            BfdEar(one) as ear,
            Director(one, *sessions(TO_TWO, ONE, TWO, "2001:db8::2")) as first,
            Director(two, *sessions(TO_ONE, TWO, ONE, "2001:db8::1")) as second,
        ):
            await until(lambda: first.up and second.up, "all Up")
            ports = {(each.port, each.source_port) for each in ear.of(ONE)}
            assert {port for port, _ in ports} == {3784, 4784}
            assert len({source_port for _, source_port in ports}) == len(ports) == 2

    run(test())


def test_what_came_through_a_router_is_refused_unless_hops_are_allowed(one: Host, two: Host) -> None:
    async def test() -> None:
        with Director(one, TO_TWO) as first, Director(two, replace(TO_ONE, ttl=254, max_hops=1)) as second:
            await until(lambda: first.sessions[0].counters.refused.get("ttl", 0) > 0, "a packet refused")
            assert first.states() == []
            assert ("bfd_packet_refused") in [event for event, _ in first.lines]
            assert "refused" in first.runner.status(0)[0].detail
            first.configure(replace(TO_TWO, max_hops=1))
            await until(lambda: first.up and second.up, "both Up")

    run(test())


def settled(*directors: Director) -> bool:
    """All are Up and have agreed upon the intervals. After a pause of ours they may be Down, and come Up again."""
    return all(each.up and each.sessions[0].detection_time_us == 400_000 for each in directors)


def test_a_neighbour_that_dies_without_a_word_is_lost_by_silence(one: Host, two: Host) -> None:
    async def test() -> None:
        with Director(one, HASTY_TO_TWO) as first, Director(two, HASTY_TO_ONE) as second:
            await until(lambda: settled(first, second), "both Up, and the intervals have settled")
            second.vanish()
            await until(lambda: names(first.results)[-1] == ("two", 0), "Down is told")
            assert "nothing heard of the neighbour for 400 ms" in first.reasons()[-1]
            with Director(two, HASTY_TO_ONE) as again:
                await until(lambda: first.up and again.up, "Up again with another discriminator")

    run(test())


def test_a_cut_is_noticed_by_both(one: Host, two: Host) -> None:
    async def test() -> None:
        with Director(one, HASTY_TO_TWO) as first, Director(two, HASTY_TO_ONE) as second:
            await until(lambda: settled(first, second), "both Up, and the intervals have settled")
            two.unplug()
            try:
                await until(lambda: not first.up and not second.up, "both Down")
                for each in (first, second):
                    assert each.sessions[0].diagnostic == Diagnostic.DETECTION_TIME_EXPIRED
            finally:
                two.plug()
            await until(lambda: first.up and second.up, "both Up again")

    run(test())


def test_a_session_that_is_removed_says_so(one: Host, two: Host) -> None:
    async def test() -> None:
        with BfdEar(one) as ear, Director(one, TO_TWO) as first, Director(two, TO_ONE) as second:
            await until(lambda: first.up and second.up, "both Up")
            first.configure()
            await until(lambda: not second.up, "the neighbour is Down")
            assert second.reasons()[-1] == "the neighbour says AdminDown"
            await until(lambda: ear.of(ONE)[-1].packet.state is State.ADMIN_DOWN, "the ear has heard the last packet")
            assert ear.of(ONE)[-1].packet.diagnostic == Diagnostic.ADMINISTRATIVELY_DOWN
            assert first.runner.status(0) == ()

    run(test())


def test_closing_says_so_too(one: Host, two: Host) -> None:
    async def test() -> None:
        first = Director(one, TO_TWO)
        with Director(two, TO_ONE) as second:
            await until(lambda: first.up and second.up, "both Up")
            first.runner.close()
            await until(lambda: not second.up, "the neighbour is Down")
            assert second.reasons()[-1] == "the neighbour says AdminDown"

    run(test())


def test_changed_intervals_do_not_drop_the_session(one: Host, two: Host) -> None:
    async def test() -> None:
        with BfdEar(one) as ear, Director(one, TO_TWO) as first, Director(two, TO_ONE) as second:
            await until(lambda: first.up and second.up, "both Up")
            for interval in (100_000, 30_000):
                since = len(ear.heard)
                first.configure(replace(TO_TWO, name="renamed", min_rx_us=interval, min_tx_us=interval))
                await until(lambda: [e for e in ear.of(TWO, since) if e.packet.final], "its consent")  # noqa: B023
                await until(
                    lambda: second.sessions[0].transmit_interval_us == interval,  # noqa: B023
                    "the neighbour follows",
                )
                await until(lambda: [e for e in ear.of(ONE, since) if e.packet.poll], "it was a Poll Sequence")  # noqa: B023
            assert names(first.results)[-1] == ("renamed", 1)
            assert first.states() == second.states() == [State.INIT, State.UP] or State.DOWN not in first.states()
            assert first.sessions[0].counters.ups == second.sessions[0].counters.ups == 1

    run(test())


def test_a_source_address_that_comes_later(one: Host, two: Host) -> None:
    later = "10.9.0.77"

    async def test() -> None:
        with (
            Director(one, replace(TO_TWO, source=later)) as first,
            Director(two, replace(TO_ONE, neighbor=later)) as second,
        ):
            await until(lambda: first.sessions[0].counters.sent > 0, "it tries")
            one.run("ip", "address", "add", f"{later}/24", "dev", "eth0")
            try:
                await until(lambda: first.up and second.up, "both Up")
            finally:
                one.run("ip", "address", "delete", f"{later}/24", "dev", "eth0")

    run(test())


def test_another_daemon_on_the_port_until_it_is_gone(one: Host, two: Host) -> None:
    async def test() -> None:
        with Director(one, replace(TO_TWO, name="first")) as first, Director(one, TO_TWO) as second:
            assert first.problems == {}
            assert isinstance(second.problems["two"], HostError)
            assert "UDP port 3784" in second.problems["two"].message
            assert "other BFD daemon" in second.problems["two"].remedy
            assert names(second.results) == [("two", 0)]
            assert "UDP port 3784" in second.runner.status(0)[0].detail
            first.vanish()
            with Director(two, TO_ONE), inside(one.namespace):
                await until(lambda: second.up, "tried again")
            assert names(second.results)[-1] == ("two", 1)
            assert [each.name for each in second.runner.status(0)] == ["two"]

    run(test())


def test_what_is_wrong_with_one_session_does_not_harm_the_others(one: Host, two: Host) -> None:
    async def test() -> None:
        wrong = [
            replace(TO_TWO, name="nowhere", neighbor="fe80::9%nowhere", source="fe80::1"),
            replace(TO_TWO, name="nonsense", neighbor="nonsense"),
            replace(TO_TWO, name="twice"),
        ]
        with Director(one, TO_TWO, *wrong) as first, Director(two, TO_ONE) as second:
            assert set(first.problems) == {"nowhere", "nonsense", "twice"}
            assert isinstance(first.problems["nowhere"], HostError)
            assert isinstance(first.problems["nonsense"], ConfigError)
            await until(lambda: first.up and second.up, "both Up")
            assert dict(names(first.results)) == {"two": 1, "nowhere": 0, "nonsense": 0, "twice": 0}

    run(test())


FLOOD = """
import os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[3])})
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
packet, to = bytes.fromhex(sys.argv[2]), (sys.argv[1], 3784)
while True:
    s.sendto(packet, to)
"""


def test_a_flood_of_strangers_costs_no_session(lab: Lab, one: Host, two: Host) -> None:
    flooder = lab.hosts.get("d3") or lab.host("d3", "10.9.0.3/24")

    async def test() -> None:
        async with TrackerHandle(one) as first, TrackerHandle(two) as second:
            # 25 packets in a row; a real-time process that has the CPU taken from it for so long is no flood's doing.
            ends = [replace(each, min_rx_us=60_000, min_tx_us=60_000, multiplier=25) for each in (TO_TWO, TO_ONE)]
            await first.configure(ConfigureTracker(bfd_sessions=(ends[0],)))
            await second.configure(ConfigureTracker(bfd_sessions=(ends[1],)))
            await until(lambda: first.values("two")[-1:] == second.values("one")[-1:] == [1], "Up")
            stranger = (ONE, "20c00518" + "01" * 20)
            # Real-time, the tracker takes the CPU from whoever sends to it there: only those on the others are faster.
            try:
                for cpu in os.sched_getaffinity(0):
                    flooder.start(sys.executable, "-c", FLOOD, *stranger, str(cpu))
                await until(lambda: "bfd_flood" in [each.event for each in first.of(Logged)], "the flood is seen", 150)
                await asyncio.sleep(5 * 1.5)  # five times as long as the silence that costs a session
            finally:
                flooder.kill()
            (status,) = await first.status()
            assert (status.value, first.values("two").count(0), second.values("one").count(0)) == (1, 0, 0)
            assert first.process.poll() is None
            # Once it is over strangers are counted again.
            before = len(first.of(Logged))
            await until(
                lambda: (
                    any(
                        each.event == "bfd_packet_refused" and "unknown_session" in each.fields.values()
                        for each in first.of(Logged)[before:]
                    )
                    or send_one(flooder)
                ),
                "a stranger is told of",
            )

    run(test())


@pytest.mark.parametrize("family", [4, 6])
def test_the_shield_lets_neighbours_through_and_a_sample_of_the_rest(one: Host, family: int) -> None:
    four = family == 4
    kind = socket.AF_INET if four else socket.AF_INET6
    good, bad = ("127.0.0.7", "127.0.0.8") if four else ("2001:db8::1", "2001:db8::77")
    level, option = (socket.IPPROTO_IP, socket.IP_TTL) if four else (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS)

    def send(source: str, ttl: int, text: bytes, count: int) -> None:
        with socket.socket(kind, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(level, option, ttl)
            sender.bind((source, 0))
            for _ in range(count):
                sender.sendto(text, receiver.getsockname())

    one.run("ip", "address", "replace", "2001:db8::77/128", "dev", "lo", "nodad")
    with inside(one.namespace), socket.socket(kind, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1" if four else "::1", 0))
        receiver.setblocking(False)
        many = [ip_address(good), *(ip_address(f"10.1.{each // 250}.{each % 250}") for each in range(900))]
        bfd_filter.shield(receiver, family, many if four else many[:1], 254)
        send(bad, 255, b"stranger", 50)
        send(good, 253, b"far", 50)
        send(good, 254, b"near", 3)
        send(good, 255, b"here", 3)
        received: list[bytes] = []
        eventually(lambda: taken(receiver, received).count(b"near") == received.count(b"here") == 3, "the neighbour's")
        # A sample of one in 1024 of a hundred: this fails once in a million million runs.
        assert received.count(b"stranger") + received.count(b"far") < 6
        bfd_filter.unshield(receiver)
        received.clear()
        send(bad, 1, b"stranger", 5)
        eventually(lambda: taken(receiver, received) == [b"stranger"] * 5, "all five")


def taken(receiver: socket.socket, received: list[bytes]) -> list[bytes]:
    """Add what is there to what has been received: the kernel may hand over what was sent a moment later."""
    while True:
        try:
            received.append(receiver.recv(100))
        except BlockingIOError:
            return received


def send_one(host: Host) -> None:
    """One packet of nobody."""
    with inside(host.namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(bytes.fromhex("20c00518" + "01" * 20), (ONE, 3784))


def scheduling_script(path: Path) -> TrackScript:
    """Says which class it runs in."""
    argv = ("/bin/sh", "-c", f"chrt -p $$ > {path}.new && mv {path}.new {path}")
    return TrackScript(name="class", run=Command(argv=argv, user="root"))


class TestTracker:
    def test_results_realtime_class_and_status(self, one: Host, two: Host, tmp_path: Path) -> None:
        async def test() -> None:
            said = tmp_path / "said"
            orders = ConfigureTracker(bfd_sessions=(TO_TWO,), scripts=(scheduling_script(said),))
            async with TrackerHandle(one) as tracker:
                with Director(two, TO_ONE) as second:
                    assert await tracker.configure(orders) == ""
                    assert tracker.values("two")[0] is None
                    await until(lambda: tracker.values("two")[-1] == 1 and second.up, "Up is told")
                    pid = tracker.process.pid
                    policy = os.sched_getscheduler(pid)
                    assert policy == os.SCHED_RR | os.SCHED_RESET_ON_FORK
                    assert os.sched_getparam(pid).sched_priority == BFD_PRIORITY < PRIORITY
                    await until(said.exists, "the script has run")
                    assert "SCHED_OTHER" in said.read_text()
                    (status,) = [each for each in await tracker.status() if each.kind == "track_bfd"]
                    assert (status.name, status.value) == ("two", 1)
                    assert "sends every 30 ms" in status.detail
                await until(lambda: tracker.values("two")[-1] == 0, "Down is told")
                assert await tracker.configure(replace(orders, bfd_sessions=())) == ""
                assert os.sched_getscheduler(pid) == os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
                assert [each for each in await tracker.status() if each.kind == "track_bfd"] == []

        run(test())

    def test_what_was_known_before_its_start_stays_until_something_else_is(self, one: Host, two: Host) -> None:
        async def test() -> None:
            known = (TrackResult(kind=TrackKind.BFD, name="two", value=1),)
            async with TrackerHandle(one) as tracker:
                assert await tracker.configure(ConfigureTracker(bfd_sessions=(TO_TWO,), known=known)) == ""
                assert tracker.values("two") == [1]
                with Director(two, TO_ONE) as second:
                    await until(lambda: second.up, "Up")
                    (status,) = await tracker.status()
                    assert (status.value, tracker.values("two")) == (1, [1])

        run(test())

    def test_sessions_that_cannot_be_held_are_not_well_and_say_why(self, one: Host) -> None:
        async def test() -> None:
            with Director(one, TO_TWO):
                async with TrackerHandle(one) as tracker:
                    problem = await tracker.configure(ConfigureTracker(bfd_sessions=(TO_TWO,)))
                    assert "UDP port 3784" in problem
                    assert tracker.values("two") == [None, 0]
                    (status,) = await tracker.status()
                    assert "other BFD daemon" in status.detail

        run(test())

    def test_leaving_takes_the_sessions_down(self, one: Host, two: Host) -> None:
        async def test() -> None:
            with Director(two, TO_ONE) as second:
                async with TrackerHandle(one) as tracker:
                    await tracker.configure(ConfigureTracker(bfd_sessions=(TO_TWO,)))
                    await until(lambda: second.up, "Up")
                await until(lambda: not second.up, "Down")
                assert second.reasons()[-1] == "the neighbour says AdminDown"
                assert names(second.results)[-1] == ("one", 1)

        run(test())

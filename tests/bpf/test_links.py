"""Attaching, swapping and detaching on a real veth."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.forwarding.wanted import NextHop, WantedTable
from haxlb.linux import bpf, xdp
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import is_bpffs
from haxlb.linux.forwarder import Forwarder
from haxlb.linux.forwarder_build import compile_forwarder
from haxlb.linux.maps import possible_cpus
from haxlb.linux.teardown import tear_down
from haxlb.model.errors import HostError
from haxlb.model.status import LinkStatus
from tests.bpf.assembly import answer, sink
from tests.bpf.frames import tcp
from tests.bpf.wire import Wire, Witnessed, counted, counter
from tests.forwarding.tables import server, table
from tests.netns.standin import eventually

pytestmark = [pytest.mark.bpf, pytest.mark.netns]


class Director:
    """A forwarder in the namespace of a wire."""

    def __init__(self, wire: Wire, runtime: Path) -> None:
        self.wire = wire
        self.runtime = runtime
        self.directory = runtime / "bpf" / layout.ABI
        self.log: list[tuple[str, str]] = []
        self.program = self.build()
        self.forwarder = Forwarder(self.directory, lambda level, event, _: self.log.append((level, event)))

    def build(self) -> str:
        return asyncio.run(compile_forwarder(self.directory, flow_buckets_log2=17, features=Features.parse("stateful")))

    def attach(self, *interfaces: str, mode: str = "native", program: str = "") -> tuple[LinkStatus, ...]:
        return self.wire.inside(lambda: self.forwarder.attach(program or self.program, interfaces, mode))

    def links(self) -> tuple[LinkStatus, ...]:
        return self.wire.inside(self.forwarder.links)

    def apply(self, wanted: WantedTable) -> None:
        self.wire.inside(lambda: self.forwarder.apply(wanted))


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as made:
        yield made


@pytest.fixture
def director(wire: Wire, tmp_path: Path) -> Iterator[Director]:
    made = Director(wire, tmp_path)
    yield made
    made.forwarder.close()
    wire.inside(lambda: tear_down(tmp_path))


def near_server(director: Director, number: int) -> object:
    return server(number, interface_index=director.wire.index("near"))


def test_attached_natively_it_outlives_its_process(director: Director) -> None:
    (link,) = director.attach("near")
    assert (link.interface, link.mode) == ("near", "native")
    director.forwarder.close()
    assert director.wire.attachment("near").mode == "native"
    director.forwarder = Forwarder(director.directory)
    assert director.links() == (link,)


def test_attaching_again_changes_nothing(director: Director) -> None:
    director.attach("near")
    before = director.wire.attachment("near")
    director.attach("near")
    assert director.wire.attachment("near") == before


def test_a_program_that_was_built_again_is_swapped_in(director: Director) -> None:
    director.attach("near")
    before = director.wire.attachment("near")
    director.attach("near", program=director.build())
    after = director.wire.attachment("near")
    assert after.program_id != before.program_id
    assert ("info", "program_swapped_in") in director.log


def test_what_is_attached_keeps_its_parts_while_another_one_is_built(director: Director) -> None:
    """Without them it sends on nothing but what is on record."""

    def parts() -> list[bytes | None]:
        with closing(bpf.obj_get(Path(former.replace("prog-", "parts-")))) as fd:
            return [bpf.map_lookup(fd, layout.INDEX.pack(part), 4) for part in range(len(layout.PROGRAMS))]

    former = director.program
    director.attach("near")
    before = parts()
    assert any(before)
    assert director.build() != former
    assert parts() == before


def test_a_program_that_somebody_else_put_there_is_not_replaced_unseen(director: Director) -> None:
    director.attach("near")
    link = bpf.obj_get(director.directory / "links" / str(director.wire.index("near")))
    stranger = bpf.prog_load(answer(bpf.XDP_PASS), name="stranger")
    try:
        with pytest.raises(HostError, match="not the one expected"):
            bpf.link_update(link, stranger, expected_fd=stranger)
    finally:
        os.close(stranger)
        os.close(link)


def test_an_interface_that_is_no_longer_named_is_detached(director: Director) -> None:
    director.wire.ip("link add other type veth peer name other-far")
    assert {link.interface for link in director.attach("near", "other")} == {"near", "other"}
    assert [link.interface for link in director.attach("near")] == ["near"]
    assert director.wire.attachment("other").mode == "none"
    # Its frames are no longer ours.
    other = layout.INDEX.pack(director.wire.index("other"))
    assert bpf.map_lookup(director.forwarder._maps.fds["interfaces"], other, 8) is None


def test_without_native_xdp_it_runs_in_generic_mode_and_says_so(director: Director) -> None:
    assert [link.mode for link in director.attach("lo", mode="auto")] == ["generic"]
    assert director.log == [("warning", "generic_mode")]


def test_a_veth_may_lose_what_it_sends_natively_so_auto_is_generic_there(director: Director) -> None:
    assert [link.mode for link in director.attach("near", mode="auto")] == ["generic"]
    assert director.log == [("warning", "generic_mode")]


def test_native_means_native(director: Director) -> None:
    with pytest.raises(HostError, match="lo takes no native XDP program") as caught:
        director.attach("lo", mode="native")
    assert "generic" in caught.value.remedy
    assert director.wire.attachment("lo").mode == "none"


def test_generic_when_asked_for(director: Director) -> None:
    assert [link.mode for link in director.attach("near", mode="generic")] == ["generic"]
    assert not [level for level, _ in director.log if level == "warning"]


@pytest.mark.parametrize(("first", "then"), [("generic", "native"), ("native", "generic")])
def test_another_mode_is_not_worth_a_gap_and_that_is_said(director: Director, first: str, then: str) -> None:
    director.attach("near", mode=first)
    for mode in (first, "auto", then):
        director.log.clear()
        assert [link.mode for link in director.attach("near", mode=mode)] == [first]
        assert director.log == ([("warning", "mode_kept")] if mode == then else [])


def test_an_mtu_that_is_too_large_for_native_xdp(director: Director) -> None:
    for interface in ("near", "far"):
        director.wire.ip(f"link set {interface} mtu 9000")
    with pytest.raises(HostError, match=r"near takes no native XDP program: its MTU .* does not fit"):
        director.attach("near", mode="native")
    assert [link.mode for link in director.attach("near", mode="auto")] == ["generic"]
    assert director.log == [("warning", "generic_mode")]


def test_an_interface_that_was_renamed_keeps_its_program(director: Director) -> None:
    director.attach("near")
    before = director.wire.attachment("near")
    director.wire.ip("link set near name wan.0")
    assert [link.interface for link in director.links()] == ["wan.0"]
    with pytest.raises(HostError, match="there is no interface near"):
        director.attach("near")
    director.attach("wan.0")
    assert director.wire.attachment("wan.0") == before


def test_a_foreign_program_is_named_and_left_alone(director: Director) -> None:
    bpf.attach_pass_program(director.wire.path, "near")
    before = director.wire.attachment("near")
    with pytest.raises(HostError, match=r"near already carries an XDP program: pass .*native") as caught:
        director.attach("near")
    assert "ip link set dev near xdp off" in caught.value.remedy
    assert director.wire.attachment("near") == before


def test_an_interface_that_does_not_exist(director: Director) -> None:
    """The others do not wait for it (dynamic_interfaces)."""
    with pytest.raises(HostError, match="there is no interface nope"):
        director.attach("nope", "near")
    assert [link.interface for link in director.links()] == ["near"]


def test_an_interface_that_was_made_anew_is_attached_again(director: Director) -> None:
    director.attach("near")
    director.wire.ip("link delete near")
    assert director.links() == ()
    director.wire.ip("link add near type veth peer name far")
    assert [link.interface for link in director.attach("near")] == ["near"]


def test_a_changed_mac_of_an_interface_is_learned_with_the_next_table(director: Director) -> None:
    director.attach("near")
    director.wire.ip("link set near address 02:00:00:00:00:77")
    director.apply(table(server(1)))
    near = layout.INDEX.pack(director.wire.index("near"))
    assert bpf.map_lookup(director.forwarder._maps.fds["interfaces"], near, 8) == b"\x02\0\0\0\0\x77\0\0"


def other_version(director: Director) -> Path:
    """What the haxlb before this one has left: its links and its tables."""
    former = director.directory.with_name("0-former")
    (former / "links").mkdir(parents=True)
    for pin in (director.directory / "links").iterdir():
        pin.rename(former / "links" / pin.name)
    table = bpf.map_create(bpf.MAP_TYPE_ARRAY, 4, 8, 1, name="flows")
    bpf.obj_pin(table, former / "flows")
    (former / "later" / "still").mkdir(parents=True)
    bpf.obj_pin(table, former / "later" / "still" / "flows")
    os.close(table)
    return former


def test_links_of_another_version_are_taken_over_without_a_gap_and_its_tables_removed(director: Director) -> None:
    director.wire.ip("link add other type veth peer name other-far")
    director.attach("near", "other")
    before = director.wire.attachment("near")
    former = other_version(director)
    (link,) = director.attach("near", program=director.build())
    assert link.interface == "near"
    assert director.wire.attachment("near").program_id not in (0, before.program_id)
    # What this configuration has no program on must not go on with tables that nobody writes.
    assert director.wire.attachment("other").mode == "none"
    assert not former.exists()
    assert director.log.count(("info", "former_version_removed")) == 1


def test_moving_to_the_tables_of_another_version_loses_no_packet(director: Director) -> None:
    """An upgrade in place: the new tables are filled, then the link of the version before gets the new program."""
    pools = [table(*(near_server(director, number) for number in numbers)) for numbers in [(1, 2, 3), (2, 3)]]
    director.attach("near")
    director.apply(pools[0])
    traffic = Witnessed(director.wire, tcp(), "02:00:00:00:00:aa")
    moving = threading.Event()
    moving.set()

    def send() -> None:
        while moving.is_set():
            traffic.send(5000)

    def tables() -> set[Path]:
        return {pin for pin in director.directory.iterdir() if not pin.is_dir()}

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for turn in range(3):
            former = director.directory.with_name("0-former")
            (former / "links").mkdir(parents=True)
            for pin in (*tables(), *(director.directory / "links").iterdir()):
                pin.rename(former / pin.relative_to(director.directory))
            director.forwarder.close()
            director.program = director.build()
            director.forwarder = Forwarder(director.directory)
            director.apply(pools[turn % len(pools)])
            before = traffic.sent
            eventually(lambda: traffic.sent > before, "frames are being sent")  # noqa: B023 - at once
            director.attach("near")
            assert not former.exists()
        before = traffic.sent
        eventually(lambda: traffic.sent > before + 10_000, "they go on")
    finally:
        moving.clear()
        sender.join()
    try:
        assert director.forwarder.counters().verdicts["forwarded"] > 0
        traffic.expect_all_back()
    finally:
        traffic.close()


def test_a_program_on_other_tables_is_not_attached(director: Director) -> None:
    """Somebody removed the pins under a checker at work, and `haxlb swap` built new tables: they are empty."""
    director.attach("near")
    before = director.wire.attachment("near")
    for pin in director.directory.iterdir():
        if not pin.is_dir():
            pin.unlink()
    director.program = director.build()
    with pytest.raises(HostError, match="reads other tables than this process writes") as caught:
        director.attach("near")
    assert "haxlb swap" in caught.value.remedy
    assert director.wire.attachment("near") == before


def test_teardown_leaves_nothing(director: Director) -> None:
    director.attach("near")
    directory = director.runtime / "bpf"
    (directory / "0-later" / "still").mkdir(parents=True)
    removed = director.wire.inside(lambda: tear_down(director.runtime))
    assert "link of near" in removed
    assert {"map flows", "map rings"} <= set(removed)
    assert director.wire.attachment("near").mode == "none"
    assert not is_bpffs(directory)
    assert director.wire.inside(lambda: tear_down(director.runtime)) == []


def test_what_was_detached_is_detached_at_once(director: Director) -> None:
    """Who starts haxlb right after `haxlb detach`, or attaches elsewhere, does not find the interface taken."""
    for _ in range(50):
        director.attach("near")
        director.attach()
        assert director.wire.attachment("near").mode == "none"
    director.attach("near")
    director.wire.inside(lambda: tear_down(director.runtime))
    assert director.wire.attachment("near").mode == "none"


def test_frames_that_arrive_are_forwarded_to_the_far_end(director: Director) -> None:
    director.attach("near")
    director.apply(table(near_server(director, 1), near_server(director, 2)))
    traffic = Witnessed(director.wire, tcp(), "02:00:00:00:00:aa")
    try:
        traffic.send(10_000)
        traffic.expect_all_back()
        sent, counters = traffic.sent, director.forwarder.counters()
        assert sent >= 10_000
        assert sum(counters.verdicts.values()) == sent
        shares = [tally.packets for tally in counters.servers.values()]
        assert sum(shares) == sent
        assert min(shares) > 0.45 * sent
    finally:
        traffic.close()


def test_a_redirect_leaves_by_the_other_interface(director: Director) -> None:
    director.wire.ip("link add other type veth peer name other-far")
    director.wire.ip("link set other up")
    director.wire.ip("link set other-far up")
    director.attach("near")
    other = director.wire.index("other")
    hop = NextHop(interface_index=other, source_mac="02:00:00:00:00:a1", destination_mac="02:00:00:00:01:01")
    director.apply(table(server(1, **{name: getattr(hop, name) for name in hop.__slots__})))
    traffic = Witnessed(director.wire, tcp(), "02:00:00:00:00:aa")
    away = counter("away")
    program = bpf.prog_load(sink(away), name="sink")
    end = director.wire.index("other-far")
    link = director.wire.inside(lambda: bpf.link_create(program, end, flags=xdp.FLAGS_DRV_MODE))
    try:
        traffic.send(1000)
        sent = traffic.sent
        assert sent >= 1000
        eventually(lambda: counted(away, possible_cpus()) >= sent, "the last ones")
        assert counted(away, possible_cpus()) == sent
        assert traffic.came_back(possible_cpus()) == 0
    finally:
        traffic.close()
        for fd in (link, program, away):
            os.close(fd)


def test_fifty_swaps_under_a_million_packets_lose_none(director: Director) -> None:
    """Program and tables are exchanged while frames arrive; what went in comes out."""
    first = director.program
    # Attached before the other one is built: nothing is kept of what is not.
    director.attach("near")
    second = director.build()
    pools = [table(*(near_server(director, number) for number in numbers)) for numbers in [(1, 2, 3), (2, 3, 4), (5,)]]
    director.apply(pools[0])
    traffic = Witnessed(director.wire, tcp(), "02:00:00:00:00:aa")
    swapping = threading.Event()
    swapping.set()

    def send() -> None:
        while swapping.is_set() or traffic.sent < 1_000_000:
            traffic.send(20_000)

    sender = threading.Thread(target=send)
    sender.start()
    swapped, sent_at = set(), []
    try:
        for turn in range(50):
            director.attach("near", program=first if turn % 2 else second)
            swapped.add(director.wire.attachment("near").program_id)
            director.apply(pools[turn % len(pools)])
            if turn % 5 == 0:
                before = traffic.sent
                eventually(lambda: traffic.sent > before, "frames are being sent")  # noqa: B023 - at once
            sent_at.append(traffic.sent)
    finally:
        swapping.clear()
        sender.join()
    try:
        traffic.expect_all_back()
        sent = traffic.sent
        verdicts = {name: count for name, count in director.forwarder.counters().verdicts.items() if count}
        assert len(swapped) == 2
        # The swaps came while frames were being sent, not before or after.
        assert len(set(sent_at)) > 5
        assert sent >= 1_000_000
        assert sum(verdicts.values()) == sent
        assert set(verdicts) <= {"new_flow", "forwarded", "moved_flow", "table_full"}
    finally:
        traffic.close()


def test_the_devmap_has_the_interfaces_of_servers_and_one_that_is_not_there_is_said_once(director: Director) -> None:
    gone, near = 9999, director.wire.index("near")
    for number in (1, 2):
        director.apply(table(server(number, interface_index=gone), server(3, interface_index=near)))
    assert director.log == [("warning", "no_batched_redirect")]
    devices = director.forwarder._maps.fds["devices"]
    assert list(bpf.map_keys(devices, 4)) == [layout.INDEX.pack(near)]
    director.apply(table(server(1, interface_index=gone)))
    assert list(bpf.map_keys(devices, 4)) == []

"""The map of virtual MACs as a speaker keeps it, on a bpffs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from haxlb.forwarding.layout import Sizes, pack_virtual_mac, shapes
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import ensure_bpffs, unmount
from haxlb.linux.forwarded_macs import MAP, ForwardedMacs, forget
from haxlb.linux.log import Complaints
from haxlb.linux.maps import create
from haxlb.linux.resign import Bequest
from haxlb.linux.timerfd import MonotonicClock
from haxlb.linux.xdp import interface_index
from haxlb.model.instance import VirtualMac, VrrpInstance
from tests.netns.kernel import Lines

pytestmark = pytest.mark.bpf

ONE, TWO = "00:00:5e:00:01:33", "00:00:5e:00:01:34"
BOTH = frozenset({("lo", ONE), ("lo", TWO)})


@pytest.fixture
def pins(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "fs"
    ensure_bpffs(place)
    yield place
    unmount(place)


def make(pins: Path) -> int:
    (shape,) = (each for each in shapes(Sizes()) if each.name == MAP)
    fd = create(shape)
    (pins / MAP).unlink(missing_ok=True)
    bpf.obj_pin(fd, pins / MAP)
    return fd


def content(fd: int) -> set[bytes]:
    return set(bpf.map_keys(fd, 12))


def keys(*macs: str) -> set[bytes]:
    return {pack_virtual_mac(interface_index("lo"), each) for each in macs}


@pytest.fixture
def log() -> Lines:
    return Lines()


@pytest.fixture
def macs(log: Lines) -> Iterator[ForwardedMacs]:
    made = ForwardedMacs(Complaints(log, MonotonicClock()))
    yield made
    made.close()


def test_what_is_accepted_is_in_the_map_and_nothing_else(pins: Path, macs: ForwardedMacs, log: Lines) -> None:
    with closing(make(pins)) as fd:
        macs.use(str(pins))
        macs.accept(BOTH)
        assert content(fd) == keys(ONE, TWO)
        assert bpf.map_lookup(fd, next(iter(keys(ONE))), 4) == b"\1\0\0\0"
        macs.accept(frozenset({("lo", TWO)}))
        assert content(fd) == keys(TWO)
        macs.accept(frozenset())
        assert content(fd) == set()
    assert log.lines == []


def test_a_check_repairs_what_others_did_and_finds_a_new_data_plane(pins: Path, macs: ForwardedMacs) -> None:
    macs.use(str(pins))
    macs.accept(frozenset({("lo", ONE)}))
    macs.check()
    assert not (pins / MAP).exists(), "without a data plane there is nothing to do"
    with closing(make(pins)) as fd:
        macs.check()
        assert content(fd) == keys(ONE)
        (stranger,) = keys(TWO)
        bpf.map_update(fd, stranger, b"\1\0\0\0")
        bpf.map_delete(fd, next(iter(keys(ONE))))
        macs.check()
        assert content(fd) == keys(ONE)
    with closing(make(pins)) as fd:
        assert content(fd) == set()
        macs.check()
        assert content(fd) == keys(ONE)
    (pins / MAP).unlink()
    macs.check()
    macs.accept(frozenset())
    macs.use("")
    macs.check()


def test_a_successor_takes_nothing_out_before_it_is_asked_to(pins: Path, macs: ForwardedMacs) -> None:
    """It has been told the directory, and becomes MASTER of one instance after the other."""
    with closing(make(pins)) as fd:
        for each in keys(ONE, TWO):
            bpf.map_update(fd, each, b"\1\0\0\0")
        macs.use(str(pins))
        macs.accept(frozenset({("lo", ONE)}))
        assert content(fd) == keys(ONE, TWO)
        macs.accept(BOTH)
        macs.check()
        assert content(fd) == keys(ONE, TWO)


def test_an_interface_that_is_gone_is_said_once_and_hinders_no_other(
    pins: Path, macs: ForwardedMacs, log: Lines
) -> None:
    with closing(make(pins)) as fd:
        macs.use(str(pins))
        macs.accept(frozenset({("hxnone", TWO)}))
        assert [event for event, _ in log.lines] == ["virtual_macs_not_told"]
        macs.accept(frozenset({("hxnone", TWO), ("lo", ONE)}))
        macs.check()
        assert content(fd) == keys(ONE)
        assert len(log.lines) == 1


def test_a_map_of_another_shape_is_refused_and_left_alone(pins: Path, macs: ForwardedMacs, log: Lines) -> None:
    with closing(bpf.map_create(bpf.MAP_TYPE_HASH, 4, 4, 8, name="other")) as other:
        bpf.map_update(other, b"\1\0\0\0", b"\1\0\0\0")
        bpf.obj_pin(other, pins / MAP)
        macs.use(str(pins))
        macs.accept(BOTH)
        macs.check()
        assert set(bpf.map_keys(other, 4)) == {b"\1\0\0\0"}
    ((event, fields),) = log.lines
    assert event == "virtual_macs_not_told"
    assert "is not a map of virtual MACs" in str(fields["reason"])


def test_whoever_stands_in_for_a_dead_speaker_takes_them_out_but_for_an_heirs(pins: Path) -> None:
    dead, heir = (
        VrrpInstance(name=name, interface="lo", vrid=vrid, virtual_mac=VirtualMac(interface=f"v{vrid}", mac=mac))
        for name, vrid, mac in (("A", 51, ONE.upper()), ("B", 52, TWO))
    )
    bequest = Bequest(pins)
    try:
        bequest.prepare((dead, heir))
        bequest.execute(frozenset())
        with closing(make(pins)) as fd:
            for each in keys(ONE, TWO):
                bpf.map_update(fd, each, b"\1\0\0\0")
            assert not [each for each in bequest.execute(frozenset(), frozenset({"B"})) if "MAC" in each]
            assert content(fd) == keys(TWO)
            bequest.execute(frozenset())
            assert content(fd) == set()
        (pins / MAP).unlink()
        (pins / MAP).mkdir()
        problems = bequest.execute(frozenset())
        assert [each for each in problems if each.startswith("frames to virtual MACs may still be forwarded")]
    finally:
        bequest.close()


def test_forgetting_where_nothing_is_pinned_is_no_error(tmp_path: Path) -> None:
    forget(tmp_path, frozenset({ONE}))

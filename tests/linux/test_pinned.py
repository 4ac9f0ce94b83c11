from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.layout import Sizes
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.bpffs import ensure_bpffs, unmount
from haxlb.linux.maps import Maps
from haxlb.linux.pinned import VERDICTS, PinnedForwarder, VerdictFile
from haxlb.model.errors import HostError

KNOWN = {"[192.168.10.100]:tcp:80 192.168.10.21:80": True, "[192.168.10.100]:tcp:80 192.168.10.22:80": False}


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, level: str, event: str, **fields: object) -> None:
        del fields
        self.lines.append((level, event))


def verdict_file(directory: Path) -> tuple[VerdictFile, Log]:
    """One beside a data plane that is pinned in `directory`."""
    log = Log()
    file = VerdictFile(log)
    directory.mkdir(parents=True, exist_ok=True)
    file.use(directory)
    return file, log


def test_verdicts_survive_the_process(tmp_path: Path) -> None:
    (tmp_path / "endpoints").touch()
    verdict_file(tmp_path)[0].save(KNOWN)
    assert verdict_file(tmp_path)[0].load() == KNOWN
    assert [each.name for each in tmp_path.iterdir() if each.name != "endpoints"] == [VERDICTS]


def test_verdicts_for_another_data_plane_are_worth_nothing(tmp_path: Path) -> None:
    pin = tmp_path / "endpoints"
    pin.touch()
    verdict_file(tmp_path)[0].save(KNOWN)
    replacement = tmp_path / "other"
    replacement.touch()
    replacement.rename(pin)
    assert verdict_file(tmp_path)[0].load() == {}


def test_without_a_file_nothing_is_known_and_nothing_is_said(tmp_path: Path) -> None:
    file, log = verdict_file(tmp_path)
    assert file.load() == {}
    assert log.lines == []


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"verdicts": 3}', '{"data_plane": ""}', "\x00"])
def test_a_file_that_cannot_be_used_is_said_and_ignored(tmp_path: Path, content: str) -> None:
    file, log = verdict_file(tmp_path)
    file.path.write_text(content, encoding="utf-8")
    assert file.load() == {}
    assert log.lines == [("warning", "verdicts_unreadable")]


def test_a_place_that_cannot_be_written_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    file, log = verdict_file(tmp_path)
    file.path.mkdir()
    file.save(KNOWN)
    assert log.lines == [("warning", "verdicts_not_saved")]
    assert [each.name for each in tmp_path.iterdir()] == [VERDICTS]


def test_the_file_is_whole_json_with_a_schema(tmp_path: Path) -> None:
    file, _ = verdict_file(tmp_path)
    file.save(KNOWN)
    content = json.loads(file.path.read_text(encoding="utf-8"))
    assert content["schema"] == "haxlb.verdicts/1"
    assert content["verdicts"] == KNOWN


@pytest.mark.bpf
def test_the_first_table_of_each_data_plane_is_told() -> None:
    told: list[int] = []
    forwarder = PinnedForwarder(Log(), on_first_table=lambda: told.append(1))
    with tempfile.TemporaryDirectory(prefix="haxlb-") as runtime:
        bpffs = Path(runtime) / "bpf"
        ensure_bpffs(bpffs)
        try:
            for at, name in enumerate((layout.ABI, f"other/{layout.ABI}")):
                directory = bpffs / name
                (directory / "links").mkdir(parents=True)
                Maps.create(directory, Sizes(services=4, frontends=4, backends=8, rings=1 << 10)).close()
                forwarder.use(directory)
                assert len(told) == at
                for _ in range(2):
                    forwarder.apply(WantedTable())
                    assert len(told) == at + 1
        finally:
            forwarder.close()
            unmount(bpffs)


def test_where_nothing_is_pinned_every_call_is_a_host_error_with_a_remedy(tmp_path: Path) -> None:
    forwarder = PinnedForwarder(Log())
    forwarder.use(tmp_path / "1")
    assert forwarder.version == "1"
    for call in (
        lambda: forwarder.apply(WantedTable()),
        lambda: forwarder.attach("/nowhere", ("lo",), "auto"),
        forwarder.links,
        forwarder.counters,
    ):
        with pytest.raises(HostError) as refusal:
            call()
        assert refusal.value.remedy
    forwarder.close()

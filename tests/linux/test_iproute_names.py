from __future__ import annotations

from pathlib import Path

import pytest

from haxlb.linux.iproute_names import number_of
from haxlb.model.errors import HostError


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    vendor, own = tmp_path / "usr", tmp_path / "etc"
    (own / "rt_tables.d").mkdir(parents=True)
    vendor.mkdir()
    (vendor / "rt_tables").write_text("100 vendor\n101 both\n")
    (own / "rt_tables").write_text(
        "# a comment\n 0x70 hexadecimal # of the host\n201 both\nbroken line here\nx y\n300\n"
    )
    (own / "rt_tables.d" / "site.conf").write_text("70000 site\n")
    (own / "rt_tables.d" / "ignored.txt").write_text("70001 ignored\n")
    return vendor, own


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("main", 254),
        ("local", 255),
        ("100", 100),
        ("0x64", 100),
        ("4294967295", 4294967295),
        ("vendor", 100),
        ("both", 201),
        ("hexadecimal", 112),
        ("site", 70000),
    ],
)
def test_names_and_numbers(directories: tuple[Path, Path], text: str, number: int) -> None:
    assert number_of("rt_tables", text, directories=directories) == number


@pytest.mark.parametrize("text", ["nonsense", "ignored", "", "y", "-1", "4294967296", "1e3"])
def test_what_is_neither_is_refused_with_a_remedy(directories: tuple[Path, Path], text: str) -> None:
    with pytest.raises(HostError) as raised:
        number_of("rt_tables", text, directories=directories)
    assert "rt_tables" in str(raised.value)


def test_a_host_without_iproute2_has_the_kernels_own_names(tmp_path: Path) -> None:
    nowhere = (tmp_path / "absent",)
    assert number_of("rt_protos", "static", directories=nowhere) == 4
    assert number_of("rt_scopes", "link", directories=nowhere) == 253
    with pytest.raises(HostError, match="256 is out of range"):
        number_of("rt_protos", "256", directories=nowhere)

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from haxlb.linux.script_security import Identity, identity, insecurity, judge, locate, unfit
from haxlb.model.errors import HostError

ROOT = Identity(uid=0, gid=0, name="root")
NOBODY = Identity(uid=65534, gid=65534, name="nobody")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives files to others")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "check"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def safe() -> Path:
    """A program that only root can change: every directory on the way to it, too."""
    return Path("/bin/true")


def test_a_script_that_may_run(script: Path) -> None:
    assert judge([str(script), "argument"], "root", "", False) == ""


def test_a_script_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "absent"
    assert judge([str(path)], "root", "", False) == f"{path}: No such file or directory"


def test_a_script_that_is_not_executable(script: Path) -> None:
    script.chmod(0o644)
    assert judge([str(script)], "root", "", False) == f"{script} is not executable"


def test_a_directory_is_no_script(tmp_path: Path) -> None:
    assert judge([str(tmp_path)], "root", "", False) == f"{tmp_path} is not a file"


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "circle"
    path.symlink_to(path)
    assert "Too many levels of symbolic links" in judge([str(path)], "root", "", True)


def test_names_without_a_slash_are_searched_for() -> None:
    assert locate("true").endswith("/true")
    assert judge(["true"], "root", "", False) == ""
    assert judge(["there-is-no-such-program"], "root", "", False) == (
        "there-is-no-such-program is not found in the search path"
    )


def test_users_and_groups_that_are_not_there(script: Path) -> None:
    assert judge([str(script)], "there-is-no-such-user", "", False) == "there is no user there-is-no-such-user"
    assert judge([str(script)], "root", "no-such-group", False) == "there is no group no-such-group"
    with pytest.raises(HostError) as refused:
        identity("there-is-no-such-user")
    assert refused.value.remedy


def test_the_group_is_the_users_own_unless_it_is_named() -> None:
    assert identity("nobody") == NOBODY
    assert identity("nobody", "root").gid == 0


def test_what_only_root_can_change_is_secure(safe: Path) -> None:
    assert unfit([str(safe)], ROOT, security=True) == ""


def test_a_directory_that_everybody_can_write(tmp_path: Path, script: Path) -> None:
    tmp_path.chmod(0o777)
    why = unfit([str(script)], ROOT, security=True)
    assert "can be written by everybody" in why
    assert unfit([str(script)], ROOT, security=False) == ""
    assert insecurity([str(script)], ROOT) == why


def test_who_does_not_run_as_root_needs_no_security(tmp_path: Path, script: Path) -> None:
    tmp_path.chmod(0o777)
    assert unfit([str(script)], NOBODY, security=True) == ""


class Tree:
    """Files below a directory that only root can change."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def script(self, name: str) -> Path:
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path


@pytest.fixture
def tree() -> Iterator[Tree]:
    """Not among the temporary files: their directory is anybody's, and so nothing in it is secure."""
    with tempfile.TemporaryDirectory(prefix="hx-security-", dir="/run") as base:
        Path(base).chmod(0o755)
        yield Tree(Path(base))


@needs_root
def test_each_part_of_the_path_counts(tree: Tree) -> None:
    script = tree.script("a/b/check")
    assert unfit([str(script)], ROOT, security=True) == ""
    for part in (script, script.parent, script.parent.parent):
        os.chown(part, 65534, 0)
        assert f"{part} belongs to nobody" in unfit([str(script)], ROOT, security=True)
        os.chown(part, 0, 65534)
        assert unfit([str(script)], ROOT, security=True) == ""
        part.chmod(0o775)
        assert f"{part} can be written by its group" in unfit([str(script)], ROOT, security=True)
        os.chown(part, 0, 0)
        assert unfit([str(script)], ROOT, security=True) == ""
        part.chmod(0o757)
        assert f"{part} can be written by everybody" in unfit([str(script)], ROOT, security=True)
        part.chmod(0o755)


@needs_root
def test_a_link_is_as_secure_as_what_it_leads_to(tree: Tree) -> None:
    good, bad = tree.script("good/check"), tree.script("bad/check")
    bad.parent.chmod(0o777)
    link = tree.base / "link"
    for target, secure in [(str(good), True), ("good/check", True), (str(bad), False), ("good/../bad/check", False)]:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert (unfit([str(link)], ROOT, security=True) == "") is secure, target
    # A safe place reached through one that is not.
    way = bad.parent / "way"
    way.symlink_to(good.parent)
    assert "bad can be written by everybody" in unfit([str(way / "check")], ROOT, security=True)

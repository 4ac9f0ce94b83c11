"""Configurations as text, read through a dictionary of files."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from keepalived_compat.reading import Reading, read


class DictReader:
    """Files in memory; the value None stands for one that may not be read."""

    def __init__(self, files: dict[str, str | bytes | None]) -> None:
        self.files = {str(PurePath("/etc/keepalived") / name): content for name, content in files.items()}

    def read(self, path: Path) -> bytes:
        if str(path) not in self.files:
            raise FileNotFoundError(2, "No such file or directory")
        content = self.files[str(path)]
        if content is None:
            raise PermissionError(13, "Permission denied")
        return content.encode() if isinstance(content, str) else content

    def match(self, pattern: str, directory: Path) -> list[Path]:
        wanted = str(directory / pattern)
        return [Path(each) for each in sorted(self.files) if fnmatch.fnmatchcase(each, wanted)]

    def refusal(self, path: Path) -> str:
        return "it is executable" if path.suffix == ".sh" else ""

    def identity(self, path: Path) -> str:
        return str(path)


MAIN = "keepalived.conf"


@pytest.fixture
def reading() -> Callable[..., Reading]:
    def of(text: str | bytes, *, config_id: str = "lb1", **files: str | bytes | None) -> Reading:
        named = {name.replace("_dot_", ".").replace("__", "/"): content for name, content in files.items()}
        reader = DictReader({MAIN: text, **named})
        return read(Path("/etc/keepalived") / MAIN, config_id=config_id, reader=reader)

    return of


@pytest.fixture
def found() -> Callable[[Reading], list[tuple[str, str, int, int, int]]]:
    """Complaints as (severity, code, line, column, end column), by place."""

    def of(read: Reading) -> list[tuple[str, str, int, int, int]]:
        ordered = sorted(read.complaints.all, key=lambda each: read.sources.rank(each.span))
        return [(each.severity.value, each.code, *each.span[1:]) for each in ordered]

    return of

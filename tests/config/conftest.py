"""Configurations as text, loaded through a dictionary of files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from haxlb.config import Loaded, load

CONF = Path("/etc/keepalived/keepalived.conf")
SETTINGS = Path("/etc/haxlb/haxlb.yml")


class OnlyThese:
    """A reader of two files and what lies beside them."""

    def __init__(self, files: dict[Path, str | bytes]) -> None:
        self._files = files

    def read(self, path: Path) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(2, "No such file or directory")
        content = self._files[path]
        return content.encode() if isinstance(content, str) else content

    def match(self, pattern: str, directory: Path) -> list[Path]:
        return [each for each in self._files if each == directory / pattern]

    def refusal(self, path: Path) -> str:
        return ""

    def identity(self, path: Path) -> str:
        return str(path)


@pytest.fixture
def loading() -> Callable[..., Loaded]:
    def of(text: str | bytes, *, settings: str | bytes | None = None, interfaces=None, secrets=None) -> Loaded:
        files: dict[Path, str | bytes] = {CONF: text}
        if settings is not None:
            files[SETTINGS] = settings
        for name, content in (secrets or {}).items():
            files[SETTINGS.parent / name] = content
        return load(CONF, settings=SETTINGS, interfaces=interfaces, node="lb1", reader=OnlyThese(files))

    return of


@pytest.fixture
def codes() -> Callable[[Loaded], list[tuple[str, str]]]:
    def of(loaded: Loaded) -> list[tuple[str, str]]:
        return [(each.severity.value, each.code) for each in loaded.diagnostics]

    return of


INSTANCE = """\
vrrp_instance VI_1 {
    interface eth0
    virtual_router_id 51
    %s
    virtual_ipaddress {
        192.168.10.100/24
        %s
    }
}
"""


@pytest.fixture
def instance(loading):
    """One instance with some lines more: (instance or None, complaints)."""

    def of(*lines: str, vips: str = "", before: str = ""):
        loaded = loading(before + INSTANCE % ("\n    ".join(lines), vips))
        found = loaded.config.instances if loaded.config else ()
        return (found[0] if found else None), [(each.severity.value, each.code) for each in loaded.diagnostics]

    return of


SERVER = """\
virtual_server 192.168.10.100 80 {
    lb_algo rr
    lb_kind DR
    protocol TCP
    %s
    real_server 192.168.10.21 80 {
        %s
    }
}
"""


@pytest.fixture
def server(loading):
    """One virtual server with some lines more, in it and in its real server: (virtual server or None, complaints).

    The complaints without those that its bareness brings: no instance has its address, no check.
    """

    def of(*lines: str, real: str = "", without: str = ""):
        text = "\n".join(each for each in SERVER.splitlines() if not without or without not in each)
        loaded = loading(text % ("\n    ".join(lines), real))
        found = loaded.config.virtual_servers if loaded.config else ()
        said = [(each.severity.value, each.code) for each in loaded.diagnostics]
        bare = (("warning", "unowned-address"), ("note", "unchecked-server"))
        return (found[0] if found else None), [each for each in said if each not in bare]

    return of

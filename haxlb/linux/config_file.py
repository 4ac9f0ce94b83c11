"""ConfigPort: keepalived.conf and haxlb.yml on disk, checked against the interfaces of this host."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from haxlb.config import load
from haxlb.daemon.supervisor_ports import Loaded, RefusedConfig
from keepalived_compat.rendering import as_json, as_text, summary


class ConfigFile:
    """The two files; `colour` is how their complaints are rendered."""

    def __init__(self, path: Path, settings: Path | None, *, colour: bool = False) -> None:
        self._path = path
        self._settings = settings
        self._colour = colour

    @property
    def path(self) -> str:
        """Where keepalived.conf is, absolute: the status is read by people in other directories."""
        return str(self._path.absolute())

    async def load(self) -> Loaded:
        """Read them again, in a thread: a large configuration must not hold up a dead speaker's bequest."""
        return await asyncio.to_thread(self.load_now)

    def load_now(self) -> Loaded:
        """Read them. Raises RefusedConfig."""
        interfaces = frozenset(name for _, name in socket.if_nameindex())
        found = load(self._path, settings=self._settings, interfaces=interfaces, node=socket.gethostname())
        report = "\n".join(as_text(each, found.sources, colour=self._colour) for each in found.diagnostics)
        findings = tuple(as_json(found.diagnostics))
        if found.config is None:
            raise RefusedConfig(f"{self._path}: {summary(found.diagnostics)}", report=report, findings=findings)
        return Loaded(config=found.config, report=report, findings=findings)

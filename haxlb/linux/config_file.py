"""ConfigPort: keepalived.conf and haxlb.yml on disk, checked against the interfaces of this host."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from haxlb.config import load
from haxlb.config.part import Part
from haxlb.daemon.supervisor_ports import Loaded, RefusedConfig
from haxlb.linux.accounts import missing_account
from haxlb.linux.script_security import insecure_program, missing_program
from haxlb.model.commands import Command
from keepalived_compat.rendering import as_json, as_text, summary_by_file


class ConfigFile:
    """The two files; `colour` is how their complaints are rendered, `config_id` selects @ID lines.

    Of what they say only the part asked for is in the configuration.
    """

    def __init__(
        self,
        path: Path,
        settings: Path | None,
        *,
        colour: bool = False,
        config_id: str = "",
        part: Part = Part.ALL,
    ) -> None:
        self._path = path
        self._settings = settings
        self._colour = colour
        self._config_id = config_id
        self._part = part

    @property
    def path(self) -> str:
        """Where keepalived.conf is, absolute: the status is read by people in other directories."""
        return str(self._path.absolute())

    async def load(self) -> Loaded:
        """Read them again, in a thread: a large configuration must not hold up a dead speaker's bequest."""
        return await asyncio.to_thread(self.load_now)

    def load_now(self) -> Loaded:
        """Read them. Raises RefusedConfig."""
        for path in (self._path, self._settings):
            _refuse_endless(path)
        interfaces = frozenset(name for _, name in socket.if_nameindex())
        found = load(
            self._path,
            settings=self._settings,
            interfaces=interfaces,
            accounts=missing_account,
            programs=self._missing_program,
            insecurities=self._insecure_program,
            node=socket.gethostname(),
            config_id=self._config_id,
        )
        report = "\n".join(as_text(each, found.sources, colour=self._colour) for each in found.diagnostics)
        findings = tuple(as_json(found.diagnostics))
        if found.config is None:
            raise RefusedConfig(summary_by_file(found.diagnostics), report=report, findings=findings)
        return Loaded(config=self._part.of(found.config), report=report, findings=findings)

    def _missing_program(self, argv: tuple[str, ...]) -> str:
        return missing_program(argv, str(self._path.parent))

    def _insecure_program(self, command: Command) -> str:
        return insecure_program(command, str(self._path.parent))


def _refuse_endless(path: Path | None) -> None:
    """A pipe that nobody writes to would hold up every command for ever, and one cannot be read again by a reload."""
    if path is not None and path.is_fifo():
        raise RefusedConfig(f"{path} is a pipe", report=f"{path}: fatal: it is a pipe: give the path of a file")

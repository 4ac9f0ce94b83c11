"""What outlives the checker: the pinned data plane, opened when it is first needed, and the verdicts beside it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from haxlb.forwarding.wanted import Counters, WantedTable
from haxlb.linux.bpffs import is_bpffs
from haxlb.linux.forwarder import Forwarder
from haxlb.linux.log import Log
from haxlb.model.errors import HostError
from haxlb.model.status import LinkStatus

VERDICTS = "verdicts.json"
_WITNESS = "endpoints"
"""A pinned map: as long as it is the same one, the data plane is the one that the verdicts were made for."""

T = TypeVar("T")


class PinnedForwarder:
    """ForwarderPort: a `Forwarder` that is opened at its first use and anew after each refusal."""

    def __init__(self, log: Log, on_first_table: Callable[[], None] = lambda: None) -> None:
        """`on_first_table`: called when the first table of a data plane has been written."""
        self._log = log
        self._on_first_table = on_first_table
        self._written = False
        self._directory = Path()
        self._forwarder: Forwarder | None = None

    @property
    def version(self) -> str:
        """Of the maps' layout: the name of their directory."""
        return self._directory.name

    def use(self, directory: Path) -> None:
        """The data plane is this one from now on."""
        if directory != self._directory:
            self.close()
            self._directory = directory

    def close(self) -> None:
        """Let go; the data plane runs on."""
        if self._forwarder is not None:
            self._forwarder.close()
            self._forwarder = None
        self._written = False

    def attach(self, program: str, interfaces: tuple[str, ...], mode: str) -> tuple[LinkStatus, ...]:
        """Attach the pinned program, or swap it in. Raises HostError."""
        return self._do(lambda forwarder: forwarder.attach(program, interfaces, mode))

    def apply(self, wanted: WantedTable) -> None:
        """Make the maps say what `wanted` says. Raises HostError."""
        self._do(lambda forwarder: forwarder.apply(wanted))
        if not self._written:
            self._written = True
            self._on_first_table()

    def settle(self, now_s: int, lifetime_s: int) -> None:
        """End the transitions of stateless services that are over. Raises HostError."""
        # Not opened for this: there is nothing to end before a table was applied.
        if self._forwarder is not None:
            self._do(lambda forwarder: forwarder.settle(now_s, lifetime_s))

    def counters(self) -> Counters:
        """Counters since the maps were made. Raises HostError."""
        return self._do(lambda forwarder: forwarder.counters())

    def links(self) -> tuple[LinkStatus, ...]:
        """Where the program is attached. Raises HostError."""
        return self._do(lambda forwarder: forwarder.links())

    def repin(self) -> tuple[str, ...]:
        """Pin again what somebody has removed; its names. Raises HostError."""
        if self._forwarder is None:
            return ()
        try:
            # Not let go of when it cannot be pinned: then what is open is all that keeps it.
            return self._forwarder.repin()
        except OSError as problem:
            raise HostError(f"cannot look into {self._directory}: {problem.strerror}") from problem

    def _do(self, act: Callable[[Forwarder], T]) -> T:
        try:
            if self._forwarder is None:
                self._forwarder = Forwarder(self._directory, self._logged)
            return act(self._forwarder)
        except HostError:
            # `haxlb detach` may have removed the pins: the maps that are open would be written for nobody.
            self.close()
            raise
        except OSError as problem:
            self.close()
            raise HostError(
                f"cannot use the data plane in {self._directory}: {problem.strerror or problem}",
                remedy="`haxlb swap` builds it anew",
            ) from problem

    def _logged(self, level: str, event: str, fields: dict[str, str]) -> None:
        self._log(level, event, **fields)


class VerdictFile:
    """VerdictPort: a file in the runtime directory, of worth only while the data plane beside it is the same."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._directory = Path()

    def use(self, directory: Path) -> None:
        """The verdicts belong to the data plane that is pinned here."""
        self._directory = directory

    @property
    def path(self) -> Path:
        """Outside the bpffs, which holds no ordinary files."""
        place = self._directory
        while is_bpffs(place) or not place.is_dir():
            place = place.parent
        return place / VERDICTS

    def load(self) -> dict[str, bool]:
        """What was saved last; empty where nothing was, or for another data plane."""
        try:
            content: Any = json.loads(self.path.read_text(encoding="utf-8"))
            verdicts = {str(name): bool(up) for name, up in content["verdicts"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            self._log(
                "warning", "verdicts_unreadable", path=self.path, reason=problem, remedy="none: checks begin anew"
            )
            return {}
        return verdicts if content.get("data_plane") == self._witness() else {}

    def save(self, verdicts: Mapping[str, bool]) -> None:
        """Replace what was saved, whole or not at all."""
        content = {"schema": "haxlb.verdicts/1", "data_plane": self._witness(), "verdicts": dict(verdicts)}
        path = self.path
        aside = path.with_suffix(".new")
        try:
            aside.write_text(json.dumps(content), encoding="utf-8")
            aside.replace(path)
        except OSError as problem:
            with contextlib.suppress(OSError):
                aside.unlink()
            self._log("warning", "verdicts_not_saved", path=path, reason=os.strerror(problem.errno or 0))

    def _witness(self) -> str:
        try:
            status = (self._directory / _WITNESS).stat()
        except OSError:
            return ""
        return f"{status.st_ino}-{status.st_ctime_ns}"

"""Where a virtual supervisor tells its operator: nothing is run, written or sent, everything is remembered."""

from __future__ import annotations

from collections.abc import Iterable

from haxlb.daemon.notifications import Mail
from haxlb.daemon.supervisor_ports import Outlets
from haxlb.model.commands import Command
from haxlb.model.notification import MailSettings, NotifyFifo, ScriptSettings
from haxlb.model.status import MailStatus


class ScriptLog:
    """OperatorScriptPort."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, Command]] = []
        """Queue and command, in order."""

    def configure(self, settings: ScriptSettings, directory: str) -> None:
        """Nothing is run, as nobody."""

    def run(self, queue: str, command: Command) -> None:
        """Noted."""
        self.runs.append((queue, command))

    async def complete(self, queue: str, command: Command, limit_s: float) -> int | None:
        """Noted, and well."""
        del limit_s
        self.runs.append((queue, command))
        return 0

    async def finish(self, timeout_s: float) -> None:
        """Nothing runs."""


class FifoLog:
    """FifoPort: the lines that a reader would get, were there a FIFO or not."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def configure(self, fifos: Iterable[NotifyFifo], settings: ScriptSettings, directory: str) -> None:
        """None is made."""

    def write(self, line: str, *, lvs: bool = False) -> None:
        """Noted."""
        del lvs
        self.lines.append(line)

    @property
    def lost(self) -> dict[str, int]:
        """A list is never full."""
        return {}

    async def close(self) -> None:
        """None was opened."""


class MailLog:
    """MailPort."""

    def __init__(self) -> None:
        self.mails: list[Mail] = []

    def configure(self, settings: MailSettings | None) -> None:
        """Nobody is written to."""

    def send(self, mail: Mail) -> None:
        """Noted."""
        self.mails.append(mail)

    @property
    def status(self) -> MailStatus:
        """Each was delivered at once."""
        return MailStatus(delivered=len(self.mails))

    async def finish(self, timeout_s: float) -> None:
        """All are sent."""


class SilentLog:
    """LogPort: a drill has its timeline."""

    def log(self, level: str, event: str, /, **fields: object) -> None:
        """Nothing is written."""


def outlets(fifo: FifoLog) -> Outlets:
    """All of them; what is told can be read from `fifo`."""
    return Outlets(scripts=ScriptLog(), fifos=fifo, mail=MailLog())

"""Ready-made announcements: crafted beside all else, for the configuration that is in force by then.

Nothing waits for them. The speaker puts the same bytes together until it has them, and the crafter may take half a
minute on a host that is short of memory: neither a reload nor a hand-over has time for that.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from haxlb.daemon.chronicle import Chronicle
from haxlb.daemon.messages import ConfigureSpeaker, GarpFrames, LinkAltered
from haxlb.daemon.processes import Processes
from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import World
from haxlb.model.errors import HostError

FRAMES_AT_ONCE = 32
"""Between two messages of so many the speaker says what is due."""
SPEAKER_PATIENCE_S = 5.0


class Crafting:
    """One crafter at a time; what is asked for meanwhile is done by one more."""

    def __init__(
        self,
        world: World,
        standing: Standing,
        processes: Processes,
        chronicle: Chronicle,
        *,
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        """`spawn` runs a coroutine beside all else."""
        self._world = world
        self._standing = standing
        self._processes = processes
        self._chronicle = chronicle
        self._spawn = spawn
        self._due: dict[tuple[str, str], str] = {}
        """By interface and MAC, or for all; and what is so where it fails."""
        self._busy = False

    def for_configuration(self) -> None:
        """Frames for other addresses or interfaces than before, once the speaker has its orders."""
        self._ask(_ALL, "announcements are not those of the crafter")

    def for_link(self, altered: LinkAltered) -> None:
        """Frames for an interface's new MAC, unless they are on their way already."""
        self._ask((altered.interface, altered.mac), f"{altered.interface} has the MAC {altered.mac} now, but")

    def _ask(self, what: tuple[str, str], otherwise: str) -> None:
        self._due[what] = otherwise
        if not self._busy:
            self._busy = True
            self._spawn(self._work())

    async def _work(self) -> None:
        try:
            while self._due:
                if not self._processes.known("speaker"):
                    self._due.clear()
                    return
                if self._processes.in_force("speaker", ConfigureSpeaker) is None:
                    await self._processes.ready("speaker", ConfigureSpeaker.__name__, SPEAKER_PATIENCE_S)
                known = {(each.interface, each.mac) for each in self._standing.frames}
                due = [otherwise for what, otherwise in self._due.items() if what not in known]
                self._due.clear()
                if due:
                    await self._craft(due[0])
        finally:
            self._busy = False

    async def _craft(self, otherwise: str) -> None:
        try:
            frames = await self._world.builder.craft(self._standing.config.instances)
        except HostError as problem:
            self._chronicle.note("error", "craft_failed", f"{otherwise}: {problem}", reason=str(problem))
            return
        if _ALL in self._due:  # for a configuration that is not in force any more
            return
        self._standing.frames = frames
        for start in range(0, len(frames), FRAMES_AT_ONCE):
            self._processes.send("speaker", GarpFrames(frames=frames[start : start + FRAMES_AT_ONCE]))


_ALL = ("", "")

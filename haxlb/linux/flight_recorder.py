"""RecorderPort: a page of memory that two processes share, in which a speaker keeps when it spoke last as MASTER.

The page is an anonymous file that the supervisor makes before it starts the speaker. What was written is there for the
supervisor also after SIGKILL, to the microsecond, and costs the speaker no system call. One 64-bit word per instance,
in the order of the configuration in force; 0 = not MASTER.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable

from haxlb.linux.lacks import REMEDY
from haxlb.model.errors import HostError

ROOM = 4096
"""Instances: more than a node can have VRIDs on eight interfaces, for both families."""

Key = tuple[str, int]


class FlightRecorder:
    """The speaker's side."""

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over. Raises HostError when it is not a page of ours."""
        try:
            self._memory = mmap.mmap(fd, ROOM * 8)
        except (OSError, ValueError) as problem:
            raise HostError(
                f"no flight recorder at descriptor {fd}: {problem}", remedy="report this as a bug"
            ) from None
        finally:
            os.close(fd)
        # An element of a view is stored as one word, never byte by byte: nobody reads half a time.
        self._words = memoryview(self._memory).cast("Q")
        self._slots: dict[Key, int] = {}

    def configure(self, keys: Iterable[Key]) -> None:
        """These instances, in this order, from now on; what is known of them stays known."""
        known = {key: self._words[slot] for key, slot in self._slots.items()}
        self._slots = {key: slot for slot, key in enumerate(keys) if slot < ROOM}
        for key, slot in self._slots.items():
            self._words[slot] = known.get(key, 0)

    def sent(self, key: Key, at_us: int) -> None:
        """An advert was sent as MASTER."""
        slot = self._slots.get(key)
        if slot is not None:
            self._words[slot] = at_us

    def left(self, key: Key) -> None:
        """Not MASTER any more."""
        slot = self._slots.get(key)
        if slot is not None:
            self._words[slot] = 0

    def close(self) -> None:
        """Nothing is recorded any more."""
        self._slots = {}
        self._words.release()
        self._memory.close()


class Recording:
    """The supervisor's side: makes the page, and reads it when the speaker is dead."""

    def __init__(self) -> None:
        """Raises HostError."""
        try:
            self.fd = os.memfd_create("haxlb-adverts", os.MFD_CLOEXEC)
            os.ftruncate(self.fd, ROOM * 8)
            self._memory = mmap.mmap(self.fd, ROOM * 8)
        except OSError as problem:
            raise HostError(f"cannot make the flight recorder: {problem.strerror}", remedy=REMEDY) from problem

    def read(self) -> tuple[int, ...]:
        """When each instance was MASTER last, monotonic µs; 0 = it is not."""
        return tuple(memoryview(self._memory).cast("Q"))

    def close(self) -> None:
        """Forget it."""
        self._memory.close()
        os.close(self.fd)

"""Something that is done at once when it is asked for, but not more often than so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Paced:
    """On the running loop. What is asked for during the pause is done once, at its end: no asking is lost."""

    def __init__(self, action: Callable[[], None], pause_s: float) -> None:
        self._action = action
        self._pause_s = pause_s
        self._pause: asyncio.TimerHandle | None = None
        self._asked = False

    def ask(self) -> None:
        """Do it now, or at the end of the pause."""
        if self._pause is not None:
            self._asked = True
            return
        self._pause = asyncio.get_running_loop().call_later(self._pause_s, self._over)
        self._action()

    def close(self) -> None:
        """What has been asked for is not done any more."""
        self._asked = False
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _over(self) -> None:
        self._pause = None
        if self._asked:
            self._asked = False
            self.ask()

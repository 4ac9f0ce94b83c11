"""How long to wait before a dead process is started again."""

from __future__ import annotations

from haxlb.model.units import SECOND_US

STEADY_US = 10 * SECOND_US
"""A process that lived this long was fine: its next restart is immediate again."""
LONGEST_DELAY_US = 32 * SECOND_US


class Respawn:
    """Restarts of one process: at once, then after 1, 2, 4 … seconds while it keeps dying young."""

    def __init__(self) -> None:
        self.restarts = 0
        self._early_deaths = 0

    def delay_us(self, lived_us: int) -> int:
        """The process has died after `lived_us`; µs to wait before it is started again."""
        self.restarts += 1
        self._early_deaths = 1 if lived_us >= STEADY_US else self._early_deaths + 1
        if self._early_deaths == 1:
            return 0
        return min(SECOND_US << min(self._early_deaths - 2, 16), LONGEST_DELAY_US)

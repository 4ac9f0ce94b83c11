"""What a dead speaker leaves behind: its flight record, and the ports that the real `Bereavement` uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from haxlb.daemon.supervisor_ports import Outlets
from haxlb.model.node import NodeConfig
from haxlb.sim.adapters import VirtualClock
from haxlb.sim.outlets import SilentLog


class FlightRecord:
    """RecorderPort: when each instance said last that it is MASTER."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, int], int] = {}

    def sent(self, key: tuple[str, int], at_us: int) -> None:
        """As MASTER."""
        self._sent[key] = at_us

    def left(self, key: tuple[str, int]) -> None:
        """Not MASTER any more."""
        self._sent.pop(key, None)

    def read(self, config: NodeConfig) -> tuple[int, ...]:
        """In the order of the instances; 0 = it was not MASTER."""
        return tuple(self._sent.get(each.key, 0) for each in config.instances)


class Heirs(Protocol):
    """The host, as far as a supervisor acts on it for a dead speaker."""

    def recorded(self, name: str) -> tuple[int, ...]:
        """As `ChildrenPort.recorded`."""
        ...

    def execute(self, masters: frozenset[str], kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """As `BequestPort.execute`."""
        ...

    def wall(self) -> float:
        """The time of day, seconds since the epoch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorPorts:
    """What the notifier and the bereavement use of a supervisor's ports."""

    outlets: Outlets
    log: SilentLog
    clock: VirtualClock
    wall: Heirs
    children: Heirs
    bequest: Heirs


class Notes:
    """As much of a chronicle as the bereavement uses."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def note(self, level: str, event: str, sentence: str, **fields: object) -> None:
        """A line of the timeline."""
        del level, event, fields
        self._note(sentence)

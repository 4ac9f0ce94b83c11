"""What a dead speaker leaves behind: its flight record, and the ports that the real `Bereavement` uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from haxlb.daemon.ports import Datagram
from haxlb.daemon.speaker_frames import resignation, sign
from haxlb.daemon.supervisor_ports import Outlets
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.status import InstanceStatus
from haxlb.model.units import SECOND_US
from haxlb.sim.adapters import VirtualClock
from haxlb.sim.kernel import Kernel
from haxlb.sim.outlets import SilentLog
from haxlb.vrrp.advert import Expected
from haxlb.vrrp.authentication_header import clock_sequence
from haxlb.vrrp.holdings import addresses

_SEQUENCE_LEAD = 16
"""As in `haxlb.linux.resign`: adverts out of turn may have taken the speaker this far ahead of its clock's number."""


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


class Estate:
    """The host, as far as a supervisor acts on it for a dead speaker."""

    def __init__(
        self,
        kernel: Kernel,
        config: Callable[[], NodeConfig],
        epoch_us: Callable[[], int],
        note: Callable[[str], None],
    ) -> None:
        """`config` is the one in force, `epoch_us` the time of day, `note` writes a line of the timeline."""
        self._kernel = kernel
        self._config = config
        self._epoch_us = epoch_us
        self._note = note
        self.record = FlightRecord()
        self.statuses: tuple[InstanceStatus, ...] = ()
        """The last ones of a speaker that has died."""

    def recorded(self, name: str) -> tuple[int, ...]:
        """As `ChildrenPort.recorded`."""
        del name
        return self.record.read(self._config())

    def execute(self, masters: frozenset[str], kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """As `BequestPort.execute`."""
        instances = self._config().instances
        for each in instances:
            if each.name in masters:
                for datagram in self._resignation(each):
                    self._kernel.adverts.send(datagram)
        staying = {vip for each in instances if each.name in kept for vip in addresses(each)}
        going = [each for each in instances if each.name not in kept]
        self._kernel.addresses.remove(vip for each in going for vip in addresses(each) if vip not in staying)
        self._kernel.routes.remove(
            (route for each in going for route in each.routes), (rule for each in going for rule in each.rules)
        )
        self._note("the supervisor takes the addresses off and resigns for the dead speaker")
        return ()

    def wall(self) -> float:
        """The time of day, seconds since the epoch."""
        return self._epoch_us() / SECOND_US

    def _resignation(self, instance: VrrpInstance) -> list[Datagram]:
        frames = resignation(instance, self._kernel.links.link(instance.interface))
        key = Expected.of(instance).key
        return frames if key is None else sign(frames, key, clock_sequence(self._epoch_us()) + _SEQUENCE_LEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorPorts:
    """What the notifier and the bereavement use of a supervisor's ports."""

    outlets: Outlets
    log: SilentLog
    clock: VirtualClock
    wall: Estate
    children: Estate
    bequest: Estate


class Notes:
    """As much of a chronicle as the bereavement uses."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def note(self, level: str, event: str, sentence: str, **fields: object) -> None:
        """A line of the timeline."""
        del level, event, fields
        self._note(sentence)

"""What an instance needs in order to take part in the election, and with which priority it does.

Its interface and source address, what it tracks, and the other members of its sync group: each may be a cause of
FAULT. All causes are looked at anew whenever one changes, so that none is forgotten when another ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from haxlb.model.addresses import IPAddress
from haxlb.model.instance import VrrpInstance
from haxlb.model.status import Contribution
from haxlb.model.tracking import TrackResult
from haxlb.vrrp.election import OWNER_PRIORITY
from haxlb.vrrp.faults import link_trouble
from haxlb.vrrp.inputs import Grouped, LinkChanged
from haxlb.vrrp.priority import Tally
from haxlb.vrrp.rival import Rival
from haxlb.vrrp.states import Event


class Condition:
    """The condition of one instance."""

    def __init__(self, instance: VrrpInstance) -> None:
        self.link = LinkChanged(up=False, address=None, present=False)
        self.grouped = Grouped(group="")
        self.rival = Rival()
        self.trouble = ""
        """The cause of FAULT that is the instance's own; empty = there is none."""
        self._instance = instance
        self._tally = Tally(instance.priority, instance.tracks)

    @property
    def source(self) -> IPAddress | None:
        """The address that adverts come from."""
        return self._instance.source or self.link.address

    @property
    def priority(self) -> int:
        """The effective one."""
        return OWNER_PRIORITY - 1 if self.rival.prevails else self._tally.effective

    @property
    def waits(self) -> str:
        """For what it waits before it has any role, in words; empty = for nothing."""
        waiting = self._tally.waiting
        return f"waits for the first result of {', '.join(waiting)}" if waiting else ""

    def take(self, results: Iterable[TrackResult]) -> bool:
        """How tracked things are now; whether that makes a difference."""
        return self._tally.take(results)

    def contributions(self) -> tuple[Contribution, ...]:
        """What each tracked thing adds."""
        return self._tally.contributions()

    def reconfigure(self, instance: VrrpInstance) -> None:
        """Other settings; what is known stays known."""
        self._instance = instance
        self._tally.reconfigure(instance.priority, instance.tracks)
        self.rival.forget()

    def cause(self) -> tuple[Event, str] | None:
        """Why it must be in FAULT; None = it need not."""
        trouble = link_trouble(self._instance, self.link, self.source)
        faults = self._tally.faults
        self.trouble = trouble or "; ".join(faults)
        if trouble:
            return Event.LINK_LOST, trouble
        if faults:
            return Event.TRACK_FAILED, self.trouble
        if self.grouped.trouble:
            return Event.GROUP_FAULT, self.grouped.trouble
        return None

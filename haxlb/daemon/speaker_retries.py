"""What the kernel has refused: an alarm for each instance until it works, and how often it is tried again.

Each attempt is a request that waits for the lock of the host's network configuration: hundreds of them in one go would
hold up adverts. So it is a few each second, in turn; and as long as some of them succeed, the next ones soon.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from haxlb.daemon.ports import ReportPort
from haxlb.model.errors import HostError
from haxlb.model.facts import AlarmCleared, AlarmRaised
from haxlb.model.instance import VrrpInstance
from haxlb.model.units import SECOND_US

RETRY_US = SECOND_US
SOON_US = 10_000
"""What has failed for one reason mostly works again at once, as when an interface comes back."""
MOST_RETRIES = 16
"""In one go."""

Key = tuple[str, int]
"""`VrrpInstance.key`."""
Entry = TypeVar("Entry")
Holder = TypeVar("Holder")


def try_again(
    left: dict[Entry, Holder],
    refused: dict[Entry, Holder],
    *,
    remove: Callable[[Entry], bool],
    add: Callable[[Entry], bool],
) -> int | None:
    """Try some of what is still on and of what is not, and strike out what succeeds; after how many µs to come again.

    What fails goes to the end of its queue. None = nothing is left to be tried.
    """
    off = list(islice(left, max(MOST_RETRIES - len(refused), MOST_RETRIES // 2)))
    on = list(islice(refused, MOST_RETRIES - len(off)))
    before = len(left) + len(refused)
    for queue, turn, action in ((left, off, remove), (refused, on, add)):
        for entry in turn:
            holder = queue.pop(entry)
            if not action(entry):
                queue[entry] = holder
    after = len(left) + len(refused)
    if not after:
        return None
    untried = before > len(off) + len(on)
    return SOON_US if untried and after < before else RETRY_US


class Refusals(Generic[Entry]):
    """Of one kind of entry: what did not go on, what did not come off, and the alarms about it.

    A refusal never changes a role: the instance stays MASTER, and a person is told.
    """

    def __init__(self, *, kind: str, settled: str, reports: ReportPort) -> None:
        """`kind` begins the alarms' keys; `settled` is why they are cleared."""
        self._kind = kind
        self._settled = settled
        self._reports = reports
        self._alarms: dict[Key, str] = {}
        self.not_on: dict[Entry, Key] = {}
        """The kernel did not take them."""
        self.not_off: dict[Entry, Key] = {}
        """The kernel did not let them go."""
        self.retry_at: int | None = None
        """When `retry` wants to be called, monotonic µs."""

    def raise_for(self, instance: VrrpInstance, what: str, problem: HostError, now: int) -> None:
        """The kernel has refused something of this instance: one alarm, and another attempt."""
        self.retry_at = now + RETRY_US
        if instance.key in self._alarms:
            return
        self._alarms[instance.key] = alarm = f"{self._kind}/{instance.name}"
        self._reports.report(
            AlarmRaised(
                key=alarm,
                severity="critical",
                summary=f"{instance.name}: {what}",
                evidence=(str(problem),),
                at_us=now,
            )
        )

    def is_due(self, now: int) -> bool:
        """Whether it is time for `retry`."""
        return self.retry_at is not None and self.retry_at <= now

    def retry(self, now: int, *, remove: Callable[[Entry], bool], add: Callable[[Entry], bool]) -> None:
        """Try some again; both say whether it worked."""
        pause_us = try_again(self.not_off, self.not_on, remove=remove, add=add)
        self.retry_at = None if pause_us is None else now + pause_us
        self.settle(now)

    def settle(self, now: int) -> None:
        """Clear the alarms of what works again."""
        if not self._alarms:
            return
        troubled = {*self.not_on.values(), *self.not_off.values()}
        for key in [each for each in self._alarms if each not in troubled]:
            self._reports.report(AlarmCleared(key=self._alarms.pop(key), reason=self._settled, at_us=now))

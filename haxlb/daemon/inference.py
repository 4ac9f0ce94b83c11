"""Facts that nobody reports as such: they follow from a status or a result that is not like the one before."""

from __future__ import annotations

from haxlb.daemon.messages import SpeakerStatus, Tracked
from haxlb.model.facts import PriorityChanged, TrackChanged
from haxlb.model.status import Contribution, InstanceStatus


class Inference:
    """Remembers how things were."""

    def __init__(self) -> None:
        self._priorities: dict[str, int] = {}
        self._values: dict[tuple[str, str], int | None] = {}

    def of_status(self, status: SpeakerStatus, now: int) -> list[PriorityChanged]:
        """Which effective priorities have changed; one that is new has not."""
        before, self._priorities = self._priorities, {each.name: each.priority for each in status.instances}
        return [
            PriorityChanged(
                instance=each.name,
                vrid=each.vrid,
                before=before[each.name],
                after=each.priority,
                reason=_sum(each),
                at_us=now,
            )
            for each in status.instances
            if before.get(each.name, each.priority) != each.priority
        ]

    def of_results(self, tracked: Tracked, now: int) -> list[TrackChanged]:
        """Which tracked things have changed. That one is well to begin with is no news; that it is not is."""
        out = []
        for each in tracked.results:
            key = (each.kind.value, each.name)
            before = self._values.get(key)
            self._values[key] = each.value
            if each.value == before or (before is None and each.value != 0):
                continue
            out.append(TrackChanged(kind=key[0], name=key[1], before=before, after=each.value, at_us=now))
        return out


def _sum(status: InstanceStatus) -> str:
    """`150 - 20 (track_script chk)`."""
    changes = [each for each in status.contributions if each.change]
    if not changes:
        return "as configured"
    return " ".join((str(status.base_priority), *(_summand(each) for each in changes)))


def _summand(each: Contribution) -> str:
    return f"{'+' if each.change > 0 else '-'} {abs(each.change)} ({each.kind} {each.name})"

"""The state table of a VRRP instance, as data.

Everything that may change an instance's role stands here; `haxlb.vrrp.router` looks each step up and a step that is
not here is a Bug. The diagram in docs/explanation/vrrp-states.md is drawn from the same table.
"""

from __future__ import annotations

from enum import Enum

from haxlb.model.errors import Bug
from haxlb.model.instance import Role


class Event(Enum):
    """What can happen to an instance; the value is the label in the diagram."""

    START = "start"
    START_OWNER = "start, priority 255"
    START_UNUSABLE = "start with a fault"
    START_RESUMED = "start in the place of a dead process, in time"
    MASTER_DOWN = "master_down_interval over"
    OVERSLEPT = "timer late: listen once more"
    ADVERT_DUE = "advert interval over"
    STALLED = "advert later than master_down_interval, nopreempt"
    ADVERT_ACCEPTED = "advert of the MASTER"
    ADVERT_HIGHER = "advert of higher priority"
    ADVERT_LOWER = "advert of lower priority"
    ADVERT_RESIGNED = "advert of priority 0"
    HAND_OVER = "hand-over"
    LINK_LOST = "interface unusable"
    TRACK_FAILED = "what is tracked failed"
    RECOVERED = "no fault any more"
    GROUP_WAITS = "master_down_interval over, sync group undecided"
    GROUP_MASTER = "all of the sync group want MASTER"
    GROUP_BACKUP = "sync group leaves MASTER"
    GROUP_FAULT = "fault in the sync group"
    SHUTDOWN = "shutdown"


TRANSITIONS: dict[tuple[Role, Event], Role] = {
    (Role.INIT, Event.START): Role.BACKUP,
    (Role.INIT, Event.START_OWNER): Role.MASTER,
    (Role.INIT, Event.START_UNUSABLE): Role.FAULT,
    (Role.INIT, Event.START_RESUMED): Role.MASTER,
    (Role.BACKUP, Event.MASTER_DOWN): Role.MASTER,
    (Role.BACKUP, Event.GROUP_MASTER): Role.MASTER,
    (Role.BACKUP, Event.OVERSLEPT): Role.BACKUP,
    (Role.BACKUP, Event.GROUP_WAITS): Role.BACKUP,
    (Role.BACKUP, Event.ADVERT_ACCEPTED): Role.BACKUP,
    (Role.BACKUP, Event.ADVERT_LOWER): Role.BACKUP,
    (Role.BACKUP, Event.ADVERT_RESIGNED): Role.BACKUP,
    (Role.BACKUP, Event.HAND_OVER): Role.BACKUP,
    (Role.BACKUP, Event.LINK_LOST): Role.FAULT,
    (Role.BACKUP, Event.TRACK_FAILED): Role.FAULT,
    (Role.BACKUP, Event.GROUP_FAULT): Role.FAULT,
    (Role.BACKUP, Event.SHUTDOWN): Role.INIT,
    (Role.MASTER, Event.ADVERT_DUE): Role.MASTER,
    (Role.MASTER, Event.STALLED): Role.BACKUP,
    (Role.MASTER, Event.ADVERT_HIGHER): Role.BACKUP,
    (Role.MASTER, Event.ADVERT_LOWER): Role.MASTER,
    (Role.MASTER, Event.ADVERT_RESIGNED): Role.MASTER,
    (Role.MASTER, Event.HAND_OVER): Role.BACKUP,
    (Role.MASTER, Event.GROUP_BACKUP): Role.BACKUP,
    (Role.MASTER, Event.LINK_LOST): Role.FAULT,
    (Role.MASTER, Event.TRACK_FAILED): Role.FAULT,
    (Role.MASTER, Event.GROUP_FAULT): Role.FAULT,
    (Role.MASTER, Event.SHUTDOWN): Role.INIT,
    (Role.FAULT, Event.HAND_OVER): Role.FAULT,
    (Role.FAULT, Event.RECOVERED): Role.BACKUP,
    (Role.FAULT, Event.SHUTDOWN): Role.INIT,
}


def step(role: Role, event: Event) -> Role:
    """The role after `event`. Raises Bug for a step that the table does not have."""
    after = TRANSITIONS.get((role, event))
    if after is None:
        raise Bug(f"a VRRP instance in {role.value} has no step for: {event.value}")
    return after


def diagram() -> str:
    """The table as a mermaid state diagram: one arrow per pair of roles, its events as the label."""
    arrows: dict[tuple[Role, Role], list[str]] = {}
    for (before, event), after in TRANSITIONS.items():
        arrows.setdefault((before, after), []).append(event.value)
    lines = ["stateDiagram-v2", "    [*] --> INIT"]
    lines += [
        f"    {before.value} --> {after.value}: {'<br/>'.join(events)}" for (before, after), events in arrows.items()
    ]
    return "\n".join(lines) + "\n"

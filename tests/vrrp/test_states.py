from pathlib import Path

import pytest

from haxlb.model.errors import Bug
from haxlb.model.instance import Role
from haxlb.vrrp.states import TRANSITIONS, Event, diagram, step

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "vrrp-states.md"


def test_the_page_shows_the_table():
    drawn = PAGE.read_text().split("```mermaid\n")[1].split("```")[0]
    assert drawn == diagram(), "regenerate: the command stands at the top of the page"


def test_every_event_has_a_use_and_every_role_a_way_out():
    assert {event for _, event in TRANSITIONS} == set(Event)
    for role in Role:
        assert any(before is role and after is not role for (before, _), after in TRANSITIONS.items())


def test_only_a_backup_or_an_owner_becomes_master():
    ways = {key for key, after in TRANSITIONS.items() if after is Role.MASTER and key[0] is not Role.MASTER}
    assert ways == {
        (Role.BACKUP, Event.MASTER_DOWN),
        (Role.BACKUP, Event.GROUP_MASTER),
        (Role.INIT, Event.START_OWNER),
        (Role.INIT, Event.START_RESUMED),
    }


def test_a_step_that_is_not_in_the_table_is_our_bug():
    with pytest.raises(Bug, match="FAULT has no step for: master_down_interval over"):
        step(Role.FAULT, Event.MASTER_DOWN)

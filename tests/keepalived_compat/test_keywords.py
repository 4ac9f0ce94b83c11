"""The table itself, and the page that is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepalived_compat.grammar import LINES, Support
from keepalived_compat.keywords import KEEPALIVED
from keepalived_compat.manual import page


@pytest.mark.parametrize("block", KEEPALIVED)
def test_rows_are_complete(block):
    for name, row in KEEPALIVED[block].items():
        assert row.name == name
        assert row.body is None or row.body == LINES or row.body in KEEPALIVED, name
        if row.support in (Support.IGNORED, Support.NOT_YET, Support.OBSOLETE):
            assert row.reason, name
        if row.means:
            assert row.means in KEEPALIVED[block], name


@pytest.mark.parametrize(
    ("block", "count"),
    [("", 28), ("global_defs", 143), ("vrrp_instance", 71), ("virtual_server", 43), ("real_server", 27), ("url", 11)],
)
def test_no_row_is_lost(block, count):
    """Every block is a mapping by name: a name that is written twice in it would hide a row."""
    assert len(KEEPALIVED[block]) == count


def test_the_page_of_the_documentation_is_up_to_date():
    kept = Path(__file__).parents[2] / "docs" / "reference" / "keepalived-conf.md"
    assert kept.read_text() == page(), "python -m keepalived_compat.manual > docs/reference/keepalived-conf.md"

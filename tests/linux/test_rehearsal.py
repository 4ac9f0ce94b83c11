from __future__ import annotations

import pytest

from haxlb.linux.rehearsal import ROUNDS, rehearse


@pytest.mark.parametrize("rounds", [1, ROUNDS])
def test_every_round_becomes_master_and_leaves_it(rounds):
    adverts, transitions = rehearse(rounds)
    assert adverts >= 3 * rounds
    assert transitions >= 2 * rounds + 1, "INIT to BACKUP, then to MASTER and back"

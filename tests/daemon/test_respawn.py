from __future__ import annotations

from haxlb.daemon.respawn import LONGEST_DELAY_US, Respawn
from haxlb.model.units import SECOND_US


def delays_s(respawn, *lives_s):
    return [respawn.delay_us(life * SECOND_US) / SECOND_US for life in lives_s]


def test_the_first_restart_is_immediate_the_next_ones_wait_longer_and_longer():
    assert delays_s(Respawn(), 3, 0, 0, 0, 0) == [0, 1, 2, 4, 8]


def test_a_process_that_lived_long_is_restarted_at_once_again():
    assert delays_s(Respawn(), 0, 0, 0, 10, 0, 3600, 9) == [0, 1, 2, 0, 1, 0, 1]


def test_the_wait_is_bounded_and_restarts_are_counted():
    respawn = Respawn()
    assert delays_s(respawn, *[0] * 500)[-1] == LONGEST_DELAY_US / SECOND_US
    assert respawn.restarts == 500

import pytest

from haxlb.vrrp.timers import master_down_interval, skew_time


# Measured of keepalived: priority 100 takes over 3.60 s after the last advert, 150 after 3.40 s.
@pytest.mark.parametrize(
    ("version", "priority", "interval_us", "skew_us", "down_us"),
    [
        (2, 100, 1_000_000, 609_375, 3_609_375),
        (2, 150, 1_000_000, 414_062, 3_414_062),
        (2, 255, 1_000_000, 3_906, 3_003_906),
        (2, 100, 3_000_000, 609_375, 9_609_375),  # version 2: skew of a second whatever the interval
        (3, 100, 1_000_000, 609_375, 3_609_375),
        (3, 100, 100_000, 60_937, 360_937),
        (3, 1, 40_950_000, 40_790_039, 163_640_039),
    ],
)
def test_formulae(version, priority, interval_us, skew_us, down_us):
    assert skew_time(version, priority, interval_us) == skew_us
    assert master_down_interval(version, priority, interval_us) == down_us


def test_a_higher_priority_never_waits_longer():
    for version in (2, 3):
        waits = [master_down_interval(version, priority, 250_000) for priority in range(1, 256)]
        assert waits == sorted(waits, reverse=True)
        assert len(set(waits)) == len(waits)

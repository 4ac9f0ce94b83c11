from haxlb.sim.adapters import VirtualClock, VirtualWake
from haxlb.sim.loop import VirtualLoop


def test_callbacks_run_in_the_order_of_time_then_of_asking() -> None:
    loop, seen = VirtualLoop(), list[str]()
    loop.at(20, lambda: seen.append("c"))
    loop.at(10, lambda: seen.append("a"))
    loop.at(10, lambda: seen.append("b"))
    loop.run_until(20)
    assert seen == ["a", "b", "c"]
    assert loop.now_us == 20


def test_nothing_runs_beyond_the_end_and_the_clock_stands_there() -> None:
    loop, seen = VirtualLoop(), list[int]()
    loop.at(11, lambda: seen.append(11))
    loop.run_until(10)
    assert (seen, loop.now_us) == ([], 10)
    loop.run_until(11)
    assert seen == [11]


def test_a_callback_for_the_past_runs_now() -> None:
    loop, seen = VirtualLoop(), list[int]()
    loop.run_until(50)
    loop.at(10, lambda: seen.append(loop.now_us))
    loop.run_until(50)
    assert seen == [50]


def test_a_cancelled_callback_never_runs() -> None:
    loop, seen = VirtualLoop(), list[int]()
    loop.at(10, lambda: seen.append(1)).cancel()
    loop.run_until(100)
    assert seen == []


def test_the_observer_sees_every_event() -> None:
    loop, seen = VirtualLoop(), list[int]()
    loop.observe(lambda: seen.append(loop.now_us))
    loop.after(5, lambda: None)
    loop.after(7, lambda: None)
    loop.run_until(10)
    assert seen == [5, 7]


class Alarm:
    def __init__(self, offset_us: int = 0) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop, offset_us)
        self.woken: list[int] = []
        self.wake = VirtualWake(self.loop, self.clock, lambda: self.woken.append(self.clock.now()))


def test_a_wake_up_comes_at_its_time_on_the_nodes_own_clock() -> None:
    alarm = Alarm(offset_us=1_000_000)
    alarm.wake.wake_at(1_000_500)
    alarm.loop.run_until(10_000)
    assert alarm.woken == [1_000_500]
    assert alarm.loop.now_us == 10_000


def test_a_wake_up_that_moves_away_costs_no_entry_and_comes_once() -> None:
    alarm = Alarm()
    alarm.wake.wake_at(100)
    for deadline in range(200, 1_000, 100):
        alarm.wake.wake_at(deadline)
    alarm.loop.run_until(10_000)
    assert alarm.woken == [900]
    assert alarm.loop.fired == 2


def test_a_wake_up_that_comes_nearer_or_is_called_off() -> None:
    alarm = Alarm()
    alarm.wake.wake_at(500)
    alarm.wake.wake_at(300)
    alarm.loop.run_until(400)
    alarm.wake.wake_at(600)
    alarm.wake.wake_at(None)
    alarm.loop.run_until(10_000)
    assert alarm.woken == [300]


def test_a_closed_alarm_clock_is_silent() -> None:
    alarm = Alarm()
    alarm.wake.wake_at(500)
    alarm.wake.close()
    alarm.loop.run_until(10_000)
    assert alarm.woken == []


def test_a_wake_up_waits_for_a_clock_that_has_stood_still() -> None:
    alarm = Alarm()
    alarm.wake.wake_at(500)
    alarm.loop.run_until(100)
    alarm.clock.offset_us -= 300
    alarm.loop.run_until(10_000)
    assert alarm.woken == [500]
    assert alarm.loop.now_us == 10_000

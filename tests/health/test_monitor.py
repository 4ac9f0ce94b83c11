from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.health.monitor import Configured, Effect, Monitor, ProbeEnded, ReachChanged, Woke
from haxlb.health.outcome import Outcome, failed, passed
from haxlb.health.pool import Pool, PoolChanged, RunScript
from haxlb.health.rise_fall import fall, fall_time_us
from haxlb.health.timetable import AbandonProbe, StartProbe
from haxlb.model.check import Check
from haxlb.model.commands import Command
from haxlb.model.facts import BackendChanged, QuorumChanged
from haxlb.model.virtual_server import RealServer, VirtualServer
from tests.health.worlds import OTHER_VIP, VIP, check, seconds, server, virtual_server

GOOD, BAD = passed("connected"), failed("connection refused")


class Bench:
    """A monitor, its time, and targets that answer as `healthy` says."""

    def __init__(self, *virtual_servers: VirtualServer, remembered: dict[str, bool] | None = None) -> None:
        self.monitor = Monitor("lb1")
        self.now = 0
        self.sick: dict[Check, Outcome] = {}
        self.effects: list[tuple[int, Effect]] = []
        self.probes: list[tuple[int, Check]] = []
        self.configure(*virtual_servers, remembered=remembered)

    def configure(self, *virtual_servers: VirtualServer, remembered: dict[str, bool] | None = None) -> list[Effect]:
        effects = self._tell(Configured(virtual_servers=virtual_servers, remembered=remembered or {}))
        for address in dict.fromkeys(each.address for vs in virtual_servers for each in vs.real_servers):
            effects += self._tell(ReachChanged(address=address, reachable=True))
        return effects

    def reach(self, host: int, *, reachable: bool) -> list[Effect]:
        return self._tell(ReachChanged(address=IPv4Address(f"192.168.10.{host}"), reachable=reachable))

    def run(self, for_seconds: float) -> list[Effect]:
        """Let time pass; every probe takes a millisecond."""
        end, begun = self.now + seconds(for_seconds), len(self.effects)
        while (at := self.monitor.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self._tell(Woke())
        self.now = end
        return [effect for _, effect in self.effects[begun:]]

    def pool(self, endpoint: object = VIP) -> Pool:
        return next(pool for pool in self.monitor.status() if pool.virtual_server.endpoint == endpoint)

    def _tell(self, said: object) -> list[Effect]:
        effects = self.monitor.handle(said, self.now)
        shown = [each for each in effects if not isinstance(each, StartProbe)]
        self.effects += [(self.now, each) for each in shown]
        for each in effects:
            if isinstance(each, StartProbe):
                self.probes.append((self.now, each.check))
                self.now += 1000
                self._tell(ProbeEnded(ticket=each.ticket, outcome=self.sick.get(each.check, GOOD)))
        return shown


def command(*argv: str) -> Command:
    return Command(argv=argv)


def facts(effects: Iterable[Effect]) -> list[str]:
    words = {True: "up", False: "down"}
    return [
        f"{each.real_server if isinstance(each, BackendChanged) else 'quorum'} {words[each.up]}"
        for each in effects
        if isinstance(each, BackendChanged | QuorumChanged)
    ]


def alive(pool: Pool) -> list[tuple[str, int]]:
    return [(each.key, each.weight) for each in pool.serving() if each.alive]


def test_without_alpha_servers_are_up_from_the_start() -> None:
    bench = Bench(virtual_server(server(21), server(22)))
    assert facts(effect for _, effect in bench.effects) == ["quorum up"]
    assert alive(bench.pool()) == [("192.168.10.21:80", 1), ("192.168.10.22:80", 1)]
    assert bench.run(60) == [], "and healthy servers cause nothing, ever"


def test_with_alpha_servers_start_down_and_rise_within_two_seconds() -> None:
    bench = Bench(virtual_server(server(21), server(22), alpha=True))
    assert alive(bench.pool()) == []
    assert not bench.pool().quorum.up
    effects = bench.run(2.1)
    assert sorted(facts(effects)) == ["192.168.10.21:80 up", "192.168.10.22:80 up", "quorum up"]
    assert facts(effects)[1] == "quorum up", "one server is a quorum"


def test_a_dead_server_leaves_within_its_fall_time_and_returns() -> None:
    probe = check(21)
    bench = Bench(virtual_server(server(21), server(22)))
    bench.run(30)
    bench.sick[probe] = BAD
    died = bench.now
    effects = bench.run(fall_time_us(probe) / 1e6)
    (fact, changed) = effects
    assert isinstance(fact, BackendChanged)
    assert (fact.virtual_server, fact.real_server, fact.up) == (str(VIP), "192.168.10.21:80", False)
    assert fact.reason == "TCP_CHECK: connection refused, twice in a row"
    assert fact.at_us - died <= fall_time_us(probe)
    assert changed == PoolChanged(virtual_server=str(VIP))
    assert alive(bench.pool()) == [("192.168.10.22:80", 1)]
    del bench.sick[probe]
    assert facts(bench.run(12)) == ["192.168.10.21:80 up"]


def test_a_server_with_several_checks_is_up_only_when_all_are() -> None:
    tcp, other = check(21), check(21, port=8080)
    bench = Bench(virtual_server(server(21, checks=(tcp, other))))
    bench.sick[tcp] = bench.sick[other] = BAD
    assert facts(bench.run(20)) == ["192.168.10.21:80 down", "quorum down"]
    del bench.sick[tcp]
    assert facts(bench.run(40)) == []
    assert bench.pool().members["192.168.10.21:80"].reason == "TCP_CHECK: connection refused"
    del bench.sick[other]
    assert facts(bench.run(20)) == ["192.168.10.21:80 up", "quorum up"]


def test_one_probe_serves_all_virtual_servers_that_name_it() -> None:
    bench = Bench(virtual_server(server(21)), virtual_server(server(21), endpoint=OTHER_VIP))
    bench.run(100)
    single = Bench(virtual_server(server(21)))
    single.run(100)
    assert bench.probes == single.probes
    bench.sick[check(21)] = BAD
    effects = bench.run(20)
    assert facts(effects) == ["192.168.10.21:80 down", "quorum down"] * 2
    assert [each.virtual_server for each in effects if isinstance(each, PoolChanged)] == [str(VIP), str(OTHER_VIP)]
    times = {each.at_us for each in effects if isinstance(each, BackendChanged)}
    assert len(times) == 1, "by the same outcome"


@pytest.mark.parametrize(("alpha", "up"), [(False, [22, 23]), (True, [23])])
def test_a_server_s_own_alpha_counts_before_that_of_its_virtual_server(alpha: bool, up: list[int]) -> None:  # noqa: FBT001
    bench = Bench(virtual_server(server(21, alpha=True), server(22), server(23, alpha=False), alpha=alpha))
    assert [each for each, _ in alive(bench.pool())] == [f"192.168.10.{each}:80" for each in up]
    bench.run(60)
    assert len(alive(bench.pool())) == 3


def test_a_server_s_own_alpha_is_for_one_of_which_nothing_is_known() -> None:
    bench = Bench(virtual_server(server(21), server(22)))
    bench.configure(virtual_server(server(21, alpha=True), server(22)))
    assert len(alive(bench.pool())) == 2
    known = Bench(virtual_server(server(21, alpha=True)), remembered={f"{VIP} 192.168.10.21:80": True})
    assert len(alive(known.pool())) == 1


def test_a_shared_check_is_read_by_each_with_its_own_alpha() -> None:
    bench = Bench(virtual_server(server(21)), virtual_server(server(21), endpoint=OTHER_VIP, alpha=True))
    assert alive(bench.pool()) == [("192.168.10.21:80", 1)]
    assert alive(bench.pool(OTHER_VIP)) == []
    assert facts(bench.run(5)) == ["192.168.10.21:80 up", "quorum up"]


def test_inhibit_on_failure_sets_the_weight_to_zero_and_keeps_the_flows() -> None:
    bench = Bench(virtual_server(server(21, inhibit_on_failure=True, weight=7), server(22)))
    bench.sick[check(21)] = BAD
    bench.run(20)
    assert alive(bench.pool()) == [("192.168.10.21:80", 0), ("192.168.10.22:80", 1)]
    assert bench.pool().quorum.up


def test_notify_up_at_start_is_for_servers_that_count_as_up_unseen_and_run_once() -> None:
    told = {"notify_up": command("up"), "notify_up_at_start": True}

    def scripts(bench: Bench) -> list[str]:
        return [str(each.command) for _, each in bench.effects if isinstance(each, RunScript)]

    bench = Bench(virtual_server(server(21, **told), server(22, notify_up=command("never"))))
    bench.run(60)
    assert scripts(bench) == ["up"]
    late = Bench(virtual_server(server(21, **told), alpha=True))
    assert scripts(late) == []
    late.run(60)
    assert scripts(late) == ["up"], "by its probes, as without the setting"


def test_without_a_sorry_server_a_lost_quorum_changes_only_the_scripts() -> None:
    bench = Bench(
        virtual_server(server(21), server(22), quorum=2, quorum_up=command("up"), quorum_down=command("down"))
    )
    assert [each for _, each in bench.effects if isinstance(each, RunScript)] == [
        RunScript(queue=str(VIP), command=command("up"))
    ]
    bench.sick[check(21)] = BAD
    effects = bench.run(20)
    assert facts(effects) == ["192.168.10.21:80 down", "quorum down"]
    assert RunScript(queue=str(VIP), command=command("down")) in effects
    assert alive(bench.pool()) == [("192.168.10.22:80", 1)]


def test_the_sorry_server_replaces_all_others_while_the_quorum_is_lost() -> None:
    sorry = server(99, checks=(), weight=0)
    bench = Bench(virtual_server(server(21), server(22), server(23), quorum=2, sorry_server=sorry))
    assert "192.168.10.99:80" not in dict(alive(bench.pool()))
    bench.sick[check(21)] = bench.sick[check(22)] = BAD
    bench.run(20)
    assert alive(bench.pool()) == [("192.168.10.99:80", 1)]
    assert [each.key for each in bench.pool().serving() if not each.alive] == [
        "192.168.10.21:80",
        "192.168.10.22:80",
        "192.168.10.23:80",
    ]
    del bench.sick[check(21)]
    assert facts(bench.run(20)) == ["192.168.10.21:80 up", "quorum up"]
    assert alive(bench.pool()) == [("192.168.10.21:80", 1), ("192.168.10.23:80", 1)]


def test_flows_of_an_inhibited_sorry_server_stay_when_the_quorum_is_back() -> None:
    sorry = server(99, checks=(), inhibit_on_failure=True)
    bench = Bench(virtual_server(server(21), server(22), quorum=2, sorry_server=sorry))
    waits = [("192.168.10.21:80", 1), ("192.168.10.22:80", 1), ("192.168.10.99:80", 0)]
    assert alive(bench.pool()) == waits
    bench.sick[check(21)] = BAD
    assert PoolChanged(virtual_server=str(VIP)) in bench.run(20)
    assert alive(bench.pool()) == [("192.168.10.99:80", 1)]
    bench.sick.clear()
    assert PoolChanged(virtual_server=str(VIP)) in bench.run(20)
    assert alive(bench.pool()) == waits


def test_an_inhibited_sorry_server_that_is_a_real_one_is_in_the_pool_once() -> None:
    both = server(21, checks=(), inhibit_on_failure=True)
    bench = Bench(virtual_server(server(21), server(22), sorry_server=both))
    assert alive(bench.pool()) == [("192.168.10.21:80", 1), ("192.168.10.22:80", 1)]


def test_scripts_follow_their_facts_in_order() -> None:
    up, down = Command(argv=("up", "21")), Command(argv=("down", "21"))
    bench = Bench(
        virtual_server(
            server(21, notify_up=up, notify_down=down),
            quorum_up=command("q+"),
            quorum_down=command("q-"),
        )
    )
    bench.effects.clear()
    bench.sick[check(21)] = BAD
    kinds = [each.command if isinstance(each, RunScript) else type(each).__name__ for each in bench.run(20)]
    assert kinds == ["BackendChanged", down, "QuorumChanged", command("q-"), "PoolChanged"]
    bench.sick.clear()
    kinds = [each.command if isinstance(each, RunScript) else type(each).__name__ for each in bench.run(20)]
    assert kinds == ["BackendChanged", up, "QuorumChanged", command("q+"), "PoolChanged"]


def test_servers_that_no_frame_can_reach_are_no_quorum() -> None:
    bench = Bench(virtual_server(server(21), server(22), quorum=1, sorry_server=server(99, checks=())))
    assert facts(bench.reach(21, reachable=False)) == []
    assert facts(bench.reach(22, reachable=False)) == ["quorum down"]
    assert alive(bench.pool()) == [("192.168.10.99:80", 1)]
    assert facts(bench.reach(21, reachable=True)) == ["quorum up"]


def test_the_last_server_drained_is_a_lost_quorum() -> None:
    bench = Bench(virtual_server(server(21)))
    assert facts(bench.configure(virtual_server(server(21, weight=0)))) == ["quorum down"]
    assert alive(bench.pool()) == [("192.168.10.21:80", 0)]


def test_a_server_without_checks_is_always_up() -> None:
    bench = Bench(virtual_server(server(21, checks=()), alpha=True))
    assert alive(bench.pool()) == [("192.168.10.21:80", 1)]
    assert bench.pool().members["192.168.10.21:80"].reason == "no check configured"
    assert bench.run(100) == []


# Reload


def sick_bench() -> Bench:
    bench = Bench(virtual_server(server(21), server(22)))
    bench.sick[check(21)] = BAD
    bench.run(20)
    assert alive(bench.pool()) == [("192.168.10.22:80", 1)]
    return bench


def test_an_identical_reload_has_no_effects() -> None:
    bench = sick_bench()
    probes = len(bench.probes)
    due = bench.monitor.next_deadline()
    assert bench.configure(virtual_server(server(21), server(22))) == []
    assert bench.monitor.next_deadline() == due
    assert len(bench.probes) == probes


def test_a_reload_keeps_the_state_of_what_it_does_not_touch() -> None:
    bench = sick_bench()
    effects = bench.configure(virtual_server(server(21), server(22, weight=5), server(23)))
    assert effects == [PoolChanged(virtual_server=str(VIP))]
    assert alive(bench.pool()) == [("192.168.10.22:80", 5), ("192.168.10.23:80", 1)]


def test_a_group_is_one_pool_whatever_addresses_it_serves() -> None:
    group = virtual_server(server(21), server(22), more_endpoints=(OTHER_VIP,), group="web")
    bench = Bench(group)
    bench.run(30)
    bench.sick[check(21)] = BAD
    bench.run(60)
    assert [pool.name for pool in bench.monitor.status()] == ["group web tcp"]
    other = virtual_server(server(21), server(22), endpoint=OTHER_VIP, group="web")
    assert bench.configure(other) == [], "the same servers do the same"
    assert alive(bench.pool(OTHER_VIP)) == [("192.168.10.22:80", 1)]
    assert bench.monitor.remember() == {
        "group web tcp 192.168.10.21:80": False,
        "group web tcp 192.168.10.22:80": True,
    }


def test_servers_of_ipv6_and_ways_to_them() -> None:
    address = IPv6Address("2001:db8::21")
    service = virtual_server(server(address=address, checks=(check(address=address),)))
    bench = Bench(service)
    assert alive(bench.pool()) == [("[2001:db8::21]:80", 1)]
    effects = bench.monitor.handle(ReachChanged(address=address, reachable=False), bench.now)
    assert facts(effects) == ["quorum down"]


def test_changed_check_parameters_start_from_what_was_known_of_the_server() -> None:
    bench = sick_bench()
    renewed = check(21, connect_timeout_us=seconds(2))
    bench.sick[renewed] = BAD
    assert bench.configure(virtual_server(server(21, checks=(renewed,)), server(22))) == []
    assert facts(bench.run(60)) == [], "a dead server does not get traffic because its timeout was edited"
    del bench.sick[renewed]
    assert facts(bench.run(20)) == ["192.168.10.21:80 up"]


def test_a_new_name_for_a_target_that_is_known_to_be_dead_starts_dead() -> None:
    bench = sick_bench()
    bench.configure(virtual_server(server(21), server(22)), virtual_server(server(21), endpoint=OTHER_VIP))
    assert alive(bench.pool(OTHER_VIP)) == []


def test_a_check_that_is_gone_is_abandoned_and_forgotten() -> None:
    monitor = Monitor("lb1")
    monitor.handle(Configured(virtual_servers=(virtual_server(server(21, checks=(check(21, warmup_us=0),))),)), 0)
    (start,) = [each for each in monitor.handle(Woke(), 0) if isinstance(each, StartProbe)]
    effects = monitor.handle(Configured(virtual_servers=(virtual_server(server(22)),)), 5)
    assert AbandonProbe(ticket=start.ticket) in effects
    assert monitor.handle(ProbeEnded(ticket=start.ticket, outcome=BAD), 6) == []
    assert list(monitor.checks) == [check(22)]
    assert monitor.handle(Configured(virtual_servers=()), 7) == [PoolChanged(virtual_server=str(VIP))]
    assert monitor.next_deadline() is None


def test_what_an_earlier_process_knew_is_taken_over() -> None:
    before = sick_bench().monitor.remember()
    assert before == {f"{VIP} 192.168.10.21:80": False, f"{VIP} 192.168.10.22:80": True}
    for alpha in (False, True):
        bench = Bench(virtual_server(server(21), server(22), alpha=alpha), remembered=before)
        assert alive(bench.pool()) == [("192.168.10.22:80", 1)]


def test_a_prober_that_is_stuck_counts_as_a_failure() -> None:
    monitor = Monitor("lb1")
    probe = check(21, warmup_us=0, retry=0)
    monitor.handle(Configured(virtual_servers=(virtual_server(server(21, checks=(probe,))),)), 0)
    (start,) = [each for each in monitor.handle(Woke(), 0) if isinstance(each, StartProbe)]
    at = monitor.next_deadline()
    assert at is not None
    effects = monitor.handle(Woke(), at)
    assert effects[0] == AbandonProbe(ticket=start.ticket)
    assert facts(effects) == ["192.168.10.21:80 down"]
    assert isinstance(effects[1], BackendChanged)
    assert effects[1].reason == "TCP_CHECK: no outcome in 1 s"


# Properties


class Fickle(Bench):
    """Targets answer by a script, then well."""

    def __init__(self, script: list[bool], probe: Check, *virtual_servers: VirtualServer) -> None:
        self.script = script
        self.probe = probe
        self.answers: list[bool] = []
        super().__init__(*virtual_servers)

    def _tell(self, said: object) -> list[Effect]:
        if isinstance(said, ProbeEnded):
            good = self.script[len(self.answers)] if len(self.answers) < len(self.script) else True
            self.answers.append(good)
            said = ProbeEnded(ticket=said.ticket, outcome=GOOD if good else BAD)
        before = self.up
        effects = super()._tell(said)
        if self.up is not before and isinstance(said, ProbeEnded):
            needed = 2 if self.up else fall(self.probe)
            assert self.answers[-needed:] == [self.up] * needed
        return effects

    @property
    def up(self) -> bool:
        return all(member.up for pool in self.monitor.status() for member in pool.members.values())


@settings(max_examples=60)
@given(st.lists(st.booleans(), max_size=60), st.one_of(st.none(), st.integers(0, 3)), st.sampled_from([False, True]))
def test_a_server_never_changes_by_fewer_outcomes_than_agreed(
    script: list[bool],
    retry: int | None,
    alpha: bool,  # noqa: FBT001
) -> None:
    probe = check(21, retry=retry)
    one: RealServer = server(21, checks=(probe,))
    bench = Fickle(script, probe, virtual_server(one, alpha=alpha))
    bench.run(11 * (len(script) + 4))
    assert len(bench.answers) > len(script)
    assert bench.up, "two good answers at the end"


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(21, 24), st.booleans(), st.integers(1, 30)), max_size=25), st.integers(1, 4))
def test_serving_always_says_what_the_members_say(steps: list[tuple[int, bool, int]], quorum: int) -> None:
    """The pool's sums are kept incrementally; here they are computed anew after every step."""
    servers = [server(host, weight=host - 20) for host in range(21, 25)]
    bench = Bench(virtual_server(*servers, quorum=quorum, hysteresis=quorum - 1))
    reached = dict.fromkeys(range(21, 25), True)
    for host, good, wait in steps:
        if wait % 3 == 0:
            reached[host] = good
            bench.reach(host, reachable=good)
        elif good:
            bench.sick.pop(check(host), None)
        else:
            bench.sick[check(host)] = BAD
        bench.run(wait)
        pool = bench.pool()
        up = {key: member.up for key, member in pool.members.items()}
        assert dict(alive(pool)) == {each.key: each.weight for each in servers if up[each.key]}
        total = sum(each.weight for each in servers if up[each.key] and reached[each.weight + 20])
        if total == 0:
            assert not pool.quorum.up
        if total >= 2 * quorum - 1:
            assert pool.quorum.up

"""Laws that hold for any sequence of inputs at any times."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.addresses import Vip
from haxlb.model.facts import RoleChanged
from haxlb.model.node import GarpConfig, Role, VrrpInstance
from haxlb.vrrp.advert import Advert
from haxlb.vrrp.inputs import (
    AddVips,
    AdvertReceived,
    HandOver,
    LinkChanged,
    Notify,
    Reconfigure,
    RemoveVips,
    Report,
    Resume,
    SendAdvert,
    Shutdown,
    Start,
    TimerExpired,
)
from haxlb.vrrp.router import Router

US = IPv4Address("192.0.2.5")
VIPS = [
    Vip(address=IPv4Address(f"192.0.2.{host}"), prefix_length=length, interface="eth0")
    for host in (100, 101)
    for length in (24, 32)
]

INSTANCES = st.builds(
    VrrpInstance,
    name=st.just("VI_1"),
    interface=st.just("eth0"),
    vrid=st.just(51),
    priority=st.sampled_from((1, 100, 254, 255)),
    initial_role=st.sampled_from((Role.BACKUP, Role.MASTER)),
    version=st.sampled_from((2, 3)),
    advert_interval_us=st.sampled_from((10_000, 1_000_000, 3_000_000)),
    nopreempt=st.booleans(),
    preempt_delay_us=st.sampled_from((0, 5_000_000)),
    source=st.none() | st.just(IPv4Address("192.0.2.6")),
    vips=st.lists(st.sampled_from(VIPS), unique_by=lambda vip: vip.address, max_size=2).map(tuple),
    garp=st.builds(
        GarpConfig,
        master_repeat=st.sampled_from((0, 1, 5)),
        master_delay_us=st.sampled_from((0, 5_000_000)),
        master_refresh_us=st.sampled_from((0, 2_000_000)),
        interval_us=st.sampled_from((0, 50_000)),
    ),
)
LINKS = st.builds(LinkChanged, up=st.booleans(), address=st.none() | st.just(US), present=st.just(True)) | st.just(
    LinkChanged(up=True, address=US)
)
ADVERTS = st.builds(
    lambda source, priority, interval_us: AdvertReceived(
        source=source,
        advert=Advert(version=2, vrid=51, priority=priority, interval_us=interval_us, addresses=()),
    ),
    source=st.sampled_from([IPv4Address(f"192.0.2.{host}") for host in (1, 5, 9)]),
    priority=st.sampled_from((0, 1, 99, 100, 101, 254, 255)),
    interval_us=st.sampled_from((10_000, 1_000_000)),
)
INPUTS = (
    ADVERTS
    | ADVERTS
    | st.just(TimerExpired())
    | st.just(TimerExpired())
    | LINKS
    | st.just(HandOver(reason="test"))
    | st.just(Resume())
    | INSTANCES.map(lambda instance: Reconfigure(instance=instance))
    | st.just(Shutdown(reason="test"))
    | st.just(Start())
)
PAUSES = st.sampled_from((0, 1, 10_000, 900_000, 1_000_000, 3_700_000, 60_000_000))


@settings(derandomize=True, deadline=None, max_examples=600)
@given(first=INSTANCES, steps=st.lists(st.tuples(PAUSES, st.booleans(), INPUTS), max_size=40))
def test_laws(first, steps):
    router = Router(first)
    now = 0
    on: set[Vip] = set()
    on_before: set[Vip] = set()

    def say(what):
        if isinstance(what, Start) and router.role is not Role.INIT:
            return
        before, due_before = router.role, router.next_deadline()
        effects = router.handle(what, now)
        for effect in effects:
            if isinstance(effect, AddVips):
                on.update(effect.vips)
            elif isinstance(effect, RemoveVips):
                on.difference_update(effect.vips)
        held = set(router.instance.vips)
        assert on == (held if router.role is Role.MASTER else set()), "the VIPs are on if and only if MASTER"
        deadline = router.next_deadline()
        if deadline is not None:
            overdue = now if due_before is None or isinstance(what, TimerExpired) else min(now, due_before)
            assert deadline >= overdue, "no deadline in the past but one that was not handled yet"
        assert (deadline is not None) == (router.role in (Role.BACKUP, Role.MASTER))
        if isinstance(what, TimerExpired) and router.role is Role.MASTER and not router.instance.garp.interval_us:
            assert deadline is not None
            assert deadline > now, "a timer that was handled is not due again"
        changes = [e.fact for e in effects if isinstance(e, Report) and isinstance(e.fact, RoleChanged)]
        notifies = [e for e in effects if isinstance(e, Notify)]
        assert len(changes) == len(notifies) == (router.role is not before), "one notify and one fact per change"
        if changes:
            assert (changes[0].before, changes[0].after) == (before, router.role)
            assert changes[0].reason
        sent = [e.priority for e in effects if isinstance(e, SendAdvert)]
        assert all(priority in (0, router.instance.priority) for priority in sent)
        assert (0 in sent) <= (before is Role.MASTER is not router.role), "only a leaving MASTER resigns"
        if before is Role.MASTER is not router.role and on_before and not isinstance(what, Reconfigure):
            assert isinstance(effects[0], RemoveVips), "leaving MASTER takes the VIPs off before anything else"

    say(LinkChanged(up=True, address=US))
    say(Start())
    for pause, punctual, what in steps:
        until = now + pause
        while punctual and (deadline := router.next_deadline()) is not None and deadline <= until:
            # 10 ms adverts over a minute are 6,000 steps and prove no more than a few.
            if deadline + 100 * router.instance.advert_interval_us < until:
                break
            now = max(now, deadline)
            on_before = set(on)
            say(TimerExpired())
        now = until
        on_before = set(on)
        say(what)
    on_before = set(on)
    if router.role is not Role.INIT:
        say(Shutdown(reason="end"))
    assert not on


@settings(derandomize=True, deadline=None, max_examples=200)
@given(first=INSTANCES, steps=st.lists(st.tuples(PAUSES, INPUTS), max_size=30))
def test_same_inputs_same_effects(first, steps):
    def run():
        router, now, trace = Router(first), 0, []
        for pause, what in [(0, LinkChanged(up=True, address=US)), (0, Start()), *steps]:
            now += pause
            if isinstance(what, Start) and router.role is not Role.INIT:
                continue
            trace.append((router.handle(what, now), router.next_deadline(), router.status()))
        return trace

    assert run() == run()


@settings(derandomize=True, deadline=None, max_examples=100)
@given(instance=INSTANCES)
def test_reconfigure_to_the_same_is_nothing_in_any_role(instance):
    for link in (LinkChanged(up=True, address=US), LinkChanged(up=False, address=US)):
        router = Router(instance)
        router.handle(link, 0)
        router.handle(Start(), 0)
        for now in (1, 200_000_000):
            before = router.status(), router.next_deadline()
            assert router.handle(Reconfigure(instance=dataclasses.replace(instance)), now) == []
            assert (router.status(), router.next_deadline()) == before
            router.handle(TimerExpired(), now)

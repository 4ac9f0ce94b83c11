"""Laws that hold for any sequence of inputs at any times."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.addresses import Vip
from haxlb.model.facts import RoleChanged
from haxlb.model.instance import GarpConfig, Role, VrrpInstance
from haxlb.model.routes import Route
from haxlb.model.tracking import Track, TrackKind, TrackResult
from haxlb.vrrp.advert import Advert
from haxlb.vrrp.holdings import addresses
from haxlb.vrrp.inputs import (
    AddRoutes,
    AddVips,
    AdvertReceived,
    EndReserve,
    GroupAnnounce,
    GroupBackup,
    Grouped,
    GroupMaster,
    HandOver,
    LinkChanged,
    Notify,
    Reconfigure,
    RemoveRoutes,
    RemoveVips,
    Report,
    Resume,
    SendAdvert,
    Shutdown,
    Start,
    TimerExpired,
    Tracked,
)
from haxlb.vrrp.router import Router

US = IPv4Address("192.0.2.5")
VIPS = [
    Vip(address=IPv4Address(f"192.0.2.{host}"), prefix_length=length, interface="eth0")
    for host in (100, 101)
    for length in (24, 32)
]

EXCLUDED = [Vip(address=IPv4Address(f"198.51.100.{host}"), prefix_length=32, interface="eth1") for host in (1, 2)]
ROUTES = [Route(destination="203.0.113.0/24", via=f"192.0.2.{host}") for host in (1, 2)]
SCRIPT, LINK = TrackKind.SCRIPT, TrackKind.INTERFACE
TRACKS = [
    Track(kind=SCRIPT, name="a"),
    Track(kind=SCRIPT, name="b", weight=-60),
    Track(kind=LINK, name="eth2", weight=160),
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
    ),
    excluded_vips=st.lists(st.sampled_from(EXCLUDED), unique=True, max_size=1).map(tuple),
    routes=st.lists(st.sampled_from(ROUTES), unique_by=lambda each: each.destination, max_size=1).map(tuple),
    tracks=st.lists(st.sampled_from(TRACKS), unique=True, max_size=2).map(tuple),
    notify_priority_changes=st.booleans(),
    lower_prio_no_advert=st.booleans(),
    higher_prio_send_advert=st.booleans(),
    owner_ignore_adverts=st.booleans(),
    strict=st.booleans(),
    down_timer_adverts=st.sampled_from((1, 3)),
    track_primary=st.booleans(),
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
    | st.just(EndReserve())
    | INSTANCES.map(lambda instance: Reconfigure(instance=instance))
    | st.just(Shutdown(reason="test"))
    | st.builds(
        Start,
        hurry=st.booleans(),
        quiet_until=st.sampled_from((0, 2_000_000)),
        reserve=st.sampled_from(("", "not ready yet")),
    )
    | st.builds(
        lambda kind, value: Tracked(results=(TrackResult(kind=kind[0], name=kind[1], value=value),)),
        st.sampled_from([(each.kind, each.name) for each in TRACKS]),
        st.sampled_from((None, 0, 1)),
    )
    | st.builds(Grouped, group=st.sampled_from(("", "G")), trouble=st.sampled_from(("", "VI_2 of sync group G: ill")))
    | st.just(GroupMaster())
    | st.just(GroupBackup(reason="VI_2 of sync group G is BACKUP"))
    | st.just(GroupAnnounce())
)
ROLES = ("MASTER", "BACKUP", "FAULT", "STOP", "DELETED")


def _may_be_said(what, router: Router) -> bool:
    """A driver does not start twice, and gives the orders of a group only to those for whom they are."""
    if isinstance(what, Start):
        return router.role is Role.INIT
    if isinstance(what, GroupMaster):
        return router.role is Role.BACKUP and router.wish is Role.MASTER
    return not isinstance(what, GroupBackup) or router.role is Role.MASTER


PAUSES = st.sampled_from((0, 1, 10_000, 900_000, 1_000_000, 3_700_000, 60_000_000))


@settings(derandomize=True, deadline=None, max_examples=600)
@given(first=INSTANCES, steps=st.lists(st.tuples(PAUSES, st.booleans(), INPUTS), max_size=40))
def test_laws(first, steps):
    router = Router(first)
    now = 0
    on: set[object] = set()
    on_before: set[object] = set()

    def say(what):
        if not _may_be_said(what, router):
            return
        before, due_before, priority_before = router.role, router.next_deadline(), router.priority
        effects = router.handle(what, now)
        for effect in effects:
            if isinstance(effect, AddVips):
                on.update(effect.vips)
            elif isinstance(effect, RemoveVips):
                on.difference_update(effect.vips)
            elif isinstance(effect, AddRoutes):
                on.update(effect.routes)
            elif isinstance(effect, RemoveRoutes):
                on.difference_update(effect.routes)
        held = {*addresses(router.instance), *router.instance.routes}
        assert on == (held if router.role is Role.MASTER else set()), "what follows the master is on iff MASTER"
        deadline = router.next_deadline()
        if deadline is not None:
            overdue = now if due_before is None or isinstance(what, TimerExpired) else min(now, due_before)
            assert deadline >= overdue, "no deadline in the past but one that was not handled yet"
        assert (deadline is not None) == (router.role in (Role.BACKUP, Role.MASTER))
        if isinstance(what, TimerExpired) and router.role is Role.MASTER:
            assert deadline is not None
            assert deadline > now, "a timer that was handled is not due again"
        changes = [e.fact for e in effects if isinstance(e, Report) and isinstance(e.fact, RoleChanged)]
        notifies = [e for e in effects if isinstance(e, Notify) and e.due.state in ROLES]
        assert len(changes) == len(notifies) == (router.role is not before), "one notify and one fact per change"
        if changes:
            assert (changes[0].before, changes[0].after) == (before, router.role)
            assert changes[0].reason
        sent = [e.priority for e in effects if isinstance(e, SendAdvert)]
        assert all(priority in (0, priority_before, router.priority) for priority in sent)
        if before is router.role is Role.BACKUP:
            assert not sent or isinstance(what, AdvertReceived), "a BACKUP is silent, but for its last word"
        assert router.role is not Role.MASTER or not router.trouble, "no MASTER in trouble"
        leaves = before is Role.MASTER is not router.role
        last_word = before is router.role is Role.BACKUP and isinstance(what, AdvertReceived)
        assert 0 not in sent or leaves or last_word, "only who leaves MASTER, or has left it, resigns"
        if before is Role.MASTER is not router.role and on_before and not isinstance(what, Reconfigure):
            said = (SendAdvert(priority=priority_before), SendAdvert(priority=0))
            first = next(e for e in effects if not isinstance(e, Notify) and e not in said)
            assert isinstance(first, RemoveVips | RemoveRoutes), "leaving MASTER takes off in the next step"
            if SendAdvert(priority=0) in effects:
                assert effects.index(SendAdvert(priority=0)) < effects.index(first), "others wait while addresses go"

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
            if not _may_be_said(what, router):
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

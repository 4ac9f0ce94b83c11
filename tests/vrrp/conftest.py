"""One router by hand: inputs in, effects out, the time as a number."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address
from typing import Any

import pytest

from haxlb.model.addresses import Vip
from haxlb.model.instance import GarpConfig, Role, VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.vrrp.advert import Advert
from haxlb.vrrp.inputs import (
    AddRoutes,
    AddVips,
    AdvertReceived,
    Announce,
    Effect,
    Input,
    LinkChanged,
    Notify,
    RemoveRoutes,
    RemoveVips,
    Report,
    SendAdvert,
    Start,
    TimerExpired,
)
from haxlb.vrrp.router import Router

US = IPv4Address("192.0.2.5")
VIP = Vip(address=IPv4Address("192.0.2.100"), prefix_length=24, interface="eth0")
UP = LinkChanged(up=True, address=US)


class Bench:
    """Drives a Router and writes down, in short words, what it asks for."""

    def __init__(self, *, start: bool = True, **settings: Any) -> None:
        base = VrrpInstance(name="VI_1", interface="eth0", vrid=51, vips=(VIP,))
        self.router = Router(dataclasses.replace(base, **settings))
        self.now = 0
        self.facts: list[Any] = []
        self.say(UP)
        if start:
            self.say(Start())

    @property
    def instance(self) -> VrrpInstance:
        return self.router.instance

    @property
    def role(self) -> Role:
        return self.router.role

    @property
    def reason(self) -> str:
        return self.router.status().reason

    def say(self, what: Input) -> list[str]:
        effects = self.router.handle(what, self.now)
        self.facts += [each.fact for each in effects if isinstance(each, Report)]
        return [_word(each) for each in effects]

    def at(self, us: int) -> list[str]:
        """Let the time pass to `us`, waking the router exactly when it wants to be woken."""
        words: list[str] = []
        while (deadline := self.router.next_deadline()) is not None and deadline <= us:
            self.now = max(self.now, deadline)
            words += self.say(TimerExpired())
        self.now = us
        return words

    def oversleep(self, us: int) -> list[str]:
        """Let the time pass without being woken, then wake once."""
        self.now = us
        return self.say(TimerExpired())

    def hear(self, priority: int, source: str = "192.0.2.1", interval_us: int = 1_000_000) -> list[str]:
        advert = Advert(
            version=self.instance.version,
            vrid=51,
            priority=priority,
            interval_us=interval_us,
            addresses=(VIP.address,),
        )
        return self.say(AdvertReceived(source=IPv4Address(source), advert=advert))

    def as_master(self) -> Bench:
        """Let the election pass; forgets what was said on the way."""
        deadline = self.router.next_deadline()
        if self.role is Role.BACKUP and deadline is not None:
            self.at(deadline)
        assert self.role is Role.MASTER
        self.facts.clear()
        return self


def _word(effect: Effect) -> str:  # noqa: PLR0911 - a dispatch
    match effect:
        case SendAdvert(priority=priority):
            return f"advert {priority}"
        case AddVips(vips=vips):
            return "add " + " ".join(map(str, vips))
        case RemoveVips(vips=vips):
            return "remove " + " ".join(map(str, vips))
        case AddRoutes(routes=routes, rules=rules):
            return f"route {len(routes)} and {len(rules)} rules"
        case RemoveRoutes(routes=routes, rules=rules):
            return f"unroute {len(routes)} and {len(rules)} rules"
        case Announce(vips=vips, rounds=rounds):
            return f"announce {rounds} x " + " ".join(map(str, vips))
        case Notify(due=NotifyDue(state=state)):
            return f"notify {state}"
        case Report(fact=fact):
            return type(fact).__name__
    raise AssertionError(effect)


@pytest.fixture
def bench() -> type[Bench]:
    return Bench


@pytest.fixture
def quiet() -> GarpConfig:
    """No second set, no refresh: nothing but adverts wakes a MASTER."""
    return GarpConfig(master_delay_us=0, lower_prio_delay_us=0)

"""Addresses and routes in the kernel: when they expire, what putting on and renewing costs, how adverts fare beside.

Needs root: it works in network namespaces of its own. `expiry_s` is from the last renewal to the address's absence,
`gap_…_ms` is between two adverts of `advert_int 0.01` at a listener while the speaker holds further addresses.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from lab import Lab

from haxlb.daemon.messages import ConfigureSpeaker
from haxlb.linux.addresses import Addresses
from haxlb.linux.present_addresses import present_addresses
from haxlb.linux.routing import Routing
from haxlb.model.addresses import Vip
from haxlb.model.instance import GarpConfig, Role, VrrpInstance
from haxlb.model.routes import Route
from tests.netns.kernel import Namespace, namespace
from tests.netns.standin import Ear, SpeakerHandle

EXPIRIES = 7
MANY = 250
ROUTES = 1_000
LISTEN_S = 10
INSTANCE = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=51,
    version=3,
    advert_interval_us=10_000,
    initial_role=Role.MASTER,
    garp=GarpConfig(master_delay_us=0),
)


def vip(address: str) -> Vip:
    parsed = ip_address(address)
    return Vip(address=parsed, prefix_length=parsed.max_prefixlen, interface="eth0")


FAMILIES = {
    "ipv4": [vip(f"10.7.0.{n}") for n in range(1, MANY + 1)],
    "ipv6": [vip(f"2001:db8::{n:x}") for n in range(1, MANY + 1)],
}


def measure() -> Iterator[dict[str, Any]]:
    with namespace("bad") as host:
        index_of = host.links("eth0").index
        for family, vips in FAMILIES.items():
            expiries = [_expiry_s(host, vips[0]) for _ in range(EXPIRIES)]
            yield {"what": "expiry", "family": family, "expiry_s": [round(each, 2) for each in sorted(expiries)]}
        for family, vips in FAMILIES.items():
            addresses = Addresses(host.netlink, index_of)
            yield {
                "what": f"{MANY} addresses",
                "family": family,
                "prepare_ms": _ms(lambda addresses=addresses, vips=vips: addresses.prepare(vips)),
                "add_ms": _ms(lambda addresses=addresses, vips=vips: addresses.add(vips)),
                "renew_ms": _ms(addresses.renew),
                "remove_ms": _ms(lambda addresses=addresses, vips=vips: addresses.remove(vips)),
            }
        routes = [Route(destination=f"192.{n // 250}.{n % 250}.0/24", via="10.0.0.9") for n in range(ROUTES)]
        routing = Routing(host.netlink, index_of)
        yield {
            "what": f"{ROUTES} routes",
            "prepare_ms": _ms(lambda: routing.prepare(routes, [])),
            "add_ms": _ms(lambda: routing.add(routes, [])),
            "renew_ms": _ms(routing.renew),
            "remove_ms": _ms(lambda: routing.remove(routes, [])),
        }
    with Lab(f"hxba{os.getpid()}") as lab:
        for number, name in enumerate(("d1", "cl"), 1):
            lab.host(name, f"10.9.0.{number}/24").sysctl(net__ipv6__conf__all__disable_ipv6=0)
        for family, further in {"none": [], **FAMILIES}.items():
            gaps = _gaps_ms(lab, tuple(further))
            yield {
                "what": f"adverts beside {len(further)} further addresses",
                "family": family,
                "gap_median_ms": round(statistics.median(gaps), 2),
                "gap_p99_ms": round(gaps[int(len(gaps) * 0.99)], 2),
                "gap_max_ms": round(gaps[-1], 2),
            }


def _expiry_s(host: Namespace, wanted: Vip) -> float:
    addresses = Addresses(host.netlink, host.links("eth0").index)
    began = time.monotonic()
    addresses.add([wanted])
    while any(each.address == wanted.address for each in present_addresses(host.netlink)):
        time.sleep(0.002)
    return time.monotonic() - began


def _ms(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return round((time.perf_counter() - began) * 1e3, 1)


def _gaps_ms(lab: Lab, further: tuple[Vip, ...]) -> list[float]:
    """Sorted."""
    with SpeakerHandle(lab.hosts["d1"]) as speaker, Ear(lab.hosts["cl"].namespace) as ear:
        instance = replace(INSTANCE, vips=(vip("10.9.0.100"),), excluded_vips=further)
        speaker.send(ConfigureSpeaker(instances=(instance,), garp_frames=()))
        speaker.becomes(Role.MASTER)
        time.sleep(1)  # the announcements of the take-over
        since = time.time_ns()
        time.sleep(LISTEN_S)
        at = [each.at_ns for each in ear.adverts(since)]
    return sorted((later - earlier) / 1e6 for earlier, later in itertools.pairwise(at))

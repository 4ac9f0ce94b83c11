"""What follows the master: addresses, routes and rules, on, off, and from one configuration to another.

As in keepalived addresses come first, then those that the adverts do not name, then routes, then rules: a route may
need an address as its source. Addresses leave first, too, since two routers must not have one for longer than it takes;
routes and rules after them, in the reverse of the order in which they came. Of routes whose source has gone the kernel
has then taken off those of IPv4 by itself (fib_sync_down_addr), which is what was wanted.
"""

from __future__ import annotations

from haxlb.model.addresses import Vip
from haxlb.model.instance import VirtualMac, VrrpInstance
from haxlb.vrrp.changes import vip_changes
from haxlb.vrrp.inputs import AddRoutes, AddVips, Effect, RemoveRoutes, RemoveVips


def addresses(instance: VrrpInstance) -> tuple[Vip, ...]:
    """All addresses that follow the master, in the order in which they are put on and announced."""
    return instance.vips + instance.excluded_vips if instance.excluded_vips else instance.vips


def put_on(instance: VrrpInstance) -> list[Effect]:
    """On becoming MASTER."""
    effects: list[Effect] = []
    vips = addresses(instance)
    if vips:
        effects.append(AddVips(vips=vips))
    if instance.routes or instance.rules:
        effects.append(AddRoutes(routes=instance.routes, rules=instance.rules))
    return effects


def take_off(instance: VrrpInstance) -> list[Effect]:
    """On leaving MASTER."""
    effects: list[Effect] = []
    vips = addresses(instance)
    if vips:
        effects.append(RemoveVips(vips=vips))
    if instance.routes or instance.rules:
        effects.append(RemoveRoutes(routes=instance.routes[::-1], rules=instance.rules[::-1]))
    return effects


def swap(old: VrrpInstance, new: VrrpInstance) -> tuple[list[Effect], tuple[Vip, ...], list[Effect]]:
    """While MASTER: what comes on, which addresses are new, and what goes after those were announced."""
    changes = vip_changes(addresses(old), addresses(new))
    lost_routes = tuple(each for each in old.routes if each not in new.routes)
    lost_rules = tuple(each for each in old.rules if each not in new.rules)
    new_routes = tuple(each for each in new.routes if each not in old.routes)
    new_rules = tuple(each for each in new.rules if each not in old.rules)
    # A route that changed is gone for a moment: the kernel refuses a second one to the same destination.
    changed = tuple(each for each in lost_routes if each.destination in {other.destination for other in new_routes})
    coming: list[Effect] = []
    if changes.in_the_way:
        coming.append(RemoveVips(vips=changes.in_the_way))
    added = changes.added + _remade(old, new)
    if added:
        coming.append(AddVips(vips=added))
    if changed:
        coming.append(RemoveRoutes(routes=changed, rules=()))
    if new_routes or new_rules:
        coming.append(AddRoutes(routes=new_routes, rules=new_rules))
    going: list[Effect] = []
    lost_routes = tuple(each for each in lost_routes if each not in changed)
    if lost_routes or lost_rules:
        going.append(RemoveRoutes(routes=lost_routes[::-1], rules=lost_rules[::-1]))
    if changes.gone:
        going.append(RemoveVips(vips=changes.gone))
    return coming, added, going


def _remade(old: VrrpInstance, new: VrrpInstance) -> tuple[Vip, ...]:
    """Addresses that stay, on an interface that does not: it has another base or another MAC now, and lost them."""
    before = {each.interface: _body(each) for each in old.virtual_macs}
    remade = {each.interface for each in new.virtual_macs if before.get(each.interface, _body(each)) != _body(each)}
    kept = addresses(old) if remade else ()
    return tuple(vip for vip in addresses(new) if vip.interface in remade and vip in kept)


def _body(mac: VirtualMac) -> tuple[str, str, str]:
    """What the kernel cannot change of an interface that is there."""
    return mac.base, mac.mac, mac.ipvlan

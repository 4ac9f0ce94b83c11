"""Routes in the words of ip-route(8) as rtnetlink requests.

Put together here: pyroute2 0.9 has no ip, ip6 and ila encapsulation, and neither `expires` nor `ttl-propagate`.
Numbers are those of <linux/rtnetlink.h> and <linux/lwtunnel.h>.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address, ip_address, ip_network
from socket import AF_INET, AF_INET6

from haxlb.linux.iproute_names import number_of
from haxlb.linux.rtnetlink import NLM_F_ACK, NLM_F_CREATE, RTM_DELROUTE, RTM_NEWROUTE, attach, request
from haxlb.model.errors import HostError
from haxlb.model.routes import NextHop, Route

PROTOCOL = 18
"""RTPROT_KEEPALIVED, which marks routes and rules as those of a VRRP daemon."""
_RTMSG = struct.Struct("=BBBBBBBBI")
_RTNEXTHOP = struct.Struct("=HBBi")
_KINDS = {
    "unicast": 1,
    "local": 2,
    "broadcast": 3,
    "multicast": 5,
    "blackhole": 6,
    "unreachable": 7,
    "prohibit": 8,
    "throw": 9,
    "nat": 10,
}
_LOCAL_KINDS = ("local", "broadcast", "nat")
_SCOPES = {"local": 254, "nat": 254, "broadcast": 253, "multicast": 253}
_SCOPE_LINK, _SCOPE_NOWHERE = 253, 255
_TABLE_MAIN, _TABLE_LOCAL = 254, 255
_NARROW_TABLES = 256
_RTNH_F_ONLINK = 4
_DST, _SRC, _OIF, _GATEWAY, _PRIORITY, _PREFSRC, _METRICS, _MULTIPATH = 1, 2, 4, 5, 6, 7, 8, 9
_FLOW, _TABLE, _VIA, _PREF, _ENCAP_TYPE, _ENCAP, _EXPIRES, _TTL_PROPAGATE = 11, 15, 18, 20, 21, 22, 23, 26
_AX_LOCK, _AX_MTU, _AX_RTT, _AX_RTTVAR, _AX_FEATURES, _AX_RTO_MIN, _AX_CC_ALGO = 1, 2, 4, 5, 12, 13, 16
_METRIC_NUMBERS = {
    "mtu": _AX_MTU,
    "window": 3,
    "ssthresh": 6,
    "cwnd": 7,
    "advmss": 8,
    "reordering": 9,
    "hoplimit": 10,
    "initcwnd": 11,
    "initrwnd": 14,
    "quickack": 15,
    "fastopen_no_cookie": 17,
}
# Text by its metric and the kernel's units in a millisecond.
_METRIC_TIMES = {"rtt": (_AX_RTT, 8), "rttvar": (_AX_RTTVAR, 4), "rto_min": (_AX_RTO_MIN, 1)}
_PREFERENCES = {"medium": 0, "high": 1, "low": 3}
_FEATURE_ECN = 1
_ENCAPS = {"mpls": 1, "ip": 2, "ila": 3, "ip6": 4}
# id, dst, src, ttl, tos, flags have the same numbers in both families.
_ENCAP_FIELDS = {"id": 1, "dst": 2, "src": 3, "ttl": 4, "hoplimit": 4, "tos": 5, "tc": 5, "flags": 6}

IndexOf = Callable[[str], int | None]


def encode_addition(route: Route, index_of: IndexOf, flags: int) -> bytes:
    """The request that puts the route on; raises HostError naming what of it cannot be had on this host."""
    with _understood(route):
        body = _header(route, deleting=False) + _key(route) + _way(route, index_of)
    return request(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | flags, body)


def encode_removal(route: Route) -> bytes:
    """The request that takes it off wherever it leads; not a route of the same key that is of another protocol."""
    with _understood(route):
        body = _header(route, deleting=True) + _key(route)
    return request(RTM_DELROUTE, NLM_F_ACK, body)


def key_of(route: Route) -> tuple[str, int, int, int | None]:
    """What the kernel has but one of: destination, table, tos and metric. Raises HostError."""
    return (route.destination, _table(route), _tos(route), route.metric)


@contextlib.contextmanager
def _understood(route: Route) -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, OverflowError, struct.error) as problem:
        raise _refusal(route, f"it cannot be understood: {problem}", "see ip-route(8)") from problem


def _family(route: Route) -> int:
    return AF_INET6 if ":" in route.destination else AF_INET


def _text(route: Route, name: str) -> str:
    return dict(route.texts).get(name, "")


def _number(route: Route, option: str, kind: str, default: int) -> int:
    text = _text(route, option)
    try:
        return number_of(kind, text) if text else default
    except HostError as problem:
        raise _refusal(route, f"{option}: {problem.message}", problem.remedy) from problem


def _table(route: Route) -> int:
    return _number(route, "table", "rt_tables", _TABLE_LOCAL if route.kind in _LOCAL_KINDS else _TABLE_MAIN)


def _tos(route: Route) -> int:
    return _number(route, "tos", "rt_dsfield", 0)


def _scope(route: Route, *, deleting: bool) -> int:
    """As ip-route(8) guesses it."""
    if _text(route, "scope"):
        return _number(route, "scope", "rt_scopes", 0)
    if _family(route) == AF_INET6:
        return 0
    if route.kind in _SCOPES:
        return _SCOPES[route.kind]
    if route.kind != "unicast":
        return _SCOPE_NOWHERE if deleting else 0
    if deleting:
        return _SCOPE_NOWHERE
    return 0 if route.via or route.nexthops else _SCOPE_LINK


def _header(route: Route, *, deleting: bool) -> bytes:
    if route.kind not in _KINDS:
        raise _refusal(route, f"type {route.kind} is not known", "see ip-route(8)")
    for name, _ in route.texts:
        if name == "vrf":
            raise _refusal(route, "option vrf is not supported", "name the VRF's table: `table NUMBER`")
    table = _table(route)
    return _RTMSG.pack(
        _family(route),
        ip_network(route.destination, strict=False).prefixlen,
        ip_network(route.from_prefix, strict=False).prefixlen if route.from_prefix else 0,
        _tos(route),
        table if table < _NARROW_TABLES else 0,
        _number(route, "protocol", "rt_protos", PROTOCOL),
        _scope(route, deleting=deleting),
        _KINDS[route.kind],
        _RTNH_F_ONLINK if route.onlink and not deleting else 0,
    )


def _key(route: Route) -> bytes:
    out = b""
    destination = ip_network(route.destination, strict=False)
    if destination.prefixlen:
        out += attach(_DST, destination.network_address.packed)
    if route.from_prefix:
        out += attach(_SRC, ip_network(route.from_prefix, strict=False).network_address.packed)
    if route.metric is not None:
        out += _u32(_PRIORITY, route.metric)
    table = _table(route)
    if table >= _NARROW_TABLES:
        out += _u32(_TABLE, table)
    return out


def _way(route: Route, index_of: IndexOf) -> bytes:
    out = _gateway(route, route.via)
    if route.device:
        out += _u32(_OIF, _index(route, route.device, index_of))
    if route.source:
        out += attach(_PREFSRC, ip_address(route.source).packed)
    if realms := _text(route, "realms"):
        out += _u32(_FLOW, _realms(route, realms))
    out += _encap(route, route.encap)
    if metrics := _metrics(route):
        out += attach(_METRICS, metrics)
    if route.nexthops:
        out += attach(_MULTIPATH, b"".join(_hop(route, hop, index_of) for hop in route.nexthops))
    numbers = dict(route.numbers)
    if "expires" in numbers:
        out += _u32(_EXPIRES, numbers["expires"])
    if preference := _text(route, "pref"):
        out += attach(_PREF, bytes([_PREFERENCES[preference]]))
    if propagate := _text(route, "ttl-propagate"):
        out += attach(_TTL_PROPAGATE, bytes([propagate == "enabled"]))
    return out


def _hop(route: Route, hop: NextHop, index_of: IndexOf) -> bytes:
    attributes = _gateway(route, hop.via)
    if hop.realms:
        attributes += _u32(_FLOW, _realms(route, hop.realms))
    attributes += _encap(route, hop.encap)
    index = _index(route, hop.device, index_of) if hop.device else 0
    flags = _RTNH_F_ONLINK if hop.onlink else 0
    return _RTNEXTHOP.pack(_RTNEXTHOP.size + len(attributes), flags, hop.weight - 1, index) + attributes


def _gateway(route: Route, via: str) -> bytes:
    if not via:
        return b""
    gateway = ip_address(via)
    family = AF_INET6 if isinstance(gateway, IPv6Address) else AF_INET
    if family == _family(route):
        return attach(_GATEWAY, gateway.packed)
    return attach(_VIA, struct.pack("=H", family) + gateway.packed)


def _metrics(route: Route) -> bytes:
    out = _u32(_AX_LOCK, 1 << _AX_MTU) if route.mtu_locked else b""
    for name, number in route.numbers:
        if name in _METRIC_NUMBERS:
            out += _u32(_METRIC_NUMBERS[name], number)
        elif name != "expires":
            raise _refusal(route, f"option {name} is not supported", "leave it out")
    for name, text in route.texts:
        if name in _METRIC_TIMES:
            metric, units = _METRIC_TIMES[name]
            out += _u32(metric, _time(route, name, text, units))
        elif name == "features":
            if text != "ecn":
                raise _refusal(route, f"features {text} is not supported", "ecn is the only one")
            out += _u32(_AX_FEATURES, _FEATURE_ECN)
        elif name == "congctl":
            out += attach(_AX_CC_ALGO, text.encode() + b"\0")
    return out


def _time(route: Route, option: str, text: str, units: int) -> int:
    """`200ms`, `1s`, or a bare number of the kernel's own units (ip-route(8))."""
    scale = 1.0
    digits = text
    for suffix, factor in (("msecs", 1), ("msec", 1), ("ms", 1), ("secs", 1000), ("sec", 1000), ("s", 1000)):
        if text.endswith(suffix):
            digits, scale = text.removesuffix(suffix), factor * units
            break
    try:
        number = int(float(digits) * scale)
    except (ValueError, OverflowError):
        number = -1
    if not 0 <= number < 2**32:
        raise _refusal(route, f"{option} {text} is no time", "200ms, 1s")
    return number


def _realms(route: Route, text: str) -> int:
    """`TO`, or `FROM/TO`."""
    first, slash, second = text.partition("/")
    try:
        numbers = [number_of("rt_realms", each) for each in ((first, second) if slash else ("0", first))]
    except HostError as problem:
        raise _refusal(route, f"realms: {problem.message}", problem.remedy) from problem
    return numbers[0] << 16 | numbers[1]


def _encap(route: Route, words: tuple[str, ...]) -> bytes:
    if not words:
        return b""
    kind, *rest = words
    try:
        if kind == "mpls":
            payload = attach(1, _labels(rest[0]))
        elif kind == "ila":
            payload = attach(1, IPv6Address(f"{rest[0]}::").packed[:8])
        else:
            pairs = zip(rest[::2], rest[1::2], strict=True)
            payload = b"".join(_encap_field(name, text) for name, text in pairs)
        return attach(_ENCAP_TYPE, struct.pack("=H", _ENCAPS[kind])) + attach(_ENCAP, payload)
    except (ValueError, IndexError, KeyError, OverflowError, struct.error) as problem:
        raise _refusal(route, f"encap {' '.join(words)} cannot be understood", "see ip-route(8)") from problem


def _encap_field(name: str, text: str) -> bytes:
    number = _ENCAP_FIELDS[name]
    if name == "id":
        return attach(number, struct.pack("!Q", int(text, 0)))
    if name in ("dst", "src"):
        return attach(number, ip_address(text).packed)
    if name == "flags":
        return attach(number, struct.pack("!H", int(text, 0)))
    return attach(number, bytes([int(text, 0)]))


def _labels(text: str) -> bytes:
    """A stack of labels, `100/200`; the last one has the bottom bit (RFC 3032)."""
    labels = [int(each) for each in text.split("/")]
    return b"".join(
        struct.pack("!I", label << 12 | (0x100 if position == len(labels) else 0))
        for position, label in enumerate(labels, 1)
    )


def _index(route: Route, device: str, index_of: IndexOf) -> int:
    index = index_of(device)
    if index is None:
        raise _refusal(route, f"there is no interface {device}", "create it, or name another one in `dev`")
    return index


def _u32(kind: int, number: int) -> bytes:
    return attach(kind, struct.pack("=I", number))


def _refusal(route: Route, what: str, remedy: str) -> HostError:
    return HostError(f"route to {route.destination}: {what}", remedy=remedy)


def devices_of(route: Route) -> tuple[str, ...]:
    """The interfaces that it names."""
    return tuple(name for name in (route.device, *(hop.device for hop in route.nexthops)) if name)

"""Rules in the words of ip-rule(8) as rtnetlink requests; numbers are those of <linux/fib_rules.h>."""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_network
from socket import AF_INET, AF_INET6

from haxlb.linux.iproute_names import number_of
from haxlb.linux.routes import PROTOCOL
from haxlb.linux.rtnetlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, RTM_DELRULE, RTM_NEWRULE, attach, request
from haxlb.model.errors import HostError
from haxlb.model.routes import Rule

FIRST_PREFERENCE = 16384
"""keepalived's for a rule that names none; further ones count down."""
_FIB_RULE_HDR = struct.Struct("=BBBBBBBBI")
_INVERT = 2
_TO_TABLE, _GOTO = 1, 2
_ACTIONS = {"table": _TO_TABLE, "goto": _GOTO, "nop": 3, "blackhole": 6, "unreachable": 7, "prohibit": 8}
_DST, _SRC, _IIFNAME, _GOTO_TARGET, _PRIORITY, _FWMARK, _FLOW, _TUN_ID = 1, 2, 3, 4, 6, 10, 11, 12
_SUPPRESS_IFGROUP, _SUPPRESS_PREFIXLEN, _TABLE, _FWMASK, _OIFNAME, _L3MDEV = 13, 14, 15, 16, 17, 19
_UID_RANGE, _PROTOCOL, _IP_PROTO, _SPORT_RANGE, _DPORT_RANGE = 20, 21, 22, 23, 24
_NOT_THE_KERNELS = ("track_group", "no_track", "preference", "not", "tos")
_NARROW_TABLES = 256
_IPV6 = 6


def encode_addition(rule: Rule, preference: int) -> bytes:
    """The request that puts the rule on; raises HostError naming what of it cannot be had on this host."""
    return request(RTM_NEWRULE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, _body(rule, preference))


def encode_removal(rule: Rule, preference: int | None) -> bytes:
    """The request that takes it off; None = whatever preference it has."""
    return request(RTM_DELRULE, NLM_F_ACK, _body(rule, preference))


def preference_of(rule: Rule) -> int | None:
    """The preference that it names."""
    text = dict(rule.selectors).get("preference")
    return None if text is None else int(text)


def _body(rule: Rule, preference: int | None) -> bytes:
    try:
        return _header(rule) + _attributes(rule, preference)
    except (ValueError, LookupError, OverflowError, struct.error) as problem:
        raise _refusal(rule, f"it cannot be understood: {problem}", "see ip-rule(8)") from problem


def _header(rule: Rule) -> bytes:
    selectors = dict(rule.selectors)
    return _FIB_RULE_HDR.pack(
        AF_INET6 if rule.family == _IPV6 else AF_INET,
        _prefix_length(selectors.get("to")),
        _prefix_length(selectors.get("from")),
        _named(rule, "tos", "rt_dsfield", selectors["tos"]) if "tos" in selectors else 0,
        _table(rule) if _table(rule) < _NARROW_TABLES else 0,
        0,
        0,
        _ACTIONS[rule.action[0]] if rule.action else _TO_TABLE,
        _INVERT if "not" in selectors else 0,
    )


def _attributes(rule: Rule, preference: int | None) -> bytes:
    attributes = b"" if preference is None else _u32(_PRIORITY, preference)
    if _table(rule) >= _NARROW_TABLES:
        attributes += _u32(_TABLE, _table(rule))
    if rule.action[:1] == ("goto",):
        attributes += _u32(_GOTO_TARGET, int(rule.action[1]))
    if "protocol" not in dict(rule.selectors):
        attributes += attach(_PROTOCOL, bytes([PROTOCOL]))
    return attributes + b"".join(_selector(rule, *each) for each in rule.selectors)


def _table(rule: Rule) -> int:
    if rule.action[:1] == ("table",) and len(rule.action) > 1:
        return _named(rule, "table", "rt_tables", rule.action[1])
    return 0


def _selector(rule: Rule, name: str, text: str) -> bytes:  # noqa: C901, PLR0911, PLR0912 - a table of words
    match name:
        case "from" | "to":
            network = ip_network(text, strict=False)
            return (
                attach(_SRC if name == "from" else _DST, network.network_address.packed) if network.prefixlen else b""
            )
        case "fwmark":
            mark, slash, mask = text.partition("/")
            return _u32(_FWMARK, int(mark, 0)) + (_u32(_FWMASK, int(mask, 0)) if slash else b"")
        case "iif" | "oif":
            return attach(_IIFNAME if name == "iif" else _OIFNAME, text.encode() + b"\0")
        case "uidrange":
            return attach(_UID_RANGE, struct.pack("=II", *_range(text)))
        case "sport" | "dport":
            return attach(_SPORT_RANGE if name == "sport" else _DPORT_RANGE, struct.pack("=HH", *_range(text)))
        case "ipproto":
            return attach(_IP_PROTO, bytes([_ip_protocol(rule, text)]))
        case "protocol":
            return attach(_PROTOCOL, bytes([_named(rule, name, "rt_protos", text)]))
        case "realms":
            first, slash, second = text.partition("/")
            numbers = [_named(rule, name, "rt_realms", each) for each in ((first, second) if slash else ("0", first))]
            return _u32(_FLOW, numbers[0] << 16 | numbers[1])
        case "tunnel-id":
            return attach(_TUN_ID, struct.pack("!Q", int(text, 0)))
        case "suppress_prefixlength":
            return _u32(_SUPPRESS_PREFIXLEN, int(text))
        case "suppress_ifgroup":
            return _u32(_SUPPRESS_IFGROUP, _named(rule, name, "group", text))
        case "l3mdev":
            return attach(_L3MDEV, b"\1")
        case _ if name in _NOT_THE_KERNELS:
            return b""
    raise _refusal(rule, f"option {name} is not supported", "leave it out")


def _range(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    return int(low), int(high if dash else low)


def _ip_protocol(rule: Rule, text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return socket.getprotobyname(text)
    except OSError as problem:
        raise _refusal(rule, f"ipproto {text} is not in /etc/protocols", "use a number") from problem


def _named(rule: Rule, option: str, kind: str, text: str) -> int:
    try:
        return number_of(kind, text)
    except HostError as problem:
        raise _refusal(rule, f"{option}: {problem.message}", problem.remedy) from problem


def _prefix_length(text: str | None) -> int:
    return 0 if text is None else ip_network(text, strict=False).prefixlen


def _u32(kind: int, number: int) -> bytes:
    return attach(kind, struct.pack("=I", number))


def _refusal(rule: Rule, what: str, remedy: str) -> HostError:
    return HostError(f"rule `{describe(rule)}`: {what}", remedy=remedy)


def describe(rule: Rule) -> str:
    """The rule in the words of ip-rule(8)."""
    words = [word for name, text in rule.selectors for word in (name, text) if word]
    return " ".join((*words, *rule.action))

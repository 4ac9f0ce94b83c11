"""What a virtual server means: its values, who is probed how often, and how long a dead server stays in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from haxlb.config.meaning_value import Origin, Value, origin
from haxlb.config.printer import in_seconds
from haxlb.config.server_method import method_of, method_text
from haxlb.config.server_schedule import granularity
from haxlb.config.servers import PlacedServer
from haxlb.health.outcome import seconds
from haxlb.health.rise_fall import RISE, fall, fall_time_us, retry_pace_us
from haxlb.model.addresses import IPAddress
from haxlb.model.check import Check, CheckKind
from haxlb.model.units import SECOND_US
from haxlb.model.virtual_server import ForwardingMethod, RealServer, Scheduler, VirtualServer
from keepalived_compat.section import Section

_TIMING = ("delay_loop", "connect_timeout", "retry", "delay_before_retry")
_KINDS = [each.value for each in CheckKind]


def server_values(placed: PlacedServer) -> Iterator[Value]:
    """The effective values of the virtual server, and the timing of its checks where it is one for all of them."""
    server, section = placed.virtual_server, placed.section

    def value(name: str, text: str) -> Value:
        return Value(name=name, text=text, origin=origin(name, section))

    yield value("lb_algo", server.scheduler.value)
    methods = dict.fromkeys(method_text(method_of(each)) for each in server.real_servers)
    yield value("lb_kind", next(iter(methods)) if len(methods) == 1 else f"{', '.join(methods)}, by server")
    yield value("protocol", server.endpoint.protocol.value)
    if server.mh_port:
        yield value("sh-port" if server.scheduler is Scheduler.SH else "mh-port", "yes")
    if server.persistence_s:
        yield value("persistence_timeout", f"{server.persistence_s} s")
    if server.persistence_granularity is not None:
        family = server.endpoint.address.version
        yield value("persistence_granularity", granularity(server.persistence_granularity, family))
    if server.one_packet:
        yield value("ops", "yes")
    yield value("alpha", "yes" if server.alpha else "no")
    yield value("quorum", str(server.quorum))
    yield value("hysteresis", str(server.hysteresis))
    if server.sorry_server is not None:
        yield value("sorry_server", server.sorry_server.key)
    checks = [check for each in server.real_servers for check in each.checks]
    sections = list(_check_sections(section))
    for name in _TIMING:
        texts = {_timing(check, name) for check in checks}
        if len(texts) == 1:
            origins = {origin(name, *around) for around in sections}
            yield Value(name=name, text=texts.pop(), origin=origins.pop() if len(origins) == 1 else Origin.WRITTEN)


def _check_sections(section: Section) -> Iterator[tuple[Section | None, ...]]:
    """Each check's block with those around it, the innermost first."""
    for real in section.all("real_server"):
        for entry in real.section.entries if real.section is not None else ():
            if entry.keyword.name in _KINDS:
                yield entry.section, real.section, section


def _timing(check: Check, name: str) -> str:
    if name == "retry":
        return "not named: two in a row" if check.retry is None else str(check.retry)
    return f"{in_seconds(getattr(check, f'{name}_us'))} s"


def server_sentences(placed: PlacedServer, owners: Mapping[IPAddress, str]) -> Iterator[str]:
    """What it does, with figures. `owners` are the instances by address."""
    server = placed.virtual_server
    yield from _addresses(server, owners)
    yield from _shares(server)
    yield from _flows(server)
    yield from _probes(server)
    # A dead server fails all of its checks, and the first that says so takes it out.
    times = [min(map(fall_time_us, each.checks)) for each in server.real_servers if each.checks]
    if times:
        yield f"a failed server is out after at most {seconds(max(times))}"
    yield _quorum(server)


def _addresses(server: VirtualServer, owners: Mapping[IPAddress, str]) -> Iterator[str]:
    if server.more_endpoints or server.group or server.fwmark:
        shown = ", ".join(map(str, server.endpoints[:_SHOWN]))
        more = len(server.endpoints) - _SHOWN
        yield f"it serves {shown}{f' and {more} more' if more > 0 else ''}"
    if not server.endpoint.port:
        yield "port 0 is every port that no other virtual server of the address and protocol has"
    found = {owners.get(each.address, "") for each in server.endpoints}
    if found == {""}:
        yield "no instance has its address: it is served where packets for it arrive, and does not move"
        return
    names = ", ".join(sorted(found - {""}))
    yield f"its address moves with {names}" if "" not in found else f"of its addresses only some move, with {names}"


_SHOWN = 4
"""Addresses of a virtual server."""


def _flows(server: VirtualServer) -> Iterator[str]:
    if server.persistence_s:
        bits = server.persistence_granularity
        who = "a client" if bits is None else f"clients whose first {bits} bits are alike"
        verb = "keeps its server" if bits is None else "keep their server"
        yield f"{who} {verb} for {server.persistence_s} s after the last packet"
    if server.one_packet:
        yield "each packet is scheduled anew (ops)"
    for each in server.real_servers:
        if each.upper_threshold:
            lower = each.lower_threshold or max(each.upper_threshold * 3 // 4, 1)
            yield (
                f"{each.key} gets no new connections from {each.upper_threshold} on, until it has fewer than {lower}"
            )
    for method in dict.fromkeys(each.method for each in server.real_servers):
        if method is not ForwardingMethod.DR:
            keys = ", ".join(each.key for each in server.real_servers if each.method is method)
            yield f"{keys}: {_BY_METHOD[method]}"


_BY_METHOD = {
    ForwardingMethod.NAT: "by NAT, so that its answers must come back through this director (its default route)",
    ForwardingMethod.TUN: "by a tunnel, which it must have an interface for, and the virtual address on it or on lo",
}


def _shares(server: VirtualServer) -> Iterator[str]:
    reals = server.real_servers
    total = sum(each.weight for each in reals)
    if server.scheduler is Scheduler.RR:
        shown = ", ".join(each.key for each in reals if each.weight)
        yield f"new connections go to each in turn: {shown or 'nobody: all weights are 0'}"
    elif total and server.scheduler in _BY_SHARE:
        how = _BY_SHARE[server.scheduler] + (" and port" if server.mh_port else "")
        yield f"new connections {how}: " + ", ".join(
            f"{each.key} {100 * each.weight / total:.0f} %" for each in reals if each.weight
        )
        if server.scheduler.hashes:
            yield "where the hash points to a server that is down, drained or full, another one takes its place"
    elif total:
        keys = ", ".join(each.key if each.weight == 1 else f"{each.key} (weight {each.weight})" for each in reals)
        yield f"new connections {_BY_LOAD[server.scheduler]}: {keys}"
    else:
        yield "new connections go nowhere: all weights are 0"
    drained = [each.key for each in reals if not each.weight]
    if drained:
        yield f"drained, so that they keep their connections and get no new ones: {', '.join(drained)}"
    inhibited = [each.key for each in reals if each.inhibit_on_failure]
    if inhibited:
        yield f"connections stay with a failed server (inhibit_on_failure): {', '.join(inhibited)}"


_BY_SHARE = {
    Scheduler.WRR: "by weight",
    Scheduler.SH: "by a hash of the client's address",
    Scheduler.MH: "by a hash of the client's address",
    Scheduler.DH: "by a hash of the virtual address",
}
_BY_LOAD = {
    Scheduler.LC: "go to the server with the fewest connections",
    Scheduler.WLC: "go to the server with the fewest connections for its weight",
    Scheduler.SED: "go to the server that would have the fewest connections for its weight with it",
    Scheduler.NQ: "go to a server without connections, else as by sed",
    Scheduler.LBLC: "to one address go to one server, while it is not overloaded",
    Scheduler.LBLCR: "to one address go to a set of servers, which grows while they are overloaded",
    Scheduler.FO: "go to the server of the highest weight that is up",
    Scheduler.OVF: "go to the server of the highest weight until it has as many connections as its weight",
    Scheduler.TWOS: "go to the less loaded of two servers that are drawn by weight",
}


def _probes(server: VirtualServer) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for real in server.real_servers:
        for check in real.checks:
            alike.setdefault(_probe(check, real), []).append(real.key)
        if not real.checks:
            alike.setdefault("not checked: it counts as up", []).append(real.key)
    for text, keys in alike.items():
        yield f"{', '.join(keys)}: {text}"


def _probe(check: Check, real: RealServer) -> str:
    text = check.kind.value
    if (check.address, check.port) != (real.address, real.port):
        text += f" of {check.target}"
    if check.urls:
        text += f" of {' '.join(each.path for each in check.urls)}"
    failures, pace = fall(check), retry_pace_us(check)
    down = "at the first failure" if failures == 1 else f"after {failures} failures in a row, {seconds(pace)} apart"
    each = " for each url" if len(check.urls) > 1 else ""
    return (
        f"{text} {seconds(check.delay_loop_us)} after the end of the last one, given up after"
        f" {seconds(check.connect_timeout_us)}{each}; down {down}, up after {RISE} successes, {seconds(pace)} apart"
    )


def _quorum(server: VirtualServer) -> str:
    gained, lost = server.quorum + server.hysteresis, server.quorum - server.hysteresis
    text = f"the quorum needs a weight of {gained}, and is lost below {max(lost, 1)}"
    if server.sorry_server is not None:
        return f"{text}: then {server.sorry_server.key} serves alone"
    return (
        f"{text}: then {'quorum_down runs' if server.quorum_down else 'nothing happens'}, the servers that are up serve"
    )


def probing(servers: Iterable[VirtualServer]) -> str:
    """Who probes how much."""
    checks = dict.fromkeys(check for each in servers for real in each.real_servers for check in real.checks)
    rate = sum(SECOND_US / check.delay_loop_us for check in checks)
    return (
        f"each director makes {len(checks)} different probes, at most {rate:.3g} a second in all while all is well;"
        " one that several virtual servers name is made once"
    )

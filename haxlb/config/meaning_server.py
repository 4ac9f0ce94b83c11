"""What a virtual server means: its values, who is probed how often, and how long a dead server stays in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from haxlb.config.meaning_value import Origin, Value, origin
from haxlb.config.printer import in_seconds
from haxlb.config.servers import PlacedServer
from haxlb.health.outcome import seconds
from haxlb.health.rise_fall import RISE, fall, fall_time_us, retry_pace_us
from haxlb.model.addresses import IPAddress
from haxlb.model.node import SECOND_US, Check, CheckKind, RealServer, Scheduler, VirtualServer
from keepalived_compat.section import Section

_TIMING = ("delay_loop", "connect_timeout", "retry", "delay_before_retry")
_KINDS = [each.value for each in CheckKind]


def server_values(placed: PlacedServer) -> Iterator[Value]:
    """The effective values of the virtual server, and the timing of its checks where it is one for all of them."""
    server, section = placed.virtual_server, placed.section

    def value(name: str, text: str) -> Value:
        return Value(name=name, text=text, origin=origin(name, section))

    yield value("lb_algo", server.scheduler.value)
    yield value("lb_kind", "DR")
    yield value("protocol", server.endpoint.protocol.value)
    if server.mh_port:
        yield value("sh-port" if server.scheduler is Scheduler.SH else "mh-port", "yes")
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
    owner = owners.get(server.endpoint.address)
    yield (
        f"its address moves with {owner}"
        if owner
        else "no instance has its address: it is served where packets for it arrive, and does not move"
    )
    yield from _shares(server)
    yield from _probes(server)
    # A dead server fails all of its checks, and the first that says so takes it out.
    times = [min(map(fall_time_us, each.checks)) for each in server.real_servers if each.checks]
    if times:
        yield f"a failed server is out after at most {seconds(max(times))}"
    yield _quorum(server)


def _shares(server: VirtualServer) -> Iterator[str]:
    reals = server.real_servers
    total = sum(each.weight for each in reals)
    if server.scheduler is Scheduler.RR:
        shown = ", ".join(each.key for each in reals if each.weight)
        yield f"new connections go to each in turn: {shown or 'nobody: all weights are 0'}"
    elif total:
        how = "by weight" if server.scheduler is Scheduler.WRR else "by a hash of the client's address"
        if server.mh_port:
            how += " and port"
        yield f"new connections {how}: " + ", ".join(
            f"{each.key} {100 * each.weight / total:.0f} %" for each in reals if each.weight
        )
    else:
        yield "new connections go nowhere: all weights are 0"
    drained = [each.key for each in reals if not each.weight]
    if drained:
        yield f"drained, so that they keep their connections and get no new ones: {', '.join(drained)}"
    inhibited = [each.key for each in reals if each.inhibit_on_failure]
    if inhibited:
        yield f"connections stay with a failed server (inhibit_on_failure): {', '.join(inhibited)}"


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
        text += f" of {check.address}:{check.port}"
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

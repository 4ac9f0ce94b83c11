"""Virtual servers in the forms of `ipvsadm -Ln`: for the eyes and scripts that know it.

The header is haxlb's own, so that nobody takes it for the kernel's table. Hash schedulers keep no record of flows
unless a server must be kept for some reason, so that nobody knows how many of their connections are open: ActiveConn
and InActConn are `-` then, and not 0 or a number that only grows. So are the columns of the other direction, of which
XDP sees nothing where answers do not come back through the director. Conns of `--stats` is such a number for ipvsadm,
too: the flows that a server was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeVar

from haxlb.model.status import NodeStatus, RealServerStatus, VirtualServerStatus

_UNITS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "K"))
_LONGEST_PLAIN: Final = 8
_FORWARD: Final = {"DR": "Route", "TUN": "Tunnel", "NAT": "Masq"}

_Counted = TypeVar("_Counted", VirtualServerStatus, RealServerStatus)


def connections(status: NodeStatus) -> Iterator[str]:
    """The lines of `ipvsadm -Ln`."""
    yield from _head(status, "Prot LocalAddress:Port Scheduler Flags")
    yield "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn"
    for service in status.virtual_servers:
        for protocol, name in _names(service):
            flags = f" persistent {service.persistence_s}" if service.persistence_s else ""
            yield f"{protocol:<4} {name} {service.scheduler}{flags}"
        for server in _in_table(service):
            yield (
                f"  -> {server.key:<28} {forward(server):<7} {server.weight:<6} "
                f"{known(server.active):<10} {known(server.inactive)}"
            )


def thresholds(status: NodeStatus) -> Iterator[str]:
    """The lines of `ipvsadm -Ln --thresholds`."""
    yield from _head(status, "Prot LocalAddress:Port            Uthreshold Lthreshold ActiveConn InActConn")
    yield "  -> RemoteAddress:Port"
    for service in status.virtual_servers:
        for protocol, name in _names(service):
            yield f"{protocol:<4} {name} {service.scheduler}"
        for server in _in_table(service):
            yield (
                f"  -> {server.key:<28} {server.upper_threshold:<10} {server.lower_threshold:<10} "
                f"{known(server.active):<10} {known(server.inactive)}"
            )


def statistics(status: NodeStatus) -> Iterator[str]:
    """The lines of `ipvsadm -Ln --stats`."""
    yield from _head(status, "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes")
    yield "  -> RemoteAddress:Port"
    yield from _numbers(status)


def rates(before: NodeStatus, after: NodeStatus) -> Iterator[str]:
    """The lines of `ipvsadm -Ln --rate`, per second between two statuses.

    The kernel has a moving average over some seconds instead.
    """
    yield from _head(after, "Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS")
    yield "  -> RemoteAddress:Port"
    seconds = max(after.at - before.at, 0.001)
    services = {each.name: each for each in before.virtual_servers}
    rated = []
    for service in after.virtual_servers:
        former = services.get(service.name, service)
        servers = {each.key: each for each in former.real_servers}
        rated.append(
            replace(
                _rate(former, service, seconds),
                real_servers=tuple(_rate(servers.get(each.key, each), each, seconds) for each in service.real_servers),
            )
        )
    yield from _numbers(replace(after, virtual_servers=tuple(rated)))


def forward(server: RealServerStatus) -> str:
    """How packets reach it, in ipvsadm's words."""
    return "Local" if server.local else _FORWARD.get(server.method, server.method)


def known(count: int | None) -> str:
    """`-` where the scheduler keeps no record."""
    return "-" if count is None else str(count)


def place(service: VirtualServerStatus) -> str:
    """`address:port` of its first endpoint, of IPv6 `[address]:port`."""
    address = f"[{service.address}]" if service.address.version == 6 else str(service.address)  # noqa: PLR2004
    return f"{address}:{service.port}"


def _head(status: NodeStatus, columns: str) -> Iterator[str]:
    yield f"haxlb Virtual Server version {status.version} (xdp)"
    yield columns


def _numbers(status: NodeStatus) -> Iterator[str]:
    for service in status.virtual_servers:
        *others, (protocol, name) = _names(service)
        for other, also in others:
            yield f"{other:<4} {also}"
        yield f"{protocol:<4} {name:<28}{_counters(service)}"
        for server in _in_table(service):
            yield f"  -> {server.key:<28}{_counters(server)}"


def _names(service: VirtualServerStatus) -> list[tuple[str, str]]:
    """Protocol and name of each of its lines: a firewall mark has one, a group one for each endpoint."""
    if service.name.startswith("fwmark "):
        return [("FWM", service.name.split()[1])]
    named = []
    for endpoint in service.endpoints:
        address, protocol, port = endpoint.rsplit(":", 2)
        bare = address if ":" in address else address.strip("[]")
        named.append((protocol.upper(), f"{bare}:{port}"))
    return named or [(service.protocol, place(service))]


def _in_table(service: VirtualServerStatus) -> list[RealServerStatus]:
    """Servers that IPVS would have: those in the pool, and those that only keep what they have (weight 0).

    While the sorry server serves, keepalived takes the others out of the table, whatever their checks say.
    """
    return [
        each for each in service.real_servers if each.in_pool or (each.up and not each.is_sorry and not service.sorry)
    ]


def _rate(before: _Counted, after: _Counted, seconds: float) -> _Counted:
    def rate(then: int, now: int) -> int:
        return round(max(now - then, 0) / seconds)

    return replace(
        after,
        packets=rate(before.packets, after.packets),
        bytes=rate(before.bytes, after.bytes),
        flows=rate(before.flows, after.flows),
    )


def _counters(what: VirtualServerStatus | RealServerStatus) -> str:
    numbers = (_short(what.flows), _short(what.packets), "-", _short(what.bytes), "-")
    return "".join(f"{number:>9}" for number in numbers)


def _short(number: int) -> str:
    """As ipvsadm does: at most eight characters, thousands with a letter."""
    if len(str(number)) <= _LONGEST_PLAIN:
        return str(number)
    for unit, letter in _UNITS:
        if number >= unit:
            return f"{number // unit}{letter}"
    return str(number)

"""Virtual servers in the form of `ipvsadm -Ln`: for the eyes and scripts that know it.

The header is haxlb's own, so that nobody takes it for the kernel's table. XDP sees one direction only, and hash
schedulers keep no flows, so that nobody knows how many connections are open: ActiveConn and InActConn are `-`, as are
the columns of the other direction, and not 0 or a number that only grows. Conns of `--stats` is such a number for
ipvsadm, too: the flows that a server was given.
"""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.model.status import NodeStatus, RealServerStatus, VirtualServerStatus

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "K"))
_LONGEST_PLAIN = 8


def connections(status: NodeStatus) -> Iterator[str]:
    """The lines of `ipvsadm -Ln`."""
    yield f"haxlb Virtual Server version {status.version} (xdp)"
    yield "Prot LocalAddress:Port Scheduler Flags"
    yield "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn"
    for service in status.virtual_servers:
        yield f"{service.protocol:<4} {service.address}:{service.port} {service.scheduler}"
        for server in _in_table(service):
            yield f"  -> {_endpoint(server):<28} {'Route':<7} {server.weight:<6} {'-':<10} -"


def statistics(status: NodeStatus) -> Iterator[str]:
    """The lines of `ipvsadm -Ln --stats`."""
    yield f"haxlb Virtual Server version {status.version} (xdp)"
    yield "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes"
    yield "  -> RemoteAddress:Port"
    for service in status.virtual_servers:
        name = f"{service.address}:{service.port}"
        yield f"{service.protocol:<4} {name:<28}{_counters(service)}"
        for server in _in_table(service):
            yield f"  -> {_endpoint(server):<28}{_counters(server)}"


def _in_table(service: VirtualServerStatus) -> list[RealServerStatus]:
    """Servers that IPVS would have: those in the pool, and those that only keep what they have (weight 0)."""
    return [each for each in service.real_servers if each.in_pool or (each.up and not each.is_sorry)]


def _endpoint(server: RealServerStatus) -> str:
    return f"{server.address}:{server.port}"


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

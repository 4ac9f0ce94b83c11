"""Weights that an operator has set on a running daemon, over those of the configuration.

They are of the process: a reload of the file keeps them, `haxlb enable` or the end of the server in the configuration
ends them, and so does a restart of the supervisor, for which the file is the law again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from haxlb.model.errors import HaxlbError
from haxlb.model.node import NodeConfig
from haxlb.model.status import RealServerStatus, VirtualServerStatus
from haxlb.model.virtual_server import RealServer, VirtualServer
from keepalived_compat.nearest import did_you_mean

MOST = 65535
"""The largest weight, as of `weight` in the configuration."""
_SHOWN = 5
"""Names in a remedy, before `…`."""


class NoSuchServer(HaxlbError):
    """The configuration in force has no server of that name, or several virtual servers."""


class LiveWeights:
    """By virtual server and real server, as they are named in status and logs."""

    def __init__(self) -> None:
        self._weights: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._weights)

    def get(self, virtual_server: VirtualServer, server: RealServer) -> int | None:
        """The weight that was set; None = that of the configuration counts."""
        return self._weights.get((virtual_server.name, server.key))

    def set(self, virtual_server: VirtualServer, server: RealServer, weight: int | None) -> None:
        """Set a weight; None ends it."""
        if weight is None:
            self._weights.pop((virtual_server.name, server.key), None)
        else:
            self._weights[virtual_server.name, server.key] = weight

    def keep(self, config: NodeConfig) -> None:
        """Forget those of servers that this configuration does not have."""
        there = {(each.name, server.key) for each in config.virtual_servers for server in each.real_servers}
        self._weights = {name: weight for name, weight in self._weights.items() if name in there}

    def applied(self, config: NodeConfig) -> NodeConfig:
        """The configuration as if the file said so."""
        if not self._weights:
            return config
        return replace(config, virtual_servers=tuple(self._applied(each) for each in config.virtual_servers))

    def _applied(self, virtual_server: VirtualServer) -> VirtualServer:
        weights = {server.key: self.get(virtual_server, server) for server in virtual_server.real_servers}
        if all(weight is None for weight in weights.values()):
            return virtual_server
        return replace(
            virtual_server,
            real_servers=tuple(
                server if (weight := weights[server.key]) is None else replace(server, weight=weight)
                for server in virtual_server.real_servers
            ),
        )

    def marked(self, statuses: tuple[VirtualServerStatus, ...], config: NodeConfig) -> tuple[VirtualServerStatus, ...]:
        """The same, with the configured weight beside one that was set."""
        if not self._weights:
            return statuses
        configured = {
            (each.name, server.key): server.weight
            for each in config.virtual_servers
            for server in each.real_servers
            if (each.name, server.key) in self._weights
        }
        return tuple(
            replace(
                status,
                real_servers=tuple(
                    replace(server, configured_weight=configured.get((status.name, server.key)))
                    if not server.is_sorry
                    else server
                    for server in status.real_servers
                ),
            )
            for status in statuses
        )


def find(config: NodeConfig, virtual_server: str, server: str) -> tuple[VirtualServer, RealServer]:
    """The two that are meant, named as `haxlb show` or the log does. Raises NoSuchServer."""
    found = _virtual_server(config, virtual_server)
    for each in found.real_servers:
        if each.key == server or (str(each.address) == server and _alone(found, each)):
            return found, each
    known = [each.key for each in found.real_servers]
    sorry = found.sorry_server
    if sorry is not None and server in (sorry.key, str(sorry.address)):
        raise NoSuchServer(
            f"{server} is the sorry server of {found.name}: it has no weight",
            remedy="it serves when the quorum is lost, and only then",
        )
    raise NoSuchServer(f"{found.name} has no real server {server}", remedy=_remedy(server, known))


def _alone(virtual_server: VirtualServer, server: RealServer) -> bool:
    return sum(each.address == server.address for each in virtual_server.real_servers) == 1


def _virtual_server(config: NodeConfig, asked: str) -> VirtualServer:
    words = " ".join(asked.split())
    matching = [each for each in config.virtual_servers if words in names(each)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise NoSuchServer(
            f"{asked} is the name of several virtual servers",
            remedy=f"name one: {_listed(each.name for each in matching)}",
        )
    known = [name for each in config.virtual_servers for name in names(each)]
    raise NoSuchServer(
        f"no virtual server is called {asked}",
        remedy=did_you_mean(words, known) or _there_are(names(each)[0] for each in config.virtual_servers),
    )


def names(virtual_server: VirtualServer) -> tuple[str, ...]:
    """What a virtual server may be called; the first is unique."""
    called = [virtual_server.name]
    for endpoint in virtual_server.endpoints:
        place = f"{endpoint.address}:{endpoint.port}"
        if endpoint.address.version == 6:  # noqa: PLR2004 - the family
            place = f"[{endpoint.address}]:{endpoint.port}"
        called += [
            str(endpoint),
            place,
            f"{endpoint.protocol.value} {place}",
            f"{endpoint.protocol.value.lower()} {place}",
        ]
    if virtual_server.group:
        called += [virtual_server.group, f"group {virtual_server.group}"]
    if virtual_server.fwmark:
        # FWM: as `haxlb show -Ln` and ipvsadm have it.
        called += [f"fwmark {virtual_server.fwmark}", f"FWM {virtual_server.fwmark}"]
    return tuple(dict.fromkeys(called))


def find_status(statuses: Iterable[VirtualServerStatus], virtual_server: str, server: str) -> RealServerStatus | None:
    """The status of a server that `find` has found by these names; None when it has gone since."""
    words = " ".join(virtual_server.split())
    for status in statuses:
        if words not in _names_of_status(status):
            continue
        for each in status.real_servers:
            if not each.is_sorry and server in (each.key, str(each.address)):
                return each
    return None


def _names_of_status(status: VirtualServerStatus) -> set[str]:
    called = {status.name}
    for endpoint in status.endpoints:
        address, protocol, port = endpoint.rsplit(":", 2)
        there = f"{address if ':' in address else address.strip('[]')}:{port}"
        called |= {endpoint, there, f"{protocol} {there}", f"{protocol.upper()} {there}"}
    kind, _, rest = status.name.partition(" ")
    if kind in ("group", "fwmark"):
        name = rest.rpartition(" ")[0]
        called |= {f"{kind} {name}", name if kind == "group" else f"FWM {name}"}
    return called


def _remedy(word: str, known: list[str]) -> str:
    return did_you_mean(word, known) or _there_are(known)


def _there_are(known: Iterable[str]) -> str:
    listed = _listed(known)
    return f"there are: {listed}" if listed else "there are none"


def _listed(known: Iterable[str]) -> str:
    listed = tuple(known)
    return ", ".join(listed[:_SHOWN]) + (", …" if len(listed) > _SHOWN else "")

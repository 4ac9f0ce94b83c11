"""The devmap: interfaces out of which the program sends frames in batches."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from haxlb.forwarding import layout
from haxlb.forwarding.wanted import WantedService, WantedTable
from haxlb.linux import bpf, xdp
from haxlb.linux.bpf_call import BpfError
from haxlb.linux.maps import Maps
from haxlb.model.errors import HostError

Log = Callable[[str, str, dict[str, str]], None]
"""level, event, fields."""
_NOT_TAKEN: Final = (errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP, errno.E2BIG)
"""__dev_map_alloc_node of kernel/bpf/devmap.c: there is no such device; E2BIG: all places are taken. That a driver has
no ndo_xdp_xmit is not seen here, but when a frame is sent."""


class Devices:
    """Of one forwarder. Where an interface does not go in, the program redirects frame by frame."""

    def __init__(self, maps: Maps, log: Log) -> None:
        self._maps = maps
        self._log = log
        self._plain_redirects: set[int] = set()
        self._named: dict[str, tuple[WantedService | None, frozenset[int]]] = {}
        """Interfaces of next hops, by service."""

    def note(self, wanted: WantedTable) -> None:
        """Tell the program which interfaces next hops name. Raises HostError."""
        named: set[int] = set().union(*map(self._interfaces_of, wanted.services))
        if len(self._named) > len(wanted.services):
            names = {service.name for service in wanted.services}
            self._named = {name: each for name, each in self._named.items() if name in names}
        fd = self._maps.fds["devices"]
        present = {int.from_bytes(key, "little") for key in bpf.map_keys(fd, layout.INDEX.size)}
        for index in sorted(present - named):
            bpf.map_delete(fd, layout.INDEX.pack(index))
        self._plain_redirects &= named
        for index in sorted(named - present - self._plain_redirects):
            try:
                bpf.map_update(fd, layout.INDEX.pack(index), layout.INDEX.pack(index))
            except BpfError as problem:
                if problem.number not in _NOT_TAKEN:
                    raise
                self._plain_redirects.add(index)
                self._say_plain(index, problem)

    def _interfaces_of(self, service: WantedService) -> frozenset[int]:
        """Those that its next hops name; nearly all services are the very objects of the last time."""
        known, interfaces = self._named.get(service.name, (None, frozenset()))
        if known is not service:
            hops = (service.peer, *(server.next_hop for server in service.servers))
            interfaces = frozenset(hop.interface_index for hop in hops if hop is not None)
            self._named[service.name] = (service, interfaces)
        return interfaces

    def _say_plain(self, index: int, problem: BpfError) -> None:
        try:
            interface = xdp.interface_name(index)
        except (HostError, OSError):
            interface = f"number {index}"
        self._log(
            "warning",
            "no_batched_redirect",
            {
                "interface": interface,
                "reason": os.strerror(problem.number),
                "consequence": "servers behind it are not reached, or frame by frame",
                "remedy": "see that the interface is there (`ip link`)",
            },
        )

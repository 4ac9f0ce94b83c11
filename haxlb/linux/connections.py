"""The pinned flow tables, as `haxlb show -c` reads them: mapped into memory, beside packets that change them.

Nothing is locked and no packet waits. What is read is a row of moments: a flow that begins, ends or moves meanwhile may
be missing, or be there twice.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import socket
import struct
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from haxlb.forwarding.connections import BackendName, Book, FrontendName
from haxlb.forwarding.layout import ABI
from haxlb.forwarding.records import BackendRecord, FrontendRecord, ServiceRecord, unpack_endpoint
from haxlb.forwarding.sweep_order import SweepOrder, pack_sweep_order, told_lifetimes
from haxlb.linux import bpf
from haxlb.linux.bpf_call import BpfError, closing
from haxlb.linux.bpffs import is_bpffs
from haxlb.linux.maps import Maps
from haxlb.model.errors import HostError, NotPermitted

_UCRED: Final = struct.Struct("3i")
text_of_ipv6: Final = partial(socket.inet_ntop, socket.AF_INET6)
SOCKET_NAME: Final = "control.sock"
_CHUNK: Final = 1 << 16
_EMPTY: Final = bytes(_CHUNK)
_COARSE: Final = 6
"""CLOCK_MONOTONIC_COARSE: its resolution is the tick of this kernel."""
_ATTEMPTS: Final = 3
"""A swap takes away the pin of the sweep before, perhaps between a look at the directory and the opening."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some buckets of a table."""

    buckets: bytes
    wide: bool


class ConnectionTables:
    """Everything that is needed to list connections."""

    def __init__(self, runtime_dir: Path) -> None:
        """Open what is pinned. Raises HostError, NotPermitted."""
        self._directory = runtime_dir / "bpf" / ABI
        if not is_bpffs(runtime_dir / "bpf") and (root := _root_of_daemon(runtime_dir)) is not None:
            # The daemon has mounted it where only its own mount namespace sees it (`ip netns exec` makes one).
            self._directory = root / self._directory.absolute().relative_to("/")
        self._refuse_where_nothing_is(runtime_dir)
        self._maps = Maps.open(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._maps.close()

    def _refuse_where_nothing_is(self, runtime_dir: Path) -> None:
        try:
            there = {each.name for each in self._directory.parent.iterdir() if each.is_dir()}
            if self._directory.name in there:
                list(self._directory.iterdir())
        except PermissionError as problem:
            raise NotPermitted("only root may read the flow tables", remedy="use sudo") from problem
        except (FileNotFoundError, NotADirectoryError):
            there = set()
        if self._directory.name in there:
            return
        if there:
            raise HostError(
                f"the flow tables in {runtime_dir} are of another version of haxlb than this command",
                remedy="use the haxlb command of the version that runs, or restart the daemon",
            )
        raise HostError(
            f"there are no flow tables in {runtime_dir}",
            remedy="start haxlb with a virtual server, or name its directory with --runtime-dir",
        )

    def book(self) -> Book:
        """What the numbers in flows stand for, now. Raises HostError."""
        now, lifetimes = self._told()
        services = self._records("services")
        return Book(
            frontends=dict(self._frontends()),
            backends={
                index: BackendName(address=each.address, port=each.port, incarnation=each.incarnation)
                for index, each in (
                    (index, BackendRecord.unpack(raw)) for index, raw in self._records("backends").items()
                )
            },
            persistence_s={index: ServiceRecord.unpack(raw).persistence_s for index, raw in services.items()},
            lifetimes_s=lifetimes,
            now=now,
            ticks_per_second=round(1 / time.clock_getres(_COARSE)),
        )

    def identities(self) -> dict[int, bytes]:
        """What services are recognised by. Raises HostError."""
        return {index: ServiceRecord.unpack(raw).identity for index, raw in self._records("services").items()}

    def chunks(self) -> Iterator[Chunk]:
        """All that is in the tables, in their order; stretches without any flow are left out."""
        for table, wide in (("flows", False), ("overflow", False), ("wide_flows", True), ("wide_overflow", True)):
            shape = self._maps.shape(table)
            size = shape.entries * shape.value_size
            with mmap.mmap(self._maps.fds[table], size, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
                for at in range(0, size, _CHUNK):
                    buckets = memory[at : at + _CHUNK]
                    if buckets != _EMPTY:
                        yield Chunk(buckets=buckets, wide=wide)

    def _frontends(self) -> Iterator[tuple[int, FrontendName]]:
        for name in ("endpoints", "endpoints6"):
            for key in bpf.map_keys(self._maps.fds[name], self._maps.shape(name).key_size):
                value = self._maps.read(name, key)
                if value is not None:
                    endpoint, record = unpack_endpoint(key), FrontendRecord.unpack(value)
                    yield (
                        record.index,
                        FrontendName(
                            address=endpoint.address,
                            port=endpoint.port,
                            protocol=endpoint.protocol,
                            service=record.service,
                            flags=record.flags,
                        ),
                    )

    def _records(self, name: str) -> dict[int, bytes]:
        shape = self._maps.shape(name)
        _, values = bpf.map_lookup_batch(self._maps.fds[name], shape.key_size, shape.value_size, shape.entries)
        raw = {
            index: values[index * shape.value_size : (index + 1) * shape.value_size] for index in range(shape.entries)
        }
        return {index: each for index, each in raw.items() if any(each)}

    def _told(self) -> tuple[int, tuple[int, ...]]:
        """The kernel's clock of flows, and their lifetimes: the sweep was compiled with them."""
        with closing(self._sweep()) as sweep:
            said = bpf.prog_test_run(sweep, pack_sweep_order(what=SweepOrder.TELL))
        return said.verdict, told_lifetimes(said.frame)

    def _sweep(self) -> int:
        """The youngest one, opened."""
        for _ in range(_ATTEMPTS):
            found = []
            for pin in self._directory.glob("sweep-*"):
                with contextlib.suppress(FileNotFoundError):
                    found.append((pin.stat().st_mtime_ns, pin))
            if not found:
                break
            try:
                return bpf.obj_get(max(found)[1])
            except BpfError as problem:
                if problem.number != errno.ENOENT:
                    raise
        raise HostError(f"no sweep is pinned in {self._directory}", remedy="`haxlb swap` builds it anew")


def _root_of_daemon(runtime_dir: Path) -> Path | None:
    """How the daemon that listens there sees the file system; None where nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        try:
            channel.connect(str(runtime_dir / SOCKET_NAME))
        except OSError:
            return None
        pid, _, _ = _UCRED.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Path(f"/proc/{pid}/root") if pid else None

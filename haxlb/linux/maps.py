"""The forwarder's maps, pinned in one directory: made, opened, verified.

A pin says nothing of a map's shape, and the kernel checks nothing when one is opened: whoever writes 64-byte records
into a map of another version would corrupt it silently. So every map is compared with layout.shapes, and the directory
is named by layout.ABI: the same sizes need not mean the same.
"""

from __future__ import annotations

import mmap
import os
import types
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final, Self

from haxlb.forwarding.layout import ABI, MapShape, Sizes, programs_shape, shapes
from haxlb.forwarding.steps import Delete, Fill, Step, Write
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import held
from haxlb.model.errors import HostError

_MOST: Final = 0xFFFF
"""Flows remember them by 16 bits."""
_PATIENCE_S: Final = 10.0
"""With whoever makes tables or pins them again, which takes some milliseconds."""
_REMEDY: Final = "stop haxlb, run `haxlb detach` and start again: connections of rr and wrr may then change servers"


class Maps:
    """Open file descriptors of all maps of one forwarder."""

    def __init__(self, fds: dict[str, int], sizes: Sizes) -> None:
        self.fds = fds
        self.sizes = sizes
        self._shapes = {shape.name: shape for shape in shapes(sizes)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    @classmethod
    def create(cls, directory: Path, sizes: Sizes, *, patience_s: float = _PATIENCE_S) -> Self:
        """Open the maps that are pinned in `directory`, or make and pin them.

        Existing tables that are larger than asked for are kept. Where some are missing the others go, too: they speak
        of services and servers that nobody could find. Raises HostError where one is smaller, or is no map of ours, or
        somebody else does not end doing this.
        """
        verify_version(directory)
        with held(directory, patience_s=patience_s) as free:
            if not free:
                raise HostError(
                    f"another process has had {directory} locked for {patience_s:.0f} s",
                    remedy="`lslocks` names it: end it if it is stopped, or no haxlb",
                )
            return cls._create(directory, sizes)

    @classmethod
    def _create(cls, directory: Path, sizes: Sizes) -> Self:
        names = [shape.name for shape in shapes(sizes)]
        existing = _pinned(directory, names)
        if len(existing) < len(names):
            for name in existing:
                (directory / name).unlink()
            _close(existing)
            existing = {}
        try:
            sizes = _at_least(sizes, existing)
            if existing:
                for shape in shapes(sizes):
                    _verify(shape, existing[shape.name], directory)
                return cls(existing, sizes)
            for shape in shapes(sizes):
                existing[shape.name] = create(shape)
                bpf.obj_pin(existing[shape.name], directory / shape.name)
        except BaseException:
            _close(existing)
            raise
        return cls(existing, sizes)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the maps that are pinned in `directory`, as large as they are. Raises HostError."""
        verify_version(directory)
        names = [shape.name for shape in shapes(Sizes())]
        for name in names:
            if not (directory / name).exists():
                raise HostError(
                    f"the forwarder's maps are not there: no {name} in {directory}",
                    remedy="`haxlb swap` builds them anew",
                )
        existing = _pinned(directory, names)
        try:
            none = Sizes(services=0, frontends=0, backends=0, rings=0, flow_buckets_log2=0, replies=0)
            sizes = _at_least(none, existing)
            for shape in shapes(sizes):
                _verify(shape, existing[shape.name], directory)
        except BaseException:
            _close(existing)
            raise
        return cls(existing, sizes)

    def close(self) -> None:
        """Close the descriptors; the pins keep the maps."""
        _close(self.fds)

    def ids(self) -> set[int]:
        """The kernel's numbers of these maps."""
        return {bpf.map_info(fd).id for fd in self.fds.values()}

    def shape(self, name: str) -> MapShape:
        """Shape of a map."""
        return self._shapes[name]

    def read(self, name: str, key: bytes) -> bytes | None:
        """Value at a key of a map; of a per-CPU map the values of all possible CPUs in a row."""
        return bpf.map_lookup(self.fds[name], key, self._value_size(name))

    def write(self, name: str, key: bytes, value: bytes) -> None:
        """Write a value of a map; the same one for every CPU of a per-CPU map."""
        copies = possible_cpus() if self._shapes[name].kind == bpf.MAP_TYPE_PERCPU_ARRAY else 1
        bpf.map_update(self.fds[name], key, value * copies)

    def array(self, name: str) -> list[bytes]:
        """All values of an array; of a per-CPU one those of all CPUs in a row."""
        shape, size = self._shapes[name], self._value_size(name)
        _, values = bpf.map_lookup_batch(self.fds[name], shape.key_size, size, shape.entries)
        return _each(size, values)

    def entries(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of a hash table."""
        for key in bpf.map_keys(self.fds[name], self._shapes[name].key_size):
            value = self.read(name, key)
            if value is not None:
                yield key, value

    def view(self, name: str) -> memoryview:
        """A map's memory, as it is whenever it is read."""
        shape = self._shapes[name]
        size = -(-shape.entries * shape.value_size // mmap.PAGESIZE) * mmap.PAGESIZE
        return memoryview(mmap.mmap(self.fds[name], size, mmap.MAP_SHARED, mmap.PROT_READ))

    def carry_out(self, steps: Iterable[Step]) -> None:
        """Write in the order given: in one system call what follows one another in one map. Raises HostError."""
        for (name, deletes), some in groupby(steps, key=lambda step: (step.map, isinstance(step, Delete))):
            if deletes:
                for step in some:
                    if isinstance(step, Delete):
                        bpf.map_delete(self.fds[name], step.key)
                continue
            copies = possible_cpus() if self._shapes[name].kind == bpf.MAP_TYPE_PERCPU_ARRAY else 1
            keys, values, count = [], [], 0
            for step in some:
                if isinstance(step, Fill):
                    many = len(step.content) // self._shapes[name].value_size
                    keys.append(array("I", range(step.first, step.first + many)).tobytes())
                    values.append(step.content)
                    count += many
                elif isinstance(step, Write):
                    keys.append(step.key)
                    values.append(step.value * copies)
                    count += 1
            bpf.map_update_batch(self.fds[name], keys, values, count)

    def is_parts(self, identity: int) -> bool:
        """Whether this is the map of a program's own parts."""
        fd = bpf.map_by_id(identity)
        if fd is None:
            return False
        with closing(fd):
            info = bpf.map_info(fd)
        shape = programs_shape()
        return (info.type, info.max_entries) == (shape.kind, shape.entries)

    def _value_size(self, name: str) -> int:
        shape = self._shapes[name]
        return shape.value_size * (possible_cpus() if shape.kind == bpf.MAP_TYPE_PERCPU_ARRAY else 1)


def _each(size: int, content: bytes) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def create(shape: MapShape) -> int:
    """File descriptor of a new map of this shape. Raises HostError."""
    flags = bpf.F_MMAPABLE if shape.mmapable else 0
    return bpf.map_create(
        shape.kind, shape.key_size, shape.value_size, shape.entries, flags=flags, name=shape.name[:15]
    )


def verify_version(directory: Path) -> None:
    """Raises HostError where `directory` holds, or shall hold, the maps of a haxlb with another ABI than this one."""
    if directory.name != ABI:
        raise HostError(
            f"{directory} is of another version of haxlb than the one installed, whose tables are {ABI}",
            remedy="restart haxlb: it moves to new tables; what is attached forwards meanwhile",
        )


@cache
def possible_cpus() -> int:
    """How many values a per-CPU element has (Documentation/bpf/map_array.rst)."""
    last = Path("/sys/devices/system/cpu/possible").read_text(encoding="ascii").strip().rsplit(",")[-1]
    return int(last.rsplit("-")[-1]) + 1


def _pinned(directory: Path, names: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    try:
        for name in names:
            if (directory / name).exists():
                found[name] = bpf.obj_get(directory / name)
    except BaseException:
        _close(found)
        raise
    return found


def _at_least(asked: Sizes, existing: dict[str, int]) -> Sizes:
    """The sizes of the maps that exist, those asked for of the others. Raises HostError for more than can be."""
    entries = {name: bpf.map_info(fd).max_entries for name, fd in existing.items()}
    sizes = Sizes(
        services=max(asked.services, entries.get("services", 1) - 1),
        frontends=max(asked.frontends, entries.get("endpoints", 2) // 2 - 1),
        backends=max(asked.backends, entries.get("backends", 0)),
        rings=max(asked.rings, entries.get("rings", 0)),
        flow_buckets_log2=max(asked.flow_buckets_log2, entries.get("flows", 1).bit_length() - 1),
        replies=max(asked.replies, entries.get("replies", 0)),
    )
    if max(sizes.services, sizes.frontends, sizes.backends) > _MOST:
        raise HostError(
            f"{sizes.services} virtual servers of {sizes.frontends} endpoints, and {sizes.backends} real servers: "
            f"the forwarder can count {_MOST}",
            remedy="lower forwarding.max_services, or split the configuration",
        )
    return sizes


def _verify(shape: MapShape, fd: int, directory: Path) -> None:
    info = bpf.map_info(fd)
    wanted = (shape.kind, shape.key_size, shape.value_size, shape.entries, shape.mmapable)
    found = (info.type, info.key_size, info.value_size, info.max_entries, bool(info.flags & bpf.F_MMAPABLE))
    if wanted == found:
        return
    if wanted[:3] == found[:3] and info.max_entries < shape.entries:
        raise HostError(
            f"the table {shape.name} holds {info.max_entries} entries, the configuration needs {shape.entries}",
            remedy=_REMEDY,
        )
    raise HostError(f"{directory / shape.name} is not a map of this version of haxlb", remedy=_REMEDY)


def _close(fds: dict[str, int]) -> None:
    for fd in fds.values():
        os.close(fd)
    fds.clear()

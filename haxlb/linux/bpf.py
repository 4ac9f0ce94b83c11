"""bpf(2)'s commands: maps, programs, pins, links. Standard library only.

The daemons must not carry LLVM (125 MB) for a dozen system calls, so nothing here imports bcc or libbpf. Structures
are those of include/uapi/linux/bpf.h; the kernel takes a shorter `union bpf_attr` than its own as zero-extended.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from haxlb.linux.bpf_call import BpfError, Buffer, address, buffer, call, closing, do, failure, object_name, text

MAP_TYPE_HASH: Final = 1
MAP_TYPE_ARRAY: Final = 2
MAP_TYPE_PERCPU_ARRAY: Final = 6
F_NO_PREALLOC: Final = 1 << 0
F_MMAPABLE: Final = 1 << 10
F_XDP_HAS_FRAGS: Final = 1 << 5
"""Of a program: it takes frames of several buffers."""

PROG_TYPE_SCHED_CLS: Final = 3
PROG_TYPE_XDP: Final = 6
ATTACH_XDP: Final = 37
F_REPLACE: Final = 1 << 2
F_TEST_XDP_LIVE_FRAMES: Final = 1 << 1

XDP_ABORTED: Final = 0
XDP_DROP: Final = 1
XDP_PASS: Final = 2
XDP_TX: Final = 3
XDP_REDIRECT: Final = 4

_LOG_BYTES: Final = 1 << 20
_LOG_LINES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MapInfo:
    """What the kernel says of a map."""

    id: int
    type: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramInfo:
    """What the kernel says of a program."""

    id: int
    type: int
    tag: str
    """Hash of its instructions, 16 hex digits: the same source and sizes give the same tag."""
    name: str
    map_ids: tuple[int, ...]
    instructions: int
    """After the verifier's rewriting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """What the kernel says of an XDP link."""

    id: int
    program_id: int
    interface_index: int
    """0 once the interface is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of BPF_PROG_TEST_RUN."""

    verdict: int
    frame: bytes
    nanoseconds: int
    """Mean of one repetition, as the kernel measures it, whole nanoseconds."""


def map_create(kind: int, key_size: int, value_size: int, max_entries: int, *, flags: int = 0, name: str = "") -> int:
    """Make a map and return its file descriptor. Raises HostError."""
    attributes = struct.pack("=7I16s", kind, key_size, value_size, max_entries, flags, 0, 0, object_name(name))
    return do(f"make the BPF map {name}", 0, attributes)


def _element(command: int, action: str, map_fd: int, key: bytes, value: Buffer | None) -> int:
    """Errno of one element's command; ENOENT is the caller's to judge, anything else raises."""
    key_buffer = buffer(key)
    _, number = call(command, buffer(struct.pack("=I4xQQQ", map_fd, address(key_buffer), address(value), 0)))
    if number not in (0, errno.ENOENT):
        raise failure(action, number)
    return number


def map_lookup(map_fd: int, key: bytes, value_size: int) -> bytes | None:
    """The value at `key`, None when there is none. Of a per-CPU map `value_size` covers all possible CPUs."""
    value = ctypes.create_string_buffer(value_size)
    return None if _element(1, "read a BPF map", map_fd, key, value) else value.raw


def map_update(map_fd: int, key: bytes, value: bytes) -> None:
    """Write one element, new or old. Raises HostError."""
    if _element(2, "write a BPF map", map_fd, key, buffer(value)):
        raise failure("write a BPF map", errno.ENOENT)


def map_delete(map_fd: int, key: bytes) -> bool:
    """Remove one element; False when there was none."""
    return not _element(3, "remove from a BPF map", map_fd, key, None)


def map_keys(map_fd: int, key_size: int) -> Iterator[bytes]:
    """All keys, in the kernel's order; meant for maps that nobody else changes meanwhile."""
    key: Buffer | None = None
    while True:
        following = ctypes.create_string_buffer(key_size)
        _, number = call(4, buffer(struct.pack("=I4xQQQ", map_fd, address(key), address(following), 0)))
        if number == errno.ENOENT:
            return
        if number:
            raise failure("list a BPF map", number)
        yield following.raw
        key = following


def map_update_batch(map_fd: int, keys: Sequence[bytes] | bytes, values: Sequence[bytes] | bytes, count: int) -> None:
    """Write `count` elements in one system call, in the order given. Raises HostError."""
    if not count:
        return
    key_bytes = keys if isinstance(keys, bytes) else b"".join(keys)
    value_bytes = values if isinstance(values, bytes) else b"".join(values)
    key_buffer, value_buffer = buffer(key_bytes), buffer(value_bytes)
    attributes = struct.pack("=QQQQIIQQ", 0, 0, address(key_buffer), address(value_buffer), count, map_fd, 0, 0)
    do("write a BPF map", 26, attributes)


def map_lookup_batch(map_fd: int, key_size: int, value_size: int, count: int) -> tuple[bytes, bytes]:
    """Keys and values of at most `count` elements from the beginning, each packed one after the other."""
    keys, values = ctypes.create_string_buffer(key_size * count), ctypes.create_string_buffer(value_size * count)
    # A hash map's batch cursor is 4 bytes, an array's is its key.
    cursor = ctypes.create_string_buffer(max(key_size, 8))
    attributes = buffer(
        struct.pack("=QQQQIIQQ", 0, address(cursor), address(keys), address(values), count, map_fd, 0, 0)
    )
    _, number = call(24, attributes)
    if number not in (0, errno.ENOENT):  # ENOENT: the map's end was reached
        raise failure("read a BPF map", number)
    (got,) = struct.unpack_from("=I", attributes, 32)
    return keys.raw[: got * key_size], values.raw[: got * value_size]


def prog_load(
    instructions: bytes,
    *,
    name: str,
    licence: str = "GPL",
    kind: int = PROG_TYPE_XDP,
    attach_type: int = 0,
    flags: int = 0,
) -> int:
    """Have a program verified and loaded; return its file descriptor.

    Raises HostError with the last lines of the verifier's log. `attach_type` 0 is what bcc loads XDP with: programs
    that are chained by tail calls must agree on it.
    """
    code, words = buffer(instructions), buffer(licence.encode() + b"\0")

    def load(log: Buffer | None) -> tuple[int, int]:
        attributes = struct.pack(
            "=IIQQIIQII16sII", kind, len(instructions) // 8, address(code), address(words), 1 if log else 0,
            _LOG_BYTES if log else 0, address(log), 0, flags, object_name(name), 0, attach_type,
        )  # fmt: skip
        return call(5, buffer(attributes))

    result, number = load(None)
    if not number:
        return result
    if number == errno.EPERM:
        raise failure(f"load the BPF program {name}", number)
    # The log is asked for only now: a verifier that writes one is several times slower.
    log = ctypes.create_string_buffer(_LOG_BYTES)
    result, number = load(log)
    if not number:
        return result
    said = [line for line in text(log.raw).splitlines() if line.strip() and not line.startswith("processed ")]
    last = " | ".join(said[-_LOG_LINES:]) or "silent"
    raise BpfError(
        f"the kernel refuses the BPF program {name}: {os.strerror(number)}; verifier: {last}",
        number=number,
        remedy="what is attached stays; report this with the kernel's version",
    )


def prog_test_run(
    prog_fd: int, frame: bytes, *, repeat: int = 1, flags: int = 0, batch_size: int = 0, interface_index: int = 0
) -> RunResult:
    """Run an XDP program on `frame`; with F_TEST_XDP_LIVE_FRAMES its verdicts are carried out. Raises HostError.

    `interface_index` becomes ctx->ingress_ifindex (in the caller's network namespace); 0 leaves the loopback's.
    """
    live = bool(flags & F_TEST_XDP_LIVE_FRAMES)
    frame_in, frame_out = buffer(frame), None if live else ctypes.create_string_buffer(len(frame) + 256)
    # struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
    context = buffer(struct.pack("=6I", 0, len(frame), 0, interface_index, 0, 0)) if interface_index else None
    attributes = buffer(
        struct.pack(
            "=IIIIQQIIIIQQIII4x",
            prog_fd, 0, len(frame), len(frame_out) if frame_out else 0, address(frame_in), address(frame_out),
            repeat, 0, len(context) if context else 0, 0, address(context), 0, flags, 0, batch_size,
        )
    )  # fmt: skip
    _, number = call(10, attributes)
    if number:
        raise failure("run the BPF program on a test frame", number)
    verdict, _, size = struct.unpack_from("=III", attributes, 4)
    (nanoseconds,) = struct.unpack_from("=I", attributes, 36)
    return RunResult(verdict=verdict, frame=frame_out.raw[:size] if frame_out else b"", nanoseconds=nanoseconds)


def program_ids() -> Iterator[int]:
    """Ids of all programs that are loaded in this kernel."""
    yield from _ids(11, "list the BPF programs")


def map_by_id(identity: int) -> int | None:
    """File descriptor of a map; None when it is gone."""
    return _by_id(14, "open a BPF map", identity)


def program_by_id(identity: int) -> int | None:
    """File descriptor of a loaded program; None when it is gone."""
    return _by_id(13, "open a BPF program", identity)


def obj_pin(fd: int, path: Path) -> None:
    """Give a map, program or link a name in a bpffs. Raises HostError, EEXIST where the name is taken."""
    name = buffer(os.fsencode(path) + b"\0")
    _, number = call(6, buffer(struct.pack("=QII", address(name), fd, 0)))
    if number:
        # For root the kernel's EPERM has one meaning: no bpffs.
        remedy = "the folder must lie in a bpffs: mount -t bpf bpf FOLDER" if os.geteuid() == 0 else ""
        raise failure(f"pin a BPF object at {path}", number, remedy if number == errno.EPERM else "")


def obj_get(path: Path) -> int:
    """File descriptor of the object pinned at `path`. Raises HostError, ENOENT where nothing is pinned."""
    name = buffer(os.fsencode(path) + b"\0")
    return do(f"open the BPF object pinned at {path}", 7, struct.pack("=QII", address(name), 0, 0))


def link_create(prog_fd: int, interface_index: int, *, flags: int = 0) -> int:
    """Attach a program to an interface of this network namespace by a link that ends with its last reference.

    `flags` are XDP_FLAGS_SKB_MODE or XDP_FLAGS_DRV_MODE. Raises HostError: EBUSY where another program is attached,
    EOPNOTSUPP or ERANGE where the driver cannot in this mode.
    """
    attributes = struct.pack("=IIII", prog_fd, interface_index, ATTACH_XDP, flags)
    return do("attach the BPF program", 28, attributes)


def link_update(link_fd: int, prog_fd: int, *, expected_fd: int | None = None) -> None:
    """Exchange the program of a link without a gap, if `expected_fd` is the one attached now.

    Raises HostError, EPERM where it is not.
    """
    flags, old = (0, 0) if expected_fd is None else (F_REPLACE, expected_fd)
    _, number = call(29, buffer(struct.pack("=IIII", link_fd, prog_fd, flags, old)))
    if number == errno.EPERM and expected_fd is not None:
        # Who holds the link has the right to update it: this is the answer to a wrong `expected_fd`.
        raise BpfError(
            "the attached BPF program is not the one expected",
            number=number,
            remedy="another process has exchanged it: stop that, then try again",
        )
    if number:
        raise failure("exchange the attached BPF program", number)


def link_detach(link_fd: int) -> None:
    """Detach at once, whoever else still holds the link. Raises HostError."""
    do("detach the BPF program", 34, struct.pack("=I", link_fd))


def link_remove(pin: Path) -> None:
    """Detach a pinned link and remove its pin. Raises HostError.

    Without its last pin a link would go, too, but a kernel thread would see to it some time later (bpf_link_put,
    kernel/bpf/syscall.c): who attaches again at once would find the interface taken.
    """
    with closing(obj_get(pin)) as link:
        link_detach(link)
    pin.unlink()


def _ids(command: int, action: str) -> Iterator[int]:
    identity = 0
    while True:
        attributes = buffer(struct.pack("=III", identity, 0, 0))
        _, number = call(command, attributes)
        if number == errno.ENOENT:
            return
        if number:
            raise failure(action, number)
        (identity,) = struct.unpack_from("=I", attributes, 4)
        yield identity


def _by_id(command: int, action: str, identity: int) -> int | None:
    result, number = call(command, buffer(struct.pack("=III", identity, 0, 0)))
    if number == errno.ENOENT:
        return None
    if number:
        raise failure(action, number)
    return result


def _information(fd: int, info: Buffer) -> None:
    """BPF_OBJ_GET_INFO_BY_FD into `info`, whose head may carry requests."""
    do("ask for a BPF object's description", 15, struct.pack("=IIQ", fd, len(info), address(info)))


def map_info(map_fd: int) -> MapInfo:
    """Shape of a map. Raises HostError."""
    info = ctypes.create_string_buffer(40)
    _information(map_fd, info)
    kind, identity, key, value, entries, flags, name = struct.unpack("=6I16s", info.raw)
    return MapInfo(
        id=identity,
        type=kind,
        key_size=key,
        value_size=value,
        max_entries=entries,
        flags=flags,
        name=text(name),
    )


def program_info(prog_fd: int) -> ProgramInfo:
    """Identity of a program. Raises HostError."""
    # struct bpf_prog_info up to name[]: the head is shared by a request (room for map ids) and the answer.
    shape = struct.Struct("=II8sIIQQQIIQ16s")
    room = 64
    map_ids = ctypes.create_string_buffer(4 * room)
    info = buffer(shape.pack(0, 0, b"", 0, 0, 0, 0, 0, 0, room, address(map_ids), b""))
    _information(prog_fd, info)
    kind, identity, tag, _, translated, _, _, _, _, maps, _, name = shape.unpack(info.raw)
    return ProgramInfo(
        id=identity,
        type=kind,
        tag=tag.hex(),
        name=text(name),
        map_ids=struct.unpack_from(f"={min(maps, room)}I", map_ids),
        instructions=translated // 8,
    )


def link_info(link_fd: int) -> LinkInfo:
    """What an XDP link connects. Raises HostError."""
    info = ctypes.create_string_buffer(20)
    _information(link_fd, info)
    _, identity, program, _, index = struct.unpack("=5I", info.raw)
    return LinkInfo(id=identity, program_id=program, interface_index=index)


def attach_pass_program(namespace_path: Path, interface: str) -> None:
    """Attach `return XDP_PASS` natively to an interface of another network namespace; it stays when we exit.

    The far end of a veth whose near end answers with XDP_TX needs a program (drivers/net/veth.c wakes its receiver
    only then). Raises HostError.
    """
    from haxlb.linux.xdp import attach_by_netlink

    move_to_r0, leave = struct.pack("=BBhi", 0xB7, 0, 0, XDP_PASS), struct.pack("=BBhi", 0x95, 0, 0, 0)
    with closing(prog_load(move_to_r0 + leave, name="pass")) as program:
        attach_by_netlink(program, interface, namespace=namespace_path)

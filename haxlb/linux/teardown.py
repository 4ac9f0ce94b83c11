"""Taking the data plane off this host: the opposite of haxlb.linux.compiler and Forwarder.attach."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from haxlb.linux import bpf, xdp
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import is_bpffs, remove_all, unmount
from haxlb.linux.control_socket import NAME as SOCKET
from haxlb.linux.instance_lock import InstanceLock
from haxlb.linux.pinned import VERDICTS
from haxlb.model.errors import HostError, NotPermitted


def tear_down(runtime: Path) -> list[str]:
    """Remove every link, program and map under `runtime`, its bpffs, and what else a daemon has left there.

    Returns what was removed of the data plane, in words. Raises HostError while a daemon runs there: it would go on as
    if its data plane were in place.
    """
    if _answers(runtime / SOCKET):
        unit = "systemctl stop haxlb, or stop keepalived where it has that unit"
        raise HostError(f"haxlb is running in {runtime}", remedy=f"stop it first: {unit}")
    if not runtime.is_dir():
        return []
    # One that is starting answers nobody yet.
    lock = InstanceLock(runtime)
    try:
        removed = remove_data_plane(runtime / "bpf")
        for name in (SOCKET, VERDICTS):
            (runtime / name).unlink(missing_ok=True)
    finally:
        lock.release()
    return removed


def remove_data_plane(bpffs: Path) -> list[str]:
    """Remove what is pinned there and the bpffs itself; returns what was removed, in words. Raises HostError."""
    try:
        if not bpffs.is_dir() or not is_bpffs(bpffs):
            return []
        removed = []
        # Other things in its root are the kernel's own (maps.debug, progs.debug).
        for version in sorted(each for each in bpffs.iterdir() if each.is_dir()):
            # Links first: an interface must not run a program whose maps are going.
            for pin in sorted(version.glob("links/*")):
                removed.append(_link_in_words(pin))
                bpf.link_remove(pin)
            removed += [
                ("program " if name.startswith(("prog-", "sweep-")) else "map ") + name for name in remove_all(version)
            ]
    except PermissionError as problem:
        raise NotPermitted(f"cannot look into {bpffs}: {problem.strerror}", remedy="run it as root") from problem
    unmount(bpffs)
    with contextlib.suppress(OSError):  # a bpffs around it, or a directory of somebody else's
        bpffs.rmdir()
    return removed


def _link_in_words(pin: Path) -> str:
    with closing(bpf.obj_get(pin)) as link:
        index = bpf.link_info(link).interface_index
    try:
        return f"link of {xdp.interface_name(index)}"
    except HostError:
        return f"link of interface {pin.name}, which is gone"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        try:
            caller.connect(str(path))
        except OSError:
            return False
    return True

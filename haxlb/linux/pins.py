"""The pins without which an attached program would not go on, and a descriptor of what each of them keeps.

The kernel empties an array of programs when its last pin and descriptor are gone, although a program that is attached
still uses it (prog_array_map_ops.map_release_uref of kernel/bpf/arraymap.c). Then every call of a part fails, and
what needs one, each new flow, is refused. Whoever removes a pin by hand must not do that, nor take the tables from the
checker that comes after this one.
"""

from __future__ import annotations

import os
from pathlib import Path

from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import held
from haxlb.linux.maps import Maps
from haxlb.model.errors import HostError


def build_of(program: bpf.ProgramInfo) -> str:
    """What the pins of one build have in common: `prog-BUILD`, `parts-BUILD`, `sweep-BUILD`.

    No other build has had it: the tag is that of the first part alone.
    """
    return f"{program.tag}-{program.id}"


class Pins:
    """Of one data plane: the tables, and the builds that are attached."""

    def __init__(self, directory: Path, maps: Maps) -> None:
        self._directory = directory
        self._maps = maps
        self._builds: dict[int, dict[str, int]] = {}
        """By the number of the attached program: its descriptors by the names of their pins."""

    def close(self) -> None:
        """Let go of what is attached; the tables are the caller's."""
        self._let_go(set(self._builds))

    def hold(self) -> None:
        """Hold what is attached now, and nothing of what was before. Raises HostError."""
        attached = set()
        for pin in (self._directory / "links").iterdir():
            with closing(bpf.obj_get(pin)) as link:
                attached.add(bpf.link_info(link).program_id)
        self._let_go(self._builds.keys() - attached)
        for new in sorted(attached - self._builds.keys()):
            program = bpf.program_by_id(new)
            if program is not None:
                self._take(program)

    def _take(self, program: int) -> None:
        info = bpf.program_info(program)
        build = {f"prog-{build_of(info)}": program}
        self._builds[info.id] = build
        if (parts := self._parts(info)) is not None:
            build[f"parts-{build_of(info)}"] = parts
        sweep = f"sweep-{build_of(info)}"
        if (self._directory / sweep).exists():
            build[sweep] = bpf.obj_get(self._directory / sweep)

    def _let_go(self, programs: set[int]) -> None:
        for gone in programs:
            for fd in self._builds.pop(gone).values():
                os.close(fd)

    def restore(self) -> tuple[str, ...]:
        """Pin again what is in use and has no name any more; the names. Raises HostError, OSError.

        None while tables are being made where somebody has removed ours: a program must not read some of both.
        """
        restored: list[str] = []
        with held(self._directory) as free:
            if not free:
                return ()
            self.hold()
            for kept in (self._maps.fds, *self._builds.values()):
                for name, fd in kept.items():
                    if not (self._directory / name).exists():
                        bpf.obj_pin(fd, self._directory / name)
                        restored.append(name)
        return tuple(restored)

    def verify_parts(self, program: int) -> None:
        """Raises HostError where the kernel has emptied the parts of this program, or is about to."""
        info = bpf.program_info(program)
        pin = self._directory / f"parts-{build_of(info)}"
        if info.id in self._builds or pin.exists():
            return
        parts = self._parts(info)
        if parts is not None:
            os.close(parts)
            raise HostError(
                f"somebody has removed {pin}, and the program has lost its parts: new flows are refused",
                remedy="`haxlb swap` builds it anew",
            )

    def _parts(self, program: bpf.ProgramInfo) -> int | None:
        for identity in program.map_ids:
            if self._maps.is_parts(identity):
                return bpf.map_by_id(identity)
        return None

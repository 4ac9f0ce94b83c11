"""`no_accept`: packets to VIPs that this director does not own are dropped, by an nftables table of our own.

RFC 9568 section 6.1 (Accept_Mode): a router that is not the address owner does not accept packets to the VIPs; only
neighbour discovery must go on. ARP never comes this way, adverts go to no VIP, and what belongs to a virtual server has
left through XDP before. The table does not depend on roles: a packet to a VIP that is not on this host is forwarded and
does not pass here.

`nft` is short-lived and runs beside us: starting it takes 20 ms, in which adverts must not stand still.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Callable, Iterable

from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError
from haxlb.model.node import VrrpInstance

TABLE = "haxlb"
_PATIENCE_S = 10.0
_REMOVAL = f"add table inet {TABLE}\ndelete table inet {TABLE}\n"
"""Adding what is there is no error, and deleting what is not there would be one."""


def refused_addresses(instances: Iterable[VrrpInstance]) -> tuple[IPAddress, ...]:
    """The addresses that are not to accept packets."""
    return tuple(
        dict.fromkeys(vip.address for each in instances if not each.accept for vip in (*each.vips, *each.excluded_vips))
    )


def ruleset(addresses: Iterable[IPAddress]) -> str:
    """The whole table as one transaction of nft(8); without addresses, its removal."""
    listed = sorted(addresses, key=lambda each: (each.version, int(each)))
    if not listed:
        return _REMOVAL
    lines = []
    for version, family in ((4, "ip"), (6, "ip6")):
        chosen = ", ".join(str(each) for each in listed if each.version == version)
        if chosen:
            lines.append(f"    {family} daddr {{ {chosen} }} counter drop")
    body = "\n".join(lines)
    return (
        f"{_REMOVAL}table inet {TABLE} {{\n  chain input {{\n"
        "    type filter hook input priority -1; policy accept;\n"
        "    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n"
        f"{body}\n  }}\n}}\n"
    )


class Firewall:
    """The table of ours; its last order counts, whatever is still running."""

    def __init__(self, on_problem: Callable[[HostError | None], None], *, nft: str = "nft") -> None:
        """`on_problem` hears what went wrong, None when it is right again; it is called from the running loop."""
        self._on_problem = on_problem
        self._nft = nft
        self._wanted: tuple[IPAddress, ...] | None = None
        self._task: asyncio.Task[None] | None = None

    def refuse(self, addresses: Iterable[IPAddress]) -> None:
        """Drop packets to exactly these from soon on; nothing is done when that is so already."""
        wanted = tuple(addresses)
        if wanted == self._wanted:
            return
        first, self._wanted = self._wanted is None, wanted
        previous = self._task
        self._task = asyncio.get_running_loop().create_task(self._apply(wanted, previous, quiet=first and not wanted))

    async def settled(self) -> None:
        """Wait until the last order is in force, or has failed."""
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        """Remove the table, if there may be one."""
        if self._wanted:
            self.refuse(())
        await self.settled()

    async def _apply(
        self, addresses: tuple[IPAddress, ...], previous: asyncio.Task[None] | None, *, quiet: bool
    ) -> None:
        if previous is not None:
            await asyncio.wait((previous,))
        try:
            await self._run(ruleset(addresses))
        except HostError as problem:
            # At the first start it only looks for what a former run has left behind: without nft there is nothing.
            if not quiet:
                self._on_problem(problem)
        else:
            self._on_problem(None)

    async def _run(self, text: str) -> None:
        with _memory("nft-input") as said, _memory("nft-complaints") as complaints:
            said.write(text.encode())
            said.seek(0)
            code = await _ended(self._start(said, complaints))
            complaints.seek(0)
            first = next(iter(complaints.read().decode(errors="replace").strip().splitlines()), "no word")
        if code is None:
            raise HostError(
                f"no_accept is not in force: nft took more than {_PATIENCE_S:.0f} s", remedy="see what holds nftables"
            )
        if code:
            raise HostError(
                f"no_accept is not in force: nft: {first}",
                remedy="run as root on a kernel with nf_tables (modprobe nf_tables), or write `accept`",
            )

    def _start(self, said: io.FileIO, complaints: io.FileIO) -> int:
        """The process id. Not by subprocess: that blocks us for 3 ms and more, posix_spawn for a tenth of one."""
        streams: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_DUP2, said.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, complaints.fileno(), 2),
        ]
        try:
            return os.posix_spawnp(self._nft, [self._nft, "-f", "-"], os.environ, file_actions=streams)
        except OSError as problem:
            raise HostError(
                f"no_accept is not in force: {self._nft} cannot be run: {problem.strerror}",
                remedy="apt install nftables, or write `accept`",
            ) from problem


def _memory(name: str) -> io.FileIO:
    """An anonymous file: a child reads or fills it at its own pace, and nobody waits for a pipe."""
    return io.FileIO(os.memfd_create(name, os.MFD_CLOEXEC), "r+")


async def _ended(process: int) -> int | None:
    """Its exit code, None when it had to be killed."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    watch = os.pidfd_open(process)
    loop.add_reader(watch, ended.set)
    killed = True
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await ended.wait()
        killed = False
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(watch)
        if killed:
            signal.pidfd_send_signal(watch, signal.SIGKILL)
        _, status = os.waitpid(process, 0)  # noqa: ASYNC222 - it has ended, or is being killed
        os.close(watch)
    return None if killed else os.waitstatus_to_exitcode(status)

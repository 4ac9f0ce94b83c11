"""What is kept from coming in and from going out, by an nftables table of our own.

Tables belong to a network namespace, in which two haxlb may run: each has a table with a name of its own.

`no_accept`: packets to VIPs that this director does not own are dropped.

RFC 9568 section 6.1 (Accept_Mode): a router that is not the address owner does not accept packets to the VIPs; only
neighbour discovery must go on. ARP never comes this way, adverts go to no VIP, and what belongs to a virtual server has
left through XDP before. The table does not depend on roles: a packet to a VIP that is not on this host is forwarded and
does not pass here.

A virtual MAC that joins a multicast group says so (IGMP, MLD) with that MAC as its source, also while BACKUP, and
answers every querier. A switch would take it for a move of the MAC to this port, and send what is for the MASTER here
until the MASTER has sent something with that MAC (with vmac_xmit_base: for minutes). So these reports are dropped while
the interface has no address, which is when their source is unspecified.

`nft` is short-lived and runs beside us: starting it takes 20 ms, in which adverts must not stand still.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import signal
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from haxlb.linux.nft_table import is_there
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError
from haxlb.model.instance import VrrpInstance

TABLE = "haxlb"
"""Its name where nothing else is said, and that of the haxlb in the usual runtime directory."""
_USUAL_RUNTIME_DIR = Path("/run/haxlb")
_PATIENCE_S = 10.0


def refused_addresses(instances: Iterable[VrrpInstance]) -> tuple[IPAddress, ...]:
    """The addresses that are not to accept packets."""
    return tuple(
        dict.fromkeys(vip.address for each in instances if not each.accept for vip in (*each.vips, *each.excluded_vips))
    )


def quiet_interfaces(instances: Iterable[VrrpInstance]) -> tuple[str, ...]:
    """The interfaces with a virtual MAC that the MASTER's has, too."""
    macs = (mac for each in instances for mac in each.virtual_macs)
    return tuple(dict.fromkeys(each.interface for each in macs if not each.ipvlan))


def name_of_table(runtime_dir: Path) -> str:
    """The same one for each haxlb that runs there, and another one for those that run elsewhere."""
    place = runtime_dir.resolve()
    return TABLE if place == _USUAL_RUNTIME_DIR else f"{TABLE}_{zlib.crc32(os.fsencode(place)):08x}"


def ruleset(addresses: Iterable[IPAddress], quiet: Iterable[str] = (), *, table: str = TABLE) -> str:
    """The whole table as one transaction of nft(8); without addresses and quiet interfaces, its removal."""
    chains = _input_chain(addresses) + _output_chain(quiet)
    # Adding what is there is no error, and deleting what is not there would be one.
    removal = f"add table inet {table}\ndelete table inet {table}\n"
    return f"{removal}table inet {table} {{\n{chains}}}\n" if chains else removal


def _output_chain(quiet: Iterable[str]) -> str:
    names = ", ".join(f'"{each}"' for each in quiet)
    if not names:
        return ""
    return (
        "  chain output {\n    type filter hook output priority -1; policy accept;\n"
        f"    oifname {{ {names} }} ip protocol igmp ip saddr 0.0.0.0 counter drop\n"
        f"    oifname {{ {names} }} icmpv6 type {{ mld-listener-report, mld-listener-done, mld2-listener-report }}"
        " ip6 saddr :: counter drop\n  }\n"
    )


def _input_chain(addresses: Iterable[IPAddress]) -> str:
    listed = sorted(addresses, key=lambda each: (each.version, int(each)))
    if not listed:
        return ""
    lines = []
    for version, family in ((4, "ip"), (6, "ip6")):
        chosen = ", ".join(str(each) for each in listed if each.version == version)
        if chosen:
            lines.append(f"    {family} daddr {{ {chosen} }} counter drop")
    body = "\n".join(lines)
    return (
        "  chain input {\n    type filter hook input priority -1; policy accept;\n"
        "    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n"
        f"{body}\n  }}\n"
    )


class Firewall:
    """The table of ours; its last order counts, whatever is still running."""

    def __init__(self, on_problem: Callable[[HostError | None], None], *, nft: str = "nft") -> None:
        """`on_problem` hears what went wrong, None when it is right again; it is called from the running loop."""
        self._on_problem = on_problem
        self._nft = nft
        self.table = TABLE
        """Its name, for the orders that follow."""
        self._wanted: tuple[tuple[IPAddress, ...], tuple[str, ...]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._in_force = False
        """The last order has been carried out."""

    def refuse(self, addresses: Iterable[IPAddress], quiet: Iterable[str] = ()) -> None:
        """Drop packets to exactly these, and reports of exactly these interfaces, from soon on.

        Nothing is done when that is so already; what has failed is tried again.
        """
        wanted = tuple(addresses), tuple(quiet)
        if wanted == self._wanted and (self._in_force or self._busy):
            return
        self._order(wanted)

    def restore(self) -> bool:
        """Make the table again where somebody has removed it, by `nft flush ruleset` mostly; whether that was so."""
        if self._wanted is None or not any(self._wanted) or not self._in_force or self._busy:
            return False
        try:
            if is_there(self.table):
                return False
        except OSError:  # a kernel that cannot say now: what nft would say has been said
            return False
        self._order(self._wanted)
        return True

    @property
    def _busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def _order(self, wanted: tuple[tuple[IPAddress, ...], tuple[str, ...]]) -> None:
        self._in_force = False
        first, self._wanted = self._wanted is None, wanted
        previous = self._task
        needless = first and not any(wanted)
        text = ruleset(*wanted, table=self.table)
        self._task = asyncio.get_running_loop().create_task(self._apply(text, previous, needless=needless))

    def refuse_at_once(self, addresses: Iterable[IPAddress], quiet: Iterable[str]) -> None:
        """The same, in force when this returns, for when nothing has to be sent on time yet: it takes 20 ms."""
        self._wanted = tuple(addresses), tuple(quiet)
        try:
            with _memory("nft-input") as said, _memory("nft-complaints") as complaints:
                process = self._begin(ruleset(*self._wanted, table=self.table), said, complaints)
                self._judge(_waited_for(process), complaints)
        except OSError as problem:
            self._on_problem(self._lack(problem))
        except HostError as problem:
            self._on_problem(problem)
        else:
            self._in_force = True

    async def settled(self) -> None:
        """Wait until the last order is in force, or has failed."""
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        """Remove the table, if there may be one."""
        if self._wanted is not None and any(self._wanted):
            self.refuse(())
        await self.settled()

    async def _apply(self, text: str, previous: asyncio.Task[None] | None, *, needless: bool) -> None:
        if previous is not None:
            await asyncio.wait((previous,))
        try:
            await self._run(text)
        except HostError as problem:
            self._in_force = False
            # At the first start it only looks for what a former run has left behind: without nft there is nothing.
            if not needless:
                self._on_problem(problem)
        else:
            self._in_force = True
            self._on_problem(None)

    async def _run(self, text: str) -> None:
        try:
            with _memory("nft-input") as said, _memory("nft-complaints") as complaints:
                self._judge(await _ended(self._begin(text, said, complaints)), complaints)
        except OSError as problem:
            raise self._lack(problem) from problem

    def _begin(self, text: str, said: io.FileIO, complaints: io.FileIO) -> int:
        said.write(text.encode())
        said.seek(0)
        return self._start(said, complaints)

    def _judge(self, code: int | None, complaints: io.FileIO) -> None:
        complaints.seek(0)
        first = next(iter(complaints.read().decode(errors="replace").strip().splitlines()), "no word")
        if code is None:
            raise HostError(
                f"{self._lacking}: nft took more than {_PATIENCE_S:.0f} s", remedy="see what holds nftables"
            )
        if code:
            raise HostError(
                f"{self._lacking}: nft: {first}",
                remedy=f"run as root on a kernel with nf_tables (modprobe nf_tables), or {self._otherwise}",
            )

    def _lack(self, problem: OSError) -> HostError:
        return HostError(
            f"{self._lacking}: {problem.strerror}", remedy="see the limits of open files, processes and memory"
        )

    @property
    def _lacking(self) -> str:
        if self._wanted is not None and self._wanted[1]:
            return "a virtual MAC may be heard from here while BACKUP, and switches send the VIP's packets here"
        return "no_accept is not in force"

    @property
    def _otherwise(self) -> str:
        return "do without use_vmac" if self._wanted is not None and self._wanted[1] else "write `accept`"

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
                f"{self._lacking}: {self._nft} cannot be run: {problem.strerror}",
                remedy=f"apt install nftables, or {self._otherwise}",
            ) from problem


def _memory(name: str) -> io.FileIO:
    """An anonymous file: a child reads or fills it at its own pace, and nobody waits for a pipe."""
    return io.FileIO(os.memfd_create(name, os.MFD_CLOEXEC), "r+")


def _waited_for(process: int) -> int | None:
    """Its exit code, None when it had to be killed; nothing else happens meanwhile."""
    watch = os.pidfd_open(process)
    ended = bool(select.select([watch], [], [], _PATIENCE_S)[0])
    if not ended:
        signal.pidfd_send_signal(watch, signal.SIGKILL)
    os.close(watch)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


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

"""BuilderPort: short-lived processes that craft frames and compile the forwarder."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import socket
import struct
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from haxlb.daemon.messages import GarpFrame
from haxlb.forwarding.layout import ABI, Sizes
from haxlb.linux.link_layers import carrier_of
from haxlb.linux.niceness import hurry
from haxlb.linux.short_lived import communicate, refuse_killed
from haxlb.model.errors import HostError, PeerError
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.wire import from_json

if TYPE_CHECKING:
    from haxlb.linux.forwarder_needs import Needs

CRAFT_PATIENCE_S = 30.0
_SIOCGIFHWADDR = 0x8927
_ARPHRD_ETHER = 1


class Builder:
    """Builds into `<runtime>/bpf/<ABI>`."""

    def __init__(self, runtime_dir: Path) -> None:
        self.directory = runtime_dir / "bpf" / ABI
        self._built: Needs | None = None

    async def craft(self, instances: Iterable[VrrpInstance]) -> tuple[GarpFrame, ...]:
        """Announcements of all VIPs whose interfaces have an Ethernet address. Raises HostError."""
        listed = tuple(instances)
        vips = dict.fromkeys(vip for each in listed for vip in (*each.vips, *each.excluded_vips))
        macs = {interface: mac for interface in {vip.interface for vip in vips} if (mac := _mac(interface))}
        # The speaker has not made them yet when frames are crafted for the first time.
        for one in listed:
            for each in one.virtual_macs:
                if mac := each.mac or _mac(each.base):
                    macs[each.interface] = mac
        orders = [
            {"interface": vip.interface, "mac": macs[vip.interface], "vip": str(vip.address)}
            for vip in vips
            if vip.interface in macs
        ]
        if not orders:
            return ()
        return _frames(await _run_crafter(json.dumps(orders).encode()))

    async def compile(self, config: NodeConfig) -> str:
        """Compile, verify and pin the forwarder; the path of the pinned program. Raises HostError."""
        # Not when this module is: who forwards nothing need not know how.
        from haxlb.linux.forwarder_needs import excess, needs, roomy
        from haxlb.linux.maps import Maps

        sizes = roomy(config)
        # Tables that are there are kept, though they may be less roomy than new ones would be.
        with contextlib.suppress(HostError), Maps.open(self.directory) as maps:
            if not excess(config, maps.sizes):
                sizes = replace(maps.sizes, flow_buckets_log2=config.forwarding.flow_buckets_log2)
        return await self._compile(needs(config), sizes)

    async def extend(self, config: NodeConfig) -> str:
        """The same with all that the last program can do: for a program that takes over before the tables have changed.

        Raises HostError.
        """
        from haxlb.linux.forwarder_needs import needs
        from haxlb.linux.maps import Maps

        wanted = needs(config)
        with Maps.open(self.directory) as maps:
            room = maps.sizes
        return await self._compile(wanted if self._built is None else wanted.beside(self._built), room)

    async def _compile(self, wanted: Needs, sizes: Sizes) -> str:
        from haxlb.linux.forwarder_build import compile_forwarder

        program = await compile_forwarder(
            self.directory,
            services=sizes.services,
            frontends=sizes.frontends,
            backends=sizes.backends,
            rings=sizes.rings,
            flow_buckets_log2=sizes.flow_buckets_log2,
            features=wanted.features,
            lifetimes=wanted.lifetimes,
            frags=wanted.frags,
        )
        self._built = wanted
        return program

    def outdated(self, config: NodeConfig) -> bool:
        """Whether the program that was built last cannot do what `config` needs, or does it otherwise."""
        from haxlb.linux.forwarder_needs import needs

        return self._built is None or not needs(config).met_by(self._built)

    def attached(self, config: NodeConfig) -> bool:
        """Whether every interface of this configuration still carries the forwarder of an earlier run."""
        interfaces = config.forwarding_interfaces
        return bool(interfaces) and all(self._link(each) for each in interfaces)

    def abandon(self) -> tuple[str, ...]:
        """Take off what is left of the data plane of an earlier run; what was removed, in words. Raises HostError."""
        if not self.directory.parent.exists():
            return ()  # without the import, for which the speaker would wait
        from haxlb.linux.teardown import remove_data_plane

        return tuple(remove_data_plane(self.directory.parent))

    def excess(self, config: NodeConfig) -> str:
        """What of `config` the tables that were built have no room for; empty when all fits."""
        from haxlb.linux.forwarder_needs import excess
        from haxlb.linux.maps import Maps

        try:
            with Maps.open(self.directory) as maps:
                room = maps.sizes
        except HostError as problem:
            return problem.message
        return excess(config, room)

    def _link(self, interface: str) -> bool:
        try:
            below, _ = carrier_of(interface)
            return (self.directory / "links" / str(socket.if_nametoindex(below))).exists()
        except (OSError, HostError):
            return False


def _mac(interface: str) -> str:
    """Empty where there is no such interface, or no Ethernet one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        try:
            answer = fcntl.ioctl(channel, _SIOCGIFHWADDR, struct.pack("16s24x", interface.encode()))
        except OSError:
            return ""
    (kind,) = struct.unpack_from("=H", answer, 16)
    return answer[18:24].hex(":") if kind == _ARPHRD_ETHER else ""


async def _run_crafter(orders: bytes) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "haxlb.linux.craft",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
    )
    hurry(process.pid)
    try:
        said, complaints = await communicate(process, orders, CRAFT_PATIENCE_S)
    except TimeoutError as problem:
        raise HostError(
            f"crafting gratuitous ARP took more than {CRAFT_PATIENCE_S:.0f} s", remedy="give the machine some rest"
        ) from problem
    refuse_killed(process.returncode, "crafting gratuitous ARP")
    if process.returncode:
        last = complaints.decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
        raise HostError(
            f"gratuitous ARP cannot be crafted: exit {process.returncode}: {last[0]}",
            remedy="see that scapy is installed where haxlb is",
        )
    return said


def _frames(said: bytes) -> tuple[GarpFrame, ...]:
    try:
        frames: list[GarpFrame] = from_json(list[GarpFrame], json.loads(said))
    except (ValueError, PeerError) as problem:
        raise HostError(f"the frame crafter said something else: {problem}", remedy="install haxlb anew") from problem
    return tuple(frames)

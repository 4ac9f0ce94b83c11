"""BuilderPort: short-lived processes that craft frames and compile the forwarder."""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from haxlb.daemon.messages import GarpFrame
from haxlb.forwarding.layout import ABI, Sizes
from haxlb.linux.link_layers import carrier_of
from haxlb.linux.niceness import hurry
from haxlb.linux.short_lived import communicate, refuse_killed
from haxlb.model.errors import HostError, PeerError
from haxlb.model.node import NodeConfig, VrrpInstance
from haxlb.model.wire import from_json

CRAFT_PATIENCE_S = 30.0
_SIOCGIFHWADDR = 0x8927
_ARPHRD_ETHER = 1


class Builder:
    """Builds into `<runtime>/bpf/<ABI>`."""

    def __init__(self, runtime_dir: Path) -> None:
        self.directory = runtime_dir / "bpf" / ABI

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
        from haxlb.linux.forwarder_build import compile_forwarder

        needed = _needed(config)
        usual = Sizes()
        return await compile_forwarder(
            self.directory,
            services=max(config.forwarding.max_services, needed.services),
            # A server that has left keeps its place until its flows have ended: room for as many again.
            backends=max(usual.backends, 2 * needed.backends),
            flow_buckets_log2=config.forwarding.flow_buckets_log2,
        )

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
        from haxlb.linux.maps import Maps

        try:
            with Maps.open(self.directory) as maps:
                room = maps.sizes
        except HostError as problem:
            return problem.message
        needed = _needed(config)
        if needed.services > room.services:
            return f"{needed.services} virtual servers are configured, the forwarder has room for {room.services}"
        if needed.backends >= room.backends:
            return f"{needed.backends} real servers are configured, the forwarder has room for {room.backends - 1}"
        return ""

    def _link(self, interface: str) -> bool:
        try:
            below, _ = carrier_of(interface)
            return (self.directory / "links" / str(socket.if_nametoindex(below))).exists()
        except (OSError, HostError):
            return False


def _needed(config: NodeConfig) -> Sizes:
    servers = sum(len(each.real_servers) + (each.sorry_server is not None) for each in config.virtual_servers)
    return Sizes(services=len(config.virtual_servers), backends=servers)


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

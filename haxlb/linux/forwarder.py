"""The data plane of this host: pinned maps, and one pinned link per interface.

It outlives whoever holds this object. A later one finds in the maps who has which index, and in the links what is
attached where, and goes on from there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from haxlb.forwarding import layout
from haxlb.forwarding.ledger import Ledger
from haxlb.forwarding.plan import deaths, plan
from haxlb.forwarding.records import (
    BackendRecord,
    FrontendRecord,
    LoadRecord,
    ServiceRecord,
    identity_of,
    is_portless,
    is_withdrawn,
    unpack_endpoint,
)
from haxlb.forwarding.steps import Plan
from haxlb.forwarding.transition import settle
from haxlb.forwarding.wanted import Counters, Load, WantedTable, server_key
from haxlb.linux import bpf, own_macs, xdp
from haxlb.linux.bpf_call import BpfError, closing
from haxlb.linux.bpffs import remove_all
from haxlb.linux.devices import Devices, Log
from haxlb.linux.grace_period import wait_for_packets
from haxlb.linux.link_layers import carrier_of
from haxlb.linux.maglev_program import Populator
from haxlb.linux.maps import Maps
from haxlb.linux.pins import Pins
from haxlb.linux.replies import forget_replies
from haxlb.model.addresses import Endpoint
from haxlb.model.errors import HostError
from haxlb.model.status import LinkStatus

# Why a driver may decline native XDP while generic XDP works.
_NO_NATIVE: Final = {
    errno.EOPNOTSUPP: "its driver has none",
    errno.ERANGE: "its MTU (of a veth: its peer's) does not fit into a page",
    errno.EINVAL: "its driver does not take it as the interface is set up (see `dmesg`)",
    errno.ENOSPC: "its peer has fewer queues than it has",
}


def _silent(level: str, event: str, fields: dict[str, str]) -> None:
    del level, event, fields


class Forwarder:
    """ForwarderPort on Linux; everything that it holds lives under `directory`, in a bpffs."""

    def __init__(self, directory: Path, log: Log = _silent) -> None:
        """Open the maps that haxlb.linux.compiler has made. Raises HostError."""
        self._directory = directory
        self._log = log
        self._maps = Maps.open(directory)
        self._views = {name: self._maps.view(name) for name in ("rings", "exceptions", "loads")}
        self._ledger: Ledger | None = None
        self._devices = Devices(self._maps, log)
        self._pins = Pins(directory, self._maps)
        self._populator = Populator()

    def close(self) -> None:
        """Let go of the maps; the data plane runs on."""
        self._ledger = None
        self._views.clear()
        self._populator.close()
        self._pins.close()
        self._maps.close()

    def apply(self, wanted: WantedTable) -> None:
        """Make the maps say what `wanted` says, by the smallest ordered set of writes. Raises HostError."""
        ledger = self._read() if self._ledger is None else self._ledger
        # Until all steps are done what the maps say is known to the maps alone.
        self._ledger = None
        now_s = int(time.monotonic())
        self._carry_out(deaths(wanted, ledger))
        self._note_own_macs(int(pin.name) for pin in self._links())
        self._devices.note(wanted)
        while True:
            planned = plan(wanted, ledger, now_s)
            self._carry_out(planned)
            if planned.complete:
                break
            # What the first one has given up is for the second one.
            wait_for_packets()
            ledger.quiesce()
        self._ledger = ledger

    def settle(self, now_s: int, lifetime_s: int) -> None:
        """End the transitions that are over; to be called about once a second.

        `now_s`: CLOCK_MONOTONIC; `lifetime_s`: of an established flow without packets. Raises HostError.
        """
        ledger = self._ledger
        if ledger is None:
            return
        self._ledger = None
        if not ledger.quiet:
            # Now, while nobody waits for it, so that the next change need not.
            wait_for_packets()
            ledger.quiesce()
        self._carry_out(settle(ledger, now_s, lifetime_s, self._load))
        self._ledger = ledger

    def _carry_out(self, planned: Plan) -> None:
        for phase in planned.phases:
            if phase.wait:
                wait_for_packets()
            self._maps.carry_out(phase.steps)
        if planned.renamed:
            forget_replies(self._maps, planned.renamed)

    def _load(self, backend: int) -> Load:
        at = backend * layout.LOAD_BYTES
        return LoadRecord.unpack(bytes(self._views["loads"][at : at + layout.LOAD_BYTES]))

    def _read(self) -> Ledger:
        """What the maps say."""
        found: dict[str, dict[Endpoint, FrontendRecord]] = {"offered": {}, "withdrawn": {}, "portless": {}}
        for name in ("endpoints", "endpoints6"):
            for key, value in self._maps.entries(name):
                kind = "withdrawn" if is_withdrawn(key) else "portless" if is_portless(key) else "offered"
                found[kind][unpack_endpoint(key)] = FrontendRecord.unpack(value)
        return Ledger(
            self._maps.sizes,
            frontends=found["offered"],
            withdrawn=found["withdrawn"],
            portless=found["portless"],
            any_port_bits=self._maps.array("any_port_bits")[0],
            services={
                index: ServiceRecord.unpack(raw) for index, raw in enumerate(self._maps.array("services")) if any(raw)
            },
            backends={
                index: BackendRecord.unpack(raw) for index, raw in enumerate(self._maps.array("backends")) if any(raw)
            },
            rings=self._views["rings"],
            exceptions=self._views["exceptions"],
            populate=self._populator,
        )

    def counters(self) -> Counters:
        """Counters since the maps were made, or since an index went to another service or server.

        Only of services that this process has applied: the maps know them by the digests of their names.
        """
        verdicts = layout.sum_verdicts(self._maps.read("verdicts", layout.INDEX.pack(0)) or b"")
        ledger = self._ledger
        if ledger is None:
            return Counters(verdicts=verdicts)
        services = {ledger.service_of[identity_of(name)]: service for name, service in ledger.applied.items()}
        of_services, of_servers = self._maps.array("service_tallies"), self._maps.array("backend_tallies")
        known = {
            (services[record.service].name, server_key(record.address, record.port)): (index, record)
            for index, record in ledger.backends.items()
            if record.service in services and not record.retired
        }
        return Counters(
            verdicts=verdicts,
            services={service.name: layout.sum_tallies(of_services[index]) for index, service in services.items()},
            servers={key: layout.sum_tallies(of_servers[index]) for key, (index, _) in known.items()},
            loads={
                key: self._load(index)
                for key, (index, record) in known.items()
                if not services[record.service].stateless
            },
        )

    def attach(self, program: str, interfaces: tuple[str, ...], mode: str) -> tuple[LinkStatus, ...]:
        """Attach the pinned program to each interface, or swap it in where a link of ours is already there.

        `mode` is auto, native or generic. Interfaces that are no longer named are detached, and what another version of
        haxlb has pinned beside this one's is removed. Raises HostError; the interfaces before the one that failed then
        carry the new program. Where an interface is made on another one (a VLAN, a macvlan) it is that one: its frames,
        tags and all, are seen there. An interface that does not exist is one that failed, but the last: the others need
        not wait until it is there (dynamic_interfaces).
        """
        indices: dict[str, int] = {}
        absent: list[HostError] = []
        for interface in interfaces:
            try:
                below, tag = carrier_of(interface)
                indices[below] = xdp.interface_index(below)
            except HostError as problem:
                absent.append(problem)
                continue
            if below != interface:
                fields = {"interface": interface, "below": below, "vlan": str(tag or "none")}
                self._log("info", "attached_below", fields)
        with closing(bpf.obj_get(Path(program))) as fd:
            if not self._is_ours(fd):
                # It would find no service, or those of the past, and nobody would write its tables.
                raise HostError(
                    f"the program {program} reads other tables than this process writes: it is not attached",
                    remedy="`haxlb swap` builds one on the tables that are pinned; else restart haxlb",
                )
            self._pins.verify_parts(fd)
            # The MACs first: a program that does not know its own passes everything.
            self._note_own_macs(indices.values())
            for interface, index in indices.items():
                self._attach(fd, interface, index, mode)
            self._pins.hold()
        if absent:
            # Nothing is detached: what has another name now may be the one that is missed.
            raise absent[0]
        for pin in self._links():
            if int(pin.name) not in indices.values():
                self._log("info", "program_detached", {"interface_index": pin.name})
                bpf.link_remove(pin)
                own_macs.forget(self._maps, int(pin.name))
        self._remove_other_versions()
        return self.links()

    def _is_ours(self, program: int) -> bool:
        """It reads the maps that are pinned here, as far as it needs them, and has only its own parts beside them."""
        ours = self._maps.ids()
        used = set(bpf.program_info(program).map_ids)
        parts = {each for each in used - ours if self._maps.is_parts(each)}
        return bool(used & ours) and used - ours == parts and len(parts) <= 1

    def _remove_other_versions(self) -> None:
        """Their links are ours by now, or lead nowhere; their tables are memory for nothing."""
        for version in sorted(self._directory.parent.glob("[0-9]*-*")):
            if version != self._directory:
                for pin in version.glob("links/*"):
                    # Whoever was ended while it took a link over has left it with two names, of which one is ours.
                    pin.unlink() if self._is_adopted(pin) else bpf.link_remove(pin)
                remove_all(version)
                self._log("info", "former_version_removed", {"directory": str(version)})

    def _is_adopted(self, pin: Path) -> bool:
        mine = self._directory / "links" / pin.name
        if not mine.exists():
            return False
        with closing(bpf.obj_get(pin)) as link, closing(bpf.obj_get(mine)) as adopted:
            return bpf.link_info(link).id == bpf.link_info(adopted).id

    def _attach(self, program: int, interface: str, index: int, mode: str) -> None:
        link = self._adopt(index)
        if link is None:
            with closing(self._create_link(program, interface, index, mode)) as made:
                bpf.obj_pin(made, self._pin(index))
            return
        there = xdp.attachment(index).mode
        if mode not in ("auto", there):
            # Only detaching would change it, and packets would go where no server is meanwhile.
            self._log(
                "warning",
                "mode_kept",
                {
                    "interface": interface,
                    "reason": f"attached in {there} mode, forwarding.mode is {mode}",
                    "remedy": "stop haxlb, run `haxlb detach` and start it, when the other director is MASTER",
                },
            )
        with closing(link):
            attached = bpf.link_info(link).program_id
            if attached == bpf.program_info(program).id:
                return
            expected = bpf.program_by_id(attached)
            with closing(expected):
                bpf.link_update(link, program, expected_fd=expected)
            self._log("info", "program_swapped_in", {"interface": interface})

    def _adopt(self, index: int) -> int | None:
        """The link of ours on this interface, also one that another version of haxlb pinned beside this one's."""
        mine = self._pin(index)
        for pin in (mine, *sorted(self._directory.parent.glob(f"*/links/{index}"))):
            if not pin.exists():
                continue
            link = bpf.obj_get(pin)
            if bpf.link_info(link).interface_index == index:
                if pin != mine:
                    bpf.obj_pin(link, mine)
                    pin.unlink()
                return link
            # Its interface is gone, or the index belongs to another namespace now.
            os.close(link)
            pin.unlink()
        return None

    def _create_link(self, program: int, interface: str, index: int, mode: str) -> int:
        if mode == "auto" and xdp.attachment(index).kind == "veth":
            # veth_xdp_flush wakes a far end with a program only, and which has one cannot be asked from here.
            self._say_generic(interface, "a veth loses what it sends, unless its other end carries an XDP program too")
        elif mode != "generic":
            try:
                return bpf.link_create(program, index, flags=xdp.FLAGS_DRV_MODE)
            except BpfError as problem:
                if problem.number in (errno.EBUSY, errno.EEXIST):
                    raise self._busy(interface, index) from problem
                if mode == "native" or problem.number not in _NO_NATIVE:
                    raise HostError(
                        f"{interface} takes no native XDP program: "
                        f"{_NO_NATIVE.get(problem.number, os.strerror(problem.number))}",
                        remedy="set forwarding.mode to auto or generic, or lower the MTU (of a veth: its peer's)",
                    ) from problem
                self._say_generic(interface, f"no native XDP: {_NO_NATIVE[problem.number]}")
        try:
            return bpf.link_create(program, index, flags=xdp.FLAGS_SKB_MODE)
        except BpfError as problem:
            if problem.number in (errno.EBUSY, errno.EEXIST):
                raise self._busy(interface, index) from problem
            raise

    def _say_generic(self, interface: str, reason: str) -> None:
        self._log(
            "warning",
            "generic_mode",
            {
                "interface": interface,
                "reason": reason,
                "consequence": "a fraction of native XDP's packet rate",
                "remedy": "a driver with XDP, a smaller MTU (of a veth: its peer's), or forwarding.mode as it shall be",
            },
        )

    @staticmethod
    def _busy(interface: str, index: int) -> HostError:
        there = xdp.attachment(index)
        name = _program_name(there.program_id)
        return HostError(
            f"{interface} already carries an XDP program: {name}, {there.mode} mode",
            remedy="stop what attached it; one left behind: `haxlb detach --runtime-dir DIR` if it is haxlb's, "
            f"else `ip link set dev {interface} xdp off`",
        )

    def links(self) -> tuple[LinkStatus, ...]:
        """Where the program is attached, and how."""
        found = []
        for pin in self._links():
            with closing(bpf.obj_get(pin)) as link:
                info = bpf.link_info(link)
            with contextlib.suppress(HostError, OSError):
                found.append(
                    LinkStatus(
                        interface=xdp.interface_name(info.interface_index),
                        mode=xdp.attachment(info.interface_index).mode,
                        program=_program_name(info.program_id),
                    )
                )
        return tuple(found)

    def repin(self) -> tuple[str, ...]:
        """Pin again what somebody has removed of the tables and of what is attached; its names. Raises HostError."""
        return self._pins.restore()

    def _links(self) -> list[Path]:
        return sorted((self._directory / "links").iterdir(), key=lambda pin: int(pin.name))

    def _pin(self, index: int) -> Path:
        # By index: a name may hold a dot (eth0.100), which bpffs does not take.
        return self._directory / "links" / str(index)

    def _note_own_macs(self, indices: Iterable[int]) -> None:
        """Tell the program what frames on these interfaces must be addressed to, as far as it is not so already."""
        for index in indices:
            try:
                mac = xdp.attachment(index).mac
            except BpfError:
                continue  # the interface is gone, and its link with it
            own_macs.note(self._maps, index, mac)


def _program_name(identity: int) -> str:
    """Name and tag of a loaded program."""
    fd = bpf.program_by_id(identity) if identity else None
    if fd is None:
        return "unknown"
    with closing(fd):
        info = bpf.program_info(fd)
    return f"{info.name or 'unnamed'} {info.tag}"

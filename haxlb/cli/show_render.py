"""The status for people: rich where it is a terminal, the same words without colour elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import IO

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from haxlb.cli.show_ipvs import forward, known, place
from haxlb.model.instance import Role
from haxlb.model.status import InstanceStatus, NodeStatus, RealServerStatus, VirtualServerStatus

ROLE_STYLES = {Role.MASTER: "bold green", Role.BACKUP: "cyan", Role.FAULT: "bold red", Role.INIT: "yellow"}
_PLAIN_WIDTH = 10_000
"""Columns where there is no terminal to ask: lines for grep, not for a page."""
_IPV6 = ", IPv6"
LATEST = 10
"""Lines of the history that are shown unless all are asked for: what is now must not scroll away for what was."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def render(status: NodeStatus, stream: IO[str], *, whole_history: bool = False) -> None:
    """Print the status; honours NO_COLOR, FORCE_COLOR and COLUMNS, and wraps nothing in a pipe."""
    page(stream, lambda console: _print(console, status, whole_history=whole_history))


def page(stream: IO[str], put: Callable[[Console], None]) -> None:
    """Have a page printed to a terminal as wide as that is, to anything else without wrapping and without colours."""
    if stream.isatty() or os.environ.get("FORCE_COLOR"):
        put(Console(file=stream, highlight=False))
        return
    width = None if os.environ.get("COLUMNS") else _PLAIN_WIDTH
    plain = StringIO()
    put(Console(file=plain, width=width, highlight=False))
    for line in plain.getvalue().splitlines():
        stream.write(f"{line.rstrip()}\n")  # a table pads its last column
    stream.flush()  # here a full disk is an error that is said; at the interpreter's end it is a traceback


def _print(console: Console, status: NodeStatus, *, whole_history: bool) -> None:
    head(console, status)
    _alarms(console, status)
    _instances(console, status)
    for service in status.virtual_servers:
        _service(console, service, status.at)
    _data_plane(console, status)
    _processes(console, status)
    _history(console, status.history, len(status.history) if whole_history else LATEST)


def head(console: Console, status: NodeStatus) -> None:
    """Who says this, when, and under which configuration."""
    console.print(Text.assemble((status.node, "bold"), f"  haxlb {status.version}  {_clock(status.at)}"))
    loaded = f"configuration {status.config_file}, loaded {ago(status.at, status.config_loaded_at)} ago"
    console.print(loaded, markup=False)
    if status.config_problem:
        outcome = (
            "was refused, the configuration before it is in force" if status.config_refused else "is not all in force"
        )
        console.print(Text(f"the last reload {outcome}: {status.config_problem}", "bold red"))
    if status.config_errors:
        console.print(Text("the configuration in force has errors, and is without what they name:", "bold red"))
        for each in status.config_errors:
            console.print(f"  - {each}", markup=False)
    if status.starting:
        console.print(Text("haxlb is starting: the forwarder is compiled, and then the processes start", "bold yellow"))


def _alarms(console: Console, status: NodeStatus) -> None:
    for alarm in status.alarms:
        style = "bold red" if alarm.severity == "critical" else "bold yellow"
        raised = ago(status.at, alarm.raised_at)
        console.print()
        console.print(Text(f"ALARM {alarm.key} ({alarm.severity}, for {raised}): {alarm.summary}", style))
        for line in alarm.evidence:
            console.print(f"  - {line}", markup=False)


def _instances(console: Console, status: NodeStatus) -> None:
    if not status.instances:
        return
    rows: list[dict[str, str | Text]] = [
        {
            "VRRP instance": f"{each.name} (VRID {each.vrid}, v{each.version}{_IPV6 if each.family == 6 else ''})",  # noqa: PLR2004
            "state": Text(each.role.value + (" (yielded)" if each.yielded else ""), ROLE_STYLES[each.role]),
            "since": ago(status.at, each.since_at),
            "prio": str(each.priority),
            "on": where(each),
            "VIPs": joined(each.vips),
            "peer": _peers(each, status.at),
            "why": each.reason,
        }
        for each in status.instances
    ]
    console.print()
    left_out = _put(console, rows, spare=("why", "peer"))
    for each, row in zip(status.instances, rows, strict=True):
        for column in left_out:
            console.print(f"  {each.name}: {column} {row[column]}", markup=False)
        rejected = ", ".join(f"{count} {reason}" for reason, count in each.adverts_rejected.items())
        console.print(
            f"  {each.name}: {each.adverts_sent} adverts sent, {each.adverts_received} received"
            f"{f', rejected: {rejected}{last_rejected(each, status.at)}' if rejected else ''}"
            f"; {_counted(each.transitions, 'transition')}",
            markup=False,
        )
        _bonds(console, each)


def last_rejected(instance: InstanceStatus, at: float) -> str:
    """Who has sent the last advert that was refused, and why it was; empty where none was."""
    if instance.last_rejected_at is None:
        return ""
    return f" (the last {ago(at, instance.last_rejected_at)} ago, of {instance.last_rejected})"


def where(instance: InstanceStatus) -> str:
    """Its interface, and those of its virtual MAC: `eth0 (virtual MAC: vrrp.51, vrrp1.51 on eth1)`."""
    made = [each for each in (instance.virtual_mac, *instance.address_macs) if each]
    return f"{instance.interface} (virtual MAC: {', '.join(made)})" if made else instance.interface


def _bonds(console: Console, instance: InstanceStatus) -> None:
    """What else decides the role: the sync group, and of the tracked things those that are not as they should be."""
    said = [f"sync group {instance.sync_group}"] if instance.sync_group else []
    for each in instance.contributions:
        if each.fault or each.change or not each.well:
            state = {True: "well", False: "not well", None: "not known yet"}[each.well]
            effect = " (FAULT)" if each.fault else f" ({each.change:+d})" if each.change else ""
            said.append(f"{each.name} {state}{effect}")
    if said:
        console.print(f"  {instance.name}: {', '.join(said)}", markup=False)


def _peers(instance: InstanceStatus, at: float) -> str:
    return joined(
        f"{peer.address} {f'prio {peer.priority},' if peer.priority else 'resigned'} {ago(at, peer.heard_at)} ago"
        for peer in instance.peers
    )


def _service(console: Console, service: VirtualServerStatus, at: float) -> None:
    console.print()
    state = "sorry server" if service.sorry else "serving" if service.quorum_up else "no quorum"
    kept = f" persistent {service.persistence_s}" if service.persistence_s else ""
    head = f"{service.protocol} {place(service)}{_also(service)} {service.scheduler}{kept}  "
    style = "green" if state == "serving" else "bold red"
    counted = f"  {service.packets} packets, {service.bytes} bytes, {service.flows} flows"
    console.print(Text.assemble((head, "bold"), (state, style), counted))
    rows: list[dict[str, str | Text]] = [
        {
            "-> RemoteAddress:Port": f"-> {each.key}{' (sorry)' if each.is_sorry else ''}",
            "Forward": forward(each),
            "Weight": _weight(each),
            "ActiveConn": known(each.active),
            "InActConn": known(each.inactive),
            "health": _health(each),
            "since": ago(at, each.since_at),
            "flows": str(each.flows),
            "packets": str(each.packets),
            "MAC": each.mac or Text("unresolved", "bold red"),
            "why": each.reason,
        }
        for each in service.real_servers
    ]
    if not rows:
        return
    if "why" in _put(console, rows, spare=("why", "Forward", "packets", "MAC", "InActConn")):
        for each in service.real_servers:
            if not each.in_pool:
                why = each.reason if each.mac else f"MAC unresolved; {each.reason}"
                console.print(f"  {each.key}: {why}", markup=False)
    for each in service.real_servers:
        if each.configured_weight is not None:
            said = f"weight {each.weight} was set on this daemon, the configured one is {each.configured_weight}"
            console.print(f"  {each.key}: * {said}", markup=False, soft_wrap=True)


def _also(service: VirtualServerStatus) -> str:
    """What commands may call it, and how many endpoints there are, where it is not its one endpoint."""
    named = service.name.startswith(("group ", "fwmark "))
    others = len(service.endpoints) - 1
    said = [service.name.rpartition(" ")[0]] if named else []
    said += [f"and {_counted(others, 'endpoint')} more" if others > 0 else ""]
    text = ", ".join(filter(None, said))
    return f" ({text})" if text else ""


def _weight(server: RealServerStatus) -> str | Text:
    """One that an operator has set is marked."""
    return str(server.weight) if server.configured_weight is None else Text(f"{server.weight}*", "yellow")


def _health(server: RealServerStatus) -> Text:
    if not server.up:
        return Text("DOWN", "bold red")
    if server.overloaded:
        return Text("up, at its threshold", "yellow")
    if server.in_pool:
        return Text("up", "green")
    return Text("up, no new flows", "yellow")


def _data_plane(console: Console, status: NodeStatus) -> None:
    plane = status.data_plane
    if not (status.virtual_servers or plane.links):
        return
    console.print()
    links = joined(f"{link.interface} {link.mode} ({link.program})" for link in plane.links)
    console.print(Text.assemble(("data plane  ", "bold"), f"{links}  {_counted(plane.swaps, 'swap')}"))
    if plane.problem:
        console.print(Text(f"  not forwarding: {plane.problem}", "bold red"))
    counted = ", ".join(f"{reason} {count}" for reason, count in plane.verdicts.items() if count)
    if counted:
        console.print(f"  packets: {counted}", markup=False)


def _processes(console: Console, status: NodeStatus) -> None:
    console.print()
    for each in status.processes:
        restarts = f", {_counted(each.restarts, 'restart')}" if each.restarts else ""
        problem = f": {each.problem}" if each.problem else ""
        pid = f"pid {each.pid}" if each.pid else "not running"
        line = f"{each.name}  {pid}, for {ago(status.at, each.since_at)}{restarts}{problem}"
        console.print(Text(line, "bold red" if problem else ""))
    console.print(f"MQTT  {status.mqtt}", markup=False)
    for path, lost in status.fifo_lines_lost.items():
        console.print(Text(f"FIFO  {path}: {_counted(lost, 'line')} lost, nobody reads", "bold red"))
    mail = status.mail
    if mail.dropped or mail.problem:
        counts = f"{mail.delivered} delivered, {mail.dropped} dropped, {mail.waiting} waiting"
        console.print(Text(": ".join(filter(None, (f"mail  {counts}", mail.problem))), "bold red"))


def _history(console: Console, lines: Sequence[str], most: int) -> None:
    if lines:
        shown = lines[-most:]
        cut = f"  the last {most} of {len(lines)} lines: all with `haxlb show --history`" if shown != lines else ""
        console.print()
        console.print(Text.assemble(("history", "bold"), cut))
        for line in shown:
            console.print(f"  {line}", markup=False)


def _put(console: Console, rows: Sequence[Mapping[str, str | Text]], *, spare: tuple[str, ...]) -> tuple[str, ...]:
    """Print a table, on a narrow terminal without its spare columns: which were left out, the first one first."""
    for number in range(len(spare) + 1):
        left_out = spare[:number]
        table = Table(box=None, pad_edge=False, header_style="bold")
        columns = [column for column in rows[0] if column not in left_out]
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column not in ("why", "VIPs", "peer"))
        for row in rows:
            table.add_row(*(row[column] for column in columns))
        unlimited = console.options.update_width(_PLAIN_WIDTH)
        if Measurement.get(console, unlimited, table).maximum <= console.width:
            break
    console.print(table)
    return left_out


def joined(words: Iterable[str]) -> str:
    """With commas; a dash for nothing."""
    return ", ".join(words) or "-"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(now: float, then: float) -> str:
    """A span for people: `3.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`."""
    span = max(0.0, now - then)
    if span < _MINUTE:
        return f"{span:.1f} s"
    whole = int(span)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"

"""VRRP instances for people: one block each, what decides the role on top."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from haxlb.cli.show_render import ROLE_STYLES, ago, head, joined, last_rejected, page, where
from haxlb.model.instance import Role
from haxlb.model.status import Contribution, InstanceStatus, LoopLag, NodeStatus, PeerStatus, TrackedStatus
from haxlb.model.units import SECOND_US

_MILLISECOND_US = 1000
_LONGEST_FRACTION_S = 60
_OWNER = 255
_MISSED = 4
"""Advert intervals, for master_down_interval where that is not known: by default three and the skew."""


def render(status: NodeStatus, instances: Sequence[InstanceStatus], stream: IO[str]) -> None:
    """Print these instances; the terminal's width, NO_COLOR, FORCE_COLOR and COLUMNS count as in `haxlb show`."""

    def put(console: Console) -> None:
        head(console, status)
        console.print(f"speaker  {lag_line(status.lag, status.at)}", markup=False)
        for problem in (each.problem for each in status.processes if each.name == "speaker" and each.problem):
            console.print(Text(f"the speaker's status is old: {problem}", "bold red"))
        if not instances:
            console.print("no VRRP instance is configured")
        for each in instances:
            _instance(console, each, status)

    page(stream, put)


def lag_line(lag: LoopLag, at: float) -> str:
    """How late the speaker was woken, in words."""
    if not lag.wakes:
        return "how late it was woken is not known yet"
    worst = f"worst {_milliseconds(lag.max_us)} {ago(at, lag.max_at)} ago"
    return f"woken {lag.wakes} times, last {_milliseconds(lag.last_us)} late, {worst}, {lag.over_ms} times 1 ms or more"


def priority_sum(instance: InstanceStatus) -> str:
    """The effective priority and where it comes from: `150 = 170 base - 20 chk_nginx`."""
    changes = [each for each in instance.contributions if each.change]
    if instance.base_priority == _OWNER:
        return f"{instance.priority}: owner of the addresses" + ("; tracking changes nothing" if changes else "")
    if not instance.base_priority:
        return str(instance.priority)
    total = instance.base_priority + sum(each.change for each in changes)
    terms = "".join(f" {'-' if each.change < 0 else '+'} {abs(each.change)} {each.name}" for each in changes)
    if not 1 <= total < _OWNER:
        return f"{instance.priority}: {instance.base_priority} base{terms} is {total}, kept within 1 to 254"
    if total != instance.priority:
        # Asked between a change and its taking effect.
        return f"{instance.priority}, not yet {instance.base_priority} base{terms} = {total}"
    return f"{instance.priority} = {instance.base_priority} base{terms}"


def next_line(instance: InstanceStatus, at: float) -> str:
    """What comes next: `becomes MASTER in 2.1 s unless an advert comes`."""
    if instance.next_at is None:
        return "nothing is due"
    span = max(0.0, instance.next_at - at)
    when = f"in {span:.2f} s" if span < _LONGEST_FRACTION_S else f"in {ago(instance.next_at, at)}"
    unless = " unless an advert comes" if instance.role is Role.BACKUP else ""
    return f"{instance.next_what or 'its timer ends'} {when}{unless}"


def _instance(console: Console, each: InstanceStatus, status: NodeStatus) -> None:
    at = status.at
    console.print()
    state = each.role.value + (" (yielded)" if each.yielded else "")
    place = f"VRRPv{each.version} IPv{each.family} VRID {each.vrid} on {where(each)}"
    source = f" from {each.source}" if each.source else ""
    console.print(
        Text.assemble(
            (each.name, "bold"),
            "  ",
            (state, ROLE_STYLES[each.role]),
            f" for {ago(at, each.since_at)}  {place}{source}",
        )
    )
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, line in _rows(each, status):
        table.add_row(f"  {label}", Text(line) if isinstance(line, str) else line)
    console.print(table)


def _rows(each: InstanceStatus, status: NodeStatus) -> Iterator[tuple[str, str | Text]]:
    at = status.at
    yield "why", each.reason or "-"
    yield "priority", priority_sum(each)
    yield "next", next_line(each, at)
    if each.sync_group:
        yield "sync group", each.sync_group
    yield "VIPs", joined(each.vips)
    if each.excluded_vips:
        yield "excluded", joined(each.excluded_vips)
    details = {(tracked.kind, tracked.name): tracked for tracked in status.tracked}
    yield from _labelled("tracks", [_tracked(one, details.get((one.kind, one.name)), at) for one in each.contributions])
    yield from _labelled("peers", [_peer(peer, each, at) for peer in each.peers] or ["none was heard"])
    refused = joined(f"{count} {reason}" for reason, count in each.adverts_rejected.items() if count)
    refused = "none" if refused == "-" else f"{refused}{last_rejected(each, at)}"
    yield "adverts", f"{each.adverts_sent} sent, {each.adverts_received} received, refused: {refused}"
    if each.master_down_interval_us:
        yield "waits", f"{each.master_down_interval_us / SECOND_US:g} s for an advert (master_down_interval)"
    lines = [f"{_moment(one.at)}  {f'{one.before.value} -> {one.after.value}':16}  {one.reason}" for one in each.latest]
    yield from _labelled("history", lines or ["no change of role yet"])


def _labelled(label: str, lines: Sequence[str | Text]) -> Iterator[tuple[str, str | Text]]:
    for number, line in enumerate(lines):
        yield ("" if number else label), line


def _tracked(what: Contribution, status: TrackedStatus | None, at: float) -> Text:
    known = {True: "well", False: "not well", None: "not known yet"}[what.well]
    effect = "FAULT" if what.fault else f"{what.change:+d}" if what.change else "changes nothing"
    line = f"{what.kind} {what.name}: {known}, {effect}"
    if status is not None and status.since_at:
        line += f", for {ago(at, status.since_at)}"
    if status is not None and status.detail:
        line += f"; {status.detail}"
    return Text(line, "bold red" if what.fault else "yellow" if what.well is False else "")


def _peer(peer: PeerStatus, instance: InstanceStatus, at: float) -> str:
    """Its last advert. One that is long past has no interval: a BACKUP is silent (RFC 9568 section 6.4.2)."""
    patience_us = instance.master_down_interval_us or _MISSED * peer.interval_us
    silent = peer.priority and 0 < patience_us < (at - peer.heard_at) * SECOND_US
    said = f"priority {peer.priority}" if peer.priority else "resigned (priority 0)"
    version = f", v{peer.version}" if peer.version else ""
    every = f", every {peer.interval_us / SECOND_US:g} s" if peer.interval_us and not silent else ""
    vips = f", VIPs {joined(peer.addresses)}" if peer.addresses else ""
    age = f"{ago(at, peer.heard_at)} ago"
    heard = f"last advert {age}: a BACKUP sends none" if silent else age
    return f"{peer.address}: {said}{version}{every}, {heard}{vips}"


def _milliseconds(span_us: int) -> str:
    return f"{span_us / _MILLISECOND_US:.2f} ms"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"

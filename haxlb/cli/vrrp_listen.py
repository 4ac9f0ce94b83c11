"""`haxlb vrrp listen`: who speaks VRRP on a link, live, and what they disagree on."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from types import FrameType
from typing import Any

import click

from haxlb.cli.options import Seconds
from haxlb.linux.standard_streams import reader_gone
from haxlb.linux.vrrp_listen import Ear, Frame
from haxlb.model.errors import HostError
from haxlb.model.units import SECOND_US
from haxlb.model.wire import to_json
from haxlb.vrrp.dissect import Dissection, dissect
from haxlb.vrrp.envelope import Layer, unwrap
from haxlb.vrrp.segment import Disagreement, Event, Segment, Speaker

SCHEMA = "haxlb.vrrp-listen/1"
_TICK_S = 0.1


@click.command(short_help="Show who speaks VRRP on a link.")
@click.argument("interface", metavar="IFACE")
@click.option("--seconds", type=Seconds(min=0, min_open=True), help="End after so long.  [default: at Ctrl-C]")
@click.option(
    "--vrid",
    "vrids",
    type=click.IntRange(1, 255),
    multiple=True,
    help="Only this virtual router; may be given repeatedly.",
)
@click.option("-p", "--promiscuous", is_flag=True, help="Also hear unicast adverts between others, where they pass by.")
@click.option(
    "--json", "as_json", is_flag=True, help=f"Print events as JSON lines, and the summary as the last, schema {SCHEMA}."
)
def listen(interface: str, seconds: float | None, vrids: tuple[int, ...], *, promiscuous: bool, as_json: bool) -> None:
    """Listen on IFACE for VRRP of both families and say who speaks for which virtual router, what each of them says,
    and what they disagree on: two masters at once, versions, intervals, authentication, addresses, checksums, unicast
    and multicast. Needs CAP_NET_RAW and sends nothing. A BACKUP is silent: it is heard after a failover.

    Exit codes: 0 they agree; 1 they do not, or adverts came that receivers drop, or the interface went away; 71 there
    is no such interface; 77 not permitted.
    """
    ear = Ear(interface, promiscuous=promiscuous)
    with contextlib.closing(ear):
        sys.exit(_Session(ear, frozenset(vrids), as_json=as_json).run(seconds))


@lru_cache(maxsize=512)
def _dissected(data: bytes, layer: Layer) -> Dissection | None:
    """A pair says the same few bytes for hours."""
    envelope = unwrap(data, layer)
    return None if envelope is None else dissect(envelope)


class _Session:
    """From the first frame to the summary."""

    def __init__(self, ear: Ear, vrids: frozenset[int], *, as_json: bool) -> None:
        self._ear = ear
        self._vrids = vrids
        """Empty = all."""
        self._as_json = as_json
        self._segment = Segment()
        self._adverts = 0
        self._ended = False
        self._skew_us = time.time_ns() // 1000 - time.monotonic_ns() // 1000

    def run(self, seconds: float | None) -> int:
        """Listen; the exit code."""
        started = time.monotonic()
        end = None if seconds is None else started + seconds
        before = {each: signal.signal(each, self._end) for each in (signal.SIGINT, signal.SIGTERM)}
        gone: HostError | None = None
        if not self._as_json:
            click.echo(f"listening for VRRP on {self._ear.interface}", err=True)
        try:
            over = False
            while not over:
                # What has arrived is taken before the time is looked at: a process that was stalled hears it, too.
                self._ear.wait(_TICK_S if end is None else min(_TICK_S, end - time.monotonic()))
                self._hear()
                over = self._ended or reader_gone() or (end is not None and time.monotonic() >= end)
        except HostError as problem:
            gone = problem
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self._summarise(time.monotonic() - started)
        if gone is not None:
            click.echo(f"haxlb: {gone}", err=True)
        speakers, found = self._segment.speakers, self._segment.disagreements
        return 1 if gone is not None or found or any(each.problems for each in speakers) else 0

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._ended = True

    def _hear(self) -> None:
        # A step of the wall clock, which the stamps follow, must not make everybody silent.
        ahead_us = time.time_ns() // 1000 - self._now_us()
        for frame in self._ear.frames():
            heard = self._dissect(frame)
            if heard is not None and (not self._vrids or heard.vrid in self._vrids):
                self._adverts += 1
                self._tell(self._segment.hear(heard, frame.at_us - ahead_us))
        self._tell(self._segment.tick(self._now_us()))

    def _dissect(self, frame: Frame) -> Dissection | None:
        heard = _dissected(frame.data, frame.layer)
        if heard is None or frame.vlan is None:
            return heard
        envelope = replace(heard.envelope, vlans=(frame.vlan, *heard.envelope.vlans))
        return replace(heard, envelope=envelope)

    def _now_us(self) -> int:
        """The wall clock's time when this began, and what has passed since."""
        return time.monotonic_ns() // 1000 + self._skew_us

    def _tell(self, events: Iterable[Event]) -> None:
        for each in events:
            click.echo(json.dumps({"type": "event", **_event(each)}) if self._as_json else _line(each))
        sys.stdout.flush()

    def _summarise(self, span_s: float) -> None:
        speakers, found = self._segment.speakers, self._segment.disagreements
        if self._as_json:
            document = {
                "type": "summary",
                "schema": SCHEMA,
                "interface": self._ear.interface,
                "seconds": round(span_s, 3),
                "adverts": self._adverts,
                "lost": self._ear.lost,
                "unlisted": self._segment.unlisted,
                "speakers": [_timed(to_json(each)) for each in speakers],
                "disagreements": [_timed(to_json(each)) for each in found],
            }
            click.echo(json.dumps(document))
            return
        for line in summary(speakers, found):
            click.echo(line)
        lost = f", {self._ear.lost} frames lost" if self._ear.lost else ""
        unlisted = (
            f", {self._segment.unlisted} adverts of more speakers than are listed" if self._segment.unlisted else ""
        )
        click.echo(f"{self._adverts} adverts in {span_s:.1f} s{lost}{unlisted}")


def summary(speakers: tuple[Speaker, ...], found: tuple[Disagreement, ...]) -> Iterator[str]:
    """By virtual router: who spoke, and what they disagreed on."""
    routers = sorted({each.router for each in speakers})
    if not routers:
        yield "nobody speaks VRRP here, or only masters of other links do: a BACKUP is silent"
    for router in routers:
        yield ""
        yield str(router)
        for each in speakers:
            if each.router == router:
                yield f"  {_speaker(each)}"
                for reason, count in each.problems.items():
                    yield f"    ! {count} adverts that receivers drop: {reason}"
        for one in found:
            if one.router == router:
                span = "" if one.until_us is None else f" (for {(one.until_us - one.since_us) / SECOND_US:.1f} s)"
                yield f"  ! {one.message}{span}"
    if routers:
        yield ""
        yield "no disagreement" if not found else f"{len(found)} disagreement{'' if len(found) == 1 else 's'}"


def _speaker(each: Speaker) -> str:
    mac = f" [{each.mac}]" if each.mac else ""
    head = f"{each.source}{mac}  {each.state}, {each.adverts} adverts"
    if not each.version:
        return head
    auth = f"  {each.authentication}" if each.authentication != "none" else ""
    checksum = "" if each.checksum == "good" else f"  checksum {each.checksum}"
    to = ", ".join(map(str, each.destinations))
    vips = ", ".join(map(str, each.addresses)) or "none"
    said = f"v{each.version}  priority {each.priority}  every {each.interval_us / SECOND_US:g} s{auth}  TTL {each.ttl}"
    return f"{head}  {said}{checksum}  to {to}  VIPs {vips}"


def _line(event: Event) -> str:
    mark = {"disagree": "!", "dropped": "!", "odd": "~"}.get(event.kind, " ")
    clock = datetime.fromtimestamp(event.at_us / SECOND_US, UTC).strftime("%H:%M:%S.%f")[:-3]
    who = f"{event.source} " if event.source else ""
    words = {"disagree": "DISAGREE", "agree": "agree"}.get(event.kind, event.kind)
    return f"{clock} {mark} {event.router}  {who}{words}: {event.message}"


def _event(event: Event) -> dict[str, Any]:
    return _timed({**to_json(event)})


def _timed(document: dict[str, Any]) -> dict[str, Any]:
    """Times as in all of haxlb's documents: `_at`, seconds since the epoch."""
    timed: dict[str, Any] = {}
    for name, value in document.items():
        if name in ("at_us", "since_us", "until_us", "first_us", "last_us"):
            timed["at" if name == "at_us" else f"{name[:-3]}_at"] = None if value is None else value / SECOND_US
        else:
            timed[name] = value
    return timed

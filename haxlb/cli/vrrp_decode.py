"""`haxlb vrrp decode`: what adverts say, and what is wrong with them, from a capture or from hex."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from haxlb.cli.hex_text import HexError, packets_of
from haxlb.linux.capture import LARGEST, CaptureError, is_capture, read_capture
from haxlb.model.errors import HaxlbError
from haxlb.model.units import SECOND_US
from haxlb.vrrp.disagreement import authentication
from haxlb.vrrp.dissect import Dissection, dissect
from haxlb.vrrp.envelope import Envelope, Finding, Layer, guess, unwrap

SCHEMA = "haxlb.vrrp-decode/1"
_STDIN = "-"
_LAYERS = {"ethernet": Layer.ETHERNET, "ip": Layer.IP, "vrrp": Layer.VRRP}
_SHORTEST = 8
"""Bytes of a VRRP message without addresses: of a shorter one no field was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packet:
    """One packet that was looked at."""

    number: int
    at_s: float | None
    advert: Dissection | None
    """None = it is not VRRP."""
    missing: int = 0

    @property
    def findings(self) -> tuple[Finding, ...]:
        return () if self.advert is None else self.advert.findings


@click.command(short_help="Decode adverts of a capture or of hex.")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("-x", "--hex", "words", multiple=True, metavar="HEX", help="Decode these bytes; may be given repeatedly.")
@click.option(
    "--layer",
    type=click.Choice(["auto", *_LAYERS]),
    default="auto",
    show_default=True,
    help="What hex begins with: an Ethernet frame, an IP packet, or the VRRP message.",
)
@click.option(
    "--auth-pass-file",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Judge authentication, too, with the auth_pass in this file.",
)
@click.option("--json", "as_json", is_flag=True, help=f"Print one JSON object, schema {SCHEMA}.")
def decode(file: str | None, words: tuple[str, ...], layer: str, auth_pass_file: Path | None, *, as_json: bool) -> None:
    """Decode VRRP adverts, versions 2 and 3, IPv4 and IPv6, with or without an authentication header, and say what is
    wrong with each and at which byte.

    FILE is a capture (pcap, pcapng) or hex text, as tcpdump -x, xxd, hexdump -C and Wireshark print it; without FILE,
    or with -, it is read from standard input. Packets that are not VRRP are counted only.

    Exit codes: 0 all adverts are fine; 1 receivers drop some, or there is none; 2 it is neither a capture nor hex.
    """
    if words and file:
        raise click.UsageError("either FILE or -x, not both")
    reading = _Reading(_LAYERS.get(layer), None if auth_pass_file is None else _password(auth_pass_file))
    if words:
        packets = reading.of_hex("\n\n".join(words))
        name = "-x"
    else:
        name = file or _STDIN
        data = _read(name)
        packets = reading.of_capture(data) if is_capture(data) else reading.of_text(name, data)
    answer = _Json() if as_json else _Text()
    problem: HaxlbError | None = None
    try:
        for packet in packets:
            answer.take(packet)
    except (CaptureError, HexError) as raised:
        problem = raised
    answer.finish(name, problem)
    if problem is not None:
        raise problem
    if answer.dropped or not answer.adverts:
        sys.exit(1)


def _read(name: str) -> bytes:
    if name == _STDIN:
        return sys.stdin.buffer.read(LARGEST + 1)
    try:
        with Path(name).open("rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as problem:
        raise CaptureError(f"cannot read {name}: {problem.strerror}") from problem


def _password(path: Path) -> str:
    try:
        return path.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise click.BadParameter(f"cannot read {path}: {why}", param_hint="--auth-pass-file") from problem


class _Reading:
    """How bytes become packets."""

    def __init__(self, layer: Layer | None, auth_pass: str | None) -> None:
        self._layer = layer
        """None = guess."""
        self._auth_pass = auth_pass

    def of_capture(self, data: bytes) -> Iterator[_Packet]:
        for each in read_capture(data):
            advert = self._dissect(each.data, each.layer)
            yield _Packet(number=each.number, at_s=each.at_s, advert=advert, missing=each.missing)

    def of_text(self, name: str, data: bytes) -> Iterator[_Packet]:
        what = "standard input" if name == _STDIN else name
        try:
            return self.of_hex(data.decode("ascii"))
        except (UnicodeDecodeError, HexError) as problem:
            why = problem.message if isinstance(problem, HexError) else "it is not text"
            raise HexError(f"{what} is neither a capture (pcap, pcapng) nor hex: {why}") from problem

    def of_hex(self, text: str) -> Iterator[_Packet]:
        packets = packets_of(text)
        if not packets:
            raise HexError("there is no byte in it")
        return iter(
            [
                _Packet(number=number, at_s=None, advert=self._dissect(data, self._layer or guess(data)))
                for number, data in enumerate(packets, 1)
            ]
        )

    def _dissect(self, data: bytes, layer: Layer) -> Dissection | None:
        envelope = unwrap(data, layer)
        return None if envelope is None else dissect(envelope, self._auth_pass)


class _Answer(ABC):
    """Counts what is taken."""

    def __init__(self) -> None:
        self.adverts = 0
        self.dropped = 0
        self.others = 0

    def take(self, packet: _Packet) -> None:
        """One packet more."""
        if packet.advert is None:
            self.others += 1
            return
        self.adverts += 1
        self.dropped += packet.advert.dropped
        self.put(packet, packet.advert)

    @abstractmethod
    def put(self, packet: _Packet, advert: Dissection) -> None:
        """Print or keep one advert."""

    @abstractmethod
    def finish(self, name: str, problem: HaxlbError | None) -> None:
        """There are no more."""


class _Text(_Answer):
    def put(self, packet: _Packet, advert: Dissection) -> None:
        for line in _lines(packet, advert):
            click.echo(line)

    def finish(self, name: str, problem: HaxlbError | None) -> None:
        del name
        if problem is not None and not (self.adverts or self.others):
            return
        of = f"{self.adverts} advert{'' if self.adverts == 1 else 's'}"
        others = f", {self.others} other packet{'' if self.others == 1 else 's'}" if self.others else ""
        click.echo(f"{of}, {self.dropped} that receivers drop{others}")


class _Json(_Answer):
    def __init__(self) -> None:
        super().__init__()
        self._documents: list[dict[str, Any]] = []

    def put(self, packet: _Packet, advert: Dissection) -> None:
        self._documents.append(_document(packet, advert))

    def finish(self, name: str, problem: HaxlbError | None) -> None:
        document = {
            "schema": SCHEMA,
            "source": name,
            "adverts": self._documents,
            "dropped": self.dropped,
            "others": self.others,
            "problem": "" if problem is None else problem.message,
        }
        click.echo(json.dumps(document, indent=2))


def _lines(packet: _Packet, advert: Dissection) -> Iterator[str]:
    envelope = advert.envelope
    yield f"#{packet.number}{_when(packet.at_s)}{_route(envelope)}"
    if advert.version or len(envelope.payload) >= _SHORTEST:
        kind = "ADVERTISEMENT" if advert.kind == 1 else f"type {advert.kind}"
        auth = f"  authentication {authentication(advert)}" if advert.version == 2 else ""  # noqa: PLR2004
        yield (
            f"    VRRPv{advert.version} {kind}  VRID {advert.vrid}  priority {advert.priority}{_meaning(advert)}"
            f"  every {advert.interval_us / SECOND_US:g} s{auth}  checksum 0x{advert.checksum:04x} {advert.form.value}"
        )
        addresses = "address" if advert.count == 1 else "addresses"
        yield f"    {advert.count} {addresses}  {', '.join(map(str, advert.addresses)) or '-'}"
    if envelope.auth is not None:
        ah = envelope.auth
        yield f"    AH  SPI 0x{ah.spi:08x}  sequence {ah.sequence}  check value {ah.icv.hex()}"
    if packet.missing:
        yield f"    ! {packet.missing} bytes of it were not captured"
    for each in packet.findings:
        yield f"    {'!' if each.fatal else '~'} byte {each.offset}: {each.message} ({each.reason})"


def _when(at_s: float | None) -> str:
    if at_s is None:
        return ""
    try:
        moment = datetime.fromtimestamp(at_s, UTC)
    except (ValueError, OverflowError, OSError):  # no calendar has it
        return f"  {at_s:.6f}"
    return f"  {moment:%Y-%m-%d %H:%M:%S.%f} UTC"


def _route(envelope: Envelope) -> str:
    macs = f"  {envelope.source_mac} -> {envelope.destination_mac or '?'}" if envelope.source_mac else ""
    vlans = f"  VLAN {'.'.join(map(str, envelope.vlans))}" if envelope.vlans else ""
    if envelope.source is None:
        return f"{macs}{vlans}"
    ttl = "TTL" if envelope.source.version == 4 else "hop limit"  # noqa: PLR2004 - the family
    return f"{macs}{vlans}  {envelope.source} -> {envelope.destination}  {ttl} {envelope.ttl}"


def _meaning(advert: Dissection) -> str:
    return {0: " (resigns)", 255: " (owner)"}.get(advert.priority, "")


def _document(packet: _Packet, advert: Dissection) -> dict[str, Any]:
    envelope = advert.envelope
    ah = envelope.auth
    return {
        "number": packet.number,
        "at": packet.at_s,
        "source_mac": envelope.source_mac,
        "destination_mac": envelope.destination_mac,
        "vlans": list(envelope.vlans),
        "source": None if envelope.source is None else str(envelope.source),
        "destination": None if envelope.destination is None else str(envelope.destination),
        "ttl": envelope.ttl,
        "ah": None if ah is None else {"spi": ah.spi, "sequence": ah.sequence, "icv": ah.icv.hex()},
        "offset": envelope.offset,
        "length": len(envelope.payload),
        "missing": packet.missing,
        "family": advert.family,
        "version": advert.version,
        "type": advert.kind,
        "vrid": advert.vrid,
        "priority": advert.priority,
        "interval_us": advert.interval_us,
        "authentication": authentication(advert),
        "checksum": f"0x{advert.checksum:04x}",
        "checksum_form": advert.form.value,
        "count": advert.count,
        "addresses": [str(each) for each in advert.addresses],
        "dropped": advert.dropped,
        "findings": [
            {"offset": each.offset, "reason": each.reason, "message": each.message, "fatal": each.fatal}
            for each in advert.findings
        ],
    }

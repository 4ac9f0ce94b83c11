"""For tests: what was said on a link about virtual routers, of both families."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from lab import run

from tests.netns.standin import Heard

_COMPLAINTS = ("Expert Info", "Malformed", "incorrect", "Bad", "Unknown", "Unreassembled")


@dataclass(frozen=True, slots=True)
class Advert:
    """One advert."""

    at_ns: int
    vrid: int
    version: int
    priority: int
    family: int
    source: IPv4Address | IPv6Address
    source_mac: str
    frame: bytes


def adverts(frames: Iterable[Heard]) -> Iterator[Advert]:
    """Those of the frames that are adverts."""
    for each in frames:
        frame, kind = each.frame, each.frame[12:14]
        if kind == b"\x08\x00" and frame[23] in {51, 112}:
            family, source, message = 4, frame[26:30], frame[34 + 24 * (frame[23] == 51) :]
        elif kind == b"\x86\xdd" and frame[20] == 112:
            family, source, message = 6, frame[22:38], frame[54:]
        else:
            continue
        yield Advert(
            each.at_ns, message[1], message[0] >> 4, message[2], family, ip_address(source), each.source_mac, frame
        )


def announced(frames: Iterable[Heard], vip: IPv4Address | IPv6Address) -> set[str]:
    """MACs that were announced for an address, by gratuitous ARP or unsolicited neighbour advertisements."""
    if vip.version == 4:
        return {
            each.source_mac
            for each in frames
            if each.is_arp and each.frame[28:32] == vip.packed and each.frame[38:42] == vip.packed
        }
    return {
        each.source_mac
        for each in frames
        if each.frame[12:14] == b"\x86\xdd" and each.frame[20] == 58 and each.frame[54] == 136
        if each.frame[62:78] == vip.packed
    }


def complaints_of_tshark(heard: Iterable[Advert], capture: Path) -> list[str]:
    """What tshark says against adverts, each line with the ones before it that tell which one is meant.

    Version 2 over IPv6 is left out: tshark sums it up without the pseudo-header, and says the same of keepalived's.
    """
    packets = [each for each in heard if (each.version, each.family) != (2, 6)]
    with capture.open("wb") as stream:
        stream.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for each in packets:
            seconds, rest = divmod(each.at_ns, 1_000_000_000)
            length = len(each.frame)
            stream.write(struct.pack("=IIII", seconds, rest // 1000, length, length) + each.frame)
    told = run("tshark", "-r", str(capture), "-V", "-o", "ip.check_checksum:TRUE").stdout
    assert told.count("Virtual Router Redundancy Protocol\n") == len(packets)
    assert told.count("[Checksum Status: Good]") >= len(packets)
    lines = told.splitlines()
    return [
        "\n".join(lines[max(0, number - 30) : number + 1])
        for number, line in enumerate(lines)
        if any(word in line for word in _COMPLAINTS)
    ]

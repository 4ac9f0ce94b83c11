"""The oracle of bpf/tag.h: a frame with the VLAN tag of its next hop."""

from __future__ import annotations

from typing import Final

_MACS: Final = 12
_TAG_BYTES: Final = 4
_8021Q, _8021AD = b"\x81\x00", b"\x88\xa8"
_MOST_TAGS: Final = 2
_VLAN: Final = 0x0FFF
_PRIORITY: Final = 0xF000


def retag(frame: bytes, vlan: int) -> bytes:
    """The frame with exactly this tag (0 = none); priority and drop eligibility are those of its outer tag."""
    at = _MACS
    while frame[at : at + 2] in (_8021Q, _8021AD) and at < _MACS + _MOST_TAGS * _TAG_BYTES:
        at += _TAG_BYTES
    tags = frame[_MACS:at]
    control = int.from_bytes(tags[2:4], "big")
    if len(tags) == _TAG_BYTES and control & _VLAN == vlan:
        return frame  # also a tag of VLAN 0, which only says a priority
    kind = tags[:2] if len(tags) == _TAG_BYTES else _8021Q
    tag = kind + (control & _PRIORITY | vlan).to_bytes(2, "big") if vlan else b""
    return frame[:_MACS] + tag + frame[at:]

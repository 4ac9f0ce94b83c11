"""Bidirectional Forwarding Detection, pure: the packet, the session, and all sessions of a node.

RFC 5880 asynchronous mode; RFC 5881 (single hop) and RFC 5883 (multihop) as far as they are not sockets.
"""

from haxlb.bfd.packet import ControlPacket, Diagnostic, State, decode, encode
from haxlb.bfd.session import Session
from haxlb.bfd.table import Arrival, Changed, Refused, SessionKey, SessionTable, Transmit, by_ends

__all__ = [
    "Arrival",
    "Changed",
    "ControlPacket",
    "Diagnostic",
    "Refused",
    "Session",
    "SessionKey",
    "SessionTable",
    "State",
    "Transmit",
    "by_ends",
    "decode",
    "encode",
]

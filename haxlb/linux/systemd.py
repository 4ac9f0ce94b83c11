"""Word to systemd (sd_notify(3)): a datagram to $NOTIFY_SOCKET, nothing where there is none."""

from __future__ import annotations

import contextlib
import os
import socket


def take_notify_socket() -> str:
    """The address, taken out of the environment: our children are not the service (keepalived issue 2301)."""
    return os.environ.pop("NOTIFY_SOCKET", "")


def notify(address: str, *lines: str) -> None:
    """Send assignments such as READY=1; a manager that does not listen is no error."""
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto("\n".join(lines).encode(), "\0" + address[1:] if address.startswith("@") else address)

"""Links that flap: a change that does not last as long as configured is not heard of (interface_up_down_delays).

Only up and down are held back, and with them whatever else changes meanwhile. An interface that is gone is gone: there
is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from haxlb.daemon.ports import Link
from haxlb.model.settings import LinkDelay


@dataclass(slots=True)
class _Held:
    """A change that has still to last."""

    link: Link
    at: int
    """From then on it counts, monotonic µs."""


class LinkDelays:
    """What is held back of the interfaces of a node."""

    def __init__(self) -> None:
        self._delays: dict[str, LinkDelay] = {}
        self._up: dict[str, bool] = {}
        """Those with a delay, as last passed on."""
        self._held: dict[str, _Held] = {}

    @property
    def next_at(self) -> int | None:
        """When `due` wants to be called, monotonic µs."""
        return min((each.at for each in self._held.values()), default=None) if self._held else None

    def configure(self, delays: Iterable[LinkDelay]) -> None:
        """These from now on; what is held back and has no delay any more counts with the next `due`."""
        self._delays = {each.interface: each for each in delays}
        self._up = {name: up for name, up in self._up.items() if name in self._delays}
        for name, held in self._held.items():
            if name not in self._delays:
                held.at = 0

    def seen(self, interface: str, link: Link | None) -> None:
        """An instance starts with the interface as it is."""
        if interface in self._delays and interface not in self._up:
            self._up[interface] = link is not None and link.up

    def take(self, link: Link, now: int) -> Link | None:
        """An interface has changed; what of it counts already, None while it has to last."""
        delay = self._delays.get(link.interface)
        if delay is None:
            return link
        before = self._up.get(link.interface)
        gone = not link.up and not link.mac and link.address is None
        pause = 0 if before is None or before is link.up or gone else delay.up_us if link.up else delay.down_us
        if not pause:
            self._held.pop(link.interface, None)
            self._up[link.interface] = link.up
            return link
        held = self._held.setdefault(link.interface, _Held(link, now + pause))
        held.link = link
        return None

    def due(self, now: int) -> list[Link]:
        """What has lasted."""
        lasted = [name for name, each in self._held.items() if each.at <= now]
        links = [self._held.pop(name).link for name in lasted]
        self._up.update((link.interface, link.up) for link in links if link.interface in self._delays)
        return links

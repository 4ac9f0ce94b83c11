"""An MQTT broker in memory: retained claims, and the last will of clients that fall silent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from haxlb.model.instance import Role
from haxlb.sim.loop import Timer, VirtualLoop
from haxlb.splitbrain.watch import LAST_WILL_US

LATENCY_US = 1_000
"""Publisher to broker to subscriber."""

Claim = tuple[int, str]
"""VRID and the instance's name on its node."""

Deliver = Callable[[str, Claim, bool], None]
"""Called with node, claim and whether it stands."""


class Broker:
    """All directors of a world talk to the same one; cuts between directors do not concern it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._sessions: dict[str, Deliver] = {}
        self._retained: dict[tuple[str, Claim], None] = {}
        self.states: dict[tuple[str, str], tuple[Role, int]] = {}
        """By node and instance: the retained state, and how often one was published."""
        self._silent: dict[str, Timer] = {}

    def connected(self, node: str) -> bool:
        """Whether it has a session, and one that is not silent."""
        return node in self._sessions and node not in self._silent

    def connect(self, node: str, deliver: Deliver) -> None:
        """A new session, which ends an older one of the same node; others' retained claims are delivered at once."""
        self.close(node)
        self._sessions[node] = deliver
        for other, claim in self._retained:
            if other != node:
                self._loop.after(LATENCY_US, partial(self._deliver, node, other, claim, True))

    def publish(self, node: str, claim: Claim, *, master: bool) -> None:
        """A claim, or (`master` false) its withdrawal."""
        if node not in self._sessions:
            return
        if master:
            self._retained[node, claim] = None
        else:
            self._retained.pop((node, claim), None)
        for other in self._sessions:
            if other != node:
                self._loop.after(LATENCY_US, partial(self._deliver, other, node, claim, master))

    def publish_state(self, node: str, instance: str, role: Role) -> None:
        """The retained state of an instance. Delivered to nobody who plays a part."""
        _, times = self.states.get((node, instance), (role, 0))
        self.states[node, instance] = (role, times + 1)

    def close(self, node: str) -> None:
        """The connection is closed or reset: the last will takes back what is still claimed."""
        timer = self._silent.pop(node, None)
        if timer is not None:
            timer.cancel()
        if node not in self._sessions:
            return
        for _, claim in [each for each in self._retained if each[0] == node]:
            self.publish(node, claim, master=False)
        del self._sessions[node]

    def fall_silent(self, node: str) -> None:
        """The client answers no more; the broker learns of it by the keepalive."""
        if node in self._sessions and node not in self._silent:
            self._silent[node] = self._loop.after(LAST_WILL_US, partial(self.close, node))

    def speak_again(self, node: str) -> bool:
        """The client is back; False when its session is gone and it must connect again."""
        timer = self._silent.pop(node, None)
        if timer is not None:
            timer.cancel()
        return node in self._sessions

    def _deliver(self, to: str, node: str, claim: Claim, master: bool) -> None:  # noqa: FBT001 - positional for partial
        deliver = self._sessions.get(to)
        if deliver is not None:
            deliver(node, claim, master)

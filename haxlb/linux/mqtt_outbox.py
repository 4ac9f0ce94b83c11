"""What is to be published on MQTT: topics, payloads, and what still waits. No network in here."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any

from haxlb.daemon.history import describe
from haxlb.model.facts import AlarmCleared, AlarmRaised, Fact, RoleChanged
from haxlb.model.instance import Role
from haxlb.model.status import NodeStatus, VirtualServerStatus
from haxlb.model.wire import to_json
from haxlb.splitbrain.claimant import PublishClaim

MOST_EVENTS = 256
"""Events that wait while the broker is away; the oldest are lost."""
STATE_EXPIRES_S = 90.0
"""Three of the snapshot's periods: after this nobody should believe it."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of docs/reference/mqtt.md."""

    site: str
    node: str

    @property
    def own(self) -> str:
        """Everything of this node."""
        return f"haxlb/{level(self.site)}/{level(self.node)}"

    @property
    def shared(self) -> str:
        """What the nodes of a site share."""
        return f"haxlb/{level(self.site)}"

    def absolute(self, topic: str) -> str:
        """`~/…` is the node's, `…` the site's."""
        return f"{self.own}{topic[1:]}" if topic.startswith("~/") else f"{self.shared}/{topic}"


class Outbox:
    """Retained topics by their latest payload, events in order; both survive a lost connection."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._retained: dict[str, bytes] = {}
        """What the broker shall hold; empty payloads are still to be cleared there."""
        self._dirty: dict[str, None] = {}
        self._events: deque[bytes] = deque(maxlen=MOST_EVENTS)
        self._sequence = 0

    def successor(self, node: str) -> Outbox:
        """An outbox for another broker: what is true stays true there."""
        other = Outbox(node)
        other._retained = {topic: payload for topic, payload in self._retained.items() if payload}
        other._sequence = self._sequence
        return other

    def put_fact(self, fact: Fact, at: float) -> None:
        """The event, and the retained topics that follow from it."""
        self._sequence += 1
        event = {
            "schema": "haxlb.event/1",
            "seq": self._sequence,
            "node": self.node,
            "at": at,
            "sentence": describe(fact).sentence,
            **to_json(fact, tag=True),
        }
        self._events.append(_json(event))
        match fact:
            case RoleChanged():
                self._retain(f"~/vrrp/{level(fact.instance)}/state", fact.after.value.encode())
                self._claim(fact.vrid, fact.instance, fact.after, at)
            case AlarmRaised():
                alarm = {"schema": "haxlb.alarm/1", "node": self.node, "at": at, **to_json(fact)}
                self._retain(f"~/alarms/{_path(fact.key)}", _json(alarm))
            case AlarmCleared():
                self._retain(f"~/alarms/{_path(fact.key)}", b"")

    def put_claim(self, claim: PublishClaim, at: float) -> None:
        """The claim, also an unchanged one: that it is repeated shows that its author lives."""
        self._claim(claim.vrid, claim.instance, Role.MASTER if claim.master else None, at)

    def put_status(self, status: NodeStatus) -> None:
        """The snapshot."""
        state = {
            "schema": "haxlb.state/1",
            "node": status.node,
            "version": status.version,
            "at": status.at,
            "expires_at": status.at + STATE_EXPIRES_S,
            "instances": [to_json(each) for each in status.instances],
            "virtual_servers": [_summary(each) for each in status.virtual_servers],
            "alarms": [to_json(each) for each in status.alarms],
        }
        self._retain("~/state", _json(state))

    def put_all(self) -> None:
        """A new connection: the broker may know nothing."""
        self._dirty.update(dict.fromkeys(self._retained))

    def clear_stale(self, topic: str) -> None:
        """The broker holds a topic of ours that is not (or no longer) true: left by a former life."""
        if topic not in self._retained:
            self._retain(topic, b"")

    def take(self) -> tuple[str, bytes, bool] | None:
        """The next message: relative topic, payload, retained; None when there is none.

        What is retained goes first: it is the present, events are the past.
        """
        while self._dirty:
            topic = next(iter(self._dirty))
            del self._dirty[topic]
            payload = self._retained.get(topic)
            if payload is not None:
                return topic, payload, True
        if self._events:
            return "~/events", self._events.popleft(), False
        return None

    def confirm(self, topic: str, payload: bytes) -> None:
        """The broker has it: a cleared topic need not be remembered."""
        if not payload and self._retained.get(topic) == b"":
            del self._retained[topic]

    def give_back(self, topic: str, payload: bytes, *, retained: bool) -> None:
        """It could not be delivered."""
        if retained:
            self._dirty[topic] = None
        elif len(self._events) < MOST_EVENTS:
            self._events.appendleft(payload)

    def _claim(self, vrid: int, instance: str, role: Role | None, at: float) -> None:
        topic = f"vrrp/{vrid}/claims/{level(self.node)}/{level(instance)}"
        if role is None:
            # Withdrawn; which role it is now the change of role has already said.
            before = json.loads(self._retained.get(topic) or b"{}").get("role")
            name = before if before not in (None, Role.MASTER.value) else Role.INIT.value
        else:
            name = role.value
        claim = {
            "schema": "haxlb.claim/1",
            "node": self.node,
            "vrid": vrid,
            "instance": instance,
            "role": name,
            "master": role is Role.MASTER,
            "at": at,
        }
        self._retain(topic, _json(claim))

    def _retain(self, topic: str, payload: bytes) -> None:
        self._retained[topic] = payload
        self._dirty[topic] = None


def level(name: str) -> str:
    """A name as one level of a topic: what has a meaning there (MQTT 3.1.1 section 4.7) becomes `_`."""
    return "".join("_" if each in "/+#" or not each.isprintable() else each for each in name) or "_"


def _path(key: str) -> str:
    """A key as topic levels; its slashes stay."""
    return "/".join(level(part) for part in key.split("/"))


def _summary(server: VirtualServerStatus) -> dict[str, Any]:
    return {
        "name": server.name,
        "address": str(server.address),
        "port": server.port,
        "protocol": server.protocol,
        "quorum_up": server.quorum_up,
        "sorry": server.sorry,
        "up": sum(each.up for each in server.real_servers if not each.is_sorry),
        "of": sum(not each.is_sorry for each in server.real_servers),
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

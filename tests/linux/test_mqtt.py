from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from haxlb.linux import mqtt
from haxlb.linux.mqtt import MOST_CLAIMS, Broker, Others
from haxlb.linux.mqtt_outbox import MOST_EVENTS, Outbox, Topics, level
from haxlb.model.facts import AlarmCleared, AlarmRaised, BackendChanged, PeerClaimed, RoleChanged
from haxlb.model.instance import Role
from haxlb.model.settings import MqttSettings
from haxlb.model.status import InstanceStatus, NodeStatus, RealServerStatus, VirtualServerStatus
from haxlb.splitbrain.claimant import PublishClaim

MOSQUITTO = Path("/usr/sbin/mosquitto")
DEADLINE_S = 60


def role_changed(after, before=Role.BACKUP):
    return RoleChanged(instance="VI_1", vrid=51, before=before, after=after, reason="why", priority=100, at_us=0)


def raised(key="split-brain/VI_1"):
    return AlarmRaised(key=key, severity="critical", summary="two MASTERs", evidence=("a", "b"), at_us=0)


def cleared(key="split-brain/VI_1"):
    return AlarmCleared(key=key, reason="silence", at_us=0)


def everything(outbox):
    taken = []
    while (message := outbox.take()) is not None:
        taken.append(message)
    return taken


# -- what is published


def test_a_change_of_role_is_an_event_a_word_and_a_claim():
    outbox = Outbox("lb1")
    outbox.put_fact(role_changed(Role.MASTER), at=1.5)
    (word, claim, event) = everything(outbox)
    assert word == ("~/vrrp/VI_1/state", b"MASTER", True)
    assert claim[0] == "vrrp/51/claims/lb1/VI_1"
    assert json.loads(claim[1]) == {
        "schema": "haxlb.claim/1",
        "node": "lb1",
        "vrid": 51,
        "instance": "VI_1",
        "role": "MASTER",
        "master": True,
        "at": 1.5,
    }
    assert (event[0], event[2]) == ("~/events", False)
    assert json.loads(event[1])["type"] == "RoleChanged"
    assert json.loads(event[1])["sentence"] == "VI_1 BACKUP -> MASTER: why"


def test_events_are_numbered_without_gaps():
    outbox = Outbox("lb1")
    for number in range(5):
        fact = BackendChanged(virtual_server="v", real_server=str(number), up=True, reason="200", at_us=0)
        outbox.put_fact(fact, at=0)
    assert [json.loads(payload)["seq"] for _, payload, _ in everything(outbox)] == [1, 2, 3, 4, 5]


def test_an_alarm_is_retained_and_an_empty_payload_clears_it():
    outbox = Outbox("lb1")
    outbox.put_fact(raised(), at=0)
    topic, payload, retained = everything(outbox)[0]
    assert (topic, retained) == ("~/alarms/split-brain/VI_1", True)
    assert json.loads(payload)["evidence"] == ["a", "b"]
    outbox.put_fact(cleared(), at=1)
    assert everything(outbox)[0] == ("~/alarms/split-brain/VI_1", b"", True)
    outbox.confirm(topic, b"")
    outbox.put_all()
    assert everything(outbox) == []


def test_a_cleared_alarm_is_cleared_again_after_a_reconnect_until_the_broker_has_confirmed_it():
    outbox = Outbox("lb1")
    outbox.put_fact(raised(), at=0)
    outbox.put_fact(cleared(), at=1)
    everything(outbox)
    outbox.put_all()
    assert everything(outbox) == [("~/alarms/split-brain/VI_1", b"", True)]


def test_only_the_latest_retained_payload_waits_and_the_oldest_events_are_lost():
    outbox = Outbox("lb1")
    for number in range(MOST_EVENTS + 10):
        outbox.put_fact(role_changed(Role.MASTER if number % 2 else Role.BACKUP), at=0)
    messages = everything(outbox)
    assert [topic for topic, _, retained in messages if retained] == ["~/vrrp/VI_1/state", "vrrp/51/claims/lb1/VI_1"]
    events = [json.loads(payload)["seq"] for topic, payload, _ in messages if topic == "~/events"]
    assert events == list(range(11, MOST_EVENTS + 11))


def test_what_could_not_be_delivered_comes_again_in_order():
    outbox = Outbox("lb1")
    for name in "ab":
        outbox.put_fact(BackendChanged(virtual_server="v", real_server=name, up=True, reason="", at_us=0), at=0)
    topic, payload, retained = outbox.take()
    outbox.give_back(topic, payload, retained=retained)
    assert [json.loads(payload)["real_server"] for _, payload, _ in everything(outbox)] == ["a", "b"]


def test_only_what_is_not_true_any_more_is_stale():
    outbox = Outbox("lb1")
    outbox.put_fact(raised(), at=0)
    everything(outbox)
    outbox.clear_stale("~/alarms/split-brain/VI_1")
    outbox.clear_stale("~/alarms/split-brain/VI_9")
    assert everything(outbox) == [("~/alarms/split-brain/VI_9", b"", True)]


def test_another_broker_gets_what_is_true_and_no_old_news():
    outbox = Outbox("lb1")
    outbox.put_fact(raised(), at=0)
    outbox.put_fact(cleared(), at=0)
    outbox.put_fact(role_changed(Role.MASTER), at=0)
    other = outbox.successor("lb1")
    other.put_all()
    assert [topic for topic, _, _ in everything(other)] == ["~/vrrp/VI_1/state", "vrrp/51/claims/lb1/VI_1"]
    other.put_fact(raised(), at=0)
    assert json.loads(everything(other)[-1][1])["seq"] == 4


def test_a_withdrawn_claim_keeps_the_role_that_was_told():
    outbox = Outbox("lb1")
    outbox.put_fact(role_changed(Role.BACKUP, Role.MASTER), at=0)
    outbox.put_claim(PublishClaim(instance="VI_1", vrid=51, master=False), at=1)
    claim = json.loads({topic: payload for topic, payload, _ in everything(outbox)}["vrrp/51/claims/lb1/VI_1"])
    assert (claim["role"], claim["master"]) == ("BACKUP", False)


def test_the_snapshot_says_until_when_it_may_be_believed():
    servers = tuple(
        RealServerStatus(
            address=IPv4Address(f"192.0.2.{number}"),
            port=80,
            weight=1,
            up=number > 1,
            in_pool=True,
            reason="",
            since_at=0,
            mac=None,
            is_sorry=number == 3,
        )
        for number in (1, 2, 3)
    )
    status = NodeStatus(
        node="lb1",
        version="1",
        at=100.0,
        config_file="",
        config_loaded_at=0,
        instances=(
            InstanceStatus(
                name="VI_1",
                interface="eth0",
                vrid=51,
                version=2,
                role=Role.MASTER,
                since_at=0,
                reason="",
                priority=100,
            ),
        ),
        virtual_servers=(
            VirtualServerStatus(
                address=IPv4Address("192.0.2.100"),
                port=80,
                protocol="TCP",
                scheduler="rr",
                quorum_up=True,
                sorry=False,
                real_servers=servers,
            ),
        ),
    )
    outbox = Outbox("lb1")
    outbox.put_status(status)
    ((topic, payload, retained),) = everything(outbox)
    state = json.loads(payload)
    assert (topic, retained) == ("~/state", True)
    assert state["expires_at"] == 190.0
    assert state["instances"][0]["role"] == "MASTER"
    assert (state["virtual_servers"][0]["up"], state["virtual_servers"][0]["of"]) == (1, 2)


@pytest.mark.parametrize(
    ("name", "expected"), [("lb1", "lb1"), ("a/b", "a_b"), ("+#", "__"), ("a\x00b", "a_b"), ("", "_"), ("lb é", "lb é")]
)
def test_names_become_single_levels(name, expected):
    assert level(name) == expected


def test_topics():
    topics = Topics("dc/1", "lb1")
    assert topics.absolute("~/state") == "haxlb/dc_1/lb1/state"
    assert topics.absolute("vrrp/51/claims/lb1/VI_1") == "haxlb/dc_1/vrrp/51/claims/lb1/VI_1"


# -- what others say


def heard(*messages):
    claims = []
    others = Others("lb1", lambda claim, *, master: claims.append((*claim, master)))
    for topic, payload in messages:
        others.hear(topic.split("/"), payload)
    return others, claims


MASTER = b'{"role": "MASTER", "master": true}'
BACKUP = b'{"role": "BACKUP", "master": false}'


def test_claims_of_others_are_told_and_our_own_are_not():
    _, claims = heard(
        ("vrrp/51/claims/lb2/VI_1", MASTER), ("vrrp/51/claims/lb1/VI_1", MASTER), ("vrrp/51/claims/lb2/VI_1", b"")
    )
    assert claims == [("lb2", 51, "VI_1", True), ("lb2", 51, "VI_1", False)]


def test_instances_that_share_a_vrid_do_not_overwrite_each_other():
    _, claims = heard(
        ("vrrp/51/claims/lb2/VI_1", MASTER), ("vrrp/51/claims/lb2/VI_2", MASTER), ("vrrp/51/claims/lb2/VI_2", BACKUP)
    )
    assert claims == [("lb2", 51, "VI_1", True), ("lb2", 51, "VI_2", True), ("lb2", 51, "VI_2", False)]
    outbox = Outbox("lb1")
    for name in ("VI_1", "VI_2"):
        outbox.put_claim(PublishClaim(instance=name, vrid=51, master=True), at=0)
    assert [topic for topic, _, _ in everything(outbox)] == ["vrrp/51/claims/lb1/VI_1", "vrrp/51/claims/lb1/VI_2"]


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[1]",
        b"null",
        b'{"master": 1}',
        b'{"master": true, "role": 7}',
        b"\xff",
        b"[" * 60000,
        b'"' + b"x" * 1000,
    ],
)
def test_malformed_claims_say_nothing(payload):
    others, claims = heard(("node/availability", b"online"), ("vrrp/51/claims/lb2/VI_1", payload))
    assert claims == []
    assert others.evidence(51) == ""


@pytest.mark.parametrize("vrid", ["0", "256", "-1", "x", "51 ", "\u0665", "99999999999999999999"])
def test_a_vrid_that_is_none_is_ignored(vrid):
    assert heard((f"vrrp/{vrid}/claims/lb2/VI_1", MASTER))[1] == []


def test_the_last_will_takes_the_claims_back():
    _, claims = heard(
        ("lb2/availability", b"online"), ("vrrp/51/claims/lb2/VI_1", MASTER), ("lb2/availability", b"offline")
    )
    assert claims == [("lb2", 51, "VI_1", True), ("lb2", 51, "VI_1", False)]


def test_a_lost_connection_takes_all_claims_back():
    others, claims = heard(("vrrp/51/claims/lb2/VI_1", MASTER), ("vrrp/52/claims/lb3/VI_1", BACKUP))
    others.forget()
    assert claims[2:] == [("lb2", 51, "VI_1", False)]


def test_evidence_is_a_node_that_is_online_and_takes_part():
    assert heard(("vrrp/51/claims/lb2/VI_1", BACKUP))[0].evidence(51) == ""
    online, _ = heard(("lb2/availability", b"online"), ("vrrp/51/claims/lb2/VI_1", BACKUP))
    assert online.evidence(51) == "lb2 is online on MQTT and BACKUP of VRID 51"
    assert online.evidence(52) == ""
    online.hear(["lb2", "availability"], b"offline")
    assert online.evidence(51) == ""
    fault, _ = heard(
        ("lb2/availability", b"online"), ("vrrp/51/claims/lb2/VI_1", b'{"role": "FAULT", "master": false}')
    )
    assert fault.evidence(51) == ""


def test_spoofed_nodes_do_not_grow_without_bound():
    others, _ = heard(*[(f"vrrp/51/claims/n{number}/VI_1", MASTER) for number in range(2000)])
    assert len(others._roles) <= MOST_CLAIMS


# -- with a real broker


class Mosquitto:
    """A broker of the test's own on loopback."""

    def __init__(self, directory: Path, *, password: bool = False) -> None:
        self.port = 0
        """Its own from the first start on."""
        self._config = directory / "mosquitto.conf"
        lines = ["persistence false", "log_dest none"]
        if password:
            users = directory / "users"
            users.touch(mode=0o600)
            subprocess.run(["mosquitto_passwd", "-b", str(users), "haxlb", "s3cret"], check=True, capture_output=True)
            users.chmod(0o644)
            lines += ["allow_anonymous false", f"password_file {users}"]
        else:
            lines.append("allow_anonymous true")
        self._lines = lines
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not await self._starts():
                pass

    async def _starts(self) -> bool:
        """False where it has ended: somebody else was quicker to take the port."""
        port = self.port or free_port()
        self._config.write_text("\n".join([f"listener {port} 127.0.0.1", *self._lines]) + "\n")
        self._process = process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [MOSQUITTO, "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        async def answers():
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True
            return process.poll() is not None

        await until(answers)
        if process.poll() is not None:
            return False
        self.port = port
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Door:
    """Between a node and its broker; whoever knocks while it is closed is turned away."""

    def __init__(self, mosquitto: Mosquitto) -> None:
        self.open = True
        self.port = 0
        self._mosquitto = mosquitto

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        with contextlib.suppress(OSError), contextlib.closing(writer):
            if not self.open:
                return
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._mosquitto.port)
            with contextlib.closing(their_writer):
                ways = [
                    asyncio.ensure_future(self._carry(reader, their_writer)),
                    asyncio.ensure_future(self._carry(their_reader, writer)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for each in ways:
                    each.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(self, reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def until(condition):
    """Wait for a fact, not for a time."""
    async with asyncio.timeout(DEADLINE_S):
        while not (await result if asyncio.iscoroutine(result := condition()) else result):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class Node:
    """A Broker with a clock and ears."""

    def __init__(self, port: int, name: str, **settings: object) -> None:
        self.facts: list[PeerClaimed] = []
        self.logged: list[tuple[str, str, dict[str, object]]] = []
        self.broker = Broker(self, self, self.facts.append, self.log)
        self.broker.configure(MqttSettings(host="127.0.0.1", port=port, site="test", keepalive_s=60, **settings), name)

    def now(self) -> int:
        return 0

    def wall(self) -> float:
        return 1000.0

    def log(self, level, event, **fields):
        self.logged.append((level, event, fields))

    async def connected(self):
        await until(lambda: self.broker.state == "connected")


class Ear:
    """Any other subscriber."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.events: list[dict[str, object]] = []
        self.subscribed = False

    async def listen(self, port):
        import aiomqtt

        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe("haxlb/#", 1)
            self.subscribed = True
            async for message in client.messages:
                if str(message.topic).endswith("/events"):
                    self.events.append(json.loads(message.payload))
                else:
                    self.held[str(message.topic)] = message.payload


@pytest.fixture
def broker_directory(tmp_path_factory):
    # mosquitto gives its root up before it reads the password file: pytest's own directories are closed to it.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hx-mqtt-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def with_broker(directory, scene, **options):
    async def whole():
        mosquitto = Mosquitto(directory, **options)
        await mosquitto.start()
        ear = Ear()
        listening = None
        if not options:
            listening = asyncio.ensure_future(ear.listen(mosquitto.port))
            await until(lambda: ear.subscribed)
        try:
            await scene(mosquitto, ear)
        finally:
            mosquitto.stop()
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(whole())


needs_mosquitto = pytest.mark.skipif(not MOSQUITTO.exists(), reason="needs mosquitto (apt)")


@needs_mosquitto
def test_state_alarms_and_availability_as_a_subscriber_sees_them(broker_directory):
    async def scene(mosquitto, ear):
        node = Node(mosquitto.port, "lb1")
        await node.connected()
        await until(lambda: ear.held.get("haxlb/test/lb1/availability") == b"online")
        node.broker.publish(role_changed(Role.MASTER))
        node.broker.publish(raised())
        await until(lambda: ear.held.get("haxlb/test/lb1/vrrp/VI_1/state") == b"MASTER")
        await until(lambda: ear.held.get("haxlb/test/lb1/alarms/split-brain/VI_1"))
        node.broker.publish(cleared())
        await until(lambda: ear.held.get("haxlb/test/lb1/alarms/split-brain/VI_1") == b"")
        await until(lambda: len(ear.events) == 3)
        assert [event["seq"] for event in ear.events] == [1, 2, 3]
        await node.broker.close()
        await until(lambda: ear.held.get("haxlb/test/lb1/availability") == b"offline")

    with_broker(broker_directory, scene)


@needs_mosquitto
def test_two_nodes_hear_each_others_claims(broker_directory):
    async def scene(mosquitto, _):
        one, two = Node(mosquitto.port, "lb1"), Node(mosquitto.port, "lb2")
        await one.connected()
        await two.connected()
        two.broker.publish(role_changed(Role.BACKUP, Role.INIT))
        await until(lambda: one.broker.evidence(51))
        two.broker.claim(PublishClaim(instance="VI_1", vrid=51, master=True))
        await until(lambda: [fact.master for fact in one.facts] == [False, True])
        assert one.facts[-1] == PeerClaimed(node="lb2", vrid=51, master=True, at_us=0, instance="VI_1")
        assert two.facts == []
        await two.broker.close()
        await until(lambda: one.facts[-1].master is False)
        assert one.broker.evidence(51) == ""
        await one.broker.close()

    with_broker(broker_directory, scene)


@needs_mosquitto
def test_a_broker_that_goes_and_comes_back_gets_the_present(broker_directory):
    async def scene(mosquitto, _):
        async with Door(mosquitto) as door:
            await behind(door, mosquitto)

    async def behind(door, mosquitto):
        node = Node(door.port, "lb1")
        await node.connected()
        node.broker.publish(raised())
        await until(lambda: node.broker._outbox._retained and not node.broker._outbox._events)
        door.open = False
        mosquitto.stop()
        await until(lambda: node.broker.state.startswith("not connected"))
        node.broker.publish(role_changed(Role.BACKUP, Role.MASTER))
        await mosquitto.start()
        ear = Ear()
        listening = asyncio.ensure_future(ear.listen(mosquitto.port))
        await until(lambda: ear.subscribed)  # events are not retained
        door.open = True
        await until(lambda: ear.held.get("haxlb/test/lb1/vrrp/VI_1/state") == b"BACKUP")
        await until(lambda: [event["seq"] for event in ear.events][-1:] == [2])
        await until(lambda: ear.held.get("haxlb/test/lb1/alarms/split-brain/VI_1"))
        assert [level for level, event, _ in node.logged if event == "mqtt_disconnected" and level == "warning"]
        await node.broker.close()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    with_broker(broker_directory, scene)


@needs_mosquitto
def test_who_leaves_before_the_broker_has_confirmed_all_is_offline(broker_directory, monkeypatch):
    monkeypatch.setattr(mqtt, "CLOSE_PATIENCE_S", 0)

    async def scene(mosquitto, ear):
        node = Node(mosquitto.port, "lb1")
        await until(lambda: ear.held.get("haxlb/test/lb1/availability") == b"online")
        for _ in range(MOST_EVENTS):
            node.broker.publish(role_changed(Role.MASTER))
        await node.broker.close()
        await until(lambda: ear.held.get("haxlb/test/lb1/availability") == b"offline")

    with_broker(broker_directory, scene)


@needs_mosquitto
def test_claims_end_with_the_connection(broker_directory):
    """A claim that can no longer be withdrawn would stand for ever: no MQTT is no evidence."""

    async def scene(mosquitto, _):
        one, two = Node(mosquitto.port, "lb1"), Node(mosquitto.port, "lb2")
        await one.connected()
        await two.connected()
        two.broker.claim(PublishClaim(instance="VI_1", vrid=51, master=True))
        await until(lambda: [fact.master for fact in one.facts] == [True])
        mosquitto.stop()
        await until(lambda: [fact.master for fact in one.facts] == [True, False])
        await one.broker.close()
        await two.broker.close()

    with_broker(broker_directory, scene)


@needs_mosquitto
def test_what_a_former_life_left_behind_is_cleared(broker_directory):
    import aiomqtt

    async def scene(mosquitto, ear):
        async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client:
            for topic, payload in {
                "haxlb/test/lb1/alarms/split-brain/VI_9": b"{}",
                "haxlb/test/lb1/vrrp/VI_9/state": b"MASTER",
                "haxlb/test/vrrp/9/claims/lb1/VI_1": MASTER,
                "haxlb/test/vrrp/9/claims/lb2/VI_1": MASTER,
            }.items():
                await client.publish(topic, payload, qos=1, retain=True)
        node = Node(mosquitto.port, "lb1")
        node.broker.publish(raised())
        for topic in ("lb1/alarms/split-brain/VI_9", "lb1/vrrp/VI_9/state", "vrrp/9/claims/lb1/VI_1"):
            await until(lambda topic=topic: ear.held.get(f"haxlb/test/{topic}") == b"")
        await until(lambda: ear.held.get("haxlb/test/lb1/alarms/split-brain/VI_1"))
        assert ear.held["haxlb/test/vrrp/9/claims/lb2/VI_1"] == MASTER
        await node.broker.close()

    with_broker(broker_directory, scene)


@needs_mosquitto
def test_a_wrong_password_is_said_and_never_shown(broker_directory):
    async def scene(mosquitto, _):
        wrong = Node(mosquitto.port, "lb1", username="haxlb", password="wr0ng")
        await until(lambda: wrong.broker.state.startswith("not connected:"))
        right = Node(mosquitto.port, "lb2", username="haxlb", password="s3cret")
        await right.connected()
        assert "wr0ng" not in repr(wrong.logged) + wrong.broker.state + repr(wrong.broker._settings)
        await wrong.broker.close()
        await right.broker.close()

    with_broker(broker_directory, scene, password=True)


def test_no_broker_at_the_address_costs_nothing_but_a_warning():
    async def scene():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            node = Node(probe.getsockname()[1], "lb1")
            await until(lambda: node.broker.state.startswith("not connected:"))
            for _ in range(2000):
                node.broker.publish(role_changed(Role.MASTER))
            await node.broker.close()
        assert [level for level, event, _ in node.logged if event == "mqtt_disconnected"] == ["warning"]

    asyncio.run(scene())


def test_without_settings_mqtt_is_off_and_aiomqtt_is_not_imported():
    code = (
        "import sys, asyncio\n"
        "from haxlb.linux.mqtt import Broker\n"
        "async def main():\n"
        "    broker = Broker(None, None, None, None)\n"
        "    broker.configure(None, 'lb1')\n"
        "    assert broker.state == 'off' and broker.evidence(51) == ''\n"
        "    await broker.close()\n"
        "asyncio.run(main())\n"
        "assert 'aiomqtt' not in sys.modules\n"
    )
    import sys

    subprocess.run([sys.executable, "-c", code], check=True)

"""The ear on real interfaces: what it hears, and how it says that it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from haxlb.linux.vrrp_listen import Ear
from haxlb.model.errors import HostError
from tests.netns.standin import eventually, inside
from tests.vrrp.frames import ah, ethernet, ipv4, ipv6, message

pytestmark = pytest.mark.netns

HAXLB = Path(sys.executable).with_name("haxlb")
FRAMES = {
    "v2": ethernet(ipv4(message(2))),
    "ah": ethernet(ipv4(ah(message(2, auth_type=2)), protocol=51)),
    "v6": ethernet(ipv6(message(3, family=6)), destination_mac="33:33:00:00:00:12"),
    "other group": ethernet(ipv4(message(2)), destination_mac="01:00:5e:00:00:99"),
}
STRANGERS = [
    ethernet(ipv4(bytes(20), protocol=17)),
    ethernet(ipv6(bytes(20), following=58)),
    ethernet(bytes(28), ethertype=0x0806),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(f"hxear{os.getpid()}") as made:
        made.host("a", "10.9.0.1/24")
        made.host("b", "10.9.0.2/24")
        yield made


class Mouth:
    """Sends frames as they are."""

    def __init__(self, host: Host, interface: str = "eth0") -> None:
        with inside(host.namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, 0))

    def say(self, *frames: bytes) -> None:
        for each in frames:
            self._socket.send(each)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def mouth(lab: Lab) -> Iterator[Mouth]:
    made = Mouth(lab.hosts["a"])
    yield made
    made.close()


@pytest.fixture
def ear(lab: Lab) -> Iterator[Ear]:
    with inside(lab.hosts["b"].namespace):
        made = Ear("eth0")
    yield made
    made.close()


def hear(ear: Ear, number: int) -> list[Any]:
    heard: list[Any] = []

    def enough() -> bool:
        ear.wait(0.1)
        heard.extend(ear.frames())
        return len(heard) >= number

    eventually(enough, f"{number} frames")
    return heard


def test_vrrp_of_every_kind_and_nothing_else(ear, mouth):
    mouth.say(*STRANGERS, *FRAMES.values(), *STRANGERS, FRAMES["v2"])
    heard = hear(ear, len(FRAMES) + 1)
    assert [each.data for each in heard] == [*FRAMES.values(), FRAMES["v2"]]
    assert {(each.outgoing, each.vlan) for each in heard} == {(False, None)}
    assert heard[0].at_us > 1_700_000_000_000_000
    assert ear.lost == 0


def test_tags_of_a_vlan_are_known(ear, mouth):
    mouth.say(ethernet(ipv4(message(2)), vlans=(7,)), ethernet(ipv4(message(2)), vlans=(5, 7)))
    first, second = hear(ear, 2)
    assert (first.vlan, first.data) == (7, FRAMES["v2"])
    assert (second.vlan, second.data) == (5, ethernet(ipv4(message(2)), vlans=(7,)))


def test_what_goes_out_is_heard_too(lab, mouth):
    with inside(lab.hosts["a"].namespace):
        own = Ear("eth0")
    try:
        mouth.say(FRAMES["v2"], ethernet(ipv4(message(2)), vlans=(7,)))
        heard = hear(own, 2)
        assert [each.outgoing for each in heard] == [True, True]
    finally:
        own.close()


def test_a_flood_is_counted_not_waited_for(ear, mouth):
    mouth.say(*([FRAMES["v2"]] * 20_000))
    assert len(hear(ear, 1)) <= 256
    assert ear.lost > 0


def test_an_interface_that_is_not_there():
    with pytest.raises(HostError, match="there is no interface hxnone"):
        Ear("hxnone")


def test_an_interface_that_goes_away(lab):
    host = lab.hosts["b"]
    host.run("ip", "link", "add", "hxgone", "type", "veth", "peer", "name", "hxpeer")
    host.run("ip", "link", "set", "hxgone", "up")
    with inside(host.namespace):
        ear = Ear("hxgone")
        try:
            host.run("ip", "link", "set", "hxgone", "down")
            ear.wait(1)
            assert list(ear.frames()) == [], "one that is down may come up again"
            host.run("ip", "link", "del", "hxgone")
            with pytest.raises(HostError, match="hxgone has gone away"):
                eventually(lambda: list(ear.frames()), "frames")
        finally:
            ear.close()


# -- the command


def listen(host: Host, *words: str, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return host.run(*wrapper, str(HAXLB), "vrrp", "listen", *words, check=False)


def test_without_the_capability_it_is_one_line(lab):
    wrapper = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
    done = listen(lab.hosts["b"], "eth0", "--seconds", "1", wrapper=wrapper)
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr == "haxlb: may not listen on eth0: CAP_NET_RAW is missing (use sudo)\n"


def test_an_interface_that_is_not_there_is_one_line(lab):
    done = listen(lab.hosts["b"], "eth7", "--seconds", "1")
    assert (done.returncode, done.stdout) == (71, "")
    assert done.stderr.startswith("haxlb: there is no interface eth7 (")
    assert len(done.stderr.splitlines()) == 1


def test_a_silent_link(lab):
    done = listen(lab.hosts["b"], "eth0", "--seconds", "0.2", "--vrid", "250")
    assert done.returncode == 0
    assert done.stdout.startswith("nobody speaks VRRP here")
    assert re.search(r"\n0 adverts in \d+\.\d s\n", done.stdout)


@pytest.mark.parametrize("words", [("eth0", "--seconds", "0"), ("eth0", "--vrid", "256"), ()])
def test_wrong_usage(lab, words):
    assert listen(lab.hosts["b"], *words).returncode == 2


def test_events_come_at_once_and_the_summary_at_sigterm(lab, mouth, tmp_path):
    path = tmp_path / "out"
    with path.open("wb") as stream:
        process = lab.hosts["b"].start(str(HAXLB), "vrrp", "listen", "eth0", stdout=stream, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline() == b"listening for VRRP on eth0\n"
    mouth.say(FRAMES["v2"], ethernet(ipv4(message(2, interval=30, version=2), ttl=9)))
    eventually(lambda: path.read_text().count("\n") >= 3, "events")
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    process.stderr.close()
    assert process.returncode == 1
    text = path.read_text()
    assert (
        "  VRID 51 IPv4  10.9.0.1 speaks: v2, priority 150, every 1 s, TTL 255 to 224.0.0.18, VIPs 10.9.0.100\n" in text
    )
    assert "! VRID 51 IPv4  10.9.0.1 dropped: ip_ttl_err at offset 22: TTL 9 instead of 255" in text
    assert "\nVRID 51 IPv4\n  10.9.0.1 [02:00:00:00:00:01]  speaking, 2 adverts  v2  priority 150  every 30 s" in text
    assert "    ! 1 adverts that receivers drop: ip_ttl_err\n" in text
    assert "no disagreement\n2 adverts in " in text


def test_it_ends_when_nobody_reads_any_more(lab, mouth):
    with lab.hosts["b"].start(
        str(HAXLB), "vrrp", "listen", "eth0", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr.readline() == b"listening for VRRP on eth0\n"
        mouth.say(FRAMES["v2"])
        assert b" speaks: v2" in process.stdout.readline()
        process.stdout.close()
        # It finds out when it has something to say.
        mouth.say(ethernet(ipv4(message(2, interval=30, version=2), ttl=9)))
        assert process.stderr.read() == b""
    assert process.returncode == 1, "what it heard is dropped by receivers"


def test_json_of_an_interface_that_goes_away(lab, tmp_path):
    host, path = lab.hosts["b"], tmp_path / "out"
    host.run("ip", "link", "add", "hxgone", "type", "veth", "peer", "name", "hxpeer")
    host.run("ip", "link", "set", "hxgone", "up")
    with path.open("wb") as stream:
        process = host.start(str(HAXLB), "vrrp", "listen", "hxgone", "--json", stdout=stream, stderr=subprocess.PIPE)
    eventually(lambda: "hxgone" in host.run("ss", "-0", "-n", check=False).stdout, "it listens")
    host.run("ip", "link", "del", "hxgone")
    assert process.wait(timeout=60) == 1
    assert process.stderr is not None
    assert process.stderr.read() == b"haxlb: hxgone has gone away (listen again when it is back)\n"
    process.stderr.close()
    summary = json.loads(path.read_text().splitlines()[-1])
    assert (summary["type"], summary["schema"]) == ("summary", "haxlb.vrrp-listen/1")
    assert (summary["speakers"], summary["disagreements"], summary["adverts"]) == ([], [], 0)

"""deploy/real-server/haxlb-real-server against a real kernel: what it sets, and what ARP does then."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Host, Lab

pytestmark = pytest.mark.netns

KIT = str(Path(__file__).parents[2] / "deploy" / "real-server" / "haxlb-real-server")
VIP = "192.168.77.100"


@pytest.fixture
def server() -> Iterator[Host]:
    with Lab(f"hxkit{os.getpid()}") as lab:
        lab.host("neighbour", "192.168.77.1/24")
        yield lab.host("server", "192.168.77.21/24")


def kit(server: Host, *arguments: str) -> subprocess.CompletedProcess[str]:
    return server.run(KIT, *arguments, check=False)


def answers_arp_for_the_vip(server: Host) -> bool:
    neighbour = server.lab.hosts["neighbour"]
    neighbour.run("ip", "neighbour", "flush", "dev", "eth0")
    neighbour.run("ping", "-c", "1", "-W", "1", VIP, check=False)
    return "lladdr" in neighbour.run("ip", "neighbour", "show", VIP).stdout


def test_a_server_with_the_vip_on_lo_answers_arp_until_it_is_prepared(server):
    server.run("ip", "address", "add", f"{VIP}/32", "dev", "lo")
    assert answers_arp_for_the_vip(server)
    assert kit(server, "up", VIP).returncode == 0
    assert not answers_arp_for_the_vip(server)


def test_check_names_all_that_is_missing_and_nothing_after_up(server):
    before = kit(server, "check", VIP)
    assert before.returncode == 1
    assert [word in before.stdout for word in (f"{VIP} is not on lo", "eth0: arp_ignore", "eth0: arp_announce")] == [
        True,
        True,
        True,
    ]
    kit(server, "up", VIP)
    after = kit(server, "check", VIP)
    assert (after.returncode, after.stdout) == (0, "")


def test_up_and_down_can_be_repeated(server):
    results = [kit(server, action, VIP, "192.168.77.101").returncode for action in ("up", "up", "down", "down")]
    assert results == [0, 0, 0, 0]
    assert VIP not in server.run("ip", "-4", "address", "show", "dev", "lo").stdout


@pytest.mark.parametrize("action", ["up", "down", "check"])
@pytest.mark.parametrize("word", ["192.168.10.999", "192.168.10.256", "192.168.10.0100", "192.168.10.007", "1.2.3"])
def test_what_is_no_address_is_said_in_one_line(server, action, word):
    done = kit(server, action, VIP, word)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"haxlb-real-server: {word} is not an IPv4 address\n"


@pytest.mark.parametrize("arguments", [(), ("up",), ("start", VIP), ("up", "web.example"), ("up", "1.2.3"), ("up", "")])
def test_bad_arguments_end_in_exit_code_2_and_change_nothing(server, arguments):
    done = kit(server, *arguments)
    assert done.returncode == 2
    assert done.stderr
    assert "/32" not in server.run("ip", "-4", "address", "show", "dev", "lo").stdout

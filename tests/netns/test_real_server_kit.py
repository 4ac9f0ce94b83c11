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


def test_an_ipv6_vip_on_lo_is_not_answered_for_and_needs_no_setting_of_arp(server):
    vip = "2001:db8:77::100"
    neighbour = server.lab.hosts["neighbour"]
    for host, address in ((neighbour, "2001:db8:77::1/64"), (server, "2001:db8:77::21/64")):
        host.sysctl(**{f"net__ipv6__conf__{each}__disable_ipv6": 0 for each in ("all", "lo", "eth0")})
        host.run("ip", "-6", "address", "add", address, "dev", "eth0", "nodad")
    assert kit(server, "check", vip).returncode == 1
    assert kit(server, "up", vip).returncode == 0
    assert (kit(server, "check", vip).returncode, kit(server, "check", vip).stdout) == (0, "")
    assert server.run("sysctl", "-n", "net.ipv4.conf.all.arp_ignore").stdout.strip() == "0"
    neighbour.run("ping", "-c", "1", "-W", "60", "2001:db8:77::21")  # its own address is answered for
    neighbour.run("ping", "-c", "1", "-W", "1", vip, check=False)
    assert "lladdr" not in neighbour.run("ip", "-6", "neighbour", "show", vip).stdout
    neighbour.run("ip", "-6", "route", "add", f"{vip}/128", "via", "2001:db8:77::21")
    neighbour.run("ping", "-c", "1", "-W", "60", vip)  # what a director would send there is accepted
    assert kit(server, "down", vip).returncode == 0
    assert vip not in server.run("ip", "-6", "address", "show", "dev", "lo").stdout


def test_up_and_down_can_be_repeated(server):
    results = [kit(server, action, VIP, "192.168.77.101").returncode for action in ("up", "up", "down", "down")]
    assert results == [0, 0, 0, 0]
    assert VIP not in server.run("ip", "-4", "address", "show", "dev", "lo").stdout


@pytest.mark.parametrize("action", ["up", "down", "check"])
@pytest.mark.parametrize(
    "word",
    [
        "192.168.10.999",
        "192.168.10.256",
        "192.168.10.0100",
        "192.168.10.007",
        "1.2.3",
        "2001:db8::g",
        "2001:db8::1/64",
        "::1::",
        "fe80::1%eth0",
    ],
)
def test_what_is_no_address_is_said_in_one_line(server, action, word):
    done = kit(server, action, VIP, word)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"haxlb-real-server: {word} is not an IP address\n"


@pytest.mark.parametrize("arguments", [(), ("up",), ("start", VIP), ("up", "web.example"), ("up", "1.2.3"), ("up", "")])
def test_bad_arguments_end_in_exit_code_2_and_change_nothing(server, arguments):
    done = kit(server, *arguments)
    assert done.returncode == 2
    assert done.stderr
    assert "/32" not in server.run("ip", "-4", "address", "show", "dev", "lo").stdout

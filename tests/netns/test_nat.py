"""NAT between real kernels: transfers both ways, path MTU of both ways, without ip_forward on the director."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from tests.bpf.natted import natted
from tests.netns.nat_peer import content
from tests.netns.nat_site import NARROW, NatSite

# The forwarder is compiled first, by a machine that may do the same for others.
pytestmark = [pytest.mark.netns, pytest.mark.bpf, pytest.mark.timeout(900)]

MEGABYTES = 6_000_000
CLIENTS = {4: "198.51.100.7", 6: "fd99::7"}
VIPS = {4: "10.0.0.1", 6: "fd00::1"}
FAR = {4: "192.168.2.10", 6: "fd02::10"}
FAMILIES = pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])


@pytest.fixture(scope="module")
def site() -> Iterator[NatSite]:
    with natted(replies=1024, flow_buckets_log2=10) as plane, NatSite(plane) as made:
        assert made.run("director", "sysctl", "-n", "net.ipv4.ip_forward").strip() == "0"
        yield made


def url(family: int, port: int, path: str) -> str:
    host = f"[{VIPS[6]}]" if family == 6 else VIPS[4]
    return f"http://{host}:{port}/{path}"


@FAMILIES
def test_megabytes_both_ways_and_datagrams(site: NatSite, family: int) -> None:
    before = site.plane.verdicts()
    got = site.peer("client", "fetch", url(family, 80, str(MEGABYTES)))
    assert got["digest"] == hashlib.sha256(content(MEGABYTES)).hexdigest()
    client = str(got["client"])
    assert client.removeprefix("::ffff:") == CLIENTS[family], "the server sees the client itself"
    told = site.peer("client", "post", url(family, 80, ""), str(MEGABYTES))
    assert told["text"] == hashlib.sha256(content(MEGABYTES)).hexdigest()
    for size in (1, 500, 1400, 4000):
        assert site.peer("client", "echo", VIPS[family], "53", str(size))["same"], f"{size} bytes"
    assert site.wrong_checksums("client") == site.wrong_checksums("near") == 0
    after = site.plane.verdicts()
    assert after["new_flow"] - before["new_flow"] == 6
    assert after["reply"] - before["reply"] > 1000
    assert after["later_fragment"] - before["later_fragment"] == 2, "of the 4,000 bytes of the request"


@FAMILIES
def test_a_narrow_way_to_the_server_is_told_to_the_client(site: NatSite, family: int) -> None:
    with site.narrow("inner", FAR[family]):
        told = site.peer("client", "post", url(family, 81, ""), str(MEGABYTES))
        assert told["text"] == hashlib.sha256(content(MEGABYTES)).hexdigest()
        assert f"mtu {NARROW}" in site.run("client", "ip", "route", "get", VIPS[family])
    assert site.wrong_checksums("client") == site.wrong_checksums("far") == 0


@FAMILIES
def test_a_narrow_way_to_the_client_is_told_to_the_server(site: NatSite, family: int) -> None:
    before = site.plane.verdicts()
    with site.narrow("edge", CLIENTS[family]):
        got = site.peer("client", "fetch", url(family, 81, str(MEGABYTES)))
        assert got["digest"] == hashlib.sha256(content(MEGABYTES)).hexdigest()
        assert f"mtu {NARROW}" in site.run("far", "ip", "route", "get", CLIENTS[family])
    assert site.plane.verdicts()["icmp_error"] > before["icmp_error"]
    assert site.wrong_checksums("client") == site.wrong_checksums("far") == 0


@FAMILIES
def test_a_closed_port_is_the_servers_word(site: NatSite, family: int) -> None:
    """Its error about the request ends what the client waits for, at once."""
    with pytest.raises(AssertionError, match="ConnectionRefusedError"):
        site.peer("client", "echo", VIPS[family], "54", "10")

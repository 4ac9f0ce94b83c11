"""NAT of services as the planner writes them, in a program with every feature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from haxlb.forwarding.wanted import WantedTable
from haxlb.linux import bpf
from haxlb.linux.specimen import PORT, VIP, Specimen, specimen
from haxlb.model.virtual_server import ForwardingMethod, Scheduler
from tests.bpf.frames import tcp
from tests.bpf.natted import expect_checksums
from tests.forwarding.tables import mac, server, service

pytestmark = pytest.mark.bpf


@pytest.fixture(scope="module")
def whole() -> Iterator[Specimen]:
    with specimen(WantedTable(), flow_buckets_log2=17) as made:
        yield made


@pytest.mark.parametrize("port", [8080, 0], ids=["its own port", "the port of the packet"])
def test_a_service_with_nat(whole: Specimen, port: int) -> None:
    natted = replace(server(1, port=port), method=ForwardingMethod.NAT)
    wanted = WantedTable(services=(service(natted, scheduler=Scheduler.MH),))
    whole.forwarder.apply(wanted)
    before = whole.forwarder.counters().verdicts["reply"]
    sent = bpf.prog_test_run(whole.program, tcp("S"))
    assert sent.verdict == bpf.XDP_TX
    expect_checksums(sent.frame)
    request = Ether(sent.frame)
    assert (request.dst, request[IP].dst, request[TCP].dport) == (mac(0x101), "10.0.0.1", port or PORT)
    said = request.copy()
    said.dst, said.src = request.src, request.dst
    said[IP].src, said[IP].dst = request[IP].dst, request[IP].src
    said[TCP].sport, said[TCP].dport, said[TCP].flags = request[TCP].dport, request[TCP].sport, "SA"
    del said[IP].chksum, said[TCP].chksum
    back = bpf.prog_test_run(whole.program, bytes(said))
    assert back.verdict == bpf.XDP_TX
    expect_checksums(back.frame)
    assert (ip_address(Ether(back.frame)[IP].src), Ether(back.frame)[TCP].sport) == (VIP, PORT)
    assert whole.forwarder.counters().verdicts["reply"] == before + 1

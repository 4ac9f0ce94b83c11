"""bpf/abi.h as a C compiler sees it, against haxlb.forwarding.layout."""

from __future__ import annotations

import json
import shutil
import subprocess
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.layout import BackendRecord, FlowEntry, FlowState, Half, ServiceRecord, Sizes
from haxlb.forwarding.wanted import Tally
from tests.forwarding.tables import DNS, PEER, WEB, server

BPF = Path(__file__).parents[2] / "bpf"
STRUCTS = {
    "endpoint": ["address", "port", "protocol"],
    "next_hop": ["destination", "source", "interface"],
    "service": ["select", "protocol", "port", "address", "halves", "peers", "retired"],
    "backend": ["state", "incarnation", "service", "address", "port", "weight", "retired", "hops"],
    "flow": ["key", "value"],
    "bucket": ["ways"],
    "own_mac": ["mac"],
    "tally": ["packets", "bytes", "flows"],
}
CONSTANTS = [
    *["ABI_VERSION", "RING_SLOTS", "RING_SLOTS_PER_ELEMENT", "RING_ELEMENTS", "FLOW_WAYS"],
    *["SELECT_HALF", "SELECT_PEER", "SELECT_PEER_KNOWN", "HALF_SEQUENCE", "HALF_HASH_PORT"],
    *["BACKEND_ALIVE", "BACKEND_HOP", "BACKEND_LOCAL"],
    *["LIFETIME_CLAIMED", "LIFETIME_TCP_NEW", "LIFETIME_TCP_ESTABLISHED", "LIFETIME_TCP_CLOSING", "LIFETIME_UDP"],
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler: make setup installs gcc")
    names = {f"sizeof {name}": f"sizeof(struct {name})" for name in STRUCTS}
    names |= {f"{name}.{field}": f"offsetof(struct {name}, {field})" for name in STRUCTS for field in STRUCTS[name]}
    names |= {name: name for name in [*CONSTANTS, "REASON_COUNT"]}
    names |= {f"FLOW_{state.name}": f"FLOW_{state.name}" for state in FlowState}
    names |= {f"REASON_{reason.upper()}": f"REASON_{reason.upper()}" for reason in layout.REASONS}
    lines = "\n".join(
        f'printf("%s\\"{name}\\": %lu", comma, (unsigned long)({c})); comma = ",";' for name, c in names.items()
    )
    folder = tmp_path_factory.mktemp("abi")
    source = folder / "abi.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "abi.h"\n'
        f'int main(void) {{ const char *comma = ""; printf("{{"); {lines} printf("}}"); return 0; }}\n'
    )
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", f"-I{BPF}", source, "-o", folder / "abi"], check=True)
    done = subprocess.run([folder / "abi"], check=True, capture_output=True)
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


def test_the_shapes_are_those_that_the_directory_of_pins_is_named_by() -> None:
    """Fails with the new digest to write into layout.py: whoever changes a shape leaves the tables of before alone."""
    assert layout.shapes_digest(*((BPF / name).read_text() for name in ("abi.h", "maps.h"))) == layout.SHAPES_DIGEST
    assert f"{layout.ABI_VERSION}-{layout.SHAPES_DIGEST}" == layout.ABI


def test_comments_and_layout_of_the_source_do_not_count() -> None:
    one = layout.shapes_digest("int a; /* one\n * more */ int b; // two\n", "c")
    assert one == layout.shapes_digest("int a;\n\tint\tb;\n", "/* three */ c")
    assert one != layout.shapes_digest("int b; int a;", "c")


def test_constants(said: dict[str, int]) -> None:
    assert {name: said[name] for name in CONSTANTS} == {name: getattr(layout, name) for name in CONSTANTS}
    assert {state.name: said[f"FLOW_{state.name}"] for state in FlowState} == {s.name: s.value for s in FlowState}


def test_reasons(said: dict[str, int]) -> None:
    assert [said[f"REASON_{reason.upper()}"] for reason in layout.REASONS] == list(range(said["REASON_COUNT"]))


def test_sizes(said: dict[str, int]) -> None:
    sizes = {shape.name: (shape.key_size, shape.value_size) for shape in layout.shapes(Sizes())}
    assert sizes == {
        "endpoints": (said["sizeof endpoint"], 4),
        "services": (4, said["sizeof service"]),
        "cursors": (4, 8),
        "rings": (4, 64),
        "backends": (4, said["sizeof backend"]),
        "flows": (4, said["sizeof bucket"]),
        "interfaces": (4, said["sizeof own_mac"]),
        "service_tallies": (4, said["sizeof tally"]),
        "backend_tallies": (4, said["sizeof tally"]),
        "verdicts": (4, 8 * said["REASON_COUNT"]),
    }
    assert said["sizeof bucket"] == 64


def hop(said: dict[str, int], raw: bytes) -> tuple[str, str, int]:
    destination, source, interface = (said[f"next_hop.{name}"] for name in STRUCTS["next_hop"])
    return (
        raw[destination : destination + 6].hex(":"),
        raw[source : source + 6].hex(":"),
        int.from_bytes(raw[interface : interface + 4], "little"),
    )


def test_a_backend(said: dict[str, int]) -> None:
    way = server(9).next_hop
    record = BackendRecord(
        service=0x1234,
        address=IPv4Address("10.1.2.3"),
        port=0x1F90,
        state=3,
        incarnation=7,
        weight=0x4321,
        retired=5,
        hops=(None, way),
    )
    raw = record.pack()
    at = {name: said[f"backend.{name}"] for name in STRUCTS["backend"]}
    assert raw[at["state"]] == 3
    assert raw[at["incarnation"]] == 7
    assert raw[at["service"] : at["service"] + 2] == b"\x34\x12"
    assert raw[at["address"] : at["address"] + 4] == bytes([10, 1, 2, 3])
    assert raw[at["port"] : at["port"] + 2] == b"\x1f\x90"
    assert raw[at["weight"] : at["weight"] + 2] == b"\x21\x43"
    assert raw[at["retired"] : at["retired"] + 4] == b"\x05\0\0\0"
    assert way is not None
    expected = (way.destination_mac, way.source_mac, way.interface_index)
    assert hop(said, raw[at["hops"] + said["sizeof next_hop"] :]) == expected
    assert BackendRecord.unpack(raw) == record


def test_a_service(said: dict[str, int]) -> None:
    record = ServiceRecord(
        endpoint=DNS,
        select=5,
        halves=(Half(length=11, flags=1), Half(length=16384, flags=2)),
        peers=(PEER, None),
        retired=3,
    )
    raw = record.pack()
    at = {name: said[f"service.{name}"] for name in STRUCTS["service"]}
    assert (raw[at["select"]], raw[at["protocol"]]) == (5, 17)
    assert raw[at["address"] : at["address"] + 4] == DNS.address.packed
    assert int.from_bytes(raw[at["port"] : at["port"] + 2], "big") == DNS.port
    assert raw[at["halves"] : at["halves"] + 16] == b"\x0b\0\0\0\1\0\0\0" + b"\0\x40\0\0\2\0\0\0"
    assert hop(said, raw[at["peers"] :]) == (PEER.destination_mac, PEER.source_mac, PEER.interface_index)
    assert raw[at["retired"]] == 3
    assert ServiceRecord.unpack(raw) == record


def test_an_endpoint(said: dict[str, int]) -> None:
    raw = layout.pack_endpoint(WEB)
    assert raw[said["endpoint.address"] :][:4] == WEB.address.packed
    assert raw[said["endpoint.port"] :][:2] == b"\x00\x50"
    assert raw[said["endpoint.protocol"]] == 6
    assert layout.unpack_endpoint(raw) == WEB


def test_a_flow() -> None:
    entry = FlowEntry(
        source=IPv4Address("192.0.2.1"),
        source_port=40000,
        service=3,
        backend=0x0102,
        incarnation=4,
        state=FlowState.TCP_ESTABLISHED,
        stamp=0x11223344,
    )
    key, value = entry.pack()[:8], int.from_bytes(entry.pack()[8:], "little")
    assert key == bytes([192, 0, 2, 1]) + (40000).to_bytes(2, "big") + b"\x03\0"
    assert value == 0x11223344 << 32 | FlowState.TCP_ESTABLISHED << 24 | 4 << 16 | 0x0102
    assert layout.unpack_flows(entry.pack() + bytes(16)) == [entry, None]


def test_per_cpu_values_are_summed() -> None:
    cpu = [(1, 100, 1), (2, 50, 0), (0, 0, 0)]
    raw = b"".join(n.to_bytes(8, "little") for each in cpu for n in (*each, 0))
    assert layout.sum_tallies(raw) == Tally(packets=3, bytes=150, flows=1)
    raw = b"".join(n.to_bytes(8, "little") for _ in range(2) for n in range(len(layout.REASONS)))
    assert layout.sum_verdicts(raw) == {reason: 2 * at for at, reason in enumerate(layout.REASONS)}


@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang: make setup installs it")
def test_the_source_stays_in_the_subset_of_plain_clang() -> None:
    """bcc is what compiles it; that clang alone can, too, keeps the way out open (ADR 2)."""
    multiarch = subprocess.run(["gcc", "-print-multiarch"], check=True, capture_output=True, text=True).stdout.strip()
    command = [
        "clang",
        "-O2",
        "-target",
        "bpf",
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I/usr/include/{multiarch}",
    ]
    done = subprocess.run([*command, "-fsyntax-only", BPF / "forward.c"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

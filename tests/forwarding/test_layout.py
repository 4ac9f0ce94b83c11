"""bpf/abi.h as a C compiler sees it, against haxlb.forwarding.layout, records, flows and replies."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from haxlb.forwarding import layout, records
from haxlb.forwarding.flows import FLOW_BYTES, WIDE_FLOW_BYTES, FlowState, unpack_flows, unpack_wide_flows
from haxlb.forwarding.layout import Sizes
from haxlb.forwarding.records import (
    COMPARES,
    BackendRecord,
    FrontendFlag,
    FrontendRecord,
    Generation,
    GenerationFlag,
    LoadRecord,
    ServiceRecord,
    identity_of,
    pack_endpoint,
    unpack_endpoint,
)
from haxlb.forwarding.replies import ANSWER_BYTES, REPLY_BYTES
from haxlb.forwarding.wanted import Load, Tally
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import ForwardingMethod, TunnelKind
from tests.forwarding.tables import PEER, WEB, server

BPF = Path(__file__).parents[2] / "bpf"
STRUCTS = {
    "endpoint": ["address", "port", "protocol"],
    "endpoint6": ["address", "port", "protocol"],
    "frontend": ["index", "service", "flags"],
    "next_hop": ["destination", "source", "interface"],
    "generation": ["first", "length", "flags"],
    "service": [
        *["select", "scheduler", "persistence_prefix", "flags", "persistence_mask", "persistence", "generations"],
        *["retired", "changed", "peers", "identity"],
    ],
    "backend": [
        *["state", "incarnation", "service", "weight", "method", "family", "retired", "upper", "lower"],
        *["vlans", "hops", "address", "source", "port", "mtu", "tunnel", "tunnel_flags", "tunnel_port"],
    ],
    "load": ["active", "inactive", "overloaded"],
    "flow": ["key", "value"],
    "bucket": ["ways"],
    "wide_flow": ["flow", "rest"],
    "wide_bucket": ["ways"],
    "own_mac": ["mac"],
    "near_interface": ["interface", "mac"],
    "virtual_mac": ["interface", "mac"],
    "datagram": [],
    "fragment": [],
    "answer": [],
    "reply": [],
    "locality": [],
    "locality_servers": [],
    "tally": ["packets", "bytes", "flows"],
    "sweep": [],
    "scratch": [],
}
CONSTANTS = {
    **{
        name: getattr(layout, name)
        for name in (
            *["ABI_VERSION", "RING_SLOTS", "RING_SLOTS_PER_ELEMENT", "LIST_SERVERS", "EXCEPTION_SLOTS"],
            *["EXCEPTION_ELEMENTS", "FLOW_WAYS", "ADDRESS_BITS"],
        )
    },
    **{
        name: getattr(records, name)
        for name in (
            *["SELECT_CURRENT", "SELECT_FORMER", "SELECT_FORMER_SHIFT", "FORMER_NONE", "SELECT_PEER"],
            *["SELECT_PEER_KNOWN", "SELECT_EXCEPTIONS", "BACKEND_ALIVE", "BACKEND_HOP", "BACKEND_LOCAL"],
        )
    },
    "PROGRAMS": layout.PROGRAM_PLACES,
    **{f"FRONTEND_{flag.name}": flag.value for flag in FrontendFlag},
    **{f"GENERATION_{flag.name}": flag.value for flag in GenerationFlag},
    **{f"SCHEDULER_{scheduler.name}": number for scheduler, number in COMPARES.items()},
    **{f"PROGRAM_{name.upper()}": place for place, name in enumerate(layout.PROGRAMS)},
    **{f"FLOW_{state.name}": state.value for state in FlowState},
    **{f"METHOD_{method.name}": place for place, method in enumerate((ForwardingMethod.DR, ForwardingMethod.TUN))},
    "METHOD_NAT": 2,
    "TUNNEL_IPIP": 0,
    "TUNNEL_GUE": 1,
    "TUNNEL_GRE": 2,
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler: make setup installs gcc")
    names = {f"sizeof {name}": f"sizeof(struct {name})" for name in STRUCTS}
    names |= {f"{name}.{field}": f"offsetof(struct {name}, {field})" for name in STRUCTS for field in STRUCTS[name]}
    names |= {name: name for name in [*CONSTANTS, "REASON_COUNT"]}
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
    # Not -I: libc has a features.h, too.
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-iquote", BPF, source, "-o", folder / "abi"]
    subprocess.run(command, check=True)
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
    assert {name: said[name] for name in CONSTANTS} == CONSTANTS


def test_times_and_attempts_are_those_of_the_program() -> None:
    source = "".join((BPF / name).read_text() for name in ("flow.h", "room.h", "features.h"))
    defined = dict(re.findall(r"#define (\w+) (\d+)\b", source))
    for name in ("LIFETIME_CLAIMED", "LIFETIME_NEW", "NEW_KEPT", "CLOSING_KEPT", "CLOSING_SURE"):
        assert int(defined[name]) == getattr(layout, name)


def test_reasons(said: dict[str, int]) -> None:
    assert [said[f"REASON_{reason.upper()}"] for reason in layout.REASONS] == list(range(said["REASON_COUNT"]))


def test_sizes(said: dict[str, int]) -> None:
    sizes = {shape.name: (shape.key_size, shape.value_size) for shape in layout.shapes(Sizes())}
    of = {name.removeprefix("sizeof "): size for name, size in said.items() if name.startswith("sizeof ")}
    assert sizes == {
        "endpoints": (of["endpoint"], of["frontend"]),
        "endpoints6": (of["endpoint6"], of["frontend"]),
        "services": (4, of["service"]),
        "cursors": (4, 8),
        "rings": (4, 2 * layout.RING_SLOTS_PER_ELEMENT),
        "exceptions": (4, layout.EXCEPTION_SLOTS // 8),
        "backends": (4, of["backend"]),
        "loads": (4, of["load"]),
        "flows": (4, of["bucket"]),
        "overflow": (4, of["bucket"]),
        "wide_flows": (4, of["wide_bucket"]),
        "wide_overflow": (4, of["wide_bucket"]),
        "interfaces": (4, of["own_mac"]),
        "near_interfaces": (4, of["near_interface"]),
        "virtual_macs": (of["virtual_mac"], 4),
        "devices": (4, 4),
        "fragments": (of["datagram"], of["fragment"]),
        "replies": (of["answer"], of["reply"]),
        "answer_bits": (4, said["ADDRESS_BITS"] // 8),
        "any_port_bits": (4, said["ADDRESS_BITS"] // 8),
        "reply_fragments": (of["datagram"], of["reply"]),
        "localities": (of["locality"], of["locality_servers"]),
        "scratchpad": (4, of["scratch"]),
        "service_tallies": (4, of["tally"]),
        "backend_tallies": (4, of["tally"]),
        "verdicts": (4, 8 * said["REASON_COUNT"]),
        "sweeps": (4, of["sweep"]),
    }
    assert (of["bucket"], of["wide_bucket"], of["load"]) == (64, 128, 64), "whole cache lines"
    assert (of["flow"], of["wide_flow"]) == (FLOW_BYTES, WIDE_FLOW_BYTES)
    assert (of["answer"], of["reply"]) == (ANSWER_BYTES, REPLY_BYTES)


def at(said: dict[str, int], shape: str, field: str, raw: bytes, form: str) -> object:
    values = struct.unpack_from(form, raw, said[f"{shape}.{field}"])
    return values[0] if len(values) == 1 else values


def hop(said: dict[str, int], raw: bytes) -> tuple[str, str, int]:
    destination, source, interface = (said[f"next_hop.{name}"] for name in STRUCTS["next_hop"])
    return (
        raw[destination : destination + 6].hex(":"),
        raw[source : source + 6].hex(":"),
        int.from_bytes(raw[interface : interface + 4], "little"),
    )


def test_a_backend(said: dict[str, int]) -> None:
    way = server(9, vlan=77).next_hop
    assert way is not None
    way = replace(way, source=IPv4Address("10.9.9.9"), mtu=1480)
    record = BackendRecord(
        service=0x1234,
        address=IPv4Address("10.1.2.3"),
        port=0x1F90,
        state=records.BACKEND_ALIVE | records.BACKEND_HOP,
        incarnation=7,
        weight=0x4321,
        retired=5,
        upper=0x10203,
        lower=0x203,
        method=ForwardingMethod.TUN,
        tunnel=TunnelKind.GUE,
        tunnel_port=6080,
        tunnel_flags=records.TUNNEL_CHECKSUM,
    ).with_hop(way, second=True)
    raw = record.pack()
    wanted: dict[str, tuple[str, object]] = {
        "incarnation": ("<B", 7),
        "service": ("<H", 0x1234),
        "weight": ("<H", 0x4321),
        "method": ("<B", 1),
        "family": ("<B", 4),
        "retired": ("<I", 5),
        "upper": ("<I", 0x10203),
        "lower": ("<I", 0x203),
        "vlans": ("<HH", (0, 77)),
        "address": ("4s", bytes([10, 1, 2, 3])),
        "source": ("4s", bytes([10, 9, 9, 9])),
        "port": (">H", 0x1F90),
        "mtu": ("<H", 1480),
        "tunnel": ("<B", 1),
        "tunnel_flags": ("<B", 1),
        "tunnel_port": (">H", 6080),
    }
    assert {name: at(said, "backend", name, raw, form) for name, (form, _) in wanted.items()} == {
        name: value for name, (_, value) in wanted.items()
    }
    assert raw[said["backend.state"]] & 7 == records.BACKEND_ALIVE | records.BACKEND_HOP
    expected = (way.destination_mac, way.source_mac, way.interface_index)
    assert hop(said, raw[said["backend.hops"] + said["sizeof next_hop"] :]) == expected
    assert len(raw) == said["sizeof backend"]
    assert BackendRecord.unpack(raw) == record
    assert BackendRecord.unpack(raw).hop == way


def test_a_backend_of_ipv6() -> None:
    record = BackendRecord(service=1, address=IPv6Address("2001:db8::9"), port=0)
    assert BackendRecord.unpack(record.pack()) == record


def test_a_service(said: dict[str, int]) -> None:
    generations = (
        Generation(first=0x10203, length=11, flags=GenerationFlag.SEQUENCE),
        Generation(first=512, length=16384, flags=GenerationFlag.HASH_PORT),
        Generation(),
    )
    record = ServiceRecord(
        identity=identity_of("web"),
        select=0x61,
        scheduler=8,
        persistence_s=360,
        persistence_mask=24,
        persistence_prefix=64,
        generations=generations,
        peers=(PEER, None),
        retired=3,
        changed_s=77,
    )
    raw = record.pack()
    wanted: dict[str, tuple[str, object]] = {
        "select": ("<B", 0x61),
        "scheduler": ("<B", 8),
        "persistence_prefix": ("<B", 64),
        "persistence_mask": ("4s", bytes([255, 255, 255, 0])),
        "persistence": ("<I", 360),
        "generations": ("<IHHIHHI", (0x10203, 11, 1, 512, 16384, 2, 0)),
        "retired": ("<I", 3),
        "changed": ("<I", 77),
        "identity": ("16s", identity_of("web")),
    }
    assert {name: at(said, "service", name, raw, form) for name, (form, _) in wanted.items()} == {
        name: value for name, (_, value) in wanted.items()
    }
    assert hop(said, raw[said["service.peers"] :]) == (PEER.destination_mac, PEER.source_mac, PEER.interface_index)
    assert len(raw) == said["sizeof service"]
    assert ServiceRecord.unpack(raw) == record


def test_endpoints(said: dict[str, int]) -> None:
    raw = pack_endpoint(WEB)
    assert raw[said["endpoint.address"] :][:4] == WEB.address.packed
    assert raw[said["endpoint.port"] :][:2] == b"\x00\x50"
    assert raw[said["endpoint.protocol"]] == 6
    assert unpack_endpoint(raw) == WEB
    wide = Endpoint(address=IPv6Address("2001:db8::1"), port=443, protocol=Protocol.SCTP)
    raw = pack_endpoint(wide)
    assert raw[said["endpoint6.address"] :][:16] == wide.address.packed
    assert raw[said["endpoint6.port"] :][:2] == b"\x01\xbb"
    assert raw[said["endpoint6.protocol"]] == 132
    assert unpack_endpoint(raw) == wide


def test_a_frontend(said: dict[str, int]) -> None:
    record = FrontendRecord(index=0x102, service=0x304, flags=FrontendFlag.SHARED | FrontendFlag.ANY_PORT)
    raw = record.pack()
    found = [at(said, "frontend", name, raw, "<H") for name in ("index", "service", "flags")]
    assert found == [0x102, 0x304, 0x12]
    assert FrontendRecord.unpack(raw) == record


def test_a_load(said: dict[str, int]) -> None:
    raw = bytearray(2 * layout.LOAD_BYTES)
    for name, value in (("active", 7), ("inactive", 9), ("overloaded", 1)):
        struct.pack_into("<I", raw, layout.LOAD_BYTES + said[f"load.{name}"], value)
    assert LoadRecord.unpack(bytes(raw), 1) == Load(active=7, inactive=9, overloaded=True)
    assert LoadRecord.unpack(bytes(raw)) == Load()


def test_flows() -> None:
    """As FLOW_KEY, WIDE_KEY and FLOW_VALUE compose them on a little-endian machine."""
    source, port = int.from_bytes(bytes([192, 0, 2, 1]), "little"), int.from_bytes((40000).to_bytes(2, "big"), "little")
    value = 0x11223344 << 32 | FlowState.TCP_ESTABLISHED << 24 | 4 << 16 | 0x0102
    raw = struct.pack("<QQ", 3 << 48 | port << 32 | source, value)
    (flow,) = unpack_flows(raw + bytes(16))
    assert (str(flow.source), flow.source_port, flow.frontend) == ("192.0.2.1", 40000, 3)
    assert (flow.backend, flow.incarnation, flow.state, flow.stamp) == (0x0102, 4, 3, 0x11223344)
    wide_port = int.from_bytes((443).to_bytes(2, "big"), "little")
    key = 3 << 48 | port << 32 | wide_port << 16 | 1
    for address, packed in (
        (IPv6Address("2001:db8::1"), IPv6Address("2001:db8::1").packed),
        (IPv4Address("192.0.2.1"), bytes(12) + bytes([192, 0, 2, 1])),
    ):
        (flow,) = unpack_wide_flows(struct.pack("<QQ", key, value) + packed + bytes(32))
        assert (flow.source, flow.source_port, flow.destination_port, flow.frontend) == (address, 40000, 443, 3)
        assert (flow.backend, flow.incarnation, flow.state, flow.stamp) == (0x0102, 4, 3, 0x11223344)


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

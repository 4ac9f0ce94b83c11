"""`haxlb show -c` on real tables: read as root without a daemon, into pipes, in all its forms."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import termios
from array import array
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from haxlb.forwarding.flows import FlowEntry, FlowState
from haxlb.forwarding.layout import ABI
from haxlb.forwarding.records import FrontendFlag, FrontendRecord, pack_endpoint
from haxlb.linux import bpf
from haxlb.model.addresses import Endpoint, Protocol
from tests.bpf.flow_tables import FRONTEND, INCARNATION, ROOT, SERVICE, VIP, FlowTables, flow_tables, now
from tests.netns.standin import eventually

pytestmark = pytest.mark.bpf

MANY = 3000
PIPE_BYTES = 65536
HAXLB = (sys.executable, "-c", "from haxlb.cli.main import main; main()")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("show")


@pytest.fixture(scope="module")
def tables(runtime: Path) -> Iterator[FlowTables]:
    with flow_tables(runtime, "--flow-buckets-log2=12", "--features=none", "--lifetime-established=500") as made:
        # Of two endpoints of one number either may be shown.
        bpf.map_delete(made.maps.fds["endpoints"], pack_endpoint(Endpoint(address=VIP, port=80, protocol=Protocol.UDP)))
        stateless = Endpoint(address=VIP, port=443, protocol=Protocol.TCP)
        record = FrontendRecord(index=9, service=SERVICE, flags=FrontendFlag.STATELESS)
        made.maps.write("endpoints", pack_endpoint(stateless), record.pack())
        six = Endpoint(address=IPv6Address("2001:db8::1"), port=80, protocol=Protocol.TCP)
        made.maps.write("endpoints6", pack_endpoint(six), FrontendRecord(index=5, service=SERVICE).pack())
        yield made


@pytest.fixture
def filled(tables: FlowTables) -> FlowTables:
    tables.clear()
    entry = FlowEntry(
        source=IPv4Address("198.51.100.7"),
        source_port=40000,
        frontend=FRONTEND,
        backend=1,
        incarnation=INCARNATION,
        state=FlowState.TCP_ESTABLISHED,
        stamp=now(),
    )
    tables.put("flows", 0, entry)
    tables.put("wide_flows", 3, _six(entry))
    return tables


def _six(entry: FlowEntry) -> FlowEntry:
    return FlowEntry(
        source=IPv6Address("2001:db8::77"),
        source_port=40001,
        frontend=5,
        backend=2,
        incarnation=entry.incarnation,
        state=FlowState.TCP_NEW,
        stamp=entry.stamp,
    )


def show(runtime: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HAXLB, "show", "--runtime-dir", runtime, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.usefixtures("filled")
def test_the_table(runtime: Path) -> None:
    done = show(runtime, "-Lnc")
    assert done.returncode == 0
    first, names, *lines = done.stdout.splitlines()
    assert first == "haxlb connection entries"
    assert names.split() == ["pro", "expire", "state", "source", "virtual", "destination"]
    said = [line.split() for line in lines]
    assert [each[:1] + each[2:] for each in said] == [
        ["TCP", "ESTABLISHED", "198.51.100.7:40000", "10.200.1.1:80", "10.200.1.2:80"],
        ["TCP", "SYN_RECV", "[2001:db8::77]:40001", "[2001:db8::1]:80", "10.200.1.3:80"],
    ]
    minutes, seconds = map(int, said[0][1].split(":"))
    assert 440 < 60 * minutes + seconds <= 500
    assert done.stderr == (
        "haxlb: TCP 10.200.1.1:443: no flows are on record, the hash of a packet says which server it goes to\n"
    )


@pytest.mark.usefixtures("filled")
def test_json_whole_and_in_lines(runtime: Path) -> None:
    whole = json.loads(show(runtime, "-c", "--json").stdout)
    assert whole["schema"] == "haxlb.connections/1"
    lines = [json.loads(line) for line in show(runtime, "-c", "--json-lines").stdout.splitlines()]
    assert [each["source"] for each in lines] == ["198.51.100.7:40000", "[2001:db8::77]:40001"]
    assert [{**each, "expires_s": 0} for each in whole["connections"]] == [{**each, "expires_s": 0} for each in lines]


def test_none_at_all(tables: FlowTables, runtime: Path) -> None:
    tables.clear()
    assert show(runtime, "-c").stdout.count("\n") == 2
    assert json.loads(show(runtime, "-c", "--json").stdout)["connections"] == []
    assert show(runtime, "-c", "--json-lines").stdout == ""


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--count", "1"), 1),
        (("--count", "7"), 2),
        (("--state", "SYN_RECV"), 1),
        (("--state", "SYN_RECV", "--state", "established"), 2),
        (("--service", "[2001:db8::1]:80"), 1),
        (("--server", "10.200.1.2"), 1),
        (("--client", "2001:db8::/32"), 1),
    ],
)
def test_filters(runtime: Path, arguments: tuple[str, ...], found: int) -> None:
    assert show(runtime, "-c", "--json-lines", *arguments).stdout.count("\n") == found


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ("-c", "--service", "10.200.1.1:8"),
            1,
            "no virtual server is called 10.200.1.1:8 (did you mean `10.200.1.1:80`?)",
        ),
        (("-c", "--server", "192.0.2.1"), 1, "no real server is called 192.0.2.1 (there are: 10.200.1.2:80, "),
        (("-c", "--state", "ESTABLISHD"), 1, "(did you mean `ESTABLISHED`?)"),
        (("-c", "--client", "web"), 1, "--client web: 'web' does not appear to be an IPv4 or IPv6 network"),
        (("-c", "--count", "0"), 2, "Invalid value for '--count'"),
        (("--count", "3"), 2, "--count go with -c only"),
        (("-c", "--stats"), 2, "-c does not go with --stats"),
        (("-c", "vrrp"), 2, "do not go with `vrrp`"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_line(
    runtime: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = show(runtime, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def waiting(pipe: int) -> int:
    """Bytes that nobody has read."""
    found = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


@pytest.mark.parametrize("amid", [False, True], ids=["at once", "amid a write"])
def test_a_reader_that_has_enough_ends_it_quietly(tables: FlowTables, runtime: Path, *, amid: bool) -> None:
    tables.clear()
    stamp = now()
    for number in range(MANY):
        entry = FlowEntry(
            source=IPv4Address("198.51.100.7"),
            source_port=number,
            frontend=FRONTEND,
            backend=1,
            incarnation=INCARNATION,
            state=FlowState.UDP,
            stamp=stamp,
        )
        tables.put("flows", number, entry)
    read, write = os.pipe()
    process = subprocess.Popen(
        [*HAXLB, "show", "--runtime-dir", runtime, "-c"],
        stdout=write,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(write)
    assert os.read(read, 8) == b"haxlb co"
    if amid:
        eventually(lambda: waiting(read) > PIPE_BYTES // 2, "it waits for its reader")
    os.close(read)
    _, said = process.communicate()
    assert said == b""
    assert process.returncode == 0


@pytest.mark.usefixtures("filled")
def test_a_sweep_that_goes_while_it_is_looked_for_is_passed_over(runtime: Path) -> None:
    gone = runtime / "bpf" / ABI / "sweep-gone"
    gone.symlink_to("nothing")
    try:
        done = show(runtime, "-c", "--json-lines")
    finally:
        gone.unlink()
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2), done.stderr


def test_without_a_data_plane(tmp_path: Path) -> None:
    done = show(tmp_path, "-c")
    assert done.returncode == 71
    assert done.stderr == (
        f"haxlb: there are no flow tables in {tmp_path} "
        "(start haxlb with a virtual server, or name its directory with --runtime-dir)\n"
    )


def test_tables_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "bpf" / f"{ABI}-other").mkdir(parents=True)
    done = show(tmp_path, "-c")
    assert done.returncode == 71
    assert "of another version of haxlb than this command" in done.stderr


@pytest.mark.usefixtures("filled")
def test_who_is_not_root_is_told_so(runtime: Path) -> None:
    done = show(runtime, "-c", user=65534, group=65534, extra_groups=[])
    assert (done.returncode, done.stdout) == (77, "")
    assert done.stderr == "haxlb: only root may read the flow tables (use sudo)\n"


def test_who_is_not_root_is_told_so_whether_the_directory_can_be_seen_or_not() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        hidden = Path(place) / "run"
        hidden.mkdir(mode=0o700)
        done = show(hidden, "-c", user=65534, group=65534, extra_groups=[])
    assert (done.returncode, done.stderr) == (77, "haxlb: only root may read the flow tables (use sudo)\n")

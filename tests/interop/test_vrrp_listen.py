"""Two keepaliveds that disagree in every way, one way for each VRID, and `haxlb vrrp listen` beside them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from tests.netns.standin import eventually, whole_lines

pytestmark = pytest.mark.interop

HAXLB = Path(sys.executable).with_name("haxlb")
PASS = "authentication {{\n auth_type {}\n auth_pass {}\n }}"
UNICAST = "unicast_src_ip 10.9.0.{}\n unicast_peer {{\n 10.9.0.{}\n }}"
DIFFERENT = {
    11: ("version", "version 2", "version 3"),
    12: ("interval", "advert_int 1", "advert_int 2"),
    13: ("authentication", "", PASS.format("PASS", "secret")),
    14: ("authentication", PASS.format("PASS", "secret"), PASS.format("PASS", "hidden")),
    15: ("authentication", PASS.format("AH", "secret"), PASS.format("PASS", "secret")),
    16: (
        "checksum",
        f"version 3\n old_unicast_checksum\n {UNICAST.format(1, 2)}",
        f"version 3\n old_unicast_checksum never\n {UNICAST.format(2, 1)}",
    ),
    18: ("addresses", "version 3", "version 3"),
    17: ("unicast and multicast", "version 3", f"version 3\n {UNICAST.format(2, 1)}"),
}
"""By VRID: what they disagree on, and what makes it so on d1 and on d2. All of them make two masters."""
STARVED = 12
"""Each advert of d1 puts the next one of d2 off by two seconds: d2 thinks it is MASTER, too, and has spoken once."""
HEALTHY, HEALTHY6 = 19, 20


def instance(vrid: int, name: str, words: str, vips: str, interval: str = "") -> str:
    lead = {"d1": 150, "d2": 100}[name]
    return (
        f"vrrp_instance VI_{vrid} {{\n state BACKUP\n interface eth0\n virtual_router_id {vrid}\n priority {lead}\n"
        f" {interval or '' if 'advert_int' in words else interval or 'advert_int 1'}\n {words}\n"
        f" virtual_ipaddress {{\n {vips}\n }}\n}}\n"
    )


def configuration(name: str) -> str:
    side = 1 if name == "d1" else 2
    lists = {18: f"10.9.1.18/32\n 10.9.2.{side}/32"}
    blocks = [instance(vrid, name, row[side], lists.get(vrid, f"10.9.1.{vrid}/32")) for vrid, row in DIFFERENT.items()]
    blocks += [
        instance(HEALTHY, name, "version 3", f"10.9.1.{HEALTHY}/32", "advert_int 0.1"),
        instance(HEALTHY6, name, "version 3", "fe80::100/64\n 2001:db8::100/128", "advert_int 0.1"),
    ]
    return f"global_defs {{\n router_id {name}\n}}\n" + "".join(blocks)


class Listening:
    """`haxlb vrrp listen --json` in a namespace, and what it has said so far."""

    def __init__(self, host: Host, path: Path, *words: str) -> None:
        self._path = path
        with path.open("wb") as stream:
            self.process: subprocess.Popen[Any] = host.start(
                str(HAXLB), "vrrp", "listen", "eth0", "--json", *words, stdout=stream
            )

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in whole_lines(self._path)]

    def disagreements(self) -> dict[int, set[str]]:
        """Begun, by VRID: the first word or two of what was said."""
        found: dict[int, set[str]] = {}
        for each in self.documents:
            if each["type"] == "event" and each["kind"] == "disagree":
                found.setdefault(each["router"]["vrid"], set()).add(each["message"].partition(":")[0])
        return found

    def spoken(self) -> set[tuple[int, str]]:
        return {
            (each["router"]["vrid"], each["source"])
            for each in self.documents
            if each["type"] == "event" and each["kind"] == "speaks"
        }

    def end(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        return self.documents[-1]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if not shutil.which("keepalived"):
        pytest.fail("keepalived is not installed: run `make setup`")
    with Lab(f"hxhear{os.getpid()}") as made:
        for number, name in enumerate(("d1", "d2", "cl"), 1):
            host = made.host(name, f"10.9.0.{number}/24")
            host.sysctl(net__ipv6__conf__eth0__accept_dad=0, net__ipv6__conf__eth0__disable_ipv6=0)
        yield made


def link_local(host: Host) -> str:
    """From which IPv6 adverts are sent."""

    def found() -> list[str]:
        (link,) = json.loads(host.run("ip", "-j", "address", "show", "dev", "eth0").stdout)
        scoped = [each for each in link["addr_info"] if each["family"] == "inet6" and each["scope"] == "link"]
        return [each["local"] for each in scoped if not each.get("tentative")]

    return eventually(found, "a link-local address")[0]


def start(host: Host, directory: Path) -> subprocess.Popen[Any]:
    conf = directory / f"{host.name}.conf"
    conf.write_text(configuration(host.name))
    pids = [word for flag in "prc" for word in (f"-{flag}", str(directory / f"{host.name}.{flag}"))]
    # Real-time: on a busy machine a BACKUP of adverts every 100 ms would take over, and be a second master indeed.
    daemon = ("chrt", "--rr", "1", "keepalived")
    words = (*daemon, "--dont-fork", "--log-console", "--no-syslog", "--vrrp", "-f", str(conf), *pids)
    with (directory / f"{host.name}.log").open("wb") as log:
        return host.start(*words, stdout=log, stderr=log)


def test_every_disagreement_is_found_and_a_healthy_router_has_none(lab: Lab, tmp_path: Path) -> None:
    capture = tmp_path / "capture.pcapng"
    dumpcap = lab.hosts["cl"].start("dumpcap", "-q", "-i", "eth0", "-w", str(capture), stderr=subprocess.PIPE)
    assert dumpcap.stderr is not None
    assert b"Capturing on" in dumpcap.stderr.readline()
    on_d1 = Listening(lab.hosts["d1"], tmp_path / "d1.out")
    beside = Listening(lab.hosts["cl"], tmp_path / "cl.out")
    first = start(lab.hosts["d1"], tmp_path)
    # The healthy ones have one master from the beginning: the second comes when the first speaks.
    healthy = {(HEALTHY, "10.9.0.1"), (HEALTHY6, link_local(lab.hosts["d1"]))}
    eventually(lambda: healthy <= on_d1.spoken() & beside.spoken(), "the healthy ones are heard")
    start(lab.hosts["d2"], tmp_path)
    about = {vrid: row[0] for vrid, row in DIFFERENT.items()}

    def all_found() -> bool:
        found = on_d1.disagreements()
        return all(
            any(each.startswith((word, "the passwords")) for each in found.get(vrid, ()))
            and (vrid == STARVED or "2 masters at once" in found[vrid])
            for vrid, word in about.items()
        )

    try:
        eventually(all_found, "all are found")
    except AssertionError:
        pytest.fail(f"of {about} there were {on_d1.disagreements()}")
    passing_by = {(14, "10.9.0.1"), (15, "10.9.0.1")}
    eventually(lambda: passing_by <= beside.spoken(), "those with authentication were heard")
    done = lab.hosts["cl"].run(
        str(HAXLB), "vrrp", "listen", "eth0", "--vrid", str(HEALTHY), "--seconds", "1", check=False
    )
    assert done.returncode == 0, done.stdout
    assert "no disagreement" in done.stdout

    first.send_signal(signal.SIGTERM)
    first.wait(timeout=60)
    eventually(lambda: (HEALTHY, "10.9.0.2") in on_d1.spoken() & beside.spoken(), "d2 took over")
    summaries = {name: each.end() for name, each in (("d1", on_d1), ("cl", beside))}
    for name, each in (("d1", on_d1), ("cl", beside)):
        assert each.process.returncode == 1, name
        assert HEALTHY not in each.disagreements()
        assert HEALTHY6 not in each.disagreements()
    assert "over the multicast group's pseudo-header" in str(summaries["d1"]["speakers"])
    speakers = {(each["router"]["vrid"], each["source"]): each for each in summaries["cl"]["speakers"]}
    assert speakers[14, "10.9.0.1"]["authentication"] == "PASS"
    assert speakers[15, "10.9.0.1"]["authentication"] == "AH"
    assert speakers[HEALTHY, "10.9.0.1"]["state"] == "resigned"
    six = [each for (vrid, _), each in speakers.items() if vrid == HEALTHY6]
    assert {each["router"]["family"] for each in six} == {6}
    assert six[0]["addresses"] == ["fe80::100", "2001:db8::100"]
    assert all(each["problems"] == {} for each in speakers.values())
    assert summaries["cl"]["lost"] == 0
    for text in (tmp_path / "d1.out", tmp_path / "cl.out"):
        assert "secret" not in text.read_text()
    dumpcap.send_signal(signal.SIGINT)
    dumpcap.communicate(timeout=60)
    decoded_as_tshark_does(capture, tmp_path)


def decoded_as_tshark_does(capture: Path, directory: Path) -> None:
    (directory / "secret").write_text("secret\n")
    words = [HAXLB, "vrrp", "decode", "--json", capture, "--auth-pass-file", directory / "secret"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    adverts = json.loads(done.stdout)["adverts"]
    fields = ("frame.number", "vrrp.version", "vrrp.virt_rtr_id", "vrrp.prio", "vrrp.addr_count")
    argv = ["tshark", "-r", capture, "-Y", "vrrp", "-T", "fields", *(word for each in fields for word in ("-e", each))]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [tuple(each[key] for key in ("number", "version", "vrid", "priority", "count")) for each in adverts]
    assert ours == [tuple(map(int, line.split("\t"))) for line in lines]
    refused = {(each["vrid"], one["reason"]) for each in adverts for one in each["findings"] if one["fatal"]}
    assert refused == {(14, "auth_failure")}, "d2 has another password there; d1's check values are right"
    assert any(each["ah"] for each in adverts)

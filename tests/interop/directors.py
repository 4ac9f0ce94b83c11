"""For tests: one director of a mixed pair, be it keepalived or haxlb, given the same keepalived.conf."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from lab import Host, run

from tests.netns.standin import eventually, whole_lines

HAXLB = Path(sys.executable).with_name("haxlb")
_COMPLAINTS = ("mismatch", "nvalid", "checksum", "bogus", "expected", "rror", "differ", "discard", "nable", "ailed")
"""Words in keepalived's log that mean that it did not like what it heard or was given."""
_HARMLESS = ("lower priority", "No buffer space available")
"""What it says of every preemption, and of an announcement on a link that has just been cut."""
_COUNTERS = {"Length", "TTL", "Invalid Type", "Advertisement Interval", "Address List", "Type Mismatch", "Failure"}


class Director(Protocol):
    """A VRRP implementation on one host."""

    host: Host
    number: int
    """1 has the highest priority."""

    def start(self, conf: str) -> None:
        """Start with this keepalived.conf, and wait until all instances are BACKUP."""

    def stop(self) -> None:
        """In order, and wait for the end."""

    def refused(self) -> dict[str, dict[str, int]]:
        """By instance: what it has refused of the others' adverts since its start, by reason."""

    def complaints(self) -> list[str]:
        """What it did not like, of its peer's messages or its configuration."""


def add_interface(host: Host, name: str, address: str) -> None:
    """One more link of a host, on a bridge that belongs to the links of this name."""
    switch = host.lab.switch_run
    switch(
        "ip", "link", "add", f"br-{name}", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0", check=False
    )
    switch("ip", "link", "set", f"br-{name}", "up")
    port = f"{name}-{host.name}"
    switch("ip", "link", "add", port, "type", "veth", "peer", "name", name, "netns", host.namespace)
    switch("ip", "link", "set", port, "master", f"br-{name}", "up")
    host.run("ip", "address", "add", address, "dev", name)
    host.run("ip", "link", "set", name, "up")


def reachable_by_both_families(host: Host, address: str) -> None:
    """Give a lab's host IPv6 with this address, on eth0 and on what is made of it later."""
    for each in ("all", "default", "eth0"):  # before there is a link-local address, or that is tentative for a second
        host.sysctl(**{f"net__ipv6__conf__{each}__accept_dad": 0})
    host.sysctl(net__ipv6__conf__all__disable_ipv6=0)
    host.run("ip", "address", "add", address, "dev", "eth0", "nodad")


class Own:
    """What a host has before any VRRP runs, and has again after a power failure."""

    def __init__(self, host: Host) -> None:
        self._host = host
        eventually(
            lambda: {link for link, each, _ in self._addresses() if each.startswith("fe80")} >= {"eth0", "eth1"},
            "link-local addresses",
        )
        self._before = self._addresses()

    def power_failure(self) -> None:
        """Link and processes gone, and what the kernel of a host without power does not keep either."""
        self._host.power_off()
        for link in json.loads(self._host.run("ip", "-j", "link", "show", "type", "macvlan").stdout or "[]"):
            self._host.run("ip", "link", "delete", link["ifname"])
        for interface, address, length in self._addresses() - self._before:
            # Those of haxlb may have gone by themselves meanwhile.
            self._host.run("ip", "address", "delete", f"{address}/{length}", "dev", interface, check=False)

    def _addresses(self) -> set[tuple[str, str, int]]:
        links = json.loads(self._host.run("ip", "-j", "address", "show").stdout)
        return {(link["ifname"], each["local"], each["prefixlen"]) for link in links for each in link["addr_info"]}


def every_address(host: Host) -> set[str]:
    """Addresses of all interfaces of a host."""
    links = json.loads(host.run("ip", "-j", "address", "show").stdout)
    return {each["local"] for link in links for each in link["addr_info"]}


class Log:
    """A daemon's log file, to wait for what is said after a start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def text(self, offset: int = 0) -> str:
        return self.path.read_bytes()[offset:].decode(errors="replace")

    def start(self, host: Host, *argv: str, until: str, times: int = 1, **options: Any) -> subprocess.Popen[Any]:
        """Start a daemon that logs here, and wait until it has said this so often."""
        offset = len(self.path.read_bytes())
        with self.path.open("ab") as stream:
            process = host.start(*argv, stdout=stream, stderr=stream, **options)
        eventually(lambda: self.text(offset).count(until) >= times, f"{until!r} in {self.path}", 90)
        return process


class Keepalived:
    """Debian's keepalived."""

    def __init__(self, host: Host, number: int, directory: Path) -> None:
        self.host = host
        self.number = number
        self._directory = directory
        directory.mkdir()
        self._log = Log(directory / "log")

    def start(self, conf: str) -> None:
        (self._directory / "conf").write_text(conf)
        files = {flag: self._directory / f"pid.{flag}" for flag in "prc"}
        # SIGKILL leaves pid files behind, and keepalived takes them for a running daemon's.
        for each in files.values():
            each.unlink(missing_ok=True)
        self._process = self._log.start(
            self.host,
            # In the class of haxlb's speaker: on a busy machine a BACKUP of adverts every 100 ms would take over.
            *("chrt", "--rr", "1"),
            *("keepalived", "--dont-fork", "--log-console", "--log-detail", "--no-syslog", "--vrrp"),
            *("-f", str(self._directory / "conf")),
            *(word for flag, path in files.items() for word in (f"-{flag}", str(path))),
            until="Entering BACKUP STATE (init)",
            times=conf.count("vrrp_instance"),
            env={**os.environ, "TMPDIR": str(self._directory)},  # where it writes its statistics
        )

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=60)

    def refused(self) -> dict[str, dict[str, int]]:
        path = self._directory / "keepalived.stats"
        path.unlink(missing_ok=True)
        os.kill(int((self._directory / "pid.r").read_text()), signal.SIGUSR2)
        count = (self._directory / "conf").read_text().count("vrrp_instance")
        text = eventually(
            lambda: path.exists() and (said := path.read_text()).count("Priority Zero:\n") == count and said, str(path)
        )
        assert text
        found: dict[str, dict[str, int]] = {}
        name = ""
        for line in text.splitlines():
            key, _, value = line.strip().partition(": ")
            if key == "VRRP Instance":
                name = value
            elif key in _COUNTERS and int(value):
                found.setdefault(name, {})[key] = int(value)
        return found

    def complaints(self) -> list[str]:
        lines = self._log.text().splitlines()
        return [
            line
            for line in lines
            if any(word in line for word in _COMPLAINTS) and not any(word in line for word in _HARMLESS)
        ]


class Haxlb:
    """`haxlb run`, given the very same file."""

    def __init__(self, host: Host, number: int, directory: Path) -> None:
        self.host = host
        self.number = number
        self._directory = directory
        directory.mkdir()
        self._log = Log(directory / "log")

    def start(self, conf: str) -> None:
        (self._directory / "conf").write_text(conf)
        options = ("-f", str(self._directory / "conf"), "--runtime-dir", str(self._directory / "run"))
        self._process = self._log.start(
            self.host,
            *(str(HAXLB), "run", *options, "--settings", str(self._directory / "absent"), "--log-format", "json"),
            until='"to": "BACKUP"',
            times=conf.count("vrrp_instance"),
        )

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(timeout=60) == 0

    def instances(self) -> dict[str, Any]:
        """`haxlb show vrrp --json`, by instance."""
        told = run(str(HAXLB), "show", "vrrp", "--json", "--runtime-dir", str(self._directory / "run")).stdout
        return {each["name"]: each for each in json.loads(told)["instances"]}

    def refused(self) -> dict[str, dict[str, int]]:
        return {name: each["adverts_rejected"] for name, each in self.instances().items() if each["adverts_rejected"]}

    def complaints(self) -> list[str]:
        lines = whole_lines(self._log.path)
        # All that is logged is JSON; anything else is somebody's complaint on stderr.
        return [
            line
            for line in lines
            if not line.startswith("{")
            or (json.loads(line)["level"] not in {"debug", "info"} and "advert_interval_differs" not in line)
        ]

"""For tests: one director of a mixed pair, be it keepalived or haxlb, and the configuration that both are given."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Protocol

from lab import Host

from tests.netns.standin import eventually

VIP = IPv4Address("10.9.0.100")
ADDRESSES = {"d1": IPv4Address("10.9.0.1"), "d2": IPv4Address("10.9.0.2")}
PASSWORD = "s3cr3t"
HAXLB = Path(sys.executable).with_name("haxlb")
_COMPLAINTS = ("mismatch", "nvalid", "checksum", "bogus", "expected", "rror", "differ")
"""Words in keepalived's log that mean that it did not like what it heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One director's vrrp_instance."""

    name: str
    version: int
    unicast: bool
    priority: int
    nopreempt: bool = False

    @property
    def advert_interval_us(self) -> int:
        return 1_000_000 if self.version == 2 else 100_000

    @property
    def peer(self) -> IPv4Address:
        return ADDRESSES["d2" if self.name == "d1" else "d1"]

    @property
    def skew_ms(self) -> float:
        """RFC 3768: fractions of a second; RFC 9568: of the interval."""
        unit_ms = 1000 if self.version == 2 else self.advert_interval_us / 1000
        return (256 - self.priority) / 256 * unit_ms

    @property
    def down_ms(self) -> float:
        """master_down_interval."""
        return 3 * self.advert_interval_us / 1000 + self.skew_ms

    def keepalived_conf(self) -> str:
        lines = [
            "global_defs {",
            f"    router_id {self.name}",
            "}",
            "vrrp_instance VI_1 {",
            f"    version {self.version}",
            "    state BACKUP",
            "    interface eth0",
            "    virtual_router_id 51",
            f"    priority {self.priority}",
            f"    advert_int {self.advert_interval_us / 1_000_000:g}",
            "    garp_master_delay 1",
        ]
        if self.nopreempt:
            lines.append("    nopreempt")
        if self.version == 2:
            lines += ["    authentication {", "        auth_type PASS", f"        auth_pass {PASSWORD}", "    }"]
        if self.unicast:
            lines += [f"    unicast_src_ip {ADDRESSES[self.name]}", f"    unicast_peer {{\n        {self.peer}\n    }}"]
        lines += [f"    virtual_ipaddress {{\n        {VIP}/32\n    }}", "}"]
        return "\n".join(lines) + "\n"


class Director(Protocol):
    """A VRRP implementation on one host."""

    host: Host
    settings: Settings
    late_ms: float
    """How much later than the theory it may take over while the machine is busy with the other pairs."""

    def start(self) -> None:
        """Start, and wait until it is BACKUP."""

    def stop(self) -> None:
        """In order, and wait for the end."""

    def crash(self) -> None:
        """Power failure: link and processes gone."""

    def complaints(self) -> list[str]:
        """What it did not like about its peer's messages."""


def power_failure(host: Host) -> None:
    """Link and processes gone, and what the kernel of a host without power does not keep either."""
    host.power_off()
    host.run("ip", "address", "del", f"{VIP}/32", "dev", "eth0", check=False)


class Log:
    """A daemon's log file, to wait for what is said after a start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def text(self, offset: int = 0) -> str:
        return self.path.read_bytes()[offset:].decode(errors="replace")

    def start(self, host: Host, *argv: str, until: str) -> subprocess.Popen[Any]:
        """Start a daemon that logs here, and wait until it has said this."""
        offset = len(self.path.read_bytes())
        with self.path.open("ab") as stream:
            process = host.start(*argv, stdout=stream, stderr=stream)
        eventually(lambda: until in self.text(offset), f"{until!r} in {self.path}", 30)
        return process


class Keepalived:
    """Debian's keepalived."""

    late_ms = 250.0

    def __init__(self, host: Host, settings: Settings, directory: Path) -> None:
        self.host = host
        self.settings = settings
        self._directory = directory
        self._log = Log(directory / f"{settings.name}.log")

    def start(self) -> None:
        files = {each: self._directory / f"{self.settings.name}.{each}" for each in ("conf", "pid", "vrrp", "check")}
        files["conf"].write_text(self.settings.keepalived_conf())
        # SIGKILL leaves pid files behind, and keepalived takes them for a running daemon's.
        for each in ("pid", "vrrp", "check"):
            files[each].unlink(missing_ok=True)
        self._process = self._log.start(
            self.host,
            *("keepalived", "--dont-fork", "--log-console", "--log-detail", "--no-syslog", "--vrrp"),
            *("-f", str(files["conf"]), "-p", str(files["pid"]), "-r", str(files["vrrp"]), "-c", str(files["check"])),
            until="Entering BACKUP STATE (init)",
        )

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=15)

    def crash(self) -> None:
        power_failure(self.host)

    def complaints(self) -> list[str]:
        lines = self._log.text().splitlines()
        return [line for line in lines if any(word in line for word in _COMPLAINTS)]


class Haxlb:
    """`haxlb run`, given the very same file."""

    late_ms = 50.0

    def __init__(self, host: Host, settings: Settings, directory: Path) -> None:
        self.host = host
        self.settings = settings
        self._config = directory / f"{settings.name}.conf"
        self._log = Log(directory / f"{settings.name}.log")
        self._options = (
            *("-f", str(self._config), "--runtime-dir", str(directory / f"{settings.name}.run")),
            *("--settings", str(directory / "absent.yml"), "--log-format", "json"),
        )

    def start(self) -> None:
        self._config.write_text(self.settings.keepalived_conf())
        self._process = self._log.start(self.host, str(HAXLB), "run", *self._options, until='"to": "BACKUP"')

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(timeout=15) == 0

    def crash(self) -> None:
        power_failure(self.host)

    def complaints(self) -> list[str]:
        lines = self._log.text().splitlines()
        # All that is logged is JSON; anything else is somebody's complaint on stderr.
        return [
            line for line in lines if not line.startswith("{") or json.loads(line)["level"] not in {"debug", "info"}
        ]

"""For tests: FRR's vrrpd on a host, with zebra and the macvlans that it wants."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lab import Host

from tests.netns.standin import eventually

DAEMONS = Path("/usr/lib/frr")


def open_place() -> TemporaryDirectory[str]:
    """A directory for a daemon that gives up root, to clean up.

    Not below pytest's: each other pytest of this user that starts takes everybody's right to pass there.
    """
    place: TemporaryDirectory[str] = TemporaryDirectory(prefix="hxfrr", ignore_cleanup_errors=True)
    shutil.chown(place.name, "frr", "frr")
    return place


class Frr:
    """One virtual router of both families: vrrpd takes a macvlan with the virtual MAC for each, and the VIPs on them.

    It holds the VIPs all the time; as Backup it keeps the macvlan down (protodown).
    """

    def __init__(self, host: Host, directory: Path, *, vrid: int, priority: int, vips: dict[int, str]) -> None:
        self.host = host
        self.priority = priority
        self._log = directory / "log"
        self._vrid = vrid
        self._vips = vips
        directory.mkdir()
        self._place = open_place()
        self._directory = Path(self._place.name)
        self._processes: list[subprocess.Popen[Any]] = []

    def add_links(self) -> None:
        """The macvlans, once after each start of the host."""
        for family, vip in self._vips.items():
            name, mac = f"vrrp{family}", f"00:00:5e:00:0{1 if family == 4 else 2}:{self._vrid:02x}"
            self.host.run(
                "ip", "link", "add", name, "link", "eth0", "address", mac, "type", "macvlan", "mode", "bridge"
            )
            self.host.run("ip", "address", "add", vip, "dev", name)
            self.host.run("ip", "link", "set", name, "up")

    def start(self, *, interval_ms: int) -> None:
        """Start, and wait until it is Backup."""
        conf = self._directory / "frr.conf"
        conf.write_text(
            f"interface eth0\n vrrp {self._vrid} version 3\n vrrp {self._vrid} priority {self.priority}\n"
            f" vrrp {self._vrid} advertisement-interval {interval_ms}\n"
            + "".join(
                f" vrrp {self._vrid} {'ip' if family == 4 else 'ipv6'} {vip.partition('/')[0]}\n"
                for family, vip in self._vips.items()
            )
            + "exit\n"
        )
        with self._log.open("ab") as log:
            for daemon in ("zebra", "vrrpd"):
                socket = self._directory / f"{daemon}.vty"
                socket.unlink(missing_ok=True)
                own = ("-f", str(conf)) if daemon == "vrrpd" else ("-f", "/dev/null")
                process = self.host.start(
                    *(str(DAEMONS / daemon), *own, "-i", str(self._directory / f"{daemon}.pid")),
                    *("-z", str(self._directory / "zserv"), "--vty_socket", str(self._directory), "-P", "0"),
                    *("-u", "frr", "-g", "frr", "--log", "stdout", "--log-level", "debug"),
                    stdout=log,
                    stderr=log,
                )
                self._processes.append(process)
                eventually(socket.exists, f"{daemon} answers, see {self._log}")

    def stop(self) -> None:
        """In order: vrrpd resigns."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait(timeout=60)
        self._processes.clear()

    def close(self) -> None:
        """Remove its directory."""
        self._place.cleanup()

    def roles(self) -> dict[str, str]:
        """By family, v4 and v6."""
        answer = self.show()
        return {family: each["status"] for family, each in answer.items() if family in {"v4", "v6"}}

    def show(self) -> dict[str, Any]:
        """`show vrrp json` of the one virtual router; empty while it does not answer."""
        options = ("vtysh", "--vty_socket", str(self._directory), "-c", "show vrrp json")
        try:
            found: list[dict[str, Any]] = json.loads(self.host.run(*options, check=False).stdout)
        except ValueError:
            return {}
        return found[0] if found else {}

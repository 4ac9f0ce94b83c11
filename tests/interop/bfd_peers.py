"""For tests: other implementations of BFD on a host, each with one session to 10.9.0.1 or 2001:db8::1."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Protocol

from lab import Host

from tests.interop.frr import open_place
from tests.netns.standin import eventually

BFDD = "/usr/lib/frr/bfdd"
ADDRESSES = {4: ("10.9.0.1", "10.9.0.2"), 6: ("2001:db8::1", "2001:db8::2")}
"""Ours and theirs, by family."""


class Peer(Protocol):
    """The neighbour of a session of ours."""

    def start(self, *, interval_ms: int, multiplier: int, passive: bool = False, family: int = 4) -> None:
        """Start with this configuration; the process runs when this returns, the session may still be Down."""

    def change(self, *, interval_ms: int, multiplier: int) -> None:
        """Change the running session."""

    def kill(self) -> None:
        """SIGKILL."""

    def stop(self) -> None:
        """Whatever runs, for good; once or more often."""

    def says_up(self) -> bool:
        """What it thinks of the session."""


class Frr:
    """FRR's bfdd, without zebra."""

    def __init__(self, host: Host, directory: Path) -> None:
        self._host = host
        directory.mkdir()
        self._log = directory / "log"
        self._place = open_place()
        self._directory = Path(self._place.name)
        self._peer = ""

    def start(
        self, *, interval_ms: int, multiplier: int, passive: bool = False, family: int = 4, multihop: bool = False
    ) -> None:
        ours, theirs = ADDRESSES[family]
        local = f" local-address {theirs}" if multihop or family == 6 else ""
        self._peer = f"peer {ours}{' multihop' if multihop else ''}{local}"
        conf = self._directory / "bfdd.conf"
        lines = ["bfd", f" {self._peer}", *(f"  {each}" for each in _frr_words(interval_ms, multiplier))]
        conf.write_text("\n".join([*lines, *(["  passive-mode"] if passive else []), "  no shutdown", " !", ""]))
        with self._log.open("a") as stream:
            self._host.start(
                *(BFDD, "-f", str(conf), "-i", str(self._directory / "pid"), "-z", str(self._directory / "zserv")),
                *("--bfdctl", str(self._directory / "ctl"), "--vty_socket", str(self._directory), "-P", "0"),
                *("-u", "frr", "-g", "frr", "--log", "stdout"),
                stdout=stream,
                stderr=stream,
            )
        eventually(self._peers, f"bfdd has its session, see {self._log}")

    def change(self, *, interval_ms: int, multiplier: int) -> None:
        self.order(*_frr_words(interval_ms, multiplier))

    def order(self, *words: str) -> None:
        """Configuration commands for the session."""
        self._vtysh("configure terminal", "bfd", self._peer, *words)

    def kill(self) -> None:
        self._host.kill()

    def stop(self) -> None:
        self.kill()
        self._place.cleanup()

    def says_up(self) -> bool:
        return [each["status"] for each in self._peers()] == ["up"]

    def _peers(self) -> list[dict[str, str]]:
        try:
            answer: list[dict[str, str]] = json.loads(self._vtysh("show bfd peers json"))
        except ValueError:  # it does not answer yet
            return []
        return answer

    def _vtysh(self, *commands: str) -> str:
        options = [word for each in commands for word in ("-c", each)]
        return self._host.run("vtysh", "--vty_socket", str(self._directory), *options, check=False).stdout


def _frr_words(interval_ms: int, multiplier: int) -> list[str]:
    return [
        f"detect-multiplier {multiplier}",
        f"receive-interval {interval_ms}",
        f"transmit-interval {interval_ms}",
    ]


class Keepalived:
    """Debian's keepalived: a VRRP instance that tracks the session."""

    def __init__(self, host: Host, directory: Path) -> None:
        self._host = host
        self._directory = directory
        directory.mkdir()
        self._conf = directory / "conf"
        self._log = directory / "log"
        self._passive, self._family = False, 4

    def start(self, *, interval_ms: int, multiplier: int, passive: bool = False, family: int = 4) -> None:
        self._passive, self._family = passive, family
        self._write(interval_ms, multiplier)
        # SIGKILL leaves pid files behind, and keepalived takes them for a running daemon's.
        files = {each: self._directory / f"pid.{each}" for each in "prcb"}
        for each in files.values():
            each.unlink(missing_ok=True)
        offset = len(self._text())
        with self._log.open("a") as stream:
            self._process = self._host.start(
                *("keepalived", "--dont-fork", "--log-console", "--log-detail", "--no-syslog", "-f", str(self._conf)),
                *(word for option, path in files.items() for word in (f"-{option}", str(path))),
                stdout=stream,
                stderr=stream,
            )
        eventually(lambda: "Startup complete" in self._text()[offset:], f"keepalived runs, see {self._log}")

    def change(self, *, interval_ms: int, multiplier: int) -> None:
        self._write(interval_ms, multiplier)
        self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        self._host.kill()

    stop = kill

    def says_up(self) -> bool:
        """By what the VRRP process heard last."""
        words = [line.rsplit(maxsplit=1)[-1] for line in self._text().splitlines() if "Tracked BFD instance" in line]
        return words[-1:] == ["UP"]

    def _text(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def _write(self, interval_ms: int, multiplier: int) -> None:
        ours, theirs = ADDRESSES[self._family]
        lines = [
            "bfd_instance haxlb {",
            f"    neighbor_ip {ours}",
            f"    source_ip {theirs}",
            f"    min_rx {interval_ms}",
            f"    min_tx {interval_ms}",
            f"    multiplier {multiplier}",
            *(["    passive"] if self._passive else []),
            "}",
            "vrrp_instance VI_1 {",
            "    interface eth0",
            "    virtual_router_id 51",
            "    priority 100",
            "    virtual_ipaddress {",
            "        10.9.0.100/32",
            "    }",
            "    track_bfd {",
            "        haxlb",
            "    }",
            "}",
        ]
        self._conf.write_text("\n".join(lines) + "\n")

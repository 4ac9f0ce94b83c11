"""For tests: one director of a mixed pair, be it keepalived or haxlb, and the configuration that both are given."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Protocol

from lab import Host

from haxlb.daemon.messages import Stop
from haxlb.model.facts import AdvertRejected
from haxlb.model.node import GarpConfig, VrrpInstance
from tests.netns.standin import SpeakerHandle, vip

VIP = IPv4Address("10.9.0.100")
ADDRESSES = {"d1": IPv4Address("10.9.0.1"), "d2": IPv4Address("10.9.0.2")}
PASSWORD = "s3cr3t"
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

    def instance(self) -> VrrpInstance:
        instance = VrrpInstance(
            name="VI_1",
            interface="eth0",
            vrid=51,
            priority=self.priority,
            version=self.version,
            advert_interval_us=self.advert_interval_us,
            nopreempt=self.nopreempt,
            auth_pass=PASSWORD if self.version == 2 else None,
            vips=(vip(str(VIP)),),
            garp=GarpConfig(master_delay_us=1_000_000),
        )
        if self.unicast:
            return replace(instance, source=ADDRESSES[self.name], peers=(self.peer,))
        return instance


class Director(Protocol):
    """A VRRP implementation on one host."""

    host: Host
    settings: Settings
    late_ms: float
    """How much later than the theory it may take over while the machine is busy with the other pairs."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """In order, and wait for the end."""

    def crash(self) -> None:
        """Power failure: link and processes gone."""

    def complaints(self) -> list[str]:
        """What it did not like about its peer's messages."""

    def close(self) -> None:
        """Release what the test holds of it; its processes end with the lab."""


class Keepalived:
    """Debian's keepalived."""

    late_ms = 250.0

    def __init__(self, host: Host, settings: Settings, directory: Path) -> None:
        self.host = host
        self.settings = settings
        self._directory = directory
        self._log = directory / f"{settings.name}.log"

    def start(self) -> None:
        files = {each: self._directory / f"{self.settings.name}.{each}" for each in ("conf", "pid", "vrrp", "check")}
        files["conf"].write_text(self.settings.keepalived_conf())
        # SIGKILL leaves pid files behind, and keepalived takes them for a running daemon's.
        for each in ("pid", "vrrp", "check"):
            files[each].unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = self.host.start(
                *("keepalived", "--dont-fork", "--log-console", "--log-detail", "--no-syslog", "--vrrp"),
                *("-f", str(files["conf"]), "-p", str(files["pid"]), "-r", str(files["vrrp"])),
                *("-c", str(files["check"])),
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=15)

    def crash(self) -> None:
        self.host.power_off()

    def complaints(self) -> list[str]:
        lines = self._log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(word in line for word in _COMPLAINTS)]

    def close(self) -> None:
        return


class HaxlbSpeaker:
    """haxlb's speaker process, the supervisor being the test."""

    late_ms = 50.0

    def __init__(self, host: Host, settings: Settings, directory: Path) -> None:
        del directory
        self.host = host
        self.settings = settings
        self._speakers: list[SpeakerHandle] = []

    def start(self) -> None:
        self._speakers.append(SpeakerHandle(self.host))
        assert self._speakers[-1].configure(self.settings.instance()) == ""

    def stop(self) -> None:
        self._speakers[-1].send(Stop(reason="test"))
        self._speakers[-1].process.wait(timeout=15)
        self._speakers[-1].close()

    def crash(self) -> None:
        self.host.power_off()
        self._speakers[-1].close()

    def complaints(self) -> list[str]:
        return [str(fact) for each in self._speakers for fact in each.facts(AdvertRejected)]

    def close(self) -> None:
        for each in self._speakers:
            each.close()

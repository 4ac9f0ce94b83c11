"""For tests: whole directors, `haxlb run` each on a host of its own, and a client who hears them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Self

from lab import Host, Lab

from haxlb.cli.client import ask
from haxlb.daemon.control import Show
from haxlb.linux.bpffs import unmount
from haxlb.model.errors import Unreachable
from haxlb.model.instance import Role
from haxlb.model.status import NodeStatus
from tests.netns.standin import LIMIT_S, Ear, addresses, eventually, whole_lines

HAXLB = Path(sys.executable).with_name("haxlb")
VIP = IPv4Address("10.8.0.100")
ONE, TWO = IPv4Address("10.8.0.1"), IPv4Address("10.8.0.2")


def configuration(
    name: str, priority: int, *, vips: tuple[str, ...] = ("10.8.0.100/24",), servers: bool = True, unicast: str = ""
) -> str:
    """A director of version 3 with ten adverts a second: everything takes a tenth of the usual time."""
    listed = "\n".join(f"        {vip}" for vip in vips)
    service = """
virtual_server 10.8.0.100 80 {
    delay_loop 1
    lb_algo wrr
    lb_kind DR
    protocol TCP
    real_server 10.8.0.10 80 {
        TCP_CHECK {
            connect_timeout 1
        }
    }
}
"""
    return f"""
global_defs {{
    router_id {name}
}}
vrrp_instance VI_1 {{
    version 3
    interface eth0
    virtual_router_id 51
    priority {priority}
    advert_int 0.1
    {unicast}
    virtual_ipaddress {{
{listed}
    }}
}}
{service if servers else ""}
"""


class Director:
    """`haxlb run` on a host."""

    def __init__(self, host: Host, directory: Path, text: str, *, settings: str = "") -> None:
        directory.mkdir()
        self.host = host
        self.config = directory / "keepalived.conf"
        self.config.write_text(text)
        self.settings = directory / "haxlb.yml"
        # The lab's links are veths whose other ends carry a program.
        self.settings.write_text("forwarding:\n  mode: native\n" + settings)
        self.runtime_dir = directory / "run"
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def argv(self) -> list[str]:
        return [
            str(HAXLB),
            "run",
            *("-f", str(self.config)),
            *("--settings", str(self.settings)),
            *("--runtime-dir", str(self.runtime_dir)),
            *("--log-level", "debug"),
        ]

    def start(self, *wrapper: str) -> Director:
        with self.log.open("ab") as log:
            self.process = self.host.start(*wrapper, *self.argv(), stdout=log, stderr=log)
        return self

    def refused(self, *wrapper: str) -> subprocess.CompletedProcess[str]:
        """Start where it must not start, and wait for its end."""
        return self.host.run(*wrapper, *self.argv(), check=False)

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(HAXLB), *words, "--runtime-dir", str(self.runtime_dir)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)

    def status(self) -> NodeStatus | None:
        """None while nobody answers."""
        try:
            return ask(self.runtime_dir, Show()).status
        except Unreachable:
            return None

    def answered(self) -> NodeStatus:
        """One that is of now: of a process that does not answer within a second haxlb shows what was known last."""

        return eventually(self._answered, f"all of {self.host.name} answers")

    def role(self) -> Role | None:
        status = self.status()
        return status.instances[0].role if status and status.instances else None

    def becomes(self, role: Role) -> None:
        try:
            eventually(lambda: self._is(role), f"{self.host.name} becomes {role.value}")
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.log.read_text()[-3000:]}") from None

    def pid(self, name: str) -> int:
        status = self.status()
        assert status is not None
        return next(each.pid for each in status.processes if each.name == name)

    def events(self) -> list[str]:
        return [line["event"] for line in self._logged()]

    def lines(self, event: str) -> list[dict[str, Any]]:
        """What it has logged of this event."""
        return [line for line in self._logged() if line["event"] == event]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=LIMIT_S)

    def close(self) -> None:
        self.host.kill()
        unmount(self.runtime_dir / "bpf")

    def _logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in whole_lines(self.log) if line.startswith("{")]

    def _answered(self) -> NodeStatus | None:
        status = self.status()
        late = status is None or any(each.problem == "did not answer" for each in status.processes)
        return None if late else status

    def _is(self, role: Role) -> bool:
        status = self._answered()
        return status is not None and bool(status.instances) and status.instances[0].role is role


class Site:
    """A client with an ear, and directors. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.lab = Lab(f"hxsv{os.getpid()}")
        self.lab.__enter__()
        self.directory = directory
        self.directors: list[Director] = []
        try:
            self.client = self.lab.host("cl", "10.8.0.10/24")
            self.ear = Ear(self.client.namespace)
        except BaseException:
            self.lab.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, name: str, text: str, *, settings: str = "") -> Director:
        """One more director with this keepalived.conf, not started yet."""
        host = self.lab.host(name, f"10.8.0.{len(self.directors) + 1}/24", director=True)
        made = Director(host, self.directory / name, text, settings=settings)
        self.directors.append(made)
        return made

    def director(self, name: str, priority: int, *, settings: str = "", **options: Any) -> Director:
        """Likewise, with the usual one."""
        return self.add(name, configuration(name, priority, **options), settings=settings)

    def close(self) -> None:
        self.ear.close()
        for director in self.directors:
            director.close()
        self.lab.close()


def has_vip(director: Director, vip: IPv4Address = VIP) -> bool:
    return vip in addresses(director.host)


def carries_xdp(director: Director) -> bool:
    return "prog/xdp" in director.host.run("ip", "link", "show", "eth0").stdout

"""The demo's network and who stands on it: a client, two directors, three web servers, each in a namespace.

client .200 ──┐                 ┌── web1 .21  weight 3
              ├── one bridge ───┼── web2 .22  weight 2
lb1 .11 lb2 .12 ┘               └── web3 .23  weight 1        VIP 192.168.10.100:80
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from lab import Host, Lab, run

from haxlb.model.errors import HostError, NotPermitted, PeerError
from haxlb.model.instance import Role
from haxlb.model.status import InstanceStatus, NodeStatus, ProcessStatus
from haxlb.model.wire import from_json

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial"
KIT = ROOT / "deploy" / "real-server" / "haxlb-real-server"
HAXLB = Path(sys.executable).with_name("haxlb")

PREFIX = "hxdemo"
VIP = "192.168.10.100"
PORT = 80
WEB_SERVERS = {"web1": "192.168.10.21", "web2": "192.168.10.22", "web3": "192.168.10.23"}
"""Names and addresses, as in docs/tutorial/keepalived.conf."""
DIRECTORS = {"lb1": ("192.168.10.11/24", "keepalived.conf"), "lb2": ("192.168.10.12/24", "keepalived-backup.conf")}

NGINX_CONF = """\
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_timeout 1h;
    keepalive_requests 1000000;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    default_type text/plain;
    server {{
        listen 80;
        location / {{ return 200 "{name}\\n"; }}
        location = /health {{ return 200 "ok\\n"; }}
    }}
}}
"""


class NotSeen(HostError):
    """Something that had to happen did not happen in time."""


def wait_for(what: str, fact: Callable[[], T | None], seconds: float, *, every: float = 0.2) -> T:
    """Look until `fact` gives something true, and give that. Raises NotSeen after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        seen = fact()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise NotSeen(f"{what}: not within {seconds:g} s")
        time.sleep(every)


class WebServer:
    """A real server: nginx that answers with its name, the VIP on lo."""

    def __init__(self, lab: Lab, name: str, directory: Path) -> None:
        self.name = name
        self.address = WEB_SERVERS[name]
        self.host = lab.host(name, f"{self.address}/24")
        self._directory = directory
        directory.mkdir()
        (directory / "nginx.conf").write_text(NGINX_CONF.format(directory=directory, name=name), encoding="ascii")
        self.host.run(str(KIT), "up", VIP)

    def start(self) -> None:
        """Start nginx and wait until it listens."""
        with (self._directory / "output.log").open("ab") as output:
            self.host.start(
                "nginx", "-p", str(self._directory), "-e", str(self._directory / "error.log"),
                "-c", str(self._directory / "nginx.conf"), stdout=output, stderr=output,
            )  # fmt: skip
        wait_for(f"{self.name} listens on port {PORT}", self._listens, 60, every=0.05)

    def kill(self) -> None:
        """SIGKILL to nginx and its worker at once; the machine itself, its kernel and its addresses stay."""
        self.host.kill(signal.SIGKILL)

    def resets(self) -> int:
        """Connections that its kernel has refused or reset so far (TcpOutRsts)."""
        text = self.host.run("cat", "/proc/net/snmp").stdout
        names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
        return int(values[names.index("OutRsts")])

    def _listens(self) -> bool:
        return bool(self.host.run("ss", "-Hltn", "sport", "=", f":{PORT}").stdout)


class Director:
    """One of the pair: `haxlb run` with a runtime directory of its own."""

    def __init__(self, lab: Lab, name: str, directory: Path) -> None:
        self.name = name
        address, config = DIRECTORS[name]
        self.host: Host = lab.host(name, address, director=True)
        self.config = TUTORIAL / config
        self.runtime = directory / "run"
        self.settings = directory / "haxlb.yml"
        self.log = directory / "haxlb.log"
        directory.mkdir()
        # Settings of its own: the machine's /etc/haxlb/haxlb.yml is not this pair's. Native, although the links are
        # veths: the lab puts a program on their other ends.
        self.settings.write_text("forwarding:\n  mode: native\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon; returns at once."""
        with self.log.open("ab") as log:
            self._process = self.host.start(
                str(HAXLB), "run", "-f", str(self.config), "--settings", str(self.settings),
                "--runtime-dir", str(self.runtime), "--log-format", "console", stdout=log, stderr=log,
            )  # fmt: skip

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Give the daemon a command as an operator does. Raises HostError when it is refused."""
        done = run(str(HAXLB), *arguments, "--runtime-dir", str(self.runtime), check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise HostError(f"{self.name}: haxlb {' '.join(arguments)}: exit {done.returncode}: {said}")
        return done

    def status(self) -> NodeStatus | None:
        """`haxlb show --json`; None while one of its processes does not answer. Raises NotSeen when it has died."""
        if self._process is not None and self._process.poll() is not None:
            raise NotSeen(f"{self.name}: haxlb run has ended with exit code {self._process.returncode}\n{self.tail()}")
        done = run(str(HAXLB), "show", "--json", "--runtime-dir", str(self.runtime), check=False)
        if done.returncode:
            return None
        try:
            status: NodeStatus = from_json(NodeStatus, json.loads(done.stdout))
        except (ValueError, PeerError) as problem:
            raise HostError(f"{self.name}: haxlb show --json: {problem}") from problem
        # Of such a process it would show what was known last.
        return None if any(each.problem == "did not answer" for each in status.processes) else status

    def instance(self) -> InstanceStatus | None:
        """The pair's VRRP instance as this director sees it."""
        status = self.status()
        return status.instances[0] if status and status.instances else None

    def is_in(self, role: Role) -> bool:
        """The instance is in this role now."""
        instance = self.instance()
        return instance is not None and instance.role is role

    def forwards_to(self) -> frozenset[str] | None:
        """Names of the web servers that get new connections from this director; None while it is not forwarding."""
        status = self.status()
        if status is None or not status.virtual_servers or not status.data_plane.links or status.data_plane.problem:
            return None
        names = {address: name for name, address in WEB_SERVERS.items()}
        pool = status.virtual_servers[0].real_servers
        return frozenset(names[str(each.address)] for each in pool if each.in_pool and each.mac)

    def forwards_exactly_to(self, names: frozenset[str]) -> bool:
        """These web servers get new connections, and no other."""
        return self.forwards_to() == names

    def process(self, name: str) -> ProcessStatus | None:
        """One of the daemon's processes."""
        status = self.status()
        return next((each for each in status.processes if each.name == name), None) if status else None

    def tail(self) -> str:
        """The end of the daemon's log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(f"  {self.name}: {line}" for line in lines[-15:])

    def power_off(self) -> None:
        """Link and processes gone at once; then what a machine without power forgets as well."""
        self.host.power_off()
        self._process = None
        # Kernel state of a namespace outlives its processes; that of a machine does not.
        unmount_below(self.runtime)
        shutil.rmtree(self.runtime, ignore_errors=True)
        address, _ = DIRECTORS[self.name]
        self.host.run("ip", "address", "flush", "dev", "eth0")
        self.host.run("ip", "neighbour", "flush", "dev", "eth0")
        self.host.run("ip", "address", "add", address, "dev", "eth0")

    def power_on(self) -> None:
        """Plug in and start the daemon, as a boot does."""
        self.host.plug()
        self.start()


class Stage:
    """All of it. Leaving the `with` block removes every namespace, mount, process and file that it made."""

    def __init__(self, prefix: str = PREFIX, directory: Path = Path("/run/haxlb-demo")) -> None:
        """`prefix` of all namespaces; `directory` is removed at the end."""
        self.directory = directory
        self.lab = Lab(prefix)
        self.web_servers: list[WebServer] = []
        self.directors: list[Director] = []

    def __enter__(self) -> Self:
        require_tools()
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._lock = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise HostError(
                "another demo of this name is running", remedy="wait until it has ended, or give another --name"
            ) from None
        try:
            self._sweep()
            self.lab.__enter__()
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def _build(self) -> None:
        self.client = self.lab.host("client", "192.168.10.200/24")
        self.web_servers = [WebServer(self.lab, name, self.directory / name) for name in WEB_SERVERS]
        self.directors = [Director(self.lab, name, self.directory / name) for name in DIRECTORS]

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def master(self) -> Director:
        """The one director that is MASTER. Raises NotSeen unless there is exactly one."""
        statuses = [wait_for(f"{each.name} answers", each.instance, 60) for each in self.directors]
        masters = [each for each, said in zip(self.directors, statuses, strict=True) if said.role is Role.MASTER]
        if len(masters) != 1:
            raise NotSeen(f"{len(masters)} directors are MASTER, want one")
        return masters[0]

    def partner(self, director: Director) -> Director:
        """The other director."""
        return next(each for each in self.directors if each is not director)

    def web_server(self, name: str) -> WebServer:
        """The web server of this name."""
        return next(each for each in self.web_servers if each.name == name)

    def close(self) -> None:
        """Leave nothing behind; an interrupt waits until that is done."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        try:
            self.lab.close()
        finally:
            self._sweep()
            shutil.rmtree(self.directory, ignore_errors=True)
            os.close(self._lock)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _sweep(self) -> None:
        """Remove what a demo that was killed with SIGKILL may have left: processes, namespaces, mounts, files."""
        for namespace in sorted(Path("/run/netns").glob(f"{self.lab.prefix}-*")):
            for pid in run("ip", "netns", "pids", namespace.name, check=False).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "delete", namespace.name, check=False)
        unmount_below(self.directory)
        for path in self.directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def unmount_below(directory: Path) -> None:
    """Unmount every file system whose mount point lies below the directory, the deepest first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    for point in sorted((each for each in points if Path(each).is_relative_to(directory)), reverse=True):
        run("umount", "--lazy", point, check=False)


def require_tools() -> None:
    """Raise HostError, with the remedy, for what the machine lacks."""
    if os.geteuid() != 0:
        raise NotPermitted("the demo makes network namespaces and loads XDP programs", remedy="run it as root")
    missing = [tool for tool in ("ip", "nsenter", "nginx", "ethtool", "sysctl", "ss") if shutil.which(tool) is None]
    if missing or not HAXLB.exists():
        raise HostError(f"not installed: {', '.join(missing or [str(HAXLB)])}", remedy="run `make setup`")

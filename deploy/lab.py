"""A small network of namespaces on one bridge, for the tests and the demo: hosts, links, processes.

Every namespace is called `<prefix>-<host>`; `close` (or the end of the `with` block) stops all processes that were
started and removes all namespaces that were made, also after an error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import types
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from pathlib import Path
from typing import IO, Any, Self

_PATIENCE_S = 60.0
"""For what takes milliseconds on a machine that has nothing else to do."""


def run(*argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it printed; raises with its stderr when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done


@dataclass
class Host:
    """One namespace with `eth0` on the lab's bridge."""

    name: str
    namespace: str
    address: IPv4Interface | None
    port: str
    """The bridge end of its link, in the switch's namespace."""
    lab: Lab
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    def argv(self, *argv: str) -> list[str]:
        """The command as it runs inside this host; the mount namespace (bpffs!) stays the caller's."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *argv]

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside the host to its end."""
        return run(*self.argv(*argv), check=check)

    def start(self, *argv: str, stdout: IO[Any] | int | None = None, **options: Any) -> subprocess.Popen[Any]:
        """Start a process inside the host; it leads a session of its own and dies with the lab at the latest."""
        process = subprocess.Popen(
            self.argv(*argv), stdout=stdout, start_new_session=True, stdin=subprocess.DEVNULL, **options
        )
        self.processes.append(process)
        return process

    def sysctl(self, **values: int) -> None:
        """Set sysctls; double underscores stand for dots: net__ipv4__ip_forward=1."""
        for key, value in values.items():
            self.run("sysctl", "-qw", f"{key.replace('__', '.')}={value}")

    def unplug(self) -> None:
        """Cut the host's link: no carrier inside, nothing passes."""
        self.lab.switch_run("ip", "link", "set", self.port, "down")

    def plug(self) -> None:
        """Plug the host's link in again."""
        self.lab.switch_run("ip", "link", "set", self.port, "up")

    def power_off(self) -> None:
        """Kill every process of the host at once and cut its link, as a power failure does."""
        self.unplug()
        self.kill()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the session of every process that was started here, and wait for them.

        SIGKILL reaches also what has left those sessions: every process whose network namespace is this one.
        """
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        if number == signal.SIGKILL:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        for process in self.processes:
            process.wait(timeout=_PATIENCE_S)
        self.processes.clear()

    def pids(self) -> list[int]:
        """Every process in this host's network namespace."""
        return [int(word) for word in run("ip", "netns", "pids", self.namespace, check=False).stdout.split()]

    def mac(self) -> str:
        """MAC of eth0."""
        words = self.run("ip", "-o", "link", "show", "eth0").stdout.split()
        return words[words.index("link/ether") + 1]


class Lab:
    """A bridge in a namespace of its own, and hosts on it."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.hosts: dict[str, Host] = {}
        self._switch = f"{prefix}-sw"

    def __enter__(self) -> Self:
        run("ip", "netns", "add", self._switch)
        try:
            self.switch_run("ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
            self.switch_run("ip", "link", "set", "br0", "up")
            self.switch_run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            # New namespaces inherit 1 on some kernels; bridged frames must not visit netfilter.
            self.switch_run("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0", check=False)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def switch_run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the switch's namespace."""
        return run("nsenter", f"--net=/run/netns/{self._switch}", *argv, check=check)

    def host(self, name: str, address: str | None = None, *, director: bool = False) -> Host:
        """Add a host with `eth0` at `address` (with prefix length); a director's link is made fit for XDP_TX."""
        namespace, port = f"{self.prefix}-{name}", f"p-{name}"
        run("ip", "netns", "add", namespace)
        host = Host(name, namespace, IPv4Interface(address) if address else None, port, self)
        self.hosts[name] = host
        self.switch_run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        self.switch_run("ip", "link", "set", port, "master", "br0", "up")
        host.sysctl(net__ipv6__conf__all__disable_ipv6=1)
        host.run("ip", "link", "set", "lo", "up")
        if address:
            host.run("ip", "address", "add", address, "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        self._wait_until_it_forwards(port)
        if director:
            self._make_fit_for_xdp_tx(port)
        return host

    def real_server(self, name: str, address: str, vip: str) -> Host:
        """Add a host that holds `vip` on lo and does not answer ARP for it: a real server for DR."""
        host = self.host(name, address)
        host.sysctl(net__ipv4__conf__all__arp_ignore=1, net__ipv4__conf__all__arp_announce=2)
        host.run("ip", "address", "add", f"{vip}/32", "dev", "lo")
        return host

    def _wait_until_it_forwards(self, port: str) -> None:
        """The bridge hears by a work queue that both ends are up (net/core/link_watch.c); it drops frames till then."""
        deadline = time.monotonic() + _PATIENCE_S
        while "state forwarding" not in self.switch_run("bridge", "link", "show", "dev", port).stdout:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the bridge does not forward to {port} after {_PATIENCE_S:g} s")
            time.sleep(0.005)

    def _make_fit_for_xdp_tx(self, port: str) -> None:
        """XDP_TX out of a veth arrives only where the other end has a program, and checksums must be complete."""
        from haxlb.linux.bpf import attach_pass_program

        self.switch_run("ethtool", "-K", port, "tx", "off")
        attach_pass_program(Path(f"/run/netns/{self._switch}"), port)

    def close(self) -> None:
        """Stop what was started, remove what was made."""
        try:
            for host in self.hosts.values():
                host.kill()
        finally:
            for namespace in [*(host.namespace for host in self.hosts.values()), self._switch]:
                run("ip", "netns", "delete", namespace, check=False)
            self.hosts.clear()

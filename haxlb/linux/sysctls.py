"""Settings of the kernel's network stack that are changed while something of ours needs them, and put back after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from haxlb.linux.log import Log

NETWORK = Path("/proc/sys/net")
NO_LOCAL_IGMP = {"ipv4/igmp_link_local_mcast_reports": 0}
"""No reports of groups in 224.0.0.0/24, that of VRRP among them (Documentation/networking/ip-sysctl.rst)."""


class Sysctls:
    """Holds a set of settings. What a killed process has changed stays so: nobody knows the former value then."""

    def __init__(self, log: Log, root: Path = NETWORK) -> None:
        self._log = log
        self._root = root
        self._former: dict[str, str] = {}

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the settings that are not as they were found."""
        return tuple(self._former)

    def hold(self, wanted: Mapping[str, int]) -> None:
        """Have exactly these in force: `ipv4/conf/eth0/arp_ignore` = 1; those held before and not named are put back.

        What cannot be set is logged; the caller goes on.
        """
        self.release(name for name in self._former if name not in wanted)
        for name, number in wanted.items():
            present = self.read(name)
            if present == str(number):
                continue
            if self._write(name, str(number)) and present is not None:
                self._former.setdefault(name, present)

    def set(self, name: str, number: int) -> None:
        """Set without remembering: for an interface of our own, which takes its settings with it."""
        if self.read(name) != str(number):
            self._write(name, str(number))

    def release(self, names: Iterable[str] | None = None) -> None:
        """Put these back, or all; what somebody has changed meanwhile is left as it is now only if it is gone."""
        for name in tuple(self._former if names is None else names):
            former = self._former.pop(name)
            if (self._root / name).exists():
                self._write(name, former)

    def read(self, name: str) -> str | None:
        """The present value; None where there is no such setting."""
        try:
            return (self._root / name).read_text().strip()
        except OSError:
            return None

    def _write(self, name: str, text: str) -> bool:
        try:
            (self._root / name).write_text(text)
        except OSError as problem:
            self._log(
                "warning",
                "sysctl_not_set",
                setting=f"net.{name.replace('/', '.')}",
                value=text,
                reason=problem.strerror,
                remedy="run with a writable /proc/sys (ProtectKernelTunables=no), or set it in /etc/sysctl.d",
            )
            return False
        return True


def promote_secondaries(interfaces: Iterable[str]) -> dict[str, int]:
    """When the first address of a network goes, the others of it stay (net.ipv4.conf.*.promote_secondaries)."""
    return {f"ipv4/conf/{each}/promote_secondaries": 1 for each in interfaces}

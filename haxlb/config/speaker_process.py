"""What `global_defs` says of the process that speaks VRRP."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.globals import Globals
from haxlb.model.node import SpeakerSettings
from keepalived_compat.diagnostics import Complaints

_SHORTEST_RUNAWAY_US = 200_000
"""A reload of hundreds of instances computes for that long; keepalived's 10 ms would end the process for it."""
_HIGHEST_RT_PRIORITY = 99
_MOST_CPUS = 1024
"""CPU_SETSIZE of glibc."""


def read_speaker(given: Globals, complaints: Complaints) -> SpeakerSettings:
    """How it runs; what haxlb.yml says comes later."""
    default = SpeakerSettings()
    return SpeakerSettings(
        realtime_priority=_priority(given, default.realtime_priority, complaints),
        nice=given.value("vrrp_priority", default.nice),
        cpus=tuple(_cpus(given, complaints)),
        runaway_us=_runaway(given, default.runaway_us, complaints),
        startup_delay_us=given.value("vrrp_startup_delay", 0),
        delay_after_boot_us=given.value("vrrp_delay_after_boot", 0),
        log_unknown_vrids=given.has("log_unknown_vrids"),
        disable_local_igmp=given.has("disable_local_igmp"),
    )


def _priority(given: Globals, default: int, complaints: Complaints) -> int:
    entry = given.entry("vrrp_rt_priority")
    if entry is None:
        return default
    if entry.value > _HIGHEST_RT_PRIORITY:
        complaints.warning(
            "inexact-value",
            entry.argument_span,
            f"vrrp_rt_priority {entry.value} is taken as {_HIGHEST_RT_PRIORITY}, the highest there is",
        )
    return min(int(entry.value), _HIGHEST_RT_PRIORITY)


def _cpus(given: Globals, complaints: Complaints) -> Iterator[int]:
    entry = given.entry("vrrp_cpu_affinity")
    for word in entry.words[1:] if entry is not None else ():
        if word.text.isascii() and word.text.isdigit() and int(word.text[:5]) < _MOST_CPUS:
            yield int(word.text[:5])
        else:
            complaints.error("bad-value", word, f"vrrp_cpu_affinity: `{word.text}` is no CPU", "numbers, from 0")


def _runaway(given: Globals, default: int, complaints: Complaints) -> int:
    entry = given.entry("vrrp_rlimit_rttime")
    if entry is None:
        return default
    if entry.value < _SHORTEST_RUNAWAY_US:
        complaints.warning(
            "inexact-value",
            entry.argument_span,
            f"{entry.keyword.name} {entry.value} is taken as {_SHORTEST_RUNAWAY_US}: a reload computes for longer than"
            " keepalived's whole life between two waits",
            "delete the line: the default is 2 s",
        )
    return max(int(entry.value), _SHORTEST_RUNAWAY_US)

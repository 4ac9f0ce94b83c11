"""What `global_defs` says of the processes that speak VRRP and that check servers."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.globals import Globals
from haxlb.model.settings import CheckerSettings, SpeakerSettings
from keepalived_compat.diagnostics import Complaints

_SHORTEST_RUNAWAY_US = 200_000
"""A reload of hundreds of instances computes for that long; keepalived's 10 ms would end the process for it."""
_HIGHEST = (99, "the highest there is")
_MOST_CPUS = 1024
"""CPU_SETSIZE of glibc."""


def read_speaker(given: Globals, complaints: Complaints) -> SpeakerSettings:
    """How it runs; what haxlb.yml says comes later."""
    default = SpeakerSettings()
    return SpeakerSettings(
        realtime_priority=_priority(given, "vrrp", complaints, default=default.realtime_priority, limit=_HIGHEST),
        nice=given.value("vrrp_priority", default.nice),
        cpus=tuple(_cpus(given, "vrrp", complaints)),
        runaway_us=_runaway(given, "vrrp", default.runaway_us, complaints),
        startup_delay_us=given.value("vrrp_startup_delay", 0),
        delay_after_boot_us=given.value("vrrp_delay_after_boot", 0),
        log_unknown_vrids=given.has("log_unknown_vrids"),
        disable_local_igmp=given.has("disable_local_igmp"),
    )


def read_checker(given: Globals, speaker: SpeakerSettings, complaints: Complaints) -> CheckerSettings:
    """How it runs. It computes for milliseconds at a time: whatever it is given, adverts go first."""
    default = CheckerSettings()
    limit = _HIGHEST
    if speaker.realtime_priority:
        limit = speaker.realtime_priority - 1, "which is below vrrp_rt_priority: adverts go first"
    return CheckerSettings(
        realtime_priority=_priority(given, "checker", complaints, default=default.realtime_priority, limit=limit),
        nice=given.value("checker_priority", default.nice),
        lock_memory=given.has("checker_no_swap"),
        cpus=tuple(_cpus(given, "checker", complaints)),
        runaway_us=_runaway(given, "checker", default.runaway_us, complaints),
    )


def _priority(given: Globals, process: str, complaints: Complaints, *, default: int, limit: tuple[int, str]) -> int:
    entry = given.entry(f"{process}_rt_priority")
    if entry is None:
        return default
    highest, why = limit
    if entry.value > highest:
        complaints.warning(
            "inexact-value",
            entry.argument_span,
            f"{process}_rt_priority {entry.value} is taken as {highest}, {why}",
        )
    return min(int(entry.value), highest)


def _cpus(given: Globals, process: str, complaints: Complaints) -> Iterator[int]:
    entry = given.entry(f"{process}_cpu_affinity")
    for word in entry.words[1:] if entry is not None else ():
        if word.text.isascii() and word.text.isdigit() and int(word.text[:5]) < _MOST_CPUS:
            yield int(word.text[:5])
        else:
            complaints.error("bad-value", word, f"{process}_cpu_affinity: `{word.text}` is no CPU", "numbers, from 0")


def _runaway(given: Globals, process: str, default: int, complaints: Complaints) -> int:
    entry = given.entry(f"{process}_rlimit_rttime")
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

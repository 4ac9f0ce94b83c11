"""What a drill has to say: the story of one run, the sums of many, and both as JSON (docs/reference/drill.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from haxlb.model.node import NodeConfig
from haxlb.sim.drill import Run, Split
from haxlb.sim.scenario import SCENARIOS
from haxlb.sim.topology import Station

_IPV6 = 256
"""Added to the VRID of IPv6 instances in `RouterKey`."""
SCHEMA = "haxlb.drill/1"
LAWS = (
    "L1 one voice, L2 VIP iff MASTER, L4 a MASTER in time, L5 told once, L6 alarms, L8 adverts in time, "
    "L10 same seed same trace, L11 announcements in bounds, L12 clients follow"
)


def as_json(runs: Iterable[Run]) -> dict[str, Any]:
    """The object that `--json` prints. Times are milliseconds."""
    return {
        "schema": SCHEMA,
        "runs": [
            {
                "seed": run.seed,
                "scenario": run.scenario,
                "outages": [
                    {
                        "vip": str(each.vip),
                        "ms": _ms(each.unserved_us),
                        "theory_ms": _ms(each.theory_us),
                        "no_master_ms": _ms(each.mute_us),
                    }
                    for each in run.outages
                ],
                "split_brain_ms": _ms(run.split_us),
                "alarm_ms": None if run.alarm_us is None else _ms(run.alarm_us),
                "laws_broken": list(run.laws_broken),
                "trace": f"{run.digest:08x}",
            }
            for run in runs
        ],
    }


def cast(stations: Sequence[Station]) -> list[str]:
    """Who plays: a line for each director's part in each instance."""
    lines = []
    for station in stations:
        origin = "derived" if station.derived else "as configured"
        lines += [
            f"{station.config.node} ({origin}): {each.name} on {each.interface}, VRID {each.vrid}, "
            f"state {each.initial_role.value}, priority {each.priority}"
            for each in station.config.instances
        ]
    return lines


def story(run: Run, stations: Sequence[Station], *, broker: bool) -> str:
    """One run from beginning to end; time zero is the fault."""
    lines = [f"drill {run.scenario}, seed {run.seed}: {run.summary}", *(f"  {line}" for line in cast(stations)), ""]
    width = max(len(entry.who) for entry in run.timeline)
    lines += [
        f"{(entry.at_us - run.begun_us) / 1e6:+11.3f} s  {entry.who:<{width}}  {entry.what}" for entry in run.timeline
    ]
    rows = [("VIP", "outage", "theory", "without a MASTER")]
    rows += [(str(each.vip), _s(each.unserved_us), _s(each.theory_us), _s(each.mute_us)) for each in run.outages]
    lines += ["", *(_table(rows) if run.outages else ["no VIP is configured: nothing to be out of service"]), ""]
    lines += _splits(run, broker=broker)
    lines += [f"LAW BROKEN  {law}" for law in run.laws_broken] or [f"laws hold: {LAWS}"]
    return "\n".join(lines)


def sums(runs: Sequence[Run], stations: Sequence[Station], *, broker: bool) -> str:
    """A line per scenario, and every broken law with the seed that shows it again."""
    rows: list[tuple[str, ...]] = [
        ("scenario", "runs", "outage median", "max", "theory", "split brains", "longest", "alarms", "latest", "laws")
    ]
    rows += [_sum(name, [run for run in runs if run.scenario == name]) for name in dict.fromkeys(_in_order(runs))]
    lines = [*cast(stations), "", *_table(rows), ""]
    lines += [
        "outage: time in which the clients of a VIP reached nobody; theory: 3 * advert_int + skew_time.",
        "split brains: two MASTERs for longer than an election; alarms: of those that outlasted two detector windows.",
    ]
    if not broker and any(_is_due(each) and each.alarm_us is None for run in runs for each in run.splits):
        lines.append(_NO_BROKER)
    broken = [(run, law) for run in runs for law in run.laws_broken]
    lines += [f"LAW BROKEN  seed {run.seed} ({run.scenario}): {law}" for run, law in broken]
    if not broken:
        lines.append(f"laws hold in {len(runs)} runs: {LAWS}")
    return "\n".join(lines)


_NO_BROKER = (
    "where no alarm came the directors could not see each other: with an MQTT broker (`mqtt:` in haxlb.yml) they would."
)


def has_broker(config: NodeConfig) -> bool:
    """Whether the directors of this configuration have MQTT as a second path to each other."""
    return config.mqtt is not None


def _in_order(runs: Sequence[Run]) -> list[str]:
    """Names of what was played, those of the round in its order."""
    played = [run.scenario for run in runs]
    return [each.name for each in SCENARIOS if each.name in played] + played


def _sum(name: str, runs: Sequence[Run]) -> tuple[str, ...]:
    outages = [each.unserved_us for run in runs for each in run.outages]
    theories = [each.theory_us for run in runs for each in run.outages]
    splits = [each for run in runs for each in run.splits if not each.is_election]
    due = [each for each in splits if _is_due(each)]
    came = [each.alarm_us for each in due if each.alarm_us is not None]
    return (
        name,
        str(len(runs)),
        _s(int(median(outages))) if outages else "-",
        _s(max(outages)) if outages else "-",
        _s(max(theories)) if theories else "-",
        str(len(splits)),
        _s(max(each.length_us for each in splits)) if splits else "-",
        f"{len(came)} of {len(due)}" if due else "-",
        _s(max(came)) if came else "-",
        "broken" if any(run.laws_broken for run in runs) else "hold",
    )


def _splits(run: Run, *, broker: bool) -> list[str]:
    lines = []
    for each in run.splits:
        segment, vrid = each.router
        where = f"VRID {vrid} on {segment}" if vrid < _IPV6 else f"VRID {vrid - _IPV6} (IPv6) on {segment}"
        begin = f"at {each.begin_us / 1e6:+.3f} s"
        if each.is_election:
            lines.append(f"election: {where} had two MASTERs {begin} for {each.length_us / 1000:.1f} ms")
            continue
        if each.alarm_us is not None:
            alarm = f"alarm after {_s(each.alarm_us)}"
        elif not _is_due(each):
            alarm = f"no alarm: shorter than two windows of {_s(each.window_us)}"
        else:
            alarm = "no alarm"
        lines.append(f"split brain: {where} had two MASTERs {begin} for {_s(each.length_us)}; {alarm}")
        if alarm == "no alarm" and not broker:
            lines.append(_NO_BROKER)
    return lines or ["split brain: none"]


def _is_due(split: Split) -> bool:
    return split.length_us >= 2 * split.window_us


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _s(span_us: int) -> str:
    return f"{span_us / 1e6:.3f} s"


def _ms(span_us: int) -> float:
    return round(span_us / 1000, 3)

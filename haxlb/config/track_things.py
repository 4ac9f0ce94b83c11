"""`vrrp_script`, `track_file`, `vrrp_track_process` and `bfd_instance` blocks to values."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from haxlb.config.commands import command_of, user_and_group
from haxlb.model.commands import Command
from haxlb.model.tracking import BfdSession, TrackFile, TrackProcess, TrackScript
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span
from keepalived_compat.values_line import whole_number
from keepalived_compat.values_tracking import Weight

Thing = TrackScript | TrackFile | TrackProcess | BfdSession

_MOST = 254
"""Of a number in a tracked file that means something: beyond it every priority is at its end."""
_MATCHES = ("initial", "partial")
_TTL_OF_IPV6 = 64


def read_thing(entry: Entry, weight: Weight, complaints: Complaints) -> Thing | None:
    """What the block defines; None when it cannot be used, which is said."""
    section = entry.section if entry.section is not None else Section(entry.keyword.name)
    match entry.keyword.name:
        case "vrrp_script":
            return _script(entry, section, weight, complaints)
        case "track_file" | "vrrp_track_file":
            return _file(entry, section, weight, complaints)
        case "vrrp_track_process":
            return _process(entry, section, weight, complaints)
        case _:
            return _session(entry, section, weight, complaints)


def _needed(entry: Entry, section: Section, name: str, complaints: Complaints) -> bool:
    if section.has(name):
        return True
    if name not in section.refused:
        complaints.warning(
            "missing-keyword",
            entry.argument_span,
            f"{entry.keyword.name} {entry.value} has no `{name}`; it is not tracked, as in keepalived",
            f"add `{name} …`",
        )
    return False


def _script(entry: Entry, section: Section, weight: Weight, complaints: Complaints) -> TrackScript | None:
    if not _needed(entry, section, "script", complaints):
        return None
    interval = section.value("interval", 1_000_000)
    timeout = section.value("timeout", interval)
    if timeout > interval:
        complaints.note(
            "slow-script",
            _place(entry, section, "timeout"),
            f"{entry.value} may run longer than its interval: runs that are due meanwhile are skipped,"
            " and a hanging script is noticed late",
            "make the timeout at most the interval",
        )
    user, group = user_and_group(section.entry("user"))
    return TrackScript(
        name=entry.value,
        run=Command(argv=command_of(section, "script").argv, user=user, group=group),
        interval_us=interval,
        timeout_us=timeout,
        weight=weight.value,
        reverse=weight.reverse,
        rise=section.value("rise", 1),
        fall=section.value("fall", 1),
        init_fail=section.has("init_fail"),
    )


def _file(entry: Entry, section: Section, weight: Weight, complaints: Complaints) -> TrackFile | None:
    if not _needed(entry, section, "file", complaints):
        return None
    init = section.entry("init_file")
    value, overwrite = _init_file(init, complaints) if init is not None else (None, False)
    return TrackFile(
        name=entry.value,
        path=section.value("file"),
        weight=weight.value,
        reverse=weight.reverse,
        init_value=value,
        init_overwrite=overwrite,
    )


def _init_file(entry: Entry, complaints: Complaints) -> tuple[int, bool]:
    value, overwrite = 0, False
    for word in entry.words[1:]:
        number = whole_number(word.text)
        if word.text == "overwrite":
            overwrite = True
        elif number is not None and abs(number) <= _MOST:
            value = number
        else:
            complaints.error(
                "bad-value",
                word,
                f"init_file: `{word.text}` is not used",
                f"init_file [{-_MOST} to {_MOST}] [overwrite]",
            )
    return value, overwrite


def _process(entry: Entry, section: Section, weight: Weight, complaints: Complaints) -> TrackProcess | None:
    if not _needed(entry, section, "process", complaints):
        return None
    found = section.entry("process")
    words = [each.text for each in found.words[1:]] if found is not None else []
    quorum, most = section.value("quorum", 1), section.value("quorum_max")
    if most is not None and most < quorum and section.has("quorum"):
        complaints.error(
            "bad-value",
            _place(entry, section, "quorum_max"),
            f"quorum_max {most} is below quorum {quorum} and is not used, as in keepalived",
        )
        most = None
    delay = section.value("delay", 0)
    return TrackProcess(
        name=entry.value,
        process=words[0],
        parameters=tuple(words[1:]),
        match=_match(section.entry("param_match"), complaints) or ("exact" if words[1:] else ""),
        full_command=section.has("full_command"),
        weight=weight.value,
        reverse=weight.reverse,
        quorum=0 if most == 0 else quorum,
        quorum_max=most,
        delay_us=delay,
        terminate_delay_us=section.value("terminate_delay", delay),
        fork_delay_us=section.value("fork_delay", delay),
    )


def _match(entry: Entry | None, complaints: Complaints) -> str:
    if entry is None:
        return ""
    word = entry.words[1] if len(entry.words) > 1 else None
    if word is None:
        return "exact"
    if word.text in _MATCHES:
        return word.text
    complaints.error("bad-value", word, f"param_match: `{word.text}` is not used", "initial or partial")
    return ""


def _session(entry: Entry, section: Section, weight: Weight, complaints: Complaints) -> BfdSession | None:
    if not _needed(entry, section, "neighbor_ip", complaints):
        return None
    neighbor, source = section.value("neighbor_ip"), section.value("source_ip")
    if source is not None and source.version != neighbor.version:
        complaints.error(
            "mixed-family",
            _place(entry, section, "source_ip"),
            f"bfd_instance {entry.value}: {source} and {neighbor} are of two families; it is not used",
            "name two addresses of one family",
        )
        return None
    if isinstance(neighbor, IPv6Address) and neighbor.is_link_local and not neighbor.scope_id:
        complaints.error(
            "bad-value",
            _place(entry, section, "neighbor_ip"),
            f"bfd_instance {entry.value}: {neighbor} exists on every interface; it is not used",
            f"name the one that is meant: {neighbor}%eth0",
        )
        return None
    ttl = section.value("ttl", _TTL_OF_IPV6 if not isinstance(neighbor, IPv4Address) else 255)
    only_vrrp, only_checker = section.has("vrrp"), section.has("checker")
    return BfdSession(
        name=entry.value,
        neighbor=str(neighbor),
        source="" if source is None else str(source),
        min_rx_us=section.value("min_rx", 10_000),
        min_tx_us=section.value("min_tx", 10_000),
        idle_tx_us=section.value("idle_tx", 1_000_000),
        multiplier=section.value("multiplier", 5),
        passive=section.has("passive"),
        ttl=ttl,
        max_hops=min(section.value("max_hops", 0), ttl),
        multihop=section.value("multihop", default=False),
        weight=weight.value,
        reverse=weight.reverse,
        vrrp=only_vrrp or not only_checker,
        checker=only_checker or not only_vrrp,
    )


def _place(entry: Entry, section: Section, name: str) -> Span:
    found = section.entry(name)
    return found.argument_span if found is not None else entry.argument_span

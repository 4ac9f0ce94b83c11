"""keepalived's command line: its flags as data, and an argument vector to the flags that were given.

As getopt_long(3) with keepalived's table: flags may be bundled (`-nlD`), an optional value is attached (`-tFILE`,
`--config-test=FILE`), other words are ignored. keepalived takes no abbreviations of long flags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class Value(Enum):
    """What follows a flag."""

    NONE = "none"
    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of keepalived 2.2.7 or newer."""

    name: str
    """Its long form."""
    short: str = ""
    value: Value = Value.NONE
    metavar: str = ""
    means: str = ""
    """What it does here."""
    void: str = ""
    """Why it does nothing here; empty for one that does something."""


class WrongUsage(Exception):
    """A flag that keepalived does not know either, or one without its value."""


_ONE_PID = "its processes are children of one and need no pid files"
_NO_IPVS = "there is no IPVS topology"

FLAGS = (
    Flag(name="use-file", short="f", value=Value.REQUIRED, metavar="FILE", means="the configuration"),
    Flag(
        name="config-test", short="t", value=Value.OPTIONAL, metavar="FILE", means="check it only; to FILE, or stderr"
    ),
    Flag(name="dont-fork", short="n", means="stay in the foreground; needed, see below"),
    Flag(name="log-console", short="l", means="log for people, also where stderr is no terminal"),
    Flag(name="dump-conf", short="d", means="print the effective configuration at the start"),
    Flag(name="vrrp", short="P", means="only VRRP"),
    Flag(name="check", short="C", means="only health checks and forwarding"),
    Flag(name="config-id", short="i", value=Value.REQUIRED, metavar="ID", means="selects @ID lines"),
    Flag(name="all-config", short="e", means="an include that finds nothing is an error"),
    Flag(name="pid", short="p", value=Value.REQUIRED, metavar="FILE", means="write the pid there"),
    Flag(name="namespace", short="s", value=Value.REQUIRED, metavar="NAME", means="run in this network namespace"),
    Flag(name="umask", short="u", value=Value.REQUIRED, metavar="MASK", means="umask of files, octal"),
    Flag(name="signum", value=Value.REQUIRED, metavar="SIGFUNC", means="print the signal for STOP or RELOAD"),
    Flag(name="version", short="v", means="print the version"),
    Flag(name="help", short="h", means="print this"),
    Flag(name="log-detail", short="D", void="the log always has every change and its reason"),
    Flag(
        name="log-facility", short="S", value=Value.REQUIRED, metavar="N", void="the log goes to stderr, not to syslog"
    ),
    Flag(name="no-syslog", short="G", void="the log goes to stderr anyway"),
    Flag(name="log-file", short="g", value=Value.OPTIONAL, metavar="FILE", void="the log goes to stderr: redirect it"),
    Flag(name="flush-log-file", void="the log is never held back"),
    Flag(name="no_bfd", short="B", void="there is no BFD process"),
    Flag(name="all", void="processes run where the configuration needs them"),
    Flag(name="release-vips", short="X", void="addresses are always released"),
    Flag(name="dont-release-vrrp", short="V", void="addresses are always released: left behind they are a split brain"),
    Flag(name="dont-release-ipvs", short="I", void=f"{_NO_IPVS}; forwarding goes on after a stop in any case"),
    Flag(name="dont-respawn", short="R", void="a process that dies is always started again"),
    Flag(name="vrrp_pid", short="r", value=Value.REQUIRED, metavar="FILE", void=_ONE_PID),
    Flag(name="checkers_pid", short="c", value=Value.REQUIRED, metavar="FILE", void=_ONE_PID),
    Flag(name="bfd_pid", short="b", value=Value.REQUIRED, metavar="FILE", void=_ONE_PID),
    Flag(name="address-monitoring", short="a", void="changes of links and addresses are always logged"),
    Flag(name="snmp", short="x", void="there is no SNMP agent"),
    Flag(name="snmp-agent-socket", short="A", value=Value.REQUIRED, metavar="FILE", void="there is no SNMP agent"),
    Flag(name="core-dump", short="m", void="the shell's or the unit's limits decide about core dumps"),
    Flag(name="core-dump-pattern", short="M", value=Value.OPTIONAL, metavar="PATN", void="it is the system's to set"),
)
_LONG = {each.name: each for each in FLAGS}
_SHORT = {each.short: each for each in FLAGS if each.short}


def parse(arguments: tuple[str, ...]) -> dict[str, str]:
    """The flags that were given, by long name, with their values; of several the last counts. Raises WrongUsage."""
    return dict(_parse(list(arguments)))


def _parse(words: list[str]) -> Iterator[tuple[str, str]]:
    while words:
        word = words.pop(0)
        if word == "--":
            return
        if word.startswith("--"):
            yield _long(word, words)
        elif word.startswith("-") and word != "-":
            yield from _bundle(word[1:], words)


def _long(word: str, rest: list[str]) -> tuple[str, str]:
    name, equals, value = word[2:].partition("=")
    flag = _LONG.get(name)
    if flag is None or (equals and flag.value is Value.NONE):
        raise WrongUsage(f"Unknown option {word}")
    if flag.value is Value.REQUIRED and not equals:
        return name, _following(word, rest)
    return name, value


def _bundle(letters: str, rest: list[str]) -> Iterator[tuple[str, str]]:
    for index, letter in enumerate(letters):
        flag = _SHORT.get(letter)
        if flag is None:
            raise WrongUsage(f"Unknown option -{letter}")
        attached = letters[index + 1 :]
        if flag.value is Value.NONE:
            yield flag.name, ""
        elif flag.value is Value.OPTIONAL or attached:
            yield flag.name, attached
            return
        else:
            yield flag.name, _following(f"-{letter}", rest)
            return


def _following(flag: str, rest: list[str]) -> str:
    if not rest:
        raise WrongUsage(f"Missing parameter for option {flag}")
    return rest.pop(0)


def void_flags(given: dict[str, str]) -> Iterator[str]:
    """What to say of flags that do nothing here, one line for each."""
    for name in given:
        flag = _LONG[name]
        if flag.void:
            yield f"{_shown(flag)} does nothing here: {flag.void}"


def usage() -> str:
    """The flags, for people."""
    rows = [(_shown(each), each.means or f"(accepted) {each.void}") for each in FLAGS]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {what}" for name, what in rows)


def _shown(flag: Flag) -> str:
    long = f"--{flag.name}"
    if flag.value is not Value.NONE:
        long += f"[={flag.metavar}]" if flag.value is Value.OPTIONAL else f"={flag.metavar}"
    return f"-{flag.short}, {long}" if flag.short else long


def speaks(given: Mapping[str, str]) -> bool:
    """Whether VRRP is wanted: unless it is said that the health checks are all (-C alone)."""
    return "vrrp" in given or "check" not in given

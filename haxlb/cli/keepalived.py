"""`haxlb keepalived`: keepalived's command line, so that haxlb can stand where keepalived stood."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from haxlb import __version__
from haxlb.cli.keepalived_arguments import WrongUsage, parse, speaks, usage, void_flags
from haxlb.model.errors import HaxlbError, HostError

_SIGNALS = {"STOP": signal.SIGTERM, "RELOAD": signal.SIGHUP}
_DUMPS = ("DATA", "STATS", "STATS_CLEAR", "JSON")
_NAMESPACES = Path("/run/netns")


class _Refusal(HaxlbError):
    """keepalived ends with 1 as well when its command line is wrong."""

    exit_code = 1


@click.command(
    short_help="Take keepalived's command line, to stand where keepalived stood.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def keepalived(arguments: tuple[str, ...]) -> None:
    """Take the flags of keepalived and do the same thing."""
    try:
        given = parse(arguments)
    except WrongUsage as problem:
        raise _Refusal(str(problem), remedy="`haxlb keepalived --help` lists the flags") from problem
    if "help" in given:
        click.echo(_HELP.format(flags=usage()), nl=False, err=True)
    elif "version" in given:
        click.echo(f"haxlb {__version__}, with the command line of keepalived 2.2.7", err=True)
    elif "signum" in given:
        click.echo(int(_signal(given["signum"])))
    else:
        # With --namespace it starts again in there, and would say all of it twice.
        if _INSIDE not in os.environ:
            for line in void_flags(given):
                click.echo(f"haxlb keepalived: {line}", err=True)
        _work(given)


_HELP = """\
Usage: haxlb keepalived [FLAGS]

The command line of keepalived. What else haxlb can do is in `haxlb --help`.

{flags}

Exit codes of -t: 0 no complaint, 2 a keyword without its argument, 4 no such file, 5 any other complaint, 6 scripts run
without enable_script_security, and no other complaint. keepalived logs to syslog and goes into the background without
-n; haxlb logs to stderr and stays in the foreground, so it wants -n: let the service manager put it there.
"""


def _signal(name: str) -> signal.Signals:
    if name in _SIGNALS:
        return _SIGNALS[name]
    if name in _DUMPS:
        raise _Refusal(f"there is no signal for {name}", remedy="`haxlb show` reads the state, with --json for scripts")
    raise _Refusal(f"Unknown sigfunc {name}", remedy=f"one of {', '.join(_SIGNALS)}")


def _work(given: dict[str, str]) -> None:
    if "umask" in given:
        os.umask(_mask(given["umask"]))
    if "config-test" in given:
        from haxlb.cli.keepalived_work import test

        sys.exit(test(given))
    if "dont-fork" not in given:
        raise _Refusal(
            "haxlb does not go into the background by itself",
            remedy="add --dont-fork (-n), and let the service manager keep it: docs/how-to/replace-keepalived.md",
        )
    if "namespace" in given:
        _enter(given["namespace"])
    _serve(given)


def _mask(text: str) -> int:
    try:
        return int(text, 8) & 0o777
    except ValueError as problem:
        raise _Refusal(f"--umask: `{text}` is not an octal number", remedy="as 022") from problem


def _enter(name: str) -> None:
    """Start again in this network namespace, unless that has happened.

    nsenter keeps the mount namespace, where the bpffs is (`ip netns exec` does not).
    """
    if os.environ.pop(_INSIDE, "") == name:
        return
    where = _NAMESPACES / name
    if not where.exists():
        raise HostError(f"there is no network namespace {name}", remedy=f"ip netns add {name}")
    words = [sys.executable, *sys.argv]
    os.environ[_INSIDE] = name
    try:
        os.execvp("nsenter", ["nsenter", f"--net={where}", *words])  # noqa: S606, S607 - PATH is the operator's
    except OSError as problem:
        raise HostError(f"cannot run nsenter: {problem.strerror}", remedy="apt install util-linux") from problem


_INSIDE = "HAXLB_NETWORK_NAMESPACE"
"""Set for the process that was started in the namespace."""


def _serve(given: dict[str, str]) -> None:
    from haxlb.linux.niceness import hurry
    from haxlb.linux.offspring import Cradle, start

    hurry()  # before the imports: on a busy host they take seconds
    if not speaks(given):
        from haxlb.cli.keepalived_work import serve

        serve(given, None)
        return
    with Cradle(start("speaker")) as cradle:
        from haxlb.cli.keepalived_work import serve

        serve(given, cradle)

"""`haxlb keepalived`: keepalived's command line, so that haxlb can stand where keepalived stood."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from haxlb import __version__
from haxlb.cli.config import no_collection
from haxlb.cli.keepalived_arguments import WrongUsage, parse, usage, void_flags
from haxlb.cli.options import DEFAULT_FILE, DEFAULT_SETTINGS, RUNTIME_DIR
from haxlb.config import Loaded, load
from haxlb.config.part import Part
from haxlb.config.printer import keepalived_conf
from haxlb.config.verdict import INCLUDE_CODES, Verdict, missing_scripts, verdict
from haxlb.linux.accounts import missing_account
from haxlb.model.errors import ConfigError, HaxlbError, HostError
from keepalived_compat.rendering import as_text, summary

_SIGNALS = {"STOP": signal.SIGTERM, "RELOAD": signal.SIGHUP}
_DUMPS = ("DATA", "STATS", "STATS_CLEAR", "JSON")
_DUMP_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
"""What scripts send to keepalived for a dump; nobody may end haxlb by it."""
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
        sys.exit(_test(given))
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


def _load(given: dict[str, str]) -> Loaded:
    with no_collection():
        return load(
            Path(given.get("use-file", DEFAULT_FILE)),
            settings=DEFAULT_SETTINGS,
            interfaces=frozenset(name for _, name in socket.if_nameindex()),
            accounts=missing_account,
            node=socket.gethostname(),
            config_id=given.get("config-id", ""),
        )


def _test(given: dict[str, str]) -> int:
    loaded = _load(given)
    found = verdict(loaded, runnable=_runnable, strict_includes="all-config" in given)
    with _report(given["config-test"]) as out:
        for each in loaded.diagnostics:
            click.echo(as_text(each, loaded.sources), file=out)
        for script in missing_scripts(loaded, _runnable):
            click.echo(f"vrrp_script {script.name}: this host has no program {script.run.argv[0]}", file=out)
        if found is Verdict.SCRIPTS:
            click.echo("scripts are run, and enable_script_security is not set", file=out)
        counted = summary(loaded.diagnostics)
        if counted:
            click.echo(counted, file=out)
    return found.value


def _runnable(command: tuple[str, ...]) -> bool:
    return shutil.which(command[0]) is not None


@contextlib.contextmanager
def _report(path: str) -> Iterator[TextIO]:
    if not path:
        yield sys.stderr
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as out:
            yield out
    except OSError as problem:
        raise HostError(f"cannot write {path}: {problem.strerror}", remedy="name another file after -t") from problem


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
    from haxlb.daemon.supervisor_ports import RefusedConfig
    from haxlb.linux.supervisor_main import Options, serve

    loaded = _load(given)
    if "all-config" in given:
        _complain_of_includes(loaded)
    if "dump-conf" in given and loaded.config is not None:
        click.echo(keepalived_conf(loaded.config), nl=False, err=True)
    for number in _DUMP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    options = Options(
        config=Path(given.get("use-file", DEFAULT_FILE)),
        settings=DEFAULT_SETTINGS,
        runtime_dir=_runtime_directory(given.get("namespace", "")),
        log_format="console" if "log-console" in given else "auto",
        config_id=given.get("config-id", ""),
        part=part_of(given),
    )
    with pid_file(given.get("pid", "")):
        try:
            serve(options, lambda report: click.echo(report, err=True))
        except RefusedConfig as refused:
            click.echo(refused.report, err=True)
            raise


def _complain_of_includes(loaded: Loaded) -> None:
    found = [each for each in loaded.diagnostics if each.code in INCLUDE_CODES]
    if found:
        raise ConfigError(
            f"{found[0].span}: {found[0].message}", remedy="-e makes this an error", diagnostics=loaded.diagnostics
        )


def part_of(given: dict[str, str]) -> Part:
    """-P and -C together are both, as in keepalived."""
    if ("vrrp" in given) == ("check" in given):
        return Part.ALL
    return Part.VRRP if "vrrp" in given else Part.CHECKERS


def _runtime_directory(namespace: str) -> Path:
    """Each namespace has its own, as keepalived keeps its pid files apart."""
    return RUNTIME_DIR.with_name(f"{RUNTIME_DIR.name}-{namespace}") if namespace else RUNTIME_DIR


@contextlib.contextmanager
def pid_file(path: str) -> Iterator[None]:
    """The pid in a file for as long as the daemon runs."""
    if not path:
        yield
        return
    try:
        Path(path).write_text(f"{os.getpid()}\n", encoding="ascii")
    except OSError as problem:
        raise HostError(f"cannot write {path}: {problem.strerror}", remedy="name another file after --pid") from problem
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            Path(path).unlink()

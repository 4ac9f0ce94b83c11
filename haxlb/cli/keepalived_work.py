"""What `haxlb keepalived` does once its flags are read: judge the configuration, or run the daemon on it."""

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

from haxlb.cli.config import no_collection
from haxlb.cli.options import DEFAULT_FILE, DEFAULT_SETTINGS, RUNTIME_DIR
from haxlb.config import Loaded, load
from haxlb.config.part import Part
from haxlb.config.printer import keepalived_conf
from haxlb.config.verdict import INCLUDE_CODES, Verdict, missing_scripts, verdict
from haxlb.linux.accounts import missing_account
from haxlb.linux.offspring import Cradle
from haxlb.model.errors import ConfigError, HostError
from keepalived_compat.rendering import as_text, summary

_DUMP_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
"""What scripts send to keepalived for a dump; nobody may end haxlb by it."""


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


def test(given: dict[str, str]) -> int:
    """`-t`: say what there is to say; the exit code."""
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


def serve(given: dict[str, str], cradle: Cradle | None) -> None:
    """Run the daemon; `cradle` has its speaker, if that was started before."""
    from haxlb.daemon.supervisor_ports import RefusedConfig
    from haxlb.linux.supervisor_main import Options
    from haxlb.linux.supervisor_main import serve as run

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
            run(options, lambda report: click.echo(report, err=True), cradle)
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

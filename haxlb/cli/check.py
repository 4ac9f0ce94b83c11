"""`haxlb check`: every complaint about a configuration at once."""

from __future__ import annotations

import io
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from haxlb import __version__
from haxlb.cli.options import config_id_option, file_option, settings_option
from haxlb.config import Loaded, load
from haxlb.model.errors import ConfigError
from keepalived_compat.diagnostics import Diagnostic, Severity
from keepalived_compat.rendering import as_json, as_text, summary_by_file

SCHEMA = "haxlb.check/1"
EXIT_CODES = {Severity.FATAL: ConfigError.exit_code, Severity.ERROR: 5}
"""By the worst complaint. As keepalived -t: 4 for a configuration that cannot be used, 5 for any other complaint; only
that warnings, which it does not tell from errors, are no failure here."""


@click.command(short_help="Say everything that is wrong with a configuration.")
@file_option("The keepalived.conf to check.")
@settings_option()
@config_id_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help=f"json: one object, schema {SCHEMA}; sarif: SARIF 2.1.0.",
)
@click.option("--json", "as_object", is_flag=True, help="The same as --format json.")
@click.option(
    "--no-interfaces", is_flag=True, help="Do not look at the interfaces, networks, users and programs of this host."
)
@click.option("--explain", "explained", is_flag=True, help="Say what it means, too; not with --format sarif.")
@click.pass_context
def check(
    context: click.Context,
    path: Path,
    settings: Path,
    config_id: str,
    form: str,
    *,
    as_object: bool,
    no_interfaces: bool,
    explained: bool,
) -> None:
    """Say everything that is wrong with a configuration, with file, line, column and a hint.

    Changes nothing and needs no root. An interface that this host does not have is a warning here, and refused by
    `haxlb run`.

    Exit codes: 0 nothing worse than a warning; 5 errors: it would run, but without the statements or blocks that are
    named; 4 fatal: it cannot be used; 2 wrong usage of this command.
    """
    if context.get_parameter_source("settings") is ParameterSource.COMMANDLINE and not settings.exists():
        raise click.BadParameter(f"there is no file {click.format_filename(settings)}", param_hint="--settings")
    if explained and form == "sarif":
        raise click.BadParameter("SARIF has no place for an explanation", param_hint="--explain")
    loaded = load(
        path,
        settings=settings,
        node=socket.gethostname(),
        config_id=config_id,
        **({} if no_interfaces else _of_this_host(path.parent)),
    )
    diagnostics = tuple(_on_any_host(each) for each in loaded.diagnostics)
    if as_object or form == "json":
        document: dict[str, Any] = {"schema": SCHEMA, "diagnostics": as_json(diagnostics)}
        if explained:
            from haxlb.cli.explain_config import explain_json

            document["explanation"] = explain_json(loaded)
        _print_json(document)
    elif form == "sarif":
        from keepalived_compat.sarif import as_sarif

        _print_json(as_sarif(diagnostics, tool="haxlb check", version=__version__))
    else:
        _print(path, diagnostics, loaded)
        if explained:
            from haxlb.cli.explain_config import explain

            click.echo(f"\n{explain(loaded)}")
    worst = min((each.severity for each in diagnostics), key=lambda each: each.rank, default=Severity.NOTE)
    sys.exit(EXIT_CODES.get(worst, 0))


def _of_this_host(directory: Path) -> dict[str, Any]:
    """What is looked at besides the files: arguments of `load`. Programs are relative to the file's directory."""
    from haxlb.linux.accounts import missing_account
    from haxlb.linux.networks import connected_networks
    from haxlb.linux.script_security import insecure_program, missing_program

    return {
        "interfaces": frozenset(name for _, name in socket.if_nameindex()),
        "networks": connected_networks(),
        "accounts": missing_account,
        "programs": lambda argv: missing_program(argv, str(directory)),
        "insecurities": lambda command: insecure_program(command, str(directory)),
    }


def _on_any_host(diagnostic: Diagnostic) -> Diagnostic:
    """A missing interface does not count here: configurations are checked on other machines than they run on."""
    if diagnostic.code != "no-such-interface" or diagnostic.severity is not Severity.FATAL:
        return diagnostic
    hint = f"`haxlb run` refuses it on this host; {diagnostic.hint}"
    return replace(diagnostic, severity=Severity.WARNING, hint=hint)


def _print_json(document: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(document, indent=2))


def _print(path: Path, diagnostics: tuple[Diagnostic, ...], loaded: Loaded) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Source lines hold any character; a terminal that has not all of them gets escapes, not a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    rows = [as_text(each, loaded.sources, colour=colour) for each in diagnostics]
    rows.append(summary_by_file(diagnostics) or f"{click.format_filename(path)}: no complaints")
    click.echo("\n".join(rows), color=colour)

"""`haxlb run`: the daemon, in the foreground."""

from __future__ import annotations

from pathlib import Path

import click

from haxlb.cli.options import file_option, runtime_dir_option, settings_option


@click.command(short_help="Run the daemon in the foreground.")
@file_option("The keepalived.conf to run.")
@settings_option()
@runtime_dir_option("For the control socket, the lock and the pinned data plane.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "console", "json"]),
    default="auto",
    show_default=True,
    help="auto: console on a terminal, JSON lines elsewhere.",
)
def run(path: Path, settings: Path, runtime_dir: Path, log_level: str, log_format: str) -> None:
    """Run the daemon in the foreground, with its log on stderr.

    SIGHUP reloads the configuration, SIGTERM and SIGINT hand over to the peer and end; SIGUSR1 and SIGUSR2, which ask
    keepalived for dumps, are ignored. The data plane stays attached
    and goes on forwarding what still arrives; `haxlb detach` removes it.

    Exit codes: 0 after an orderly stop; 4 the configuration cannot be used; 71 the host lacks something, or another
    haxlb runs; 77 a capability is missing.
    """
    from haxlb.linux.niceness import hurry
    from haxlb.linux.offspring import Cradle, start

    hurry()  # before the imports: on a busy host they take seconds
    with Cradle(start("speaker")) as cradle:
        from haxlb.daemon.supervisor_ports import RefusedConfig
        from haxlb.linux.supervisor_main import Options, serve

        options = Options(
            config=path, settings=settings, runtime_dir=runtime_dir, log_level=log_level, log_format=log_format
        )

        def show_report(report: str) -> None:
            click.echo(report, err=True)

        try:
            serve(options, show_report, cradle)
        except RefusedConfig as refused:
            show_report(refused.report)
            raise

"""The `haxlb` command: names and lazy loading only; every command lives in a module of its own."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys

import click

from haxlb import __version__
from haxlb.cli.guided_group import GuidedGroup
from haxlb.linux.standard_streams import open_standard_streams, outlive_readers
from haxlb.model.errors import Bug, HaxlbError

COMMANDS = {
    "bench": "haxlb.cli.bench:bench",
    "check": "haxlb.cli.check:check",
    "config": "haxlb.cli.config:config",
    "drain": "haxlb.cli.live:drain",
    "enable": "haxlb.cli.live:enable",
    "detach": "haxlb.cli.detach:detach",
    "failover": "haxlb.cli.failover:failover",
    "keepalived": "haxlb.cli.keepalived:keepalived",
    "keywords": "haxlb.cli.keywords:keywords",
    "reload": "haxlb.cli.reload:reload",
    "resume": "haxlb.cli.resume:resume",
    "run": "haxlb.cli.run:run",
    "show": "haxlb.cli.show:show",
    "swap": "haxlb.cli.swap:swap",
    "vrrp": "haxlb.cli.vrrp:vrrp",
    "weight": "haxlb.cli.live:weight",
}


class LazyGroup(GuidedGroup):
    """Imports a command's module only when it is named: `haxlb check` must not pay for rich or pyroute2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the command of this name."""
        del ctx
        where = COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, attribute = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="haxlb")
def haxlb() -> None:
    """Keepalived-style HA control plane with an XDP data plane."""


def main() -> None:
    """Run the command; a user's mistake or a host's lack ends in one line and a documented exit code.

    Called by the name keepalived it is `haxlb keepalived`: a symbolic link can stand where the other program was.
    """
    open_standard_streams()
    outlive_readers()
    arguments = sys.argv[1:]
    if sys.argv[0].rpartition("/")[2] == "keepalived":
        arguments.insert(0, "keepalived")
    if arguments[:1] == ["check"]:
        # All that this short process makes lives until its end: looking for garbage would only double its time.
        gc.disable()
    try:
        haxlb.main(arguments, standalone_mode=True)
    except SystemExit as end:
        if arguments[:1] == ["check"] and isinstance(end.code, int):
            _leave(end.code)
        raise
    except Bug:
        raise
    except HaxlbError as problem:
        click.echo(f"haxlb: {problem}", err=True)
        sys.exit(problem.exit_code)
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            raise
        click.echo(f"haxlb: the output could not be written: {problem.strerror}", err=True)
        # What is still in the buffer would be tried again, and complained of, at the interpreter's end.
        os._exit(os.EX_IOERR)


def _leave(code: int) -> None:
    """End at once; returns when what was printed cannot be written, which is for the interpreter to say.

    To take apart all that was made of a large configuration is a tenth of the time of its check, and the kernel takes
    the memory back anyway. Only for a command that has no threads, children, or files that are open for writing.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)

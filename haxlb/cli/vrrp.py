"""`haxlb vrrp`: looking at VRRP on the wire, without a daemon."""

from __future__ import annotations

import importlib

import click

from keepalived_compat.nearest import did_you_mean

_SUBCOMMANDS = {"decode": "haxlb.cli.vrrp_decode:decode", "listen": "haxlb.cli.vrrp_listen:listen"}


class _Subcommands(click.Group):
    """Imports a subcommand only when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        del ctx
        return sorted(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load it."""
        where = _SUBCOMMANDS.get(cmd_name)
        if where is None:
            hint = did_you_mean(cmd_name, _SUBCOMMANDS)
            if hint:
                raise click.UsageError(f"No such command '{cmd_name}'. {hint}", ctx)
            return None
        module, _, attribute = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=_Subcommands, short_help="Look at VRRP on the wire.")
def vrrp() -> None:
    """Look at VRRP on the wire: who speaks on a link, what is wrong with an advert. Needs no daemon."""

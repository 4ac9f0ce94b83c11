"""A group of commands that names the nearest to a misspelt one."""

from __future__ import annotations

import click


class GuidedGroup(click.Group):
    """click itself compares with commands that are imported already, and ours are imported when they are named."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            from keepalived_compat.nearest import did_you_mean

            hint = did_you_mean(args[0], self.list_commands(ctx))
            if not hint:
                raise
            raise click.UsageError(f"{problem.message} {hint}", ctx) from problem

"""``tenonnx help``: the help of a command, with all options."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tenonnx_cli.command import Command


@click.command("help", cls=Command, examples=["tenonnx help convert", "tenonnx help plugins new"])
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def command(ctx: click.Context, names: Sequence[str]) -> None:
    """Show the help of a command, or the list of commands."""
    shown = ctx.parent or ctx
    for name in names:
        group = shown.command
        inner = getattr(group, "commands", {})
        if not isinstance(group, click.Group) and name not in inner:
            raise click.UsageError(f"{shown.command_path} has no commands of its own", ctx)
        found = group.resolve_command(shown, [name])[1] if isinstance(group, click.Group) else inner[name]
        assert found is not None
        shown = click.Context(found, shown, name)
    click.echo(shown.get_help(), color=ctx.color)

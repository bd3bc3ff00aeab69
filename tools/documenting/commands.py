"""The page of the commands, from their help texts."""

from __future__ import annotations

from pathlib import Path

import click

from tenonnx_cli.program import program

HEAD = """# Commands

What `tenonnx COMMAND --help` prints. Every command that ends with a result takes `--json`; exit codes are 0 for
success, 1 where a check or verification failed, 2 for invalid arguments or files.
"""


def write(path: Path) -> None:
    parts = [HEAD]
    with click.Context(program, info_name="tenonnx", max_content_width=100) as context:
        for name in program.list_commands(context):
            command = program.get_command(context, name)
            if command is not None:
                parts += _section(command, f"tenonnx {name}", context)
    path.write_text("\n".join(parts), "utf-8")


def _section(command: click.Command, name: str, parent: click.Context) -> list[str]:
    """The section of a command, with those of its subcommands."""
    context = click.Context(command, info_name=name.split()[-1], parent=parent, max_content_width=100)
    result = [f"{'#' * len(name.split())} {name}\n", "```text", command.get_help(context), "```\n"]
    for inner in command.list_commands(context) if isinstance(command, click.Group) else ():
        subcommand = command.get_command(context, inner)
        if subcommand is not None:
            result += _section(subcommand, f"{name} {inner}", context)
    return result

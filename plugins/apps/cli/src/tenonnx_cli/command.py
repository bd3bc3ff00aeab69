"""Commands whose help has examples and groups of options: the usual ones for ``-h``, all for ``--help``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

#: Groups of options shared by commands, in the order of the help.
GROUPS: Mapping[str, Sequence[str]] = {
    "Source": [
        "--rules",
        "--example",
        "--dims",
        "--task",
        "--input-names",
        "--fold",
        "--trust",
        "--load",
        "--untrusted",
        "--map",
        "--of",
        "--wrt",
        "--cotangent",
    ],
    "Inputs": ["--input", "--inputs", "--input-shapes", "--seed", "--batch-size"],
    "Data": [
        "--data",
        "--labels",
        "--image-size",
        "--image-mean",
        "--image-std",
        "--sample-weights",
        "--ignore-index",
        "--class-axis",
        "--columns",
        "--pixels",
        "--mean",
        "--std",
        "--resize",
    ],
    "Target": [
        "--opset",
        "--domains",
        "--target",
        "--ops",
        "--without",
        "--assume-finite",
        "--approximate",
        "--functions",
        "--ir-version",
        "--layout",
        "--adapter",
        "--cache",
        "--channels-first",
        "--initializers-as-constants",
        "--fix-shapes",
        "--dynamic-batch",
        "--free-dims",
    ],
    "Precision": [
        "--float16",
        "--bfloat16",
        "--half-interface",
        "--budget",
        "--allow-loss",
        "--exact",
        "--atol",
        "--rtol",
        "--precision",
    ],
    "Verification": ["--verify", "--verify-with", "--check", "--max-errors"],
    "Performance": [
        "--backend",
        "--provider",
        "--device",
        "--devices",
        "--mesh",
        "--sharding",
        "--threads",
        "--timeout",
        "--jobs",
    ],
    "Settings": ["--config", "--profile", "--print-config"],
    "Output": [
        "-o",
        "--output",
        "--output-names",
        "--overwrite",
        "--external-data-threshold",
        "--max-shard",
        "--shapes",
        "--tidy",
        "--strip",
        "--hook",
        "--costs",
        "-q",
        "--quiet",
        "-v",
        "--verbose",
        "--json",
        "-h",
        "--help",
    ],
}

#: Options that ``-h`` shows for commands with more than ``FEW`` options.
USUAL = frozenset(
    [
        "--output",
        "--inputs",
        "--opset",
        "--domains",
        "--target",
        "--simplify",
        "--float16",
        "--verify",
        "--data",
        "--labels",
        "--loss",
        "--epochs",
        "--lr",
        "--metric",
        "--mode",
        "--calibration",
        "--allow-loss",
        "--input",
        "--format",
        "--output-names",
        "--verbose",
        "--json",
        "--help",
    ]
)

#: Up to this many options ``-h`` shows all.
FEW = 16

#: Context key for a request of the usual options.
_SHORT = "tenonnx.short_help"


class Command(click.Command):
    """A command with ``examples``, which are shell lines, and further ``groups`` of its options by title."""

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        groups: Mapping[str, Collection[str]] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self.examples = tuple(examples)
        self.groups = {**(groups or {}), **GROUPS}
        short = ["-h"]
        said = "Show the usual options and exit."
        taken = {name for each in self.params for name in each.opts}
        self.params += [option for option in _settings_options() if not taken.intersection(option.opts)]
        self.params.append(
            click.Option(short, is_flag=True, is_eager=True, expose_value=False, callback=_short_help, help=said)
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse with defaults from a settings file, or print the arguments as such a file.

        A command that another program parses ignores settings of the current folder.
        """
        if ctx.resilient_parsing or not isinstance(ctx.find_root().command, click.Group):
            return super().parse_args(ctx, args)
        given = self.make_parser(ctx).parse_args(list(args))[0]
        if not {"-h", "--help"} & {*args}:
            from tenonnx_cli.config_file import settings_of

            profile = given.get("profile")
            defaults = settings_of(ctx, self, given.get("config"), profile if isinstance(profile, str) else None)
            ctx.default_map = {**(ctx.default_map or {}), **defaults}
        rest = super().parse_args(ctx, args)
        if given.get("print_config"):
            from tenonnx_cli.config_file import as_settings
            from tenonnx_cli.output import say_lines

            say_lines(as_settings(ctx, self, given))
            ctx.exit()
        return rest

    def options(self, ctx: click.Context) -> dict[str, list[click.Option]]:
        """The options by the title of their group; those of packages are in "Packages"."""
        found: dict[str, list[click.Option]] = {}
        own = {id(each) for each in self.params}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and not option.hidden:
                known = (title for title, names in self.groups.items() if set(option.opts) & set(names))
                rest = "Options" if id(option) in own else "Packages"
                found.setdefault(next(known, rest), []).append(option)
        order = ["Options", *(self.groups), "Packages"]
        return dict(sorted(found.items(), key=lambda each: order.index(each[0])))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Render the help with cloup, imported lazily, since its import takes as long as click's."""
        from cloup.formatting import HelpFormatter, HelpSection
        from cloup.styling import HelpTheme, Style

        theme = HelpTheme(heading=Style(bold=True), col1=Style(fg="cyan")) if ctx.color else HelpTheme()
        drawn = HelpFormatter(width=formatter.width, theme=theme, col1_max_width=32)
        short = bool(ctx.meta.get(_SHORT))
        self.format_usage(ctx, drawn)
        text = self.help_text().split("\n\n")
        self._write_text("\n\n".join(text[:1] if short else text), drawn)
        if self.examples:
            drawn.write("\n")
            drawn.write_heading("Examples")
            with drawn.indentation():
                for line in self.examples:
                    drawn.write(f"{' ' * drawn.current_indent}{line}\n")
        options = self.options(ctx)
        shown = _usual(options) if short else options
        records = {title: [each.get_help_record(ctx) for each in group] for title, group in shown.items()}
        drawn.write_many_sections(
            [HelpSection(title, [each for each in group if each]) for title, group in records.items()]
        )
        if (left := sum(map(len, options.values())) - sum(map(len, shown.values()))) > 0:
            drawn.write(f"\n{ctx.command_path} --help shows {left} more options.\n")
        formatter.write(drawn.getvalue())

    def help_text(self) -> str:
        """The help without options."""
        import inspect

        return inspect.cleandoc(self.help or "")

    @staticmethod
    def _write_text(text: str, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)


def _settings_options() -> list[click.Option]:
    """``--config``, ``--profile`` and ``--print-config`` of every command; ``Command.parse_args`` reads them."""
    return [
        click.Option(
            ["--config"],
            expose_value=False,
            metavar="FILE.toml",
            help="Read options from a table of the command's name in this file, in a pyproject.toml below "
            "[tool.tenonnx]. By default, from the nearest tenonnx.toml or pyproject.toml. Keys are options without "
            "dashes. Options that are given take precedence.",
        ),
        click.Option(
            ["--profile"],
            expose_value=False,
            metavar="NAME",
            help="Also read options from the table [profiles.NAME.COMMAND] of the file of settings.",
        ),
        click.Option(
            ["--print-config"],
            is_flag=True,
            expose_value=False,
            help="Print all options of this call as a file for --config, and do nothing else.",
        ),
    ]


def _usual(options: Mapping[str, Sequence[click.Option]]) -> dict[str, Sequence[click.Option]]:
    """The usual options in their groups; all if there are few."""
    if sum(map(len, options.values())) <= FEW:
        return dict(options)
    chosen = {title: [o for o in group if o.required or set(o.opts) & USUAL] for title, group in options.items()}
    return {title: group for title, group in chosen.items() if group}


def _short_help(ctx: click.Context, option: click.Parameter, is_requested: bool) -> None:
    if is_requested and not ctx.resilient_parsing:
        ctx.meta[_SHORT] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()

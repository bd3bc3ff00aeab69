"""The program: built-in commands and those of plugins, each imported when it runs."""

from __future__ import annotations

from importlib import import_module

import click
from click.shell_completion import CompletionItem

import tenonnx
from tenonnx_cli.trust import add_time_option

#: Names of modules next to this one.
COMMANDS = (
    "inspect",
    "check",
    "run",
    "bench",
    "convert",
    "plan",
    "compare",
    "verify",
    "extract",
    "rename",
    "compose",
    "targets",
    "ops",
    "plugins",
    "doctor",
    "help",
    "version",
)

#: Sections of the help text, including commands of other packages, without imports.
SECTIONS = {
    "Look at a model": {
        "inspect": "Show inputs, outputs, operators and weights; draw the graph.",
        "check": "List all errors in a model.",
        "plan": "Show what a conversion would do, and what prevents it.",
        "compare": "Compare two models: structure, numbers, first node that diverges.",
        "reduce": "Find the smallest part of a model that still fails.",
        "explain": "Add attributions to a model: the share of each feature in an output.",
        "serve": "Look at, export, compare and run models in the browser.",
    },
    "Change it": {
        "convert": "Convert to another opset, set of domains, precision or format.",
        "quantize": "Quantize a model to 8 or 4 bits.",
        "extract": "Extract a subgraph, given its inputs and outputs.",
        "rename": "Rename inputs, outputs and other values.",
        "anonymize": "Replace names, texts and weights, for a bug report.",
        "compose": "Connect the outputs of one model to the inputs of another.",
    },
    "Run it": {
        "run": "Run a model and print its outputs.",
        "verify": "Check that two models compute the same outputs.",
        "score": "Run a model over folders of tables and images.",
        "bench": "Time one or more models on all installed backends.",
    },
    "Train it": {
        "train": "Train or fine-tune a model.",
        "evaluate": "Measure a model on a data set.",
        "grad": "Write the gradient of a model as a model.",
    },
    "Extend tenonnx": {
        "ops": "List the installed ops, or show one.",
        "formats": "List the file formats that a model can be written in.",
        "targets": "List the deployment targets, or show the limits of one.",
        "plugins": "List the installed plugins; create or test one.",
    },
    "Get help": {
        "doctor": "Show versions, backends that start, and what makes a model slow.",
        "help": "Show the help of a command, with all options.",
        "version": "Show the version.",
    },
}

#: Entry-point group of commands: a click command, or a function that adds commands to a given group.
GROUP = "tenonnx.commands"


class CommandGroup(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from tenonnx.tools import plugins

        return [*COMMANDS, *sorted({p.name for p in plugins(GROUP)} - set(COMMANDS))]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, without imports."""
        about = {name: line for lines in SECTIONS.values() for name, line in lines.items()}
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        return [CompletionItem(name, help=about.get(name)) for name in names]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a suggestion for a mistyped name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            from tenonnx.tools import did_you_mean

            meant = did_you_mean(name, self.list_commands(ctx))
            convert = self.get_command(ctx, "convert")
            if convert is not None and any(f"--{name}" in parameter.opts for parameter in convert.get_params(ctx)):
                meant = f"did you mean convert --{name}?"
            raise click.UsageError(f"No such command {name!r}. {meant[:1].upper()}{meant[1:]}".rstrip(), ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            found: click.Command | None = import_module(f"tenonnx_cli.{cmd_name}").command
        else:
            found = self.commands.get(cmd_name) or self._from_plugin(cmd_name)
        return None if found is None else add_time_option(found)

    def _from_plugin(self, name: str) -> click.Command | None:
        from tenonnx import PluginError
        from tenonnx.tools import cure, plugins, provider

        found = [plugin for plugin in plugins(GROUP) if plugin.name == name]
        if not found:
            package = provider(GROUP, name)
            if package is None:
                return None
            raise PluginError(f'cannot run the command "{name}": {package} is not installed', do=cure([package]))
        loaded = found[0].load()
        if not isinstance(loaded, click.Command):
            with found[0].running("could not add its command", passing=()):
                loaded(self)
            loaded = self.commands.get(name)
        if not isinstance(loaded, click.Command):
            what = f'plugin "{name}" of {found[0].source} is not a click command of that name'
            raise PluginError(what, given=found[0].value)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by purpose; third-party ones by package."""
        from tenonnx.tools import plugins

        left = dict.fromkeys(self.list_commands(ctx), "")
        left.update({plugin.name: f"from {plugin.source}" for plugin in plugins(GROUP)})
        for title, lines in SECTIONS.items():
            present = [(name, line) for name, line in lines.items() if left.pop(name, None) is not None]
            if present:
                with formatter.section(title):
                    formatter.write_dl(present)
        if left:
            with formatter.section("Of other packages"):
                formatter.write_dl(sorted(left.items()))


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(tenonnx.__version__, prog_name="tenonnx")
def program() -> None:
    """Inspect, check, run and convert ONNX models.

    Every command that ends with a result accepts --json. Exit codes: 0 for success, 1 if a check or verification
    failed, 2 for invalid arguments or files. COMMAND -h shows the usual options, COMMAND --help all.
    """

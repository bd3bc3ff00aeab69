"""``tenonnx targets``: the named runtimes and converters."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.import_targets import command as import_targets
from tenonnx_cli.options import json_option
from tenonnx_cli.output import complain, say, say_json, say_lines, say_table
from tenonnx_cli.probe import command as probe

if TYPE_CHECKING:
    from tenonnx_targets.target import Target


def _unknown_ops(runtime: Target) -> list[str]:
    """The ops listed in a plugin's file that neither the specification nor a package of their domain has.

    Domains that packages cover only partially, such as com.microsoft, are not checked.
    """
    import onnx

    from tenonnx import default_registry
    from tenonnx.tools import canonical_domain

    registry = default_registry()
    specified = {(canonical_domain(s.domain), s.name) for s in onnx.defs.get_all_schemas_with_history()}
    listed = sorted(set(runtime.ops or ()) - specified)
    judged = [(d, op) for d, op in listed if d in ("ai.onnx", "ai.onnx.ml") or registry.provider(d, op) is None]
    return [f"{d}::{op}" for d, op in judged if d in registry.domains() and not registry.meanings(d, op)]


class _TargetsCommand(Command):
    """A command with one argument, which may be the name of one of ``commands``."""

    commands = MappingProxyType({str(each.name): each for each in (probe, import_targets)})

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.commands:
            return self.commands[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    "targets",
    cls=_TargetsCommand,
    examples=[
        "tenonnx targets tensorrt-10",
        "tenonnx targets mine.toml",
    ],
)
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the deployment targets, or show the limits of one.

    A target is a runtime or converter, with its limits and their source. NAME is one of them, or the path of a target
    file (.toml, .json). `tenonnx targets probe` measures such a file, and `tenonnx targets import` reads the tables
    of another tool.
    """
    from tenonnx.tools import find_runtime, runtimes

    found, failures = runtimes()
    shown = [find_runtime(name)] if name else list(found.values())
    for failure in failures:
        complain(str(failure))
    for runtime in (each for each in shown if each.package != "tenonnx"):
        unknown = _unknown_ops(runtime)
        if unknown:
            complain(f"note: {runtime.name} of {runtime.package or name} lists unknown ops: {', '.join(unknown)}")
    if as_json:
        say_json([runtime.to_dict() for runtime in shown])
        return
    for runtime in shown if name else ():
        say(f"{runtime.name}: {runtime.title}")
    if not name:
        columns = ("target", "ai.onnx", "IR version", "ops", "package")
        rows = [
            (
                p.name,
                p.versions("ai.onnx") if "ai.onnx" in p.opsets else "-",
                "-" if p.ir_version is None else f"up to {p.ir_version}",
                "-" if p.ops is None else str(len(p.ops)),
                p.package,
            )
            for p in shown
        ]
        say_table(rows, columns)
        say("tenonnx targets NAME shows the source; - is what is not documented")
        return
    (runtime,) = shown
    facts = [(domain, runtime.versions(domain)) for domain in runtime.opsets]
    facts.append(("IR version", "not documented" if runtime.ir_version is None else f"up to {runtime.ir_version}"))
    if runtime.dtypes is not None:
        facts.append(("inputs and outputs", ", ".join(sorted(map(str, runtime.dtypes)))))
    ops = sorted(op if domain == "ai.onnx" else f"{domain}::{op}" for domain, op in runtime.ops or ())
    facts.append(("ops", ", ".join(ops) or "not listed"))
    if runtime.static_shapes:
        facts.append(("static shapes", "required"))
    if not runtime.control_flow:
        facts.append(("control flow", "not supported"))
    if runtime.max_rank is not None:
        facts.append(("most dims", str(runtime.max_rank)))
    if runtime.batch is not None:
        facts.append(("batch", str(runtime.batch)))
    if not runtime.external_data:
        facts.append(("external data", "not supported"))
    if runtime.file_size is not None:
        facts.append(("file size", f"up to {runtime.file_size:,} bytes"))
    facts += [(f"{each['op']} {each['outcome']}", str(each.get("reason", ""))) for each in runtime.failures]
    facts += [("source", runtime.source), ("package", runtime.package or str(name))]
    say_table(facts)
    if runtime.note:
        say_lines(runtime.note)

"""``tenonnx targets probe``: measure a target file by running single ops in a consumer."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import json_option, names_like
from tenonnx_cli.output import complain, plural, say, say_json, say_table, working

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Descriptions of outcomes, in the order of the summary.
_OUTCOMES = {
    "right": "computed rightly",
    "wrong": "computed wrongly",
    "refused": "refused",
    "crashed": "crashed its process",
    "hung": "did not answer in time",
}


@click.command(
    "probe",
    cls=Command,
    examples=[
        "tenonnx targets probe --runner my_runner.py:run -o mine.toml",
        'tenonnx targets probe --command "tool {model} {inputs} {outputs}" -o mine.toml',
    ],
)
@click.option(
    "--runner",
    metavar="MODULE:FUNCTION",
    help="A function, also as FILE.py:FUNCTION, that takes the path of an ONNX file and a mapping of inputs by name, "
    "and returns the outputs by name or in order.",
)
@click.option(
    "--command",
    "line",
    metavar="LINE",
    help="A program, with {model} for the ONNX file, {inputs} for a .npz file of inputs by name, and {outputs} for the "
    ".npz file that it writes.",
)
@click.option(
    "--python",
    default="",
    metavar="PATH",
    help="Python interpreter of the consumer's environment, for --runner. By default this one.",
)
@click.option("-o", "--output", required=True, metavar="FILE", help="The target file to write (.toml or .json).")
@click.option("--title", help="Name and version of the consumer. By default the runner.")
@click.option("--name", default="", help="Write the target of this name, for a package that installs the file.")
@click.option(
    "--domains", callback=names_like("ai.onnx,ai.onnx.ml"), metavar="A,B", help="Domains. By default ai.onnx."
)
@click.option("--ops", callback=names_like("Add,Conv"), metavar="A,B", help="Only these ops.")
@click.option(
    "--examples", type=click.IntRange(min=1), default=12, show_default=True, help="Calls of each case of an op."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Time limit of a call.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the calls.")
@json_option
def command(
    runner: str | None,
    line: str | None,
    python: str,
    output: str,
    title: str | None,
    name: str,
    domains: Sequence[str] | None,
    ops: Sequence[str] | None,
    examples: int,
    seconds: float,
    seed: int,
    as_json: bool,
) -> None:
    """Measure what a consumer of ONNX files supports, and write a target file.

    Runs the single-op models of the conformance cases in child processes, with a time limit. The file lists the ops,
    versions, element types and attributes that are computed rightly, and in `failures` those that are computed wrongly,
    refused, or end the process. An interrupted probe goes on where it stopped, by FILE.partial. Needs tenonnx-testing.
    """
    from tenonnx import InvalidCall
    from tenonnx.tools import CommandRunner, FunctionRunner, import_optional

    probing = import_optional("tenonnx_testing.probing.probe", "probe a runtime")
    if (runner is None) == (line is None):
        raise InvalidCall("not exactly one of --runner and --command was given", do="see tenonnx targets probe --help")
    if python and runner is None:
        raise InvalidCall("--python was given without --runner", do="name the interpreter in --command")
    if not output.endswith((".toml", ".json")):
        raise InvalidCall("a target file is called neither *.toml nor *.json", given=output)
    if not Path(output).absolute().parent.is_dir():
        raise InvalidCall("no such folder", given=str(Path(output).parent))
    consumer: Any = (
        FunctionRunner(runner, seconds, python) if runner is not None else CommandRunner(line or "", seconds)
    )
    given = ["--runner", runner] if runner is not None else ["--command", line or ""]
    given += ["--python", "ENV/bin/python"] if python else []
    given += ["-o", Path(output).name, "--examples", str(examples), "--seed", str(seed)]
    for flag, value in {"--title": title, "--name": name, "--domains": domains, "--ops": ops}.items():
        given += [flag, value if isinstance(value, str) else ",".join(value)] if value else []
    repeat = f"tenonnx targets probe {shlex.join(given)}"
    places = tuple(domains or ("ai.onnx",)), tuple(ops or ())
    as_file = {"name": name, "json": output.endswith(".json")}
    request = probing.ProbeRequest(title or consumer.name, repeat, *places, examples, seed, **as_file)
    try:
        consumer.start()
        with working(f"probing {consumer.name}"):
            found = probing.measure(consumer, request, Path(f"{output}.partial"))
    finally:
        consumer.close()
    Path(output).write_text(found.text, "utf-8")
    Path(f"{output}.partial").unlink(missing_ok=True)
    if as_json:
        failed = [{"op": e.op, "outcome": e.outcome, "calls": e.calls, "reason": e.reason} for e in found.failures]
        counts = {name: found.outcomes[name] for name in _OUTCOMES}
        say_json({"file": output, "ops": sorted(found.ops), "outcomes": counts, "failures": failed})
        return
    say(f"{output}: {plural(len(found.ops), 'op')} supported")
    say_table([(words, plural(found.outcomes[name], "call")) for name, words in _OUTCOMES.items()])
    if not found.ops:
        complain("no op is computed rightly")

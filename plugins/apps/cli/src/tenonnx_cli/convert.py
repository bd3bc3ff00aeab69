"""``tenonnx convert``: the same model at another opset, for other domains, or in another format."""

from __future__ import annotations

import inspect
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tenonnx_cli.changes import removed_nodes, say_changes
from tenonnx_cli.deadline import within
from tenonnx_cli.model_size import model_size, say_sizes
from tenonnx_cli.options import (
    FILE,
    TransformingCommand,
    config_options,
    costs_option,
    input_options,
    json_option,
    model_argument,
    note_unused,
    transforms_given,
    verbosity_options,
)
from tenonnx_cli.output import complain, results_aside, say, say_json, say_lines, standard_output, working
from tenonnx_cli.source import SourceOptions, source_options
from tenonnx_cli.verifications import said_of_inputs, said_verdict, say_comparison, say_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


#: Suffixes of output files without a plugin.
SUFFIXES = (".onnx", ".safetensors")


@click.command(
    "convert",
    cls=TransformingCommand,
    examples=[
        "tenonnx convert model.onnx -o small.onnx --simplify",
        "tenonnx convert model.onnx -o old.onnx --opset 13 --domains ai.onnx",
    ],
)
@model_argument
@click.option(
    "-o",
    "--output",
    type=FILE,
    required=True,
    metavar="FILE",
    help="A .onnx file, a .safetensors file in the native format of tenonnx, or what `tenonnx formats` lists; - for "
    "standard output.",
)
@source_options
@input_options
@config_options()
@costs_option
@verbosity_options
@json_option
def command(
    model: str,
    output: str,
    source: SourceOptions,
    inputs: Sequence[str],
    archive: str | None,
    costs: bool,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Convert a model to another opset, set of domains, precision or file format.

    MODEL is a file, or FILE.py:FUNCTION for a function that returns a model, such as a PyTorch module (needs
    tenonnx-torch). The Python file is executed: use only files that you trust. A .joblib, .pkl or .skops file of an
    estimator is read by tenonnx-sklearn, and compared with the estimator. A folder of transformers is read by
    tenonnx-transformers; with --layout, it becomes the folder that a runtime serves.

    Prints the verdict, then what changed: nodes by type, parameters, bytes. -v lists each changed node. Nothing is
    written if a node cannot be expressed in the target, or if the outputs
    of the converted model differ from the original's.
    """
    from tenonnx import ConvertConfig
    from tenonnx.tools import STEPS, Conversion, folder_export, given_config, writes_folder
    from tenonnx_cli.arrays import read_feeds

    config: ConvertConfig = given_config(ConvertConfig, None, {"transforms": transforms_given(), **options})
    if (exported := folder_export(config)) is not None:
        export_folder(exported, model, output, as_json=as_json)
        return
    if not writes_folder(config):
        check_output(output, model, formats=True)
    with within(config.timeout):
        result = source.read(model, config.seed)
    with working(f"converting {model}"), within(config.timeout) as deadline:
        measured = partial(model_size, costs=costs, input_shapes=config.input_shapes)
        before = measured(result.graph, model)  # before writing, as the output may replace the file
        config = replace(config, feeds=read_feeds(result.graph, inputs, archive) or None)
        file = standard_output() if output == "-" else output
        conversion = Conversion(result.graph, file, config, STEPS, verifier=result.verifier, name=model)
        with closing(conversion):
            conversion.run(until="write")
            deadline.met()  # writing must not be interrupted
            report = conversion.run().report
    for note in report.notes:
        complain(note)
    note_unused(options["opset_version"], report.opsets)
    fed = said_of_inputs(config.feeds is not None, config.seed)
    verdict = said_verdict(report.verification, report.compared_with, fed)
    state = conversion.state
    after = measured(state.graph, output, ir_version=report.ir_version)
    if as_json:
        both = {"before": before.to_dict(), "after": after.to_dict()}
        say_json({"file": model, "output": output, **both, **report.to_dict()})
        return
    say_verdict(f"{output}: {verdict}", report.verification)
    say_sizes(before, after)
    for what in report.notes_left_out:
        say(f"left out, as IR {report.ir_version} does not support it: {what}")
    say_comparison(report, model, state.changed_by, verbose=verbose)
    for finding in report.findings.values():
        say_lines(str(finding))
    if verbose:
        removed = removed_nodes(state.source_graph, state.graph, report.changes, transforms_given())
        say_changes([*report.changes, *removed], all_nodes=True)


def export_folder(exported: Callable[..., Any], model: str, output: str, *, as_json: bool) -> None:
    """Let a layout read a model and write its folder, with the options given by name."""
    from tenonnx import ExportConfig, InvalidCall
    from tenonnx.tools import options_of

    context = click.get_current_context()
    taken = {*inspect.signature(exported).parameters, *options_of(ExportConfig)}
    given = {}
    for option in context.command.get_params(context):
        name = str(option.name)
        if name in _OF_COMMAND or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if name not in taken:
            raise InvalidCall(
                f"the layout {context.params['layout']} does not take the option {option.opts[-1]}",
                do="leave it out, or convert a file of the folder afterwards",
            )
        given[name] = context.params[name]
    with working(f"converting {model}"):
        report = exported(model, output, **given)
    if as_json:
        say_json({"file": model, **report.to_dict()})
    else:
        say_lines(str(report))


#: Parameters of ``convert`` that layouts do not take.
_OF_COMMAND = {"model", "output", "as_json", "verbose"}


def check_output(output: str, *inputs: str, formats: bool = False) -> None:
    """Raise ``InvalidCall`` for a file of unknown format; ``formats`` allows those of plugins."""
    from tenonnx import InvalidCall
    from tenonnx.tools import output_format, output_suffixes

    path = Path(output)
    if output == "-":
        results_aside()
        return
    known = output.lower().endswith(SUFFIXES) or (formats and output_format(output) is not None)
    if not known and not path.is_dir():
        available = ", ".join(output_suffixes() if formats else SUFFIXES)
        raise InvalidCall("unknown file format", given=output, available=available)
    note_replaced(output, inputs)


def note_replaced(output: str, inputs: Iterable[str]) -> None:
    """Print a note if the output replaces an input."""
    path = Path(output)
    if path.exists() and any(each and Path(each).exists() and path.samefile(each) for each in inputs):
        complain(f"note: {output} is an input of this command, and will be replaced")

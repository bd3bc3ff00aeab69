"""``slim`` with onnxslim's arguments, and its command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tenonnx as tx
from tenonnx_compat.models import (
    check_inputs,
    graph_of,
    message_of,
    print_table,
    same_outputs,
    save,
    shapes_of,
    with_shapes,
)
from tenonnx_compat.onnxslim import utils
from tenonnx_compat.refusal import announce, announce_command, refuse_options
from tenonnx_optimize.common_subexpressions import merge_common_subexpressions

if TYPE_CHECKING:
    import onnx

#: onnxslim's names of the element types that it converts to.
_HALF, _FULL = ("fp16", "float16"), ("fp32", "float32")

#: Fusion patterns of onnxslim that users skip, and the op types that are not optimized then.
PATTERNS = {
    "FusionConvBN": "BatchNormalization",
    "FusionConvTransposeBN": "BatchNormalization",
    "FusionConvAdd": "Add",
    "FusionConvTransposeAdd": "Add",
    "FusionConvMul": "Mul",
    "FusionConvTransposeMul": "Mul",
    "FusionPadConv": "Pad",
    "FusionGemm": "MatMul",
    "FusionGemmAdd": "Add",
    "FusionGemmMul": "Mul",
    "FusionReduce": "ReduceSum",
    "FusionConcatReshape": "Reshape",
    "FusionGelu": "Erf",
    "EliminationTranspose": "Transpose",
    "EliminationReshape": "Reshape",
    "EliminationReshapeAs": "Reshape",
    "EliminationUnsqueeze": "Unsqueeze",
    "EliminationSlice": "Slice",
    "EliminationConcat": "Concat",
}

OPTIMIZATIONS = (
    "constant_folding",
    "graph_fusion",
    "dead_node_elimination",
    "subexpression_elimination",
    "weight_tying",
)


def slim(
    model: str | os.PathLike[str] | onnx.ModelProto | list[Any],
    output_model: str | None = None,
    *,
    model_check: bool = False,
    input_shapes: Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    no_shape_infer: bool = False,
    skip_optimizations: Sequence[str] | None = None,
    dtype: str | None = None,
    skip_fusion_patterns: Sequence[str] | None = None,
    size_threshold: int | None = None,
    inspect: bool = False,
    dump_to_disk: bool = False,
    save_as_external_data: bool = False,
    model_check_inputs: Sequence[str] | None = None,
    verbose: bool = False,
) -> onnx.ModelProto | None:
    """Simplify a model. Returns it, or writes it to ``output_model`` and prints a summary of the changes.

    A list of models is only printed, side by side. ``model_check`` compares the outputs with the model's, and returns
    None if they differ. Raises ``NotSupported`` for unsupported arguments.
    """
    announce("onnxslim.slim", "tx.simplify(tx.load(model))")
    refuse_options(
        "onnxslim.slim",
        {
            "skip_fusion_patterns": sorted(set(skip_fusion_patterns or ()) - PATTERNS.keys()),
            "skip_optimizations": sorted(set(skip_optimizations or ()) - set(OPTIMIZATIONS)),
            "dtype": None if dtype in (None, *_HALF, *_FULL) else dtype,
            "size_threshold": size_threshold if skip_optimizations else None,
        },
    )
    if isinstance(model, list):
        print_table({_title(each, place): graph_of(each) for place, each in enumerate(model)})
        for place, each in enumerate(model if dump_to_disk else ()):
            utils.dump_model_info_to_disk(utils.summarize_model(each, _title(each, place)))
        return None
    shapes = shapes_of(input_shapes)
    graph = original = with_shapes(graph_of(model), shapes)
    inputs, outputs = _named(graph, "inputs", inputs), _named(graph, "outputs", outputs)
    if inputs or outputs:
        graph = original = graph.extract(
            list(inputs or (value.name for value in graph.inputs)),
            list(outputs or (value.name for value in graph.outputs)),
        )
    graph.all_inputs = graph.inputs
    keep = {PATTERNS[name] for name in skip_fusion_patterns or ()}
    graph = _optimized(graph, set(skip_optimizations or ()), keep, size_threshold)
    if dtype in _HALF:
        graph = tx.lower_precision(graph, "float16", convert_interface=True).graph
    # fix_shapes writes inferred dims of outputs
    written = message_of(graph, shapes="interface") if no_shape_infer else message_of(tx.fix_shapes(graph, {}))
    if model_check:
        sizes, feeds = check_inputs(model_check_inputs)
        changed = tx.load(written)
        if not same_outputs(original, changed, runs=1, feeds=feeds, input_shapes=sizes, atol=1e-4):
            return None
    if output_model is None:
        return written
    save(written, output_model, **({"threshold": 0} if save_as_external_data else {}))
    print_table({_title(model, 0): original, os.fspath(output_model): tx.load(written)})
    return None


def _named(graph: tx.Graph, argument: str, texts: Sequence[str] | None) -> list[str]:
    """Parse names of values, ``x`` or ``x:fp32``. Raises ``NotSupported`` for another type than the value's."""
    if not texts:
        return []
    known = {value.name: value for value in tx.fix_shapes(graph, {}).values()}
    names = []
    for text in texts:
        name, _, kind = text.rpartition(":")
        value = known.get(name) if text not in known else None
        if value is not None and value.dtype.name == {"fp32": "float32", "fp16": "float16"}.get(kind, kind):
            names.append(name)
            continue
        refuse_options("onnxslim.slim", {argument: text if text not in known and name else None})
        names.append(text)
    return names


def _optimized(graph: tx.Graph, skipped: set[str], keep: Collection[str], largest: int | None = None) -> tx.Graph:
    """Apply the optimizations that are not ``skipped``; op types in ``keep`` are not optimized."""
    if "graph_fusion" not in skipped and not skipped & {"constant_folding", "subexpression_elimination"}:
        return tx.simplify(graph, keep=keep, largest=largest)
    if "constant_folding" not in skipped:
        graph = tx.fold(graph)
    if "subexpression_elimination" not in skipped:
        graph = merge_common_subexpressions(graph)
    return graph if "dead_node_elimination" in skipped else tx.prune(graph)


def _title(model: Any, place: int) -> str:
    return Path(model).name if isinstance(model, str | os.PathLike) else f"OnnxModel {place}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="onnxslim", description="onnxslim, carried out by tenonnx")
    parser.add_argument("input_model", nargs="+", help="model to read, and the file to write; several with --inspect")
    parser.add_argument("--no-shape-infer", action="store_true", help="write no types of inner values")
    parser.add_argument("--skip-optimizations", nargs="+", choices=OPTIMIZATIONS, help="leave out these")
    parser.add_argument("--skip-fusion-patterns", nargs="+", help="not supported")
    parser.add_argument("--size-threshold", type=int, help="not supported")
    parser.add_argument("--input-shapes", nargs="+", metavar="NAME:DIMS", help="fix dims of inputs")
    parser.add_argument("--inputs", nargs="+", metavar="NAME", help="the values to cut at")
    parser.add_argument("--outputs", nargs="+", metavar="NAME", help="the outputs to keep")
    parser.add_argument("--dtype", choices=["fp16", "fp32"], help="write half precision")
    parser.add_argument("--save-as-external-data", action="store_true", help="write weights beside the model")
    parser.add_argument("--model-check", action="store_true", help="compare outputs with those of the model")
    parser.add_argument("--model-check-inputs", nargs="+", metavar="NAME:DIMS|NAME:FILE.npy")
    parser.add_argument("--inspect", action="store_true", help="print the ops of one or several models")
    parser.add_argument("--dump-to-disk", action="store_true", help="write nodes as a table, with --inspect")
    parser.add_argument("--verbose", action="store_true", help="without effect")
    parser.add_argument("-v", "--version", action="version", version=f"onnxslim of tenonnx {tx.__version__}")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command ``onnxslim``. Returns 0, or exits with 1 if the model cannot be read or simplified."""
    parser = _parser()
    options = vars(parser.parse_intermixed_args(arguments))
    models = options.pop("input_model")
    if options["dump_to_disk"] and not options["inspect"]:
        parser.error("dump_to_disk can only be used with --inspect")
    if not options["inspect"] and len(models) > 2:
        parser.error(f"unrecognized arguments: {' '.join(models[2:])}")
    announce_command("onnxslim", "onnxslim.slim", "tenonnx convert IN -o OUT --simplify")
    try:
        if options["inspect"]:
            slim(models, **options)
        else:
            slim(models[0], *models[1:], **options)
    except (tx.TenonnxError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    return 0

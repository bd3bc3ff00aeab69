"""Conversion of TensorFlow, Keras and TFLite models with tf2onnx's arguments, and its command."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx

import tenonnx as tx
from tenonnx_compat.models import save
from tenonnx_compat.refusal import announce, announce_command, ignore_options, refuse_options

#: tf2onnx's default version of ``ai.onnx``.
PREFERRED_OPSET = 15

Shapes = Mapping[str, Sequence[int | None]]
Result = tuple[onnx.ModelProto, Any]


def from_keras(
    model: Any,
    input_signature: Any = None,
    opset: int | None = None,
    custom_ops: Mapping[str, str] | None = None,
    custom_op_handlers: Mapping[str, Any] | None = None,
    custom_rewriter: Sequence[Any] | None = None,
    inputs_as_nchw: Sequence[str] | None = None,
    outputs_as_nchw: Sequence[str] | None = None,
    extra_opset: Sequence[Any] | None = None,
    shape_override: Shapes | None = None,
    target: Sequence[str] | None = None,
    large_model: bool = False,
    output_path: str | None = None,
    optimizers: Any = None,
) -> Result:
    """Convert a Keras model; returns the ONNX model, and None or the external tensors of a ``large_model``.

    ``input_signature`` lists a ``TensorSpec`` or an array for each input; models that declare their inputs need none.
    Raises ``NotSupported`` for unsupported arguments, ``NotRepresentable`` for ops that ONNX cannot express.
    """
    announce("tf2onnx.convert.from_keras", "tx.load(model)")
    ignore_options("tf2onnx.convert.from_keras", {"optimizers": optimizers}, "the graph is simplified as a whole")
    _refuse("from_keras", custom_ops, custom_op_handlers, custom_rewriter, extra_opset)
    graph = tx.load(model, *_flat(input_signature), **_shaped(shape_override))
    names = [each.name.partition("/")[0] for each in getattr(model, "outputs", None) or ()]
    if len(names) == len(set(names)) == len(graph.outputs):
        _rename(graph, [value.name for value in graph.inputs], names, {})
    return _finished(graph, opset, inputs_as_nchw, outputs_as_nchw, target, output_path, large_model)


def from_function(
    function: Any,
    input_signature: Any = None,
    opset: int | None = None,
    custom_ops: Mapping[str, str] | None = None,
    custom_op_handlers: Mapping[str, Any] | None = None,
    custom_rewriter: Sequence[Any] | None = None,
    inputs_as_nchw: Sequence[str] | None = None,
    outputs_as_nchw: Sequence[str] | None = None,
    extra_opset: Sequence[Any] | None = None,
    shape_override: Shapes | None = None,
    target: Sequence[str] | None = None,
    large_model: bool = False,
    output_path: str | None = None,
) -> Result:
    """Convert a ``tf.function`` for a ``TensorSpec`` per input. Raises ``ValueError`` without ``input_signature``."""
    announce("tf2onnx.convert.from_function", "tx.load(function, *specifications)")
    _refuse("from_function", custom_ops, custom_op_handlers, custom_rewriter, extra_opset)
    if input_signature is None:
        raise ValueError("from_function requires input_signature")
    graph = tx.load(function, *_flat(input_signature), **_shaped(shape_override))
    if not isinstance(getattr(function, "structured_outputs", None), dict):
        names = [f"Identity_{place}:0" if place else "Identity:0" for place in range(len(graph.outputs))]
        _rename(graph, [value.name for value in graph.inputs], names, {})
    return _finished(graph, opset, inputs_as_nchw, outputs_as_nchw, target, output_path, large_model)


def from_graph_def(
    graph_def: Any,
    name: str | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    custom_ops: Mapping[str, str] | None = None,
    custom_op_handlers: Mapping[str, Any] | None = None,
    custom_rewriter: Sequence[Any] | None = None,
    inputs_as_nchw: Sequence[str] | None = None,
    outputs_as_nchw: Sequence[str] | None = None,
    extra_opset: Sequence[Any] | None = None,
    shape_override: Shapes | None = None,
    target: Sequence[str] | None = None,
    large_model: bool = False,
    tensors_to_rename: Mapping[str, str] | None = None,
    output_path: str | None = None,
) -> Result:
    """Convert a frozen graph between inputs and outputs, given as ``node:0`` or ``node``.

    Raises ``ValueError`` without inputs or outputs.
    """
    announce("tf2onnx.convert.from_graph_def", 'tx.load("graph.pb", inputs=[...], outputs=[...])')
    _refuse("from_graph_def", custom_ops, custom_op_handlers, custom_rewriter, extra_opset)
    if not input_names:
        raise ValueError("input_names needs to be provided")
    if not output_names:
        raise ValueError("output_names needs to be provided")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.pb"
        path.write_bytes(graph_def.SerializeToString())
        graph = tx.load(path, inputs=_nodes(input_names), outputs=_nodes(output_names), **_shaped(shape_override))
        _rename(graph, input_names, output_names, tensors_to_rename or {})
        graph.name = name or graph.name
        return _finished(graph, opset, inputs_as_nchw, outputs_as_nchw, target, output_path, large_model)


def from_tflite(
    tflite_path: str | os.PathLike[str],
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    custom_ops: Mapping[str, str] | None = None,
    custom_op_handlers: Mapping[str, Any] | None = None,
    custom_rewriter: Sequence[Any] | None = None,
    inputs_as_nchw: Sequence[str] | None = None,
    outputs_as_nchw: Sequence[str] | None = None,
    extra_opset: Sequence[Any] | None = None,
    shape_override: Shapes | None = None,
    target: Sequence[str] | None = None,
    large_model: bool = False,
    output_path: str | None = None,
) -> Result:
    """Convert a TFLite file, or its part between named values. Raises ``ValueError`` without a path."""
    announce("tf2onnx.convert.from_tflite", 'tx.load("model.tflite")')
    _refuse("from_tflite", custom_ops, custom_op_handlers, custom_rewriter, extra_opset)
    if not tflite_path:
        raise ValueError("tflite_path needs to be provided")
    graph = tx.load(tflite_path)
    if input_names or output_names:
        inputs = list(input_names or (value.name for value in graph.inputs))
        graph = graph.extract(inputs, list(output_names or (value.name for value in graph.outputs)))
    if shape_override:
        graph = tx.fix_shapes(graph, dict(shape_override))
    return _finished(graph, opset, inputs_as_nchw, outputs_as_nchw, target, output_path, large_model)


def _refuse(function: str, ops: Any, handlers: Any, rewriter: Any, extra: Any) -> None:
    refuse_options(
        f"tf2onnx.convert.{function}",
        {"custom_ops": ops, "custom_op_handlers": handlers, "custom_rewriter": rewriter, "extra_opset": extra},
        "handlers work on the graph of tf2onnx; write a rule: @tenonnx_tensorflow.rule",
    )


def _flat(signature: Any) -> list[Any]:
    if signature is None:
        return []
    return list(signature) if isinstance(signature, tuple | list | np.ndarray) else [signature]


def _shaped(shapes: Shapes | None) -> dict[str, Any]:
    return {"shapes": {name: list(dims) for name, dims in shapes.items()}} if shapes else {}


def _nodes(names: Sequence[str]) -> list[str]:
    return [name.removesuffix(":0") for name in names]


def _rename(graph: tx.Graph, inputs: Sequence[str], outputs: Sequence[str], names: Mapping[str, str]) -> None:
    """Rename inputs and outputs as tf2onnx does: to the names of the tensors, mapped by ``names``."""
    pairs = [*zip(graph.inputs, inputs, strict=True), *zip(graph.outputs, outputs, strict=True)]
    for value, name in pairs:
        if value.name != names.get(name, name):
            graph.rename(value, names.get(name, name))


def _finished(
    graph: tx.Graph,
    opset: int | None,
    inputs_as_nchw: Sequence[str] | None,
    outputs_as_nchw: Sequence[str] | None,
    target: Sequence[str] | None,
    output_path: str | None,
    large_model: bool,
) -> Result:
    """Simplify a graph, transpose its inputs and outputs, convert it to an opset, and save it if a path is given."""
    refuse_options("tf2onnx", {"target": target}, "tenonnx convert --target has files of limits")
    if inputs_as_nchw or outputs_as_nchw:
        names = [_known(graph, name) for name in (*(inputs_as_nchw or ()), *(outputs_as_nchw or ()))]
        graph = tx.transpose_interface(graph, dict.fromkeys(names, (0, 3, 1, 2)))
    if output_path is not None:
        Path(output_path).parent.mkdir(parents=True, exist_ok=True)
    if large_model:
        return _with_external_data(tx.simplify(graph), opset or PREFERRED_OPSET, output_path)
    written = tx.simplify(graph).to_proto(shapes="all", opset_version=opset or PREFERRED_OPSET)
    if output_path is not None:
        save(written, output_path)
    return written, None


def _with_external_data(graph: tx.Graph, opset: int, output_path: str | None) -> Result:
    """A model without its tensors, and these by the names of their files. The output is a zip archive of both."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "__MODEL_PROTO.onnx"
        tx.export(graph, path, opset_version=opset, external_data_threshold=1024)
        if output_path is not None:
            with zipfile.ZipFile(output_path, "w") as archive:
                for file in sorted(Path(folder).iterdir()):
                    archive.write(file, file.name)
        tensors = {file.name: file.read_bytes() for file in Path(folder).iterdir() if file != path}
        return onnx.load(path, load_external_data=False), SimpleNamespace(name_to_tensor_data=tensors)


def _known(graph: tx.Graph, name: str) -> str:
    names = {value.name for value in (*graph.inputs, *graph.outputs)}
    return name if name in names else name.removesuffix(":0")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tf2onnx.convert", description="Convert tensorflow graphs to ONNX, carried out by tenonnx"
    )
    parser.add_argument("--saved-model", help="folder of a SavedModel")
    parser.add_argument("--keras", help="file of a Keras model")
    parser.add_argument("--tflite", help="TFLite file")
    parser.add_argument("--graphdef", "--input", help="frozen graph, with --inputs and --outputs")
    parser.add_argument("--checkpoint", help="meta file of a checkpoint, with --inputs and --outputs")
    for name in ("--tfjs", "--custom-ops", "--extra_opset", "--load_op_libraries"):
        parser.add_argument(name, help="not supported")
    for name in ("--ignore_default", "--use_default", "--output_frozen_graph", "--concrete_function"):
        parser.add_argument(name, help="not supported")
    parser.add_argument("--output", help="file to write")
    parser.add_argument("--inputs", help="names of inputs, with shapes: x:0[1,3],y:0")
    parser.add_argument("--outputs", help="names of outputs")
    parser.add_argument("--rename-inputs", help="names of the inputs in the file")
    parser.add_argument("--rename-outputs", help="names of the outputs in the file")
    parser.add_argument("--tag", help="tag of the SavedModel")
    parser.add_argument("--signature_def", help="signature of the SavedModel")
    parser.add_argument("--opset", type=int, help=f"version of ai.onnx, by default {PREFERRED_OPSET}")
    parser.add_argument("--inputs-as-nchw", help="inputs to transpose from NHWC to NCHW")
    parser.add_argument("--outputs-as-nchw", help="outputs to transpose from NHWC to NCHW")
    parser.add_argument("--target", default="", help="not supported")
    parser.add_argument("--large_model", action="store_true", help="write a zip archive with external data")
    for name in ("--dequantize", "--continue_on_error", "--use-graph-names"):
        parser.add_argument(name, action="store_true", help="not supported")
    parser.add_argument("--verbose", "-v", action="count", help="without effect")
    parser.add_argument("--debug", action="store_true", help="without effect")
    return parser


#: Unsupported options of the command.
_REFUSED = (
    "tfjs",
    "custom_ops",
    "extra_opset",
    "load_op_libraries",
    "ignore_default",
    "use_default",
    "output_frozen_graph",
    "concrete_function",
    "target",
    "dequantize",
    "continue_on_error",
    "use_graph_names",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. Exits with 1 without a model, and if the model cannot be read or converted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    sources = [options.saved_model, options.keras, options.tflite, options.graphdef, options.checkpoint, options.tfjs]
    if not any(sources):
        parser.print_help()
        sys.exit(1)
    if (options.graphdef or options.checkpoint) and not (options.inputs and options.outputs):
        parser.error("graphdef and checkpoint models need to provide inputs and outputs")
    announce_command("tf2onnx.convert", "tf2onnx.convert.from_tflite", "tenonnx convert MODEL -o OUT --opset N")
    try:
        refuse_options("tf2onnx.convert", {f"--{name}": getattr(options, name) or None for name in _REFUSED})
        _run(options)
    except (tx.TenonnxError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def _run(options: argparse.Namespace) -> None:
    inputs, shapes = _names_and_shapes(options.inputs)
    outputs = _split(options.outputs)
    as_nchw = _split(options.inputs_as_nchw), _split(options.outputs_as_nchw)
    if options.graphdef or options.checkpoint:
        frozen = _restored(options.checkpoint, _nodes(outputs)) if options.checkpoint else _parsed(options.graphdef)
        written, _ = from_graph_def(
            frozen,
            None,
            inputs,
            outputs,
            options.opset,
            inputs_as_nchw=as_nchw[0],
            outputs_as_nchw=as_nchw[1],
            shape_override=shapes,
            tensors_to_rename={
                **dict(zip(inputs, _split(options.rename_inputs), strict=False)),
                **dict(zip(outputs, _split(options.rename_outputs), strict=False)),
            },
            large_model=options.large_model,
            output_path=options.output,
        )
        _print_interface(written, options.output)
        return
    source = options.saved_model or options.keras or options.tflite
    reading: dict[str, Any] = {}
    if options.saved_model:
        reading = {"signature": options.signature_def, "tags": [options.tag] if options.tag else None}
    graph = tx.load(source, **{name: each for name, each in reading.items() if each is not None})
    if inputs or outputs:
        names = [value.name for value in graph.inputs]
        graph = graph.extract([_known(graph, name) for name in inputs] or names, _outputs(graph, outputs))
    if shapes:
        graph = tx.fix_shapes(graph, {_known(graph, name): dims for name, dims in shapes.items()})
    for value, name in zip(graph.inputs, _split(options.rename_inputs), strict=False):
        graph.rename(value, name)
    for value, name in zip(graph.outputs, _split(options.rename_outputs), strict=False):
        graph.rename(value, name)
    written, _ = _finished(graph, options.opset, *as_nchw, None, options.output, options.large_model)
    _print_interface(written, options.output)


def _print_interface(written: onnx.ModelProto, output: str | None) -> None:
    print(f"Model inputs: {[value.name for value in written.graph.input]}")
    print(f"Model outputs: {[value.name for value in written.graph.output]}")
    if output:
        print(f"ONNX model is saved at {output}")


def _parsed(path: str) -> Any:
    """A stand-in for a ``GraphDef``, read from a file; only its ``SerializeToString`` is called."""
    return SimpleNamespace(SerializeToString=Path(path).read_bytes)


def _restored(path: str, outputs: Sequence[str]) -> Any:
    """Restore a checkpoint with TensorFlow, and freeze its variables to constants."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(path, clear_devices=True).restore(session, path.removesuffix(".meta"))
        return v1.graph_util.convert_variables_to_constants(session, session.graph_def, list(outputs))


def _outputs(graph: tx.Graph, names: Sequence[str]) -> list[str]:
    return [_known(graph, name) for name in names] or [value.name for value in graph.outputs]


def _split(text: str | None) -> list[str]:
    return text.split(",") if text else []


def _names_and_shapes(text: str | None) -> tuple[list[str], dict[str, list[int | None]]]:
    """Parse names with optional dims in brackets, such as ``x:0[1,3],y:0``; -1 is a dynamic dim."""
    names, shapes = [], {}
    for name, dims in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?", text or ""):
        names.append(name)
        if dims:
            shapes[name] = [None if dim.strip() in ("-1", "None", "?") else int(dim) for dim in dims.split(",")]
    return names, shapes


if __name__ == "__main__":
    main()

"""``simplify`` with onnxsim's arguments, and its command."""

from __future__ import annotations

import argparse
import copy
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tenonnx as tx
from tenonnx_compat.models import filled, graph_of, message_of, print_table, same_outputs, save, with_shapes
from tenonnx_compat.onnxsim.exports import export_coreml, export_tflite
from tenonnx_compat.onnxsim.profile_plot import Trace, plot_node_reduction
from tenonnx_compat.refusal import announce, announce_command, ignore_options, refuse_options

if TYPE_CHECKING:
    import onnx

Shapes = Mapping[str | None, Sequence[int | str]]

#: Passes of onnxsim that users skip, and the op types that are not optimized then.
PASSES = {
    "fuse_bn_into_conv": "BatchNormalization",
    "fuse_matmul_add_bias_into_gemm": "MatMul",
    "fuse_transpose_into_gemm": "Transpose",
    "fuse_consecutive_transposes": "Transpose",
    "fuse_consecutive_concats": "Concat",
    "fuse_consecutive_squeezes": "Squeeze",
    "fuse_consecutive_unsqueezes": "Unsqueeze",
    "fuse_consecutive_slices": "Slice",
    "fuse_add_bias_into_conv": "Add",
    "fuse_pad_into_conv": "Pad",
    "fuse_pad_into_pool": "Pad",
    "fuse_concat_into_reshape": "Reshape",
    "eliminate_identity": "Identity",
    "eliminate_nop_cast": "Cast",
    "eliminate_nop_concat": "Concat",
    "eliminate_nop_dropout": "Dropout",
    "eliminate_nop_expand": "Expand",
    "eliminate_nop_flatten": "Flatten",
    "eliminate_nop_pad": "Pad",
    "eliminate_nop_reshape": "Reshape",
    "eliminate_nop_split": "Split",
    "eliminate_nop_transpose": "Transpose",
    "eliminate_if_with_const_cond": "If",
    "eliminate_shape_gather": "Shape",
    "eliminate_shape_op": "Shape",
    "rewrite_where": "Where",
}

#: Default path of a trace.
PROFILE = "onnxsim_profile.json"

_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40, "B": 1}

#: onnxsim's default size limit of folded tensors; treated as no limit.
_NO_THRESHOLD = "1.5GB"


def simplify(
    model: onnx.ModelProto | str | os.PathLike[str],
    check_n: int = 0,
    perform_optimization: bool = True,
    skip_fuse_bn: bool = False,
    overwrite_input_shapes: Shapes | None = None,
    test_input_shapes: Shapes | None = None,
    skipped_optimizers: list[str] | None = None,
    skip_constant_folding: bool = False,
    skip_shape_inference: bool = False,
    input_data: Mapping[str, Any] | None = None,
    dynamic_input_shape: bool = False,
    custom_lib: str | None = None,
    include_subgraph: bool = False,
    unused_output: Sequence[str] | None = None,
    tensor_size_threshold: str = _NO_THRESHOLD,
    mutable_initializer: bool = False,
    *,
    initializers_as_constants: bool = True,
    inline_functions: bool = False,
    import_custom_schemas: bool = True,
    input_shapes: Shapes | None = None,
    target_opset_version: int | str | None = None,
    extra_optimizers: list[str] | None = None,
    custom_rewriter: Callable[[onnx.ModelProto], onnx.ModelProto | bool | None] | None = None,
    function_rewrite_rules: Sequence[Any] | None = None,
    check_rtol: float = 1e-4,
    check_atol: float = 1e-5,
    input_fill: str = "random",
    providers: Sequence[Any] | None = None,
    gemm_fusion_backend: str = "ort_cpu",
    profile: str | None = None,
    ort_profile: str | None = None,
    merge_ort_profile: bool = False,
    output_path: str | None = None,
    external_data_threshold: str = "100MB",
    certify: bool | None = None,
) -> tuple[onnx.ModelProto, bool]:
    """Simplify a model, and compare it with the original on ``check_n`` random inputs.

    Returns the simplified model, and whether the outputs agreed (True if ``check_n`` is 0). Subgraphs are always
    simplified, and custom ops need no library. The result has the opset of the model, or ``target_opset_version``.
    numpy folds constants, so that ``providers`` has no effect and ``ort_profile`` writes no file. ``profile`` is the
    path of a trace with node counts.

    Raises ``NotSupported`` for unsupported arguments, ``RuntimeError`` for an unknown input or output.
    """
    announce("onnxsim.simplify", "tx.simplify(tx.load(model))")
    if custom_rewriter is not None and function_rewrite_rules:
        raise ValueError("custom_rewriter and function_rewrite_rules are mutually exclusive")
    keep = {PASSES[name] for name in skipped_optimizers or () if name in PASSES}
    keep |= {"BatchNormalization"} if skip_fuse_bn else set()
    largest = None if tensor_size_threshold == _NO_THRESHOLD else _bytes(tensor_size_threshold)
    refuse_options(
        "onnxsim.simplify",
        {
            "skipped_optimizers": sorted(set(skipped_optimizers or ()) - PASSES.keys()),
            "skip_constant_folding": skip_constant_folding and perform_optimization,
            "initializers_as_constants": "False" if not initializers_as_constants else None,
            "extra_optimizers": extra_optimizers,
            "certify": certify,
            "function_rewrite_rules": [each.name for each, _ in function_rewrite_rules or () if _is_single(each)],
            "tensor_size_threshold": None if largest is None or perform_optimization else tensor_size_threshold,
        },
    )
    ignore_options(
        "onnxsim.simplify",
        {"custom_lib": custom_lib, "providers": providers, "ort_profile": ort_profile},
        "numpy folds constants, and custom ops need no library",
    )
    backend = None if gemm_fusion_backend == "ort_cpu" else gemm_fusion_backend
    ignore_options("onnxsim.simplify", {"gemm_fusion_backend": backend}, "fusions do not depend on a backend")
    schemas = None if import_custom_schemas else "False"
    ignore_options("onnxsim.simplify", {"import_custom_schemas": schemas}, "unknown ops are kept either way")
    original = graph_of(model)
    shapes = _named(original, overwrite_input_shapes or input_shapes)
    graph = original = with_shapes(original, shapes)
    if unused_output:
        graph = _without_outputs(graph, unused_output)
    if not mutable_initializer:
        graph.all_inputs = graph.inputs
    if target_opset_version is not None:
        graph = tx.retarget(graph, opset_version=_opset(target_opset_version))
    trace = Trace(graph) if profile or merge_ort_profile else None
    observe = None if trace is None else trace.observe

    def simplified(graph: tx.Graph) -> tx.Graph:
        return tx.simplify(graph, keep=keep, largest=largest, observe=observe)

    if perform_optimization:
        graph = simplified(graph)
        if custom_rewriter is not None:
            graph = simplified(_rewritten(graph, custom_rewriter))
        for pattern, replacement in function_rewrite_rules or ():
            graph = simplified(_replaced(graph, pattern, replacement))
    elif not skip_constant_folding:
        graph = tx.prune(tx.fold(graph))
    if trace is not None:
        trace.write(profile or PROFILE)
    written = message_of(
        graph if skip_shape_inference else tx.fix_shapes(graph, {}),  # writes inferred dims of outputs
        shapes="interface" if skip_shape_inference else "all",
        functions="inline" if inline_functions else "keep",
    )
    sizes = _named(original, test_input_shapes)
    agreed = not check_n or same_outputs(
        original,
        tx.load(written),
        runs=check_n,
        feeds=input_data or filled(original, input_fill, sizes),
        input_shapes=sizes,
        rtol=check_rtol,
        atol=check_atol,
    )
    if output_path is not None:
        save(written, output_path, threshold=_bytes(external_data_threshold))
    return written, agreed


def _named(graph: tx.Graph, shapes: Shapes | None) -> dict[str, list[int | str | None]]:
    """Dims by input name; the key None means the only input. Raises ``RuntimeError`` for an unknown name."""
    named: dict[str, list[int | str | None]] = {}
    names = [value.name for value in graph.inputs]
    for key, dims in (shapes or {}).items():
        if key is None and len(names) != 1:
            raise RuntimeError(
                'The model has more than 1 inputs, please use the format "input_name:dim0,dim1,...,dimN" in '
                "--overwrite-input-shape"
            )
        name = names[0] if key is None else key
        if name not in names:
            raise RuntimeError(f'The model doesn\'t have input named "{name}"')
        named[name] = [None if isinstance(dim, int) and dim <= 0 else dim for dim in dims]
    return named


def _rewritten(graph: tx.Graph, rewriter: Callable[[onnx.ModelProto], onnx.ModelProto | bool | None]) -> tx.Graph:
    """Apply the user's rewriter, which returns a new model, or changes the one that it gets."""
    message = message_of(graph)
    result = rewriter(message)
    return tx.load(message if result is None or isinstance(result, bool) else result)


def _is_single(pattern: onnx.FunctionProto) -> bool:
    """Whether a pattern has fewer than two nodes besides constants; such a pattern is never fused."""
    return len([node for node in pattern.node if node.op_type != "Constant"]) < 2


def _replaced(graph: tx.Graph, pattern: onnx.FunctionProto, replacement: onnx.FunctionProto) -> tx.Graph:
    """Replace matches of a pattern function by a replacement function, whose inputs correspond by position."""
    message = message_of(graph)
    message.functions.append(pattern)
    known = {entry.domain for entry in message.opset_import}
    if pattern.domain not in known:
        message.opset_import.add(domain=pattern.domain, version=1)
    loaded = tx.load(message)
    wanted: Any = loaded.functions[pattern.domain, pattern.name, pattern.overload]
    fused = tx.fuse(loaded, ops=[wanted])
    message = message_of(fused, functions="keep")
    for function in message.functions:
        if (function.domain, function.name) == (pattern.domain, pattern.name):
            function.CopyFrom(replacement)
            function.domain, function.name, function.overload = pattern.domain, pattern.name, pattern.overload
            function.input[:] = pattern.input
    return tx.load(message_of(tx.load(message), functions="inline"))


def _without_outputs(graph: tx.Graph, unused: Sequence[str]) -> tx.Graph:
    names = [value.name for value in graph.outputs]
    for name in unused:
        if name not in names:
            raise RuntimeError(f'The model doesn\'t have output named "{name}"')
    graph.outputs = [value for value in graph.outputs if value.name not in unused]
    return tx.prune(graph)


def _opset(version: int | str) -> int:
    if version == "latest":
        from onnx.defs import onnx_opset_version

        return onnx_opset_version()
    return int(version)


def _bytes(size: str) -> int:
    match = re.fullmatch(r"([\d.]+)\s*([KMGT]?B)?", size.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(size)
    return int(float(match[1]) * _UNITS[(match[2] or "").upper()])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="onnxsim", description="onnxsim, carried out by tenonnx")
    parser.add_argument("input_model", help="model to read")
    parser.add_argument("output_model", help="file to write")
    parser.add_argument("check_n", nargs="?", type=int, default=0, help="number of random inputs to compare on")
    parser.add_argument("--skip-fuse-bn", action="store_true", help="leave BatchNormalization as it is")
    parser.add_argument("--skip-optimization", nargs="*", help="only fold constants; or leave out these passes")
    parser.add_argument("--skip-optimizer", nargs="+", help="leave out these passes")
    parser.add_argument("--enable-optimization", nargs="+", help="not supported")
    parser.add_argument("--skip-constant-folding", action="store_true", help="leave constants; needs no optimization")
    parser.add_argument("--skip-shape-inference", action="store_true", help="write no types of inner values")
    parser.add_argument("--overwrite-input-shape", "--input-shape", nargs="+", metavar="NAME:DIMS", help="fix dims")
    parser.add_argument("--test-input-shape", nargs="+", metavar="NAME:DIMS", help="dims of the inputs to compare on")
    parser.add_argument("--input-data-path", nargs="+", metavar="NAME:FILE", help="binary inputs to compare on")
    parser.add_argument("--input-fill", default="random", choices=["random", "ones", "zeros", "arange"])
    parser.add_argument("--check-rtol", type=float, default=1e-4)
    parser.add_argument("--check-atol", type=float, default=1e-5)
    parser.add_argument("--unused-output", nargs="+", help="outputs to drop")
    parser.add_argument("--target-opset", type=lambda text: text if text == "latest" else int(text))
    parser.add_argument("--inline-functions", action="store_true", help="inline model-local functions")
    parser.add_argument("--mutable-initializer", action="store_true", help="initializers that are inputs stay so")
    parser.add_argument("--initializers-as-non-constants", action="store_true", help="not supported")
    parser.add_argument(
        "--no-large-tensor", nargs="?", const="1KB", default=_NO_THRESHOLD, help="largest folded tensor"
    )
    parser.add_argument("--save-as-external-data", action="store_true", help="write weights beside the model")
    parser.add_argument("--external-data-threshold", default="100MB")
    for flag in ("--enable-fuse-bn", "--dynamic-input-shape", "--include-subgraph"):
        parser.add_argument(flag, action="store_true", help="the default")
    for flag in ("--skip-schema-import", "--cuda"):
        parser.add_argument(flag, action="store_true", help="without effect")
    parser.add_argument("--enable-onnxruntime-optimization", action="store_true", help="not supported")
    parser.add_argument("--providers", nargs="+", help="without effect: numpy folds constants")
    parser.add_argument("--profile", nargs="?", const=PROFILE, metavar="PATH", help="write a trace with node counts")
    parser.add_argument("--merge-ort-profile", action="store_true", help="write a trace; no session is profiled")
    parser.add_argument("--ort-profile", nargs="?", const="", help="without effect: no session is profiled")
    parser.add_argument("--node-reduction-plot", nargs="?", const="", metavar="PATH", help="draw the node counts")
    parser.add_argument("--emit-tflite", nargs="?", const="", metavar="PATH", help="write the model in TFLite, too")
    parser.add_argument("--tflite-optimize", action="store_true", help="quantize weights")
    parser.add_argument("--tflite-int8", action="store_true", help="quantize weights and activations")
    parser.add_argument("--tflite-calibration-samples", type=int, default=100, metavar="N")
    parser.add_argument("--tflite-io-dtype", choices=["uint8", "int8"], help="type of inputs and outputs")
    parser.add_argument("--tflite-backend", choices=["builtin", "onnx2tf"], help="without effect")
    parser.add_argument("--emit-coreml", nargs="?", const="", metavar="PATH", help="write the model in Core ML, too")
    parser.add_argument("--coreml-format", default="mlprogram", choices=["mlprogram", "neuralnetwork"])
    parser.add_argument("--coreml-compute-units", default="ALL")
    parser.add_argument("--coreml-minimum-deployment-target")
    parser.add_argument("--custom-lib", help="without effect")
    parser.add_argument("-v", "--version", action="version", version=f"onnxsim of tenonnx {tx.__version__}")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command ``onnxsim``. Exits with 1 if outputs differ or the model cannot be simplified."""
    options, others = _parser().parse_known_args(arguments)
    announce_command("onnxsim", "onnxsim.simplify", "tenonnx convert IN -o OUT --simplify")
    try:
        refuse_options("onnxsim", {text.partition("=")[0]: text for text in others if text.startswith("-")})
        agreed = _run(options)
    except (tx.TenonnxError, RuntimeError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    if not agreed:
        print("Check failed: outputs of the simplified model differ. See --skip-fuse-bn and --skip-optimization.")
        sys.exit(1)


def _run(options: argparse.Namespace) -> bool:
    refuse_options("onnxsim", {"--enable-onnxruntime-optimization": options.enable_onnxruntime_optimization})
    profile = options.profile or (
        PROFILE if options.node_reduction_plot is not None or options.merge_ort_profile else None
    )
    before = tx.load(options.input_model)
    print("Simplifying...")
    skipped = [*(options.skip_optimization or ()), *(options.skip_optimizer or ())]
    written, agreed = simplify(
        options.input_model,
        options.check_n,
        perform_optimization=options.skip_optimization != [],
        skip_fuse_bn=options.skip_fuse_bn,
        overwrite_input_shapes=_shapes(options.overwrite_input_shape),
        test_input_shapes=_shapes(options.test_input_shape),
        skipped_optimizers=skipped,
        skip_constant_folding=options.skip_constant_folding,
        skip_shape_inference=options.skip_shape_inference,
        input_data=_arrays(before, options.input_data_path),
        unused_output=options.unused_output,
        tensor_size_threshold=options.no_large_tensor,
        mutable_initializer=options.mutable_initializer,
        initializers_as_constants=not options.initializers_as_non_constants,
        inline_functions=options.inline_functions,
        target_opset_version=options.target_opset,
        extra_optimizers=options.enable_optimization,
        check_rtol=options.check_rtol,
        check_atol=options.check_atol,
        input_fill=options.input_fill,
        profile=profile,
        custom_lib=options.custom_lib,
        providers=options.providers or (["CUDAExecutionProvider"] if options.cuda else None),
        ort_profile=options.ort_profile,
        import_custom_schemas=not options.skip_schema_import,
    )
    if options.node_reduction_plot is not None:
        plot_node_reduction(profile or PROFILE, options.node_reduction_plot or None)
    threshold = 0 if options.save_as_external_data else _bytes(options.external_data_threshold)
    save(copy.deepcopy(written), options.output_model, threshold=threshold)
    _emit(options, written)
    if agreed:
        print("Finish! Here is the difference:")
    print_table({"Original Model": before, "Simplified Model": tx.load(written)})
    return agreed


def _emit(options: argparse.Namespace, model: onnx.ModelProto) -> None:
    """Write the simplified model in the other requested formats, by default to the folder of the output."""
    output = Path(options.output_model)
    if options.emit_tflite is not None:
        export_tflite(
            model,
            options.emit_tflite or output.with_suffix(".tflite"),
            backend=options.tflite_backend or "builtin",
            optimizations=["DEFAULT"] if options.tflite_optimize else None,
            int8_quantize=options.tflite_int8,
            num_calibration_samples=options.tflite_calibration_samples,
            inference_io_dtype=(options.tflite_io_dtype or "uint8") if options.tflite_int8 else None,
        )
    if options.emit_coreml is not None:
        suffix = ".mlpackage" if options.coreml_format == "mlprogram" else ".mlmodel"
        export_coreml(
            model,
            options.emit_coreml or output.with_suffix(suffix),
            convert_to=options.coreml_format,
            compute_units=options.coreml_compute_units,
            minimum_deployment_target=options.coreml_minimum_deployment_target,
        )


def _shapes(texts: Sequence[str] | None) -> dict[str | None, list[int | str]]:
    shapes: dict[str | None, list[int | str]] = {}
    for text in texts or ():
        name, colon, dims = text.rpartition(":")
        sizes = [int(dim) if dim.lstrip("-").isdigit() else dim for dim in dims.split(",")]
        shapes[name if colon else None] = sizes
    return shapes


def _arrays(graph: tx.Graph, texts: Sequence[str] | None) -> dict[str, np.ndarray[Any, Any]] | None:
    """Read inputs from raw files, with the dtypes and shapes that the model declares."""
    arrays = {}
    inputs = {value.name: value for value in graph.inputs}
    for text in texts or ():
        name, _, path = text.partition(":")
        if name not in inputs:
            raise RuntimeError(f'The model doesn\'t have input named "{name}"')
        shape = [dim if isinstance(dim, int) else -1 for dim in inputs[name].shape]
        arrays[name] = np.fromfile(path, inputs[name].dtype.numpy).reshape(shape)
    return arrays or None

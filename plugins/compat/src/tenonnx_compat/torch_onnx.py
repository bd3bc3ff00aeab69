"""``export`` with the arguments of ``torch.onnx.export``."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import tenonnx as tx
from tenonnx_compat.models import save
from tenonnx_compat.refusal import announce, ignore_options, refuse_options

if TYPE_CHECKING:
    import onnx

__all__ = ["ONNXProgram", "export"]

#: The version of ``ai.onnx`` that ``torch.onnx.export`` of 2.13 writes by default.
OPSET = 18


class ONNXProgram:
    """An exported model. Calling it runs the model on the best installed backend."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model_proto = model

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The outputs for input tensors, positional in the order of the inputs, or by name."""
        graph = tx.load(self.model_proto)
        positional = [value.name for value in graph.inputs if value.name not in kwargs]
        feeds = {**dict(zip(positional, args, strict=True)), **kwargs}
        outputs = graph.run({name: np.asarray(tensor.detach().cpu()) for name, tensor in feeds.items()})
        return tuple(torch.from_numpy(np.asarray(array)) for array in outputs.values())

    def save(
        self,
        destination: str | os.PathLike[str],
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model; ``external_data`` stores its weights in a separate file."""
        refuse_options(
            "ONNXProgram.save",
            {
                "include_initializers": None if include_initializers else "False",
                "keep_initializers_as_inputs": keep_initializers_as_inputs,
            },
        )
        save(self.model_proto, destination, **({"threshold": 0, "smallest": 0} if external_data else {}))

    def optimize(self) -> None:
        """Do nothing: the export already folds constants and removes unused nodes."""


def export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: Any = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    training: Any = None,
    operator_export_type: Any = None,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type] = False,
    autograd_inlining: bool = True,
) -> ONNXProgram | None:
    """Export a module for the example ``args``, and write it to ``f`` unless None.

    ``verify`` compares the outputs with the module's. Returns an ``ONNXProgram``, or None without ``dynamo``, as
    ``torch.onnx.export`` does. Raises ``NotSupported`` for unsupported arguments, ``NotRepresentable`` for operators
    that ONNX cannot express, ``VerificationFailed`` if outputs differ.
    """

    announce("torch.onnx.export", "tenonnx_torch.export(module, args, path)")
    refuse_options(
        "torch.onnx.export",
        {
            "custom_translation_table": custom_translation_table,
            "report": report,
            "profile": profile,
            "dump_exported_program": dump_exported_program,
            "export_params": None if export_params else "False",
            "keep_initializers_as_inputs": keep_initializers_as_inputs,
            "training": training if getattr(training, "name", None) == "TRAINING" else None,
            "operator_export_type": operator_export_type if _name(operator_export_type) != "ONNX" else None,
            "custom_opsets": custom_opsets,
            "export_modules_as_functions": export_modules_as_functions,
        },
    )
    folding = None if do_constant_folding else "False"
    ignore_options("torch.onnx.export", {"do_constant_folding": folding}, "constants are always folded")
    arguments = args if isinstance(args, tuple | list) else (args,)
    if arguments and isinstance(arguments[-1], dict) and not dynamo and kwargs is None:
        arguments, kwargs = tuple(arguments[:-1]), arguments[-1] or None
    if dynamic_shapes is not None and isinstance(model, torch.nn.Module):
        model = torch.export.export(
            model, tuple(arguments), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
        )
        arguments, kwargs = (), None
    axes = {name: each for name, each in (dynamic_axes or {}).items() if name in (input_names or [name])}
    graph = tx.load(
        model,
        *arguments,
        keywords=dict(kwargs) if kwargs else None,
        input_names=list(input_names) if input_names else None,
        output_names=list(output_names) if output_names else None,
        dynamic_axes={name: _named(name, each) for name, each in axes.items()} or None,
        verify=verify,
    )
    if optimize:
        graph = tx.simplify(graph)
    written = graph.to_proto(shapes="all", opset_version=opset_version or OPSET)
    if isinstance(f, io.IOBase):
        f.write(written.SerializeToString())
    elif f is not None:
        is_external = external_data and dynamo and written.ByteSize() > _SMALL
        save(written, Path(f), **({"threshold": 0, "smallest": 0} if is_external else {}))
    return ONNXProgram(written) if dynamo else None


#: Models of up to this many bytes are written to a single file.
_SMALL = 1 << 20


def _name(kind: Any) -> str:
    return getattr(kind, "name", "ONNX")


def _named(name: str, axes: Mapping[int, str] | Sequence[int]) -> dict[int, str]:
    """Dynamic axes with names; axes of a list get the names that PyTorch generates."""
    return (
        dict(axes)
        if isinstance(axes, Mapping)
        else {axis: f"{name}_dynamic_axes_{k + 1}" for k, axis in enumerate(axes)}
    )

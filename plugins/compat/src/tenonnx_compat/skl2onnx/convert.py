"""``to_onnx`` and ``convert_sklearn``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tenonnx as tx
from tenonnx_compat.models import message_of
from tenonnx_compat.refusal import announce, ignore_options, refuse_options
from tenonnx_compat.skl2onnx.common.data_types import DataType, StringTensorType, TensorType, type_of_dtype
from tenonnx_compat.skl2onnx.common.exceptions import MissingConverter, MissingShapeCalculator
from tenonnx_compat.skl2onnx.interface import methods, renamed, with_interface
from tenonnx_compat.skl2onnx.outputs import OPTIONS, outputs_of
from tenonnx_compat.skl2onnx.proto import get_latest_tested_opset_version

if TYPE_CHECKING:
    import onnx

InitialTypes = Sequence[tuple[str, DataType]]

#: Options that select between equivalent implementations.
_EQUIVALENT = ("optim", "div")

#: Options of vectorizers that approximate the words of the estimator, which tenonnx splits as the estimator does.
_WORDS = ("tokenexp", "separators", "locale", "keep_empty_string")


def to_onnx(
    model: Any,
    X: Any = None,
    name: str | None = None,
    initial_types: InitialTypes | None = None,
    target_opset: int | Mapping[str, int] | None = None,
    options: Mapping[Any, Any] | None = None,
    white_op: Collection[str] | None = None,
    black_op: Collection[str] | None = None,
    final_types: InitialTypes | None = None,
    dtype: Any = None,
    naming: str | Callable[..., str] | None = None,
    model_optim: bool = True,
    verbose: int = 0,
) -> onnx.ModelProto:
    """Convert a fitted estimator for inputs like ``X``, and compare the result with the estimator.

    Arguments and the names and shapes of outputs follow skl2onnx. Raises ``MissingConverter`` for an estimator that
    cannot be converted, ``NotSupported`` for an unsupported option, ``VerificationFailed`` if outputs differ.
    """
    if initial_types is None:
        initial_types = _guessed(X)
    return convert_sklearn(
        model,
        name or f"ONNX({type(model).__name__})",
        initial_types,
        target_opset=target_opset,
        options=options,
        white_op=white_op,
        black_op=black_op,
        final_types=final_types,
        dtype=dtype,
        naming=naming,
        model_optim=model_optim,
        verbose=verbose,
    )


def convert_sklearn(
    model: Any,
    name: str | None = None,
    initial_types: InitialTypes | None = None,
    doc_string: str = "",
    target_opset: int | Mapping[str, int] | None = None,
    custom_conversion_functions: Mapping[Any, Any] | None = None,
    custom_shape_calculators: Mapping[Any, Any] | None = None,
    custom_parsers: Mapping[Any, Any] | None = None,
    options: Mapping[Any, Any] | None = None,
    intermediate: bool = False,
    white_op: Collection[str] | None = None,
    black_op: Collection[str] | None = None,
    final_types: InitialTypes | None = None,
    dtype: Any = None,
    naming: str | Callable[..., str] | None = None,
    model_optim: bool = True,
    verbose: int = 0,
) -> onnx.ModelProto:
    """Convert a fitted estimator for inputs of ``initial_types``, pairs of a name and a type.

    ``options`` maps option names to values, or estimators (a class or an ``id``) to such a mapping; ``outputs.OPTIONS``
    lists the names. ``black_op`` are op types that the result must not contain. ``naming`` names computed values: a
    prefix, or a function of a name and the set of names so far. Raises the errors of ``to_onnx``, and ``ValueError``
    without types.
    """
    announce("skl2onnx.to_onnx", "tx.load(estimator, X)")
    if initial_types is None:
        raise ValueError("Initial types are required. See usage of convert(...) in skl2onnx.convert for details")
    refuse_options(
        "skl2onnx.convert_sklearn",
        {
            "custom_conversion_functions": custom_conversion_functions,
            "custom_shape_calculators": custom_shape_calculators,
            "custom_parsers": custom_parsers,
            "intermediate": intermediate,
            "naming": naming if naming and not callable(naming) and not isinstance(naming, str) else None,
            "white_op": white_op,
        },
    )
    ignored = {"dtype": dtype, "model_optim": None if model_optim else "False"}
    ignore_options("skl2onnx.convert_sklearn", ignored, "types are those of initial_types, and no Identity is written")
    types = [(key, kind) for key, kind in initial_types if isinstance(kind, TensorType)]
    refuse_options("skl2onnx.convert_sklearn", {"initial_types": [k for k, t in initial_types if (k, t) not in types]})
    outputs = outputs_of(model, _options(model, options))
    try:
        graph = tx.load(model, **_reading(model, types), outputs=methods(outputs))
    except (tx.NotRepresentable, tx.UnsupportedOp) as error:  # skl2onnx raises this error, since it infers shapes first
        raise error.as_a(MissingShapeCalculator) from error
    try:
        graph = with_interface(graph, types, outputs, final_types)
        graph.name = name or "model"
        opsets = _opsets(target_opset)
        written = message_of(graph, shapes=None, opset_version=opsets, without=set(black_op or ()) or None)
        written.doc_string = doc_string
        return renamed(written, naming) if naming else written
    except (tx.NotRepresentable, tx.UnsupportedOp) as error:
        raise error.as_a(MissingConverter) from error


def _guessed(X: Any) -> InitialTypes:
    """The types of the columns of a table, or of an array; the input of an array is named ``X``."""
    if X is None:
        raise ValueError("no initial_types and no X are given")
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        return [(str(n), type_of_dtype(dtype, [None, 1])) for n, dtype in zip(X.columns, X.dtypes, strict=True)]
    array = X if hasattr(X, "dtype") else np.asarray(X)
    return [("X", type_of_dtype(array.dtype, [None, *array.shape[1:]]))]


def _reading(model: Any, types: Sequence[tuple[str, TensorType]]) -> dict[str, Any]:
    """Options of scikit-learn's front end for these input types."""
    texts = [isinstance(kind, StringTensorType) for _, kind in types]
    double = any(type(kind).__name__ == "DoubleTensorType" for _, kind in types)
    options: dict[str, Any] = {"dtype": "float64" if double else "float32"}
    if not any(texts) and not _selects_by_name(model):
        options["inputs"] = "matrix"
    elif len(types) > 1 or _selects_by_name(model):
        options["inputs"] = "columns"
    return options


def _selects_by_name(model: Any) -> bool:
    """Whether a step of an estimator selects columns by name, or requires a separate type for each column."""
    steps = [step for _, step in getattr(model, "steps", [])] or [model]
    return any(hasattr(step, "transformers") for step in steps)


def _options(model: Any, options: Mapping[Any, Any] | None) -> dict[str, Any]:
    """The options that apply to the estimator, or to the last step of a pipeline."""
    chosen: dict[str, Any] = {}
    steps = [model]
    while getattr(steps[-1], "steps", None):
        steps.append(steps[-1].steps[-1][1])
    for key, value in (options or {}).items():
        if isinstance(value, Mapping):
            mine = any(key == id(step) or key is type(step) for step in steps)
            own = dict(value) if mine else {}
            others = set(value) - {*_EQUIVALENT, *_WORDS, "zipmap"} if not mine else set()
            words = {name: each for name, each in value.items() if name in _WORDS}
            ignore_options("skl2onnx.convert_sklearn", words, "words are those of the estimator")
        else:
            own, others = {str(key).rpartition("__")[2]: value}, set()
        refuse_options("skl2onnx.convert_sklearn", dict.fromkeys(sorted(others), "for an inner step"))
        chosen.update(own)
    known = (*OPTIONS, *_EQUIVALENT, *_WORDS)
    refuse_options("skl2onnx.convert_sklearn", {k: v for k, v in chosen.items() if k not in known})
    return chosen


def _opsets(target: int | Mapping[str, int] | None) -> Mapping[str, int]:
    if target is None:
        return {"ai.onnx": get_latest_tested_opset_version()}
    if isinstance(target, Mapping):
        return {name or "ai.onnx": version for name, version in target.items()}
    return {"ai.onnx": int(target)}

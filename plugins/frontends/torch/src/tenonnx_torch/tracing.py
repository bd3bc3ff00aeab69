"""Tracing: from a module to the exporter's program and model, with fixes of exporter bugs."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import onnx
import onnx_ir
import sympy
import torch
from onnx_ir import traversal
from torch.utils import _pytree as pytree

from tenonnx.extend import InvalidCall, NotRepresentable, TenonnxError
from tenonnx_frontends import joined
from tenonnx_torch import complexes, lines, special, traceable, windows
from tenonnx_torch.decompositions import decomposed, wholly_decomposed
from tenonnx_torch.examples import Examples
from tenonnx_torch.exporter import decomposing_by
from tenonnx_torch.functional import written_out
from tenonnx_torch.looping import with_loops
from tenonnx_torch.losses import WithoutOperation
from tenonnx_torch.lowerings import GROUP, Forms
from tenonnx_torch.nonzero_loops import without_conversions
from tenonnx_torch.program_fixes import Program, fix_decomposed_program, fix_program, with_views_of_copies
from tenonnx_torch.programs import call_of, program_of, returned_by, shapes_of
from tenonnx_torch.recurrences import TRANSLATIONS, Recurrences
from tenonnx_torch.rerolling import NotRerolled
from tenonnx_torch.unrolled_traces import LONGEST, Decisions, noted
from tenonnx_torch.verification import leaves, plain_attention
from tenonnx_torch.vision import without_branches

#: Functions that write custom operations of this package as ONNX nodes.
_TRANSLATIONS = {**TRANSLATIONS, **special.TRANSLATIONS, **traceable.TRANSLATIONS, **windows.TRANSLATIONS}


def check_call(module: torch.nn.Module, examples: Examples) -> None:
    """Raise ``InvalidCall`` naming lines of a module that fails by itself, or its results that are not tensors."""
    try:
        returned = _returned(module, examples)
    except Exception as error:
        raise InvalidCall(
            f"{type(module).__name__} failed on its examples",
            given=_reason(error),
            do="fix the module, or give other examples",
            also=lines.of_error(error)[-3:],
        ) from error
    given = {name: tensor for name, tensor in examples.tensors.items() if tensor.is_complex()}
    given |= {joined("output", p): t for p, t in returned if isinstance(t, torch.Tensor) and t.is_complex()}
    if given:
        raise InvalidCall(
            f"{type(module).__name__} takes or returns complex numbers, with which ONNX does not compute",
            given=", ".join(f"{name}: {tensor.dtype}" for name, tensor in given.items()),
            do="take torch.view_as_real of it, and torch.view_as_complex inside of forward",
        )
    for path, leaf in returned:
        if leaf is not None and not isinstance(leaf, torch.Tensor):
            raise InvalidCall(
                f"{type(module).__name__} returns something other than tensors",
                given=f"{joined('output', path)}: {leaf!r}"[:200],
                do="leave it out, or return torch.tensor of it; tensors may be in tuples, lists and dicts",
            )


def _returned(module: torch.nn.Module, examples: Examples) -> list[tuple[Any, Any]]:
    """Results of the module with their paths; those that its program declares if it must not run in this process."""
    if call_of(module) is None:
        return leaves(module, examples)
    return pytree.tree_flatten_with_path(returned_by(program_of(module)))[0]


def traced(module: torch.nn.Module, examples: Examples) -> Program:
    """The program of one call. Raises ``NotRepresentable``, naming lines of the module, where it cannot be traced."""
    program = program_of(module)
    if program is not None:
        try:
            with _quietly():
                program = program.run_decompositions({})  # a copy with the same parameters
        except Exception as error:  # of an inconsistent program
            raise NotRepresentable("PyTorch cannot decompose the program", given=_reason(error)) from error
        fix_program(program)
        return program
    sizes = {dim: max(size, 2) for dim, size in examples.sizes.items()}  # sizes 0 and 1 are never dynamic
    decisions = Decisions()
    try:
        with noted(decisions):
            program = _traced_at(module, examples.resized(sizes))
        if larger := _larger_than_one(program, examples, decisions):
            sizes = _grown(sizes, larger)
            decisions = Decisions()
            with noted(decisions):
                program = _traced_at(module, examples.resized(sizes))
    except _FixedDim as error:
        if (rolled := _with_loops(module, examples.resized(sizes), error.dim)) is not None:
            return traced(rolled, examples)
        if error.dim in sizes:  # a window that fits only once fixes the size
            twice = examples.resized({**sizes, error.dim: 2 * sizes[error.dim]})
            with contextlib.suppress(Exception):
                leaves(module, twice)
                return _traced_at(module, twice)
        raise error.as_a(NotRepresentable) from error
    for dim in _taken_as_numbers(program, examples, decisions):  # such as the number of chunks
        if (rolled := _with_loops(module, examples.resized(sizes), dim)) is not None:
            return traced(rolled, examples)
    return program


def _taken_as_numbers(program: Program, examples: Examples, decisions: Decisions) -> set[Any]:
    """Dims that determine numbers which the trace treated as constants."""
    symbols = {str(symbol) for expression in decisions.numbers for symbol in expression.free_symbols}
    return {dim for symbol, dim in _dims_by_symbol(program, examples).items() if symbol in symbols}


def _larger_than_one(program: Program, examples: Examples, decisions: Decisions) -> dict[Any, int]:
    """Sizes at which every size in the module that depends on a dim is above 1, such as the number of chunks.

    A trace specializes to a size of 1, which would make the dim static.
    """
    dims = _dims_by_symbol(program, examples)
    found: dict[Any, int] = {}
    for comparison, decided in decisions.comparisons.items():
        symbols = [symbol for symbol in comparison.free_symbols if str(symbol) in dims]
        fixed = decided and isinstance(comparison, sympy.Eq) and 1 in comparison.args
        if not fixed or len(comparison.free_symbols) != len(symbols) or len(symbols) != 1:
            continue
        (symbol,), dim = symbols, dims[str(symbols[0])]
        at = (n for n in range(2, LONGEST) if comparison.xreplace({symbol: sympy.Integer(n)}) is sympy.false)
        larger = next(at, None)
        if larger is not None:
            found[dim] = max(larger, found.get(dim, 0))
    return {dim: size for dim, size in found.items() if size > examples.sizes[dim]}


def _grown(sizes: dict[Any, int], larger: dict[Any, int]) -> dict[Any, int]:
    """Sizes of dims with some replaced by ``larger`` ones; a dim that is a sum of these and another one is updated."""
    result = sizes | larger
    for dim, size in larger.items():
        rest = [each for name, each in sizes.items() if name != dim]
        sums = [name for name, total in sizes.items() if name not in larger and total - sizes[dim] in rest]
        result |= {name: sizes[name] + size - sizes[dim] for name in sums}
    return result


def _dims_by_symbol(program: Program, examples: Examples) -> dict[str, Any]:
    """Dims of the inputs by the name of their symbol in a program."""
    return {
        str(shape[axis]): dim
        for name, shape in zip(examples.tensors, shapes_of(program), strict=True)
        for axis, dim in examples.dims.get(name, {}).items()
    }


def _with_loops(module: torch.nn.Module, examples: Examples, dim: Any) -> torch.nn.Module | None:
    """The module with its loops over a dim as scans; None where it has none."""
    try:
        with _quietly():
            return with_loops(module, examples, dim, _exported)
    except NotRerolled as failure:
        if failure.line:
            raise NotRepresentable(
                f'cannot write a loop over dim "{dim}" as one of ONNX',
                given=failure.line,
                also=str(failure),
                do="let every iteration do the same with tensors of the same shapes, or leave the dim out",
            ) from failure
        return None
    except Exception:  # of a trace at another length: the module is left unchanged
        return None


def _traced_at(module: torch.nn.Module, examples: Examples) -> Program:
    try:
        program = _exported(module, examples)
        if twins := _merged_dims(program, examples):  # a branch may compare sizes, which are equal in the examples
            apart = examples.resized({dim: size * 2 if dim in twins else size for dim, size in examples.sizes.items()})
            with contextlib.suppress(Exception):
                found = _exported(module, apart)
                program = program if _merged_dims(found, apart) else found
    except TenonnxError:  # of a lowering
        raise
    except Exception as error:
        raise _untraceable(module, examples, error) from error
    _check_dims(program, examples)
    fix_program(program)
    return program


def _merged_dims(program: Program, examples: Examples) -> set[str]:
    """Dims that the program identifies with a dim of another name."""
    names: dict[str, list[str]] = {}
    for name, shape in zip(examples.tensors, shapes_of(program), strict=True):
        for axis, dim in examples.dims.get(name, {}).items():
            names.setdefault(str(shape[axis]), []).append(dim if isinstance(dim, str) else dim.__name__)
    return {name for group in names.values() for name in group if name != group[0]}


def _exported(module: torch.nn.Module, examples: Examples) -> Program:
    functions = WithoutOperation()
    with (
        _quietly(),
        plain_attention(),
        torch.no_grad(),
        Recurrences(),
        functions,
        without_branches(),
        without_conversions(),
        traceable.fixed_observers(module),
    ):
        failure = None
        try:
            program = _program(module, examples)
            if not _has_levels(program):
                return program
        except Exception as error:
            if not functions.has_levels:
                raise
            failure = error
        try:
            with written_out(module, examples):
                return _program(module, examples)
        except Exception as error:
            raise failure or error from None


def _has_levels(program: Program) -> bool:
    """Whether a program enters and leaves levels of ``torch.func``, which only the tracer supports."""
    inner = (module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule))
    return any("wrap_for_grad" in str(node.target) for module in inner for node in module.graph.nodes)


def _program(module: torch.nn.Module, examples: Examples) -> Program:
    shapes = examples.shapes(module)
    return torch.export.export(module, examples.arguments, dict(examples.keywords), dynamic_shapes=shapes, strict=False)


def _lines_that_fix_sizes(module: torch.nn.Module, examples: Examples) -> list[str]:
    with contextlib.suppress(Exception), lines.FixedSizes() as watched:  # it fails as before
        _exported(module, examples)
    return list(watched.lines)[-3:]


#: Weights of at least this many bytes are not copied into the exporter's model.
LARGE = 1 << 16


class Converted(NamedTuple):
    """The exporter's model, and the program after decomposition.

    The model has no contents of its large ``weights``, which are tensors by name.
    """

    model: onnx.ModelProto
    program: Program
    weights: Mapping[str, torch.Tensor]


def converted(program: Program, forms: Forms) -> Converted:
    """The exporter's model of a program, at its default opset version, and the program after decomposition.

    The exporter's optimizer is off, so that every parameter keeps its name and BatchNormalization is not folded; our
    decompositions replace its own. Where an operation is not supported, a second attempt uses all decompositions.
    Raises ``NotRepresentable`` naming the line of the module where an operation has no ONNX equivalent.
    """
    with _quietly():
        try:
            return _converted(program, forms, decomposed)
        except Exception as error:
            try:
                if "Cannot view" in _reason(error):
                    return _converted(with_views_of_copies(program), forms, decomposed)
                return _converted(program, forms, wholly_decomposed)
            except Exception:  # the first error has lines of the module
                raise _without_form(error) from error


def _converted(program: Program, forms: Forms, decompose: Callable[[Program, Any], Program]) -> Converted:
    def prepared(program: Program, registry: Any) -> Program:
        decomposed = decompose(program, registry)
        fix_decomposed_program(decomposed)
        for operator, form in complexes.forms(registry).items():
            registry.register_op(operator, form, is_complex=True)
        if complexes.asks_signs(program):
            for operator, form in complexes.spectra(registry).items():
                registry.register_op(operator, form)
        return decomposed

    table = {**_TRANSLATIONS, **forms.translations(program)}
    with decomposing_by(prepared), torch.no_grad():
        exported = torch.onnx.export(
            program,
            dynamo=True,
            optimize=False,
            verbose=False,
            custom_translation_table=table,
        )
    _rename_computed(exported.model.graph)
    weights = _take_weights(exported.model.graph)
    return Converted(exported.model_proto, exported.exported_program, weights)


def _take_weights(graph: Any) -> dict[str, torch.Tensor]:
    """Replace the contents of large initializers by their types alone. Returns these contents by name."""
    result: dict[str, torch.Tensor] = {}
    for name, value in graph.initializers.items():
        contents = value.const_value
        tensor = getattr(contents, "raw", None)
        if isinstance(tensor, torch.Tensor) and contents.nbytes >= LARGE and not tensor.is_complex():
            result[name] = tensor
            kind = onnx.TensorProto(name=name, data_type=int(contents.dtype), dims=tuple(contents.shape))
            value.const_value = onnx_ir.serde.TensorProtoTensor(kind)
    return result


def _rename_computed(graph: Any) -> None:
    """Rename computed values that share the name of an input or parameter, which the exporter allows."""
    stored = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    computed = [value for node in traversal.RecursiveGraphIterator(graph) for value in node.outputs]
    taken = stored.union(value.name for value in computed)
    for value in computed:
        if value.name in stored:
            name = next(n for k in itertools.count() if (n := f"{value.name}_computed{k or ''}") not in taken)
            value.name = name
            taken.add(name)


def _without_form(error: Exception) -> NotRepresentable:
    reason = _reason(error)
    named = re.search(r"No ONNX function found for <OpOverload\(op='(\w+)\.(\w+)'", reason)
    form = (
        ""
        if named is None
        else (f', or give this one a form: forms={{"{named[1]}::{named[2]}": function}}, or {GROUP} of a package')
    )
    return NotRepresentable(
        "the module has operations without a form in ONNX",
        given="\n".join(lines.of_error(error)[-3:]) or reason,
        also=reason,
        do="write these lines with other operations" + form,
    )


#: Metadata key of a node for the momentum of its module, in ONNX's convention.
MOMENTUM = "tenonnx.momentum"


def restore_training_forms(model: onnx.ModelProto) -> None:
    """Restore the training mode of BatchNormalization that was traced in training; the exporter drops it.

    Nothing reads the running statistics that it returns, so that its momentum has no effect and can be 1. This also
    avoids a bug of onnxruntime, which normalizes by the updated running statistics where nothing reads them. Training
    reads the module's own momentum from the metadata of the node.
    """
    for node in model.graph.node:
        notes = {prop.key: prop.value for prop in node.metadata_props}
        traced_as = notes.get("pkg.torch.onnx.fx_node", "")
        functional = traced_as.partition("_native_batch_norm_legit_functional")[2]
        if node.op_type == "BatchNormalization" and (training := re.search(r" True, ([0-9.e+-]+),", functional)):
            node.metadata_props.add(key=MOMENTUM, value=repr(1.0 - float(training[1])))
            node.attribute.add(name="training_mode", type=onnx.AttributeProto.INT, i=1)
            next(a for a in node.attribute if a.name == "momentum").f = 1.0
            node.output.extend([f"{node.output[0]}_mean", f"{node.output[0]}_var"][len(node.output) - 1 :])


def _check_dims(program: Program, examples: Examples) -> None:
    """Raise an error where a dynamic dim became static."""
    for name, shape in zip(examples.tensors, shapes_of(program), strict=True):
        for axis, dim in examples.dims.get(name, {}).items():
            if isinstance(shape[axis], int):
                raise _FixedDim(dim, axis, name, f"fixes it to {shape[axis]}", [])


class _FixedDim(NotRepresentable):
    """A dynamic dim has a fixed size in the trace of a module."""

    def __init__(self, dim: Any, axis: int, name: str, given: str, where: list[str]) -> None:
        super().__init__(
            f'cannot vary dim "{dim}", axis {axis} of input "{name}"',
            given=f"the module {given}",
            do="let the module compute with the size of its input (x.shape[0]) instead of a number, or leave the dim "
            "out",
            also=where,
        )
        self.dim = dim


def _untraceable(module: torch.nn.Module, examples: Examples, error: Exception) -> NotRepresentable | InvalidCall:
    text = str(error)
    marked = re.search(
        r"inputs?\['?(\w+)'?\]\.?(?:size\(\)|shape)\[(\d+)\]|L\['(\w+)'\](\S*?)\.size\(\)\[(\d+)\]", text
    )
    if "pecialized" in text and marked:
        inside = re.findall(r"\w+", marked[4] or "")
        name, axis = "_".join([marked[1] or marked[3], *inside]), marked[2] or marked[5]
        dim = examples.dims.get(name, {}).get(int(axis), "?")
        constant = re.search(r"constant \((\d+)\)", text)
        given = f"fixes it to {constant[1]}" if constant else "fixes it"
        return _FixedDim(dim, int(axis), name, given, _lines_that_fix_sizes(module, examples))
    if "Constraints violated" in text or "conflicts between user-specified ranges" in text:
        where = _lines_that_fix_sizes(module, examples)
        return NotRepresentable("the dynamic dims cannot vary as given", given=_reason(error), also=where)
    return NotRepresentable(
        f"PyTorch cannot trace {type(module).__name__}",
        given="\n".join(lines.of_error(error)[-3:]) or _reason(error),
        also=_reason(error),
        do="let forward compute with tensors alone, without .item() and .numpy(); branches that depend on contents are "
        f"torch.cond or torch.where; or give the class a form: forms={{{_class_at(error)}: function}}, or {GROUP} of a "
        "package",
    )


def _class_at(error: BaseException) -> str:
    """The name of the innermost user-defined module class in whose ``forward`` an error arose."""
    result = "Class"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_locals.get("self")
        if isinstance(module, torch.nn.Module) and frame.f_code.co_name == "forward":
            kind = type(module)
            result = result if kind.__module__.startswith("torch.") else kind.__name__
    return result


def _reason(error: BaseException) -> str:
    """The reason in an error of PyTorch, without the long explanation."""
    while error.__cause__ is not None:
        error = error.__cause__
    plain = re.sub(r"\x1b\[\d*m", "", str(error))
    said = [line.strip() for line in plain.splitlines() if line.strip()]
    return " ".join(said[:2])[:400] or type(error).__name__


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress logs, warnings and output of the exporter, which address its developers."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)

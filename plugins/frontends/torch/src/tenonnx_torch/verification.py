"""Verification against the module: at the sizes of the examples, and at other sizes of dynamic dims."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tenonnx.extend import DType, Graph, InvalidCall
from tenonnx.extend.checks import (
    DRAWN,
    CallFailed,
    Tolerance,
    WorkerEnded,
    accumulation,
    coarse_inside,
    drawn_outputs,
    element_types_inside,
    tolerance_for,
)
from tenonnx.extend.frontends import BY_TABLE, Allowed, Verification
from tenonnx_frontends import SizedCalls, not_verified, one_line, sizes_to_compare, verify_calls
from tenonnx_torch.examples import Examples, to_numpy
from tenonnx_torch.programs import call_of


def verify_against(
    module: torch.nn.Module, examples: Examples, graph: Graph, allowed: Allowed = BY_TABLE
) -> Verification:
    """Compare ``graph``, on the fastest backend, with ``module``.

    It has to pass ``onnx.checker``, and to reproduce the outputs of the module. Sizes are those of the examples, 1 for
    each dynamic dim, one beyond the examples, and those beyond the traced range. A size that the module rejects is
    noted, and a larger one compared instead; a dim for which it accepts a single size is a problem. Random outputs are
    ``unverified``.
    """
    names = [value.name for value in graph.outputs]
    try:
        are_random = _drawn(module, examples)
    except WorkerEnded as error:
        return not_verified("PyTorch", error, graph)
    except CallFailed as error:
        raise InvalidCall("the program fails on its examples", given=one_line(error), do="give other ones") from error
    drawn = {name: DRAWN for name, random in zip(names, are_random, strict=False) if random}
    drawn |= dict.fromkeys(drawn_outputs(graph), DRAWN)  # two calls may draw equal numbers

    def call(sizes: Mapping[str, int]) -> tuple[Mapping[str, Any], Callable[[], list[Any]]]:
        resized = examples.resized(sizes)
        feeds = resized.feeds([value.name for value in graph.all_inputs])
        return feeds, lambda: [to_numpy(tensor) for tensor in _outputs(module, resized)]

    calls, given = SizedCalls(call), examples.sizes
    wanted = [{**given, **changed} for changed in (*sizes_to_compare(given), *examples.borders)]
    result = verify_calls("PyTorch", graph, calls.calls_at(wanted), allowed, coarsest(graph), drawn)
    result.problems += [problem for name in given if (problem := calls.why_fixed(name, "PyTorch"))]
    return result


def coarsest(graph: Graph) -> Tolerance | None:
    """The tolerance where inner values are less precise than the outputs.

    ONNX attributes are float32, which limits float64 outputs that depend on an epsilon. So do ops that compute in
    float32 internally, as LayerNormalization does by default.
    """
    coarse = coarse_inside(graph)
    if coarse is not None:
        return coarse
    kinds = element_types_inside(graph)
    has_floats = any(isinstance(a, float) for n in graph.walk() for a in n.attributes.values())
    if DType.float64 in kinds and (has_floats or DType.float32 in kinds):
        tolerance = tolerance_for(DType.float32, accumulation(graph))
        return Tolerance(tolerance.absolute, tolerance.relative, "attributes or inner values are float32")
    return None


def _drawn(module: torch.nn.Module, examples: Examples) -> list[bool]:
    """Outputs that differ between two seeds, and thus are random."""
    first, second = (_outputs(module, examples, seed) for seed in (1, 2))
    return [not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(first, second, strict=True)]


def leaves(module: torch.nn.Module, examples: Examples, seed: int = 0) -> list[tuple[Any, Any]]:
    """Results of the module with their paths; side effects of the call on the module are undone."""
    elsewhere = call_of(module)
    result = called(module, *examples.copied(), seed) if elsewhere is None else elsewhere(*examples.copied(), seed)
    return pytree.tree_flatten_with_path(result)[0]


def called(module: torch.nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any], seed: int) -> Any:
    """Result of the module; side effects of the call on the module are undone."""
    with _restored(module), plain_attention(), _Bags(), torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        return module(*arguments, **keywords)


def _outputs(module: torch.nn.Module, examples: Examples, seed: int = 0) -> list[torch.Tensor]:
    return [leaf for _, leaf in leaves(module, examples, seed) if isinstance(leaf, torch.Tensor)]


class _Bags(TorchFunctionMode):
    """Rejects embedding bags with offsets beyond the indices, where PyTorch would read past the end."""

    #: Position of the indices, and of the flag that the last offset is their end, by function.
    PLACES: ClassVar = {torch.embedding_bag: (1, 7), torch.nn.functional.embedding_bag: (0, 9)}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if function in self.PLACES:
            indices, flag = self.PLACES[function]
            offsets = args[2] if len(args) > 2 else given.get("offsets")
            with_last = args[flag] if len(args) > flag else given.get("include_last_offset", False)
            ends = [] if offsets is None else offsets.tolist()
            bounds = [0, *ends, len(args[indices])]
            if bounds != sorted(bounds) or (with_last and (len(ends) == 1 or ends[-1:] != bounds[-1:])):
                raise IndexError("bags do not begin at places of the indices, one after the other")
        return function(*args, **given)


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Disable the fast path of Transformer layers, and use masks as they are passed.

    The fast path uses nested tensors; the detection of causal masks reads their contents.
    """
    layers: Any = torch.nn.modules.transformer
    fast, causal = torch.backends.mha.get_fastpath_enabled(), layers._detect_is_causal_mask
    torch.backends.mha.set_fastpath_enabled(False)
    layers._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        layers._detect_is_causal_mask = causal


@contextlib.contextmanager
def _restored(module: torch.nn.Module) -> Iterator[None]:
    before: dict[str, Any] = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in before and buffer.shape == before[name].shape:
                    buffer.copy_(before[name])

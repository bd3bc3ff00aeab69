"""Programs of the PyTorch backend: a plan on a device, its state, and compilation by torch.compile."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tenonnx.extend import (
    FallbackWarning,
    Graph,
    InvalidCall,
    NotRepresentable,
    TensorType,
    TypeMismatch,
    UnsupportedOp,
)
from tenonnx.extend.backends import Bindable, DefaultsProgram, Program, Results, RunFailure, StatefulProgram, Turn
from tenonnx.extend.transforms import decompose_and_fold
from tenonnx_torch.arrays import Owned, TensorFeeds, giver
from tenonnx_torch.kept_calls import has_numpy, is_computed
from tenonnx_torch.plan import Held, Plan
from tenonnx_torch.values import Place, to_arrays


class Settings(NamedTuple):
    """Settings of a program. ``device`` is None for the CPU; ``compiler`` is empty without compilation."""

    device: torch.device | None
    compiler: str
    strict: bool

    @classmethod
    def of(cls, device: Any, compiled: bool | str, strict: bool) -> Settings:
        """Validate options. Raises ``InvalidCall`` for unknown devices and compilers."""
        if not isinstance(compiled, bool | str):
            raise InvalidCall(
                "compiled is neither True, False nor a backend of torch.compile", given=repr(compiled)[:80]
            )
        compiler = compiled if isinstance(compiled, str) else "inductor" if compiled else ""
        known = torch.compiler.list_backends(exclude_tags=())
        if compiler and compiler not in known:
            raise InvalidCall("compiled is not a backend of torch.compile", given=compiler, available=", ".join(known))
        try:
            found = torch.device(device)
            torch.empty(1, device=found)
        except Exception as error:  # each device raises its own
            more = torch.accelerator.current_accelerator()
            raise InvalidCall(
                "PyTorch does not find the device",
                given=repr(device)[:80],
                also=str(error).splitlines()[0][:200],
                available=", ".join(["cpu", "meta", *([] if more is None else [str(more)])]),
            ) from error
        return cls(None if found.type == "cpu" else found, compiler, strict)


def check_ops(graph: Graph) -> None:
    """Raise ``UnsupportedOp`` for a graph with ops that neither PyTorch nor numpy computes."""
    _lowered(graph)


def _lowered(graph: Graph) -> Graph:
    try:
        return decompose_and_fold(graph, keep=is_computed)
    except (TypeMismatch, NotRepresentable):  # a body may need types that the file lacks
        return decompose_and_fold(graph, keep=lambda call: is_computed(call) or has_numpy(call))


def program(graph: Graph, state: Mapping[str, str], settings: Settings) -> Program:
    """A program for a graph, which may be specialized to one kind of feeds."""
    if not state:
        return DefaultsProgram(graph, lambda each: TorchProgram(each, settings))
    hold = Runner.holder(settings.device)
    return StatefulProgram("torch", graph, state, lambda each: _turn(each, state, settings), hold, _shown)


class Runner:
    """A compiled graph as a function of contents on a device. Thread-safe."""

    def __init__(self, graph: Graph, settings: Settings) -> None:
        self._settings = settings
        self.place = Place(settings.device)
        self._plan = Plan(_lowered(graph), Held(()), place=self.place)
        self._constants = list(self._plan.tensors.constants.values())
        if settings.device is not None:
            self._constants = [constant.to(settings.device) for constant in self._constants]
            self._warn_of_numpy()
        self.copy_shared = Owned([self._constants])
        self._function: Callable[..., Any] | None = None
        self._compiles = bool(settings.compiler) and all(map(_is_static, graph.inputs))

    @staticmethod
    def holder(device: torch.device | None) -> Callable[[Any], Any]:
        """A function that copies the caller's contents to a device, so that the caller cannot modify them."""
        place = Place(device)

        def held(contents: Any) -> Any:
            kept = place(contents)
            if isinstance(kept, torch.Tensor):
                return kept.clone() if kept.device.type == "cpu" else kept
            return kept.copy() if isinstance(kept, np.ndarray) else kept

        return held

    def __call__(self, contents: Sequence[Any]) -> list[Any]:
        """Run the graph. Raises ``RunFailure`` where PyTorch rejects these contents."""
        with torch.no_grad(), np.errstate(all="ignore"):
            if self._compiles and self._function is None:
                self._compile(contents)
            try:
                if self._function is not None:
                    return list(self._function(*contents))
                return self._run(contents)
            except (InvalidCall, RuntimeError) as error:
                reason = error.what if isinstance(error, InvalidCall) else str(error).splitlines()[0]
                raise RunFailure(
                    reason, given=getattr(error, "given", ""), do='run it on numpy (backend="numpy", --backend numpy)'
                ) from error

    def _run(self, given: Sequence[Any]) -> list[Any]:
        if self._settings.device is None:
            return self._plan(given, self._constants)
        with self._settings.device:  # rules create tensors on the device
            return self._plan(given, self._constants)

    def _compile(self, given: Sequence[Any]) -> None:
        """Compile by torch.compile. Raises ``UnsupportedOp`` where that fails and ``strict`` holds."""
        try:
            self._function = self._traced(given)
            return
        except Exception as error:  # of the tracer, or of the compiler
            self._compiles = False
            warning = UnsupportedOp(
                "cannot compile a graph with nodes that PyTorch does not compute, or with data-dependent shapes",
                given=" ".join(str(error).split())[:300],
                do="leave out compiled",
            )
            if self._settings.strict:
                raise warning from error
            warnings.warn(FallbackWarning(f"PyTorch runs the graph node by node: {warning}"), stacklevel=2)

    def _traced(self, given: Sequence[Any]) -> Callable[..., Any]:
        with warnings.catch_warnings(action="ignore"):  # they address PyTorch's developers
            tracer = make_fx(lambda *each: self._run(each), tracing_mode="fake", _allow_non_fake_inputs=True)
            traced = tracer(*given)
            compiled = torch.compile(traced, fullgraph=True, dynamic=False, backend=self._settings.compiler)
            compiled(*given)
        return compiled

    def _warn_of_numpy(self) -> None:
        """Warn about nodes that numpy computes, whose data are copied from another device and back."""
        ops = sorted({node.op_type for node in self._plan.by_numpy})
        if not ops:
            return
        warning = UnsupportedOp(f"PyTorch does not compute {', '.join(ops)} on {self._settings.device}")
        if self._settings.strict:
            raise warning
        warnings.warn(FallbackWarning(f"numpy computes some nodes on the processor: {warning}"), stacklevel=2)


class TorchProgram(Bindable):
    """A graph without state."""

    backend = "torch"

    def __init__(self, graph: Graph, settings: Settings) -> None:
        self.state: MutableMapping[str, Any] = {}
        self._check, self._run = TensorFeeds(graph.inputs), Runner(graph, settings)
        self._outputs = [value.name for value in graph.outputs]
        self._names = [value.name for value in graph.inputs]

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        known = self._check(feeds)
        given = [self._run.place(known[name]) for name in self._names]
        results = self._run.copy_shared(self._run(given), given)
        give = giver(feeds)
        return {name: _converted(give, content) for name, content in zip(self._outputs, results, strict=True)}


def _turn(graph: Graph, state: Mapping[str, str], settings: Settings) -> Turn:
    """A call with state. State tensors are replaced, not modified, so that results of earlier calls stay valid."""
    check, run = TensorFeeds.without_state(graph, state), Runner(graph, settings)
    names, outputs = [value.name for value in graph.inputs], [value.name for value in graph.outputs]
    kept = set(state.values())

    def turn(state_tensors: Mapping[str, Any], feeds: Mapping[str, Any]) -> Results:
        given = {**state_tensors, **{name: run.place(contents) for name, contents in check(feeds).items()}}
        contents = [given[name] for name in names]
        found = dict(zip(outputs, run.copy_shared(run(contents), contents), strict=True))
        give = giver(feeds)
        results = Results(outputs, lambda content: _converted(give, _copied(content)))
        results.update({name: _converted(give, each) for name, each in found.items() if name not in kept})
        results.keep({name: found[name] for name in kept}, {name: found[output] for name, output in state.items()})
        return results

    return turn


def _converted(give: Callable[[Any], Any], content: Any) -> Any:
    return [_converted(give, each) for each in content] if isinstance(content, list) else give(content)


def _copied(content: Any) -> Any:
    if isinstance(content, list):
        return [_copied(each) for each in content]
    if isinstance(content, torch.Tensor):
        return content.clone()
    return content.copy() if isinstance(content, np.ndarray) else content


def _shown(content: Any) -> Any:
    return to_arrays(_copied(content))


def _is_static(value: Any) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and kind.shape is not None and all(isinstance(dim, int) for dim in kind.shape)

"""Compiling a graph for numpy: expand ops without a numpy rule, fold constants, plan the rest."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import partial
from numbers import Integral
from typing import Any

from tenonnx import limits
from tenonnx.errors import InvalidCall, did_you_mean
from tenonnx.graph.graph import Graph
from tenonnx.graph.program import Bindable, Program
from tenonnx.op.rules import find_rule
from tenonnx.op.threads import allowed
from tenonnx.transforms.summary import weight_bytes
from tenonnx_run.feeds import FeedCheck
from tenonnx_run.folding import decompose_and_fold
from tenonnx_run.input_defaults import DefaultsProgram
from tenonnx_run.numpy.plan import Plan, Watch, owned
from tenonnx_run.state import Results, StatefulProgram

#: The lowest rank: every other backend is faster.
speed = 0


class NumpyProgram(Bindable):
    """A planned graph without inputs that have a default.

    Calls share no writable memory, so several threads may call it.
    """

    backend = "numpy"

    def __init__(self, graph: Graph, threads: int | None = None) -> None:
        self.threads = threads
        self.outputs = [value.name for value in graph.outputs]
        self.state: MutableMapping[str, Any] = {}
        with limits.budget(weight_bytes(graph)):
            self.plan = Plan(decompose_and_fold(graph, keep=lambda call: find_rule(call.op, "numpy") is not None))
        self._check = FeedCheck(graph.inputs)
        self._contents = [None if v.data is None else v.data.array() for v in graph.all_inputs]
        self._fed = [k for k, contents in enumerate(self._contents) if contents is None]

    def __call__(self, feeds: Mapping[str, Any], watch: Watch | None = None) -> dict[str, Any]:
        contents = self._contents.copy()
        for position, array in zip(self._fed, self._check(feeds), strict=True):
            contents[position] = array
        with limits.budget():
            if self.threads is None:
                results = self.plan.run(contents, watch)
            else:
                with allowed(self.threads):
                    results = self.plan.run(contents, watch)
        return dict(zip(self.outputs, owned(results, contents, self.plan), strict=True))


def _run_with_state(
    program: NumpyProgram, state: Mapping[str, str], state_arrays: Mapping[str, Any], feeds: Mapping[str, Any]
) -> Results:
    """Run a call with state. Outputs are never written again, so they become the new state without a copy."""
    found = program({**state_arrays, **feeds})
    kept = {output: found.pop(output) for output in set(state.values())}
    results = Results(program.outputs)
    results.update(found)
    results.keep(kept, {name: kept[output] for name, output in state.items()})
    return results


def compile(
    graph: Graph,
    *,
    state: Mapping[str, str] | None = None,
    strict: bool = False,
    threads: int | None = None,
    **options: Any,
) -> Program:
    """Compile ``graph`` for numpy. There is no fallback, so ``strict`` has no effect.

    ``threads`` is the number of threads for kernels, by default one for each processor; 1 runs all but matrix products,
    which use the threads of BLAS, on the caller's thread. Raises ``UnsupportedOp`` for ops with neither kernel nor
    body, ``InvalidCall`` for unknown options.
    """
    if options:
        what = f"unknown option for the numpy backend: {', '.join(options)}"
        known = ("state", "threads")
        raise InvalidCall(what, available=", ".join(known), do=did_you_mean(next(iter(options)), known))
    if threads is not None and not (isinstance(threads, Integral) and threads > 0):
        raise InvalidCall("threads is not a positive integer", given=repr(threads))
    make = partial(NumpyProgram, threads=threads)
    if not state:
        return DefaultsProgram(graph, make)
    return StatefulProgram("numpy", graph, state, lambda each: partial(_run_with_state, make(each), dict(state)))

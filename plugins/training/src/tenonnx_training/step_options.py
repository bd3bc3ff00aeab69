"""Refusing options that there are not, before a graph is differentiated and compiled."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tenonnx as tx
from tenonnx.extend import InvalidCall

#: Where users look for these elsewhere.
_ELSEWHERE = {
    "learning_rate": "optimizer=tt.Adam(1e-3)",
    "lr": "optimizer=tt.Adam(1e-3)",
    "weight_decay": "optimizer=tt.AdamW(1e-3, weight_decay=0.01)",
    "momentum": "optimizer=tt.Momentum(1e-2, momentum=0.9)",
    "x": "data=(inputs, labels)",
    "y": "data=(inputs, labels)",
    "validation_data": "validation=(inputs, labels)",
    "verbose": "progress=True",
}


def refuse_unknown(options: Mapping[str, Any], backend: str, *takers: Callable[..., Any]) -> None:
    """Raise ``InvalidCall`` for options that neither one of the functions ``takers`` nor the backend has."""
    named = [name for taker in takers for name in inspect.signature(taker).parameters]
    own = [name for name in dict.fromkeys(named) if name not in ("self", "options", "graph", "data")]
    left = {name: value for name, value in options.items() if name not in own}
    if not left:
        return
    try:
        _nothing().compile(backend, **left)
    except InvalidCall as error:
        if error.given is None or not any(name in str(error.given) for name in left):
            raise
        wrong = next(name for name in left if name in str(error.given))
        near = difflib.get_close_matches(wrong, own, 1)
        raise InvalidCall(
            f'{takers[0].__qualname__.partition(".")[0]} has no option "{wrong}"',
            given=f"{wrong}={left[wrong]!r}"[:80],
            available=f"{', '.join(sorted(own))}; of the backend: {error.available}",
            do=_ELSEWHERE.get(wrong, f"{near[0]}=" if near else ""),
        ) from error


def _nothing() -> tx.Graph:
    """A graph that compiles at once."""
    import tenonnx_standard as ops

    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.identity(graph.input("x", "float32", ())))
    return graph

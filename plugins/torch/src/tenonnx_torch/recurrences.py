"""LSTM, GRU and RNN over sequences of any length: PyTorch unrolls them as it traces, which would fix the length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import opset18 as onnx
from torch.overrides import TorchFunctionMode


@torch.library.custom_op("tenonnx::lstm", mutates_args=())  # type: ignore[untyped-decorator]
def lstm(
    input: torch.Tensor, hx: Sequence[torch.Tensor], params: Sequence[torch.Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    return torch.lstm(input, list(hx), list(params), has_biases, num_layers, dropout, train, bidirectional, batch_first)


@torch.library.custom_op("tenonnx::gru", mutates_args=())  # type: ignore[untyped-decorator]
def gru(
    input: torch.Tensor, hx: torch.Tensor, params: Sequence[torch.Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    return torch.gru(input, hx, list(params), has_biases, num_layers, dropout, train, bidirectional, batch_first)


@torch.library.custom_op("tenonnx::rnn", mutates_args=())  # type: ignore[untyped-decorator]
def rnn(
    input: torch.Tensor, hx: torch.Tensor, params: Sequence[torch.Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool, nonlinearity: str,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    compute = torch.rnn_relu if nonlinearity == "Relu" else torch.rnn_tanh
    return compute(input, hx, list(params), has_biases, num_layers, dropout, train, bidirectional, batch_first)


@lstm.register_fake  # type: ignore[untyped-decorator]
def _(
    input: Any, hx: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool, _: bool
) -> Any:
    return _outputs(input, hx[0], both), *(torch.empty_like(h) for h in hx)


@gru.register_fake  # type: ignore[untyped-decorator]
@rnn.register_fake  # type: ignore[untyped-decorator]
def _(
    input: Any, hx: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool, *_: Any
) -> Any:
    return _outputs(input, hx, both), torch.empty_like(hx)


def _outputs(input: torch.Tensor, state: torch.Tensor, both: bool) -> torch.Tensor:
    return input.new_empty(*input.shape[:2], state.shape[2] * (1 + both))


def _written(node: Any, gates: Sequence[int]) -> Any:
    """How a layer is written by a node of ONNX, which has the gates of PyTorch in this order."""

    def layer(
        input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool, nonlinearity: str = "",
    ) -> Any:  # fmt: skip
        states = hx if isinstance(hx, list | tuple) else [hx]
        sides, width, each = 1 + bidirectional, states[0].shape[2], 4 if has_biases else 2
        held = [params[k * each : (k + 1) * each] for k in range(sides)]
        biases = [part for side in held for part in side[2:]]
        steps, *last = node(
            onnx.Transpose(input, perm=[1, 0, 2]) if batch_first else input,
            *(_arranged([side[k] for side in held], 1, gates, width) for k in (0, 1)),
            _arranged(biases, 2, gates, width) if biases else None,
            None,
            *states,
            direction="bidirectional" if bidirectional else "forward",
            hidden_size=width,
            **({"activations": [nonlinearity] * sides} if nonlinearity else {}),
        )
        if not bidirectional:
            steps = onnx.Squeeze(steps, [1])
            return onnx.Transpose(steps, perm=[1, 0, 2]) if batch_first else steps, *last
        steps = onnx.Transpose(steps, perm=[2, 0, 1, 3] if batch_first else [0, 2, 1, 3])
        return onnx.Reshape(steps, [0, 0, sides * width]), *last

    return layer


def _arranged(parts: Sequence[Any], each: int, gates: Sequence[int], width: int) -> Any:
    """Parameters of which ``each`` belong to one side, by as few nodes as leave them what they are."""
    joined = onnx.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]
    first = np.arange(len(parts))[:, None] * len(gates) + np.array(gates)
    places = (first[..., None] * width + np.arange(width)).reshape(len(parts) // each, -1)
    return onnx.Gather(joined, onnx.Constant(value=ir.tensor(places)), axis=0)


def _lstm(*inputs: Any, **attributes: Any) -> Any:
    return onnx.LSTM(*inputs, **attributes)


def _gru(*inputs: Any, **attributes: Any) -> Any:
    return onnx.GRU(*inputs, linear_before_reset=1, **attributes)


def _rnn(*inputs: Any, **attributes: Any) -> Any:
    return onnx.RNN(*inputs, **attributes)


#: By name of PyTorch's function, what a layer becomes in a program.
_KEPT: dict[str, tuple[Any, ...]] = {
    "lstm": (lstm,), "gru": (gru,), "rnn_tanh": (rnn, "Tanh"), "rnn_relu": (rnn, "Relu"),
}  # fmt: skip

#: What the exporter writes for each.
TRANSLATIONS = {
    torch.ops.tenonnx.lstm.default: _written(_lstm, [0, 3, 1, 2]),
    torch.ops.tenonnx.gru.default: _written(_gru, [1, 0, 2]),
    torch.ops.tenonnx.rnn.default: _written(_rnn, [0]),
}


class Recurrences(TorchFunctionMode):
    """Keeps recurrences whole while a module is traced, layer by layer, as the exporter forgets dropout between them.

    Those of packed sequences and those with projections stay as they are.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept, *more = _KEPT.get(getattr(function, "__name__", ""), (None,))
        if kept is None or kwargs or len(args) != 9 or not isinstance(args[3], bool):
            return function(*args, **(kwargs or {}))
        input, state, params, biases, layers, dropout, train, both, batch_first = args
        if kept is lstm and state[0].shape[2] != state[1].shape[2]:
            kept = function
        starts = state if isinstance(state, list | tuple) else [state]
        size, sides, ends = len(params) // layers, 1 + both, []
        for k in range(layers):
            if k and train and dropout:
                input = torch.dropout(input, dropout, True)
            begin = [start[k * sides : (k + 1) * sides] for start in starts]
            input, *last = kept(
                input, begin if starts is state else begin[0], params[k * size : (k + 1) * size],
                biases, 1, 0.0, False, both, batch_first, *more,
            )  # fmt: skip
            ends.append(last)
        return input, *(torch.cat(parts) for parts in zip(*ends, strict=True))

"""LSTM, GRU and RNN over sequences of any length: PyTorch unrolls them as it traces, which would fix the length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnxscript import opset18 as onnx
from onnxscript.function_libs.torch_lib.ops.core import aten_gru, aten_lstm
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


def _rnn(
    input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool, nonlinearity: str,
) -> Any:  # fmt: skip
    """One layer in ONNX, for which the exporter has nothing."""
    sides, width, each = 1 + bidirectional, hx.shape[2], 4 if has_biases else 2
    held = [params[k * each : (k + 1) * each] for k in range(sides)]
    weights = [onnx.Concat(*(onnx.Unsqueeze(side[k], [0]) for side in held), axis=0) for k in (0, 1)]
    biases = [onnx.Unsqueeze(onnx.Concat(*side[2:], axis=0), [0]) for side in held] if has_biases else []
    steps, last = onnx.RNN(
        onnx.Transpose(input, perm=[1, 0, 2]) if batch_first else input,
        *weights,
        onnx.Concat(*biases, axis=0) if has_biases else None,
        None,
        hx,
        activations=[nonlinearity] * sides,
        direction="bidirectional" if bidirectional else "forward",
        hidden_size=width,
    )
    order = [2, 0, 1, 3] if batch_first else [0, 2, 1, 3]
    return onnx.Reshape(onnx.Transpose(steps, perm=order), [0, 0, sides * width]), last


#: By name of PyTorch's function, what a layer becomes in a program.
_KEPT: dict[str, tuple[Any, ...]] = {
    "lstm": (lstm,), "gru": (gru,), "rnn_tanh": (rnn, "Tanh"), "rnn_relu": (rnn, "Relu"),
}  # fmt: skip

#: What the exporter writes for each.
TRANSLATIONS = {
    torch.ops.tenonnx.lstm.default: aten_lstm,
    torch.ops.tenonnx.gru.default: aten_gru,
    torch.ops.tenonnx.rnn.default: _rnn,
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

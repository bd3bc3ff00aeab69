"""LSTM and GRU over sequences of any length: PyTorch unrolls them as it traces, which would fix the length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
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


@lstm.register_fake  # type: ignore[untyped-decorator]
def _(
    input: Any, hx: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool, _: bool
) -> Any:
    return _outputs(input, hx[0], both), *(torch.empty_like(h) for h in hx)


@gru.register_fake  # type: ignore[untyped-decorator]
def _(
    input: Any, hx: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool, _: bool
) -> Any:
    return _outputs(input, hx, both), torch.empty_like(hx)


def _outputs(input: torch.Tensor, state: torch.Tensor, both: bool) -> torch.Tensor:
    return input.new_empty(*input.shape[:2], state.shape[2] * (1 + both))


#: By name of PyTorch's function, what it becomes in a program.
_KEPT = {"lstm": lstm, "gru": gru}

#: What the exporter writes for each.
TRANSLATIONS = {torch.ops.tenonnx.lstm.default: aten_lstm, torch.ops.tenonnx.gru.default: aten_gru}


class Recurrences(TorchFunctionMode):
    """Keeps recurrences whole while a module is traced; those of packed sequences stay as they are."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = _KEPT.get(getattr(function, "__name__", ""))
        if kept is not None and not kwargs and len(args) == 9 and isinstance(args[3], bool):
            return kept(*args)
        return function(*args, **(kwargs or {}))

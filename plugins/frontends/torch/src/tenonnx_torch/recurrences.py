"""LSTM, GRU and RNN as single operations, where a trace would unroll them.

Packed sequences stay padded, together with their lengths, as in ONNX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import opset18 as onnx
from torch._higher_order_ops.scan import scan
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode

from tenonnx.extend import NotRepresentable


@torch.library.custom_op("tenonnx::lstm", mutates_args=())  # type: ignore[untyped-decorator]
def lstm(
    input: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    lengths: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    _check_traced(lengths)
    return torch.lstm(input, list(hx), list(params), has_biases, num_layers, dropout, train, bidirectional, batch_first)


@torch.library.custom_op("tenonnx::gru", mutates_args=())  # type: ignore[untyped-decorator]
def gru(
    input: torch.Tensor,
    hx: torch.Tensor,
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    lengths: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check_traced(lengths)
    return torch.gru(input, hx, list(params), has_biases, num_layers, dropout, train, bidirectional, batch_first)


@torch.library.custom_op("tenonnx::rnn", mutates_args=())  # type: ignore[untyped-decorator]
def rnn(
    input: torch.Tensor,
    hx: torch.Tensor,
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    lengths: torch.Tensor | None,
    nonlinearity: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check_traced(lengths)
    compute = torch.rnn_relu if nonlinearity == "Relu" else torch.rnn_tanh
    return compute(input, hx, list(params), has_biases, num_layers, dropout, train, bidirectional, batch_first)


def _check_traced(lengths: torch.Tensor | None) -> None:
    if lengths is not None:
        raise NotImplementedError("an operation on padded sequences is traced alone")


@lstm.register_fake  # type: ignore[untyped-decorator]
def lstm_fake(
    input: Any, hx: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool, *_: Any
) -> Any:
    return _outputs(input, hx[0], both), *(torch.empty_like(h) for h in hx)


@gru.register_fake  # type: ignore[untyped-decorator]
@rnn.register_fake  # type: ignore[untyped-decorator]
def rnn_fake(
    input: Any, hx: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool, *_: Any
) -> Any:
    return _outputs(input, hx, both), torch.empty_like(hx)


def _outputs(input: torch.Tensor, state: torch.Tensor, both: bool) -> torch.Tensor:
    return input.new_empty(*input.shape[:2], state.shape[2] * (1 + both))


def projected_lstm(
    input: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    lengths: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One LSTM layer with projections, which ONNX lacks, as a scan over the time steps.

    Beyond its length a sequence keeps its states, and its outputs are not defined.
    """
    steps = input.transpose(0, 1) if batch_first else input
    inside = torch.ones_like(steps[:, :, :1], dtype=torch.bool)
    if lengths is not None:
        inside = (torch.arange(steps.shape[0]).unsqueeze(1) < lengths).unsqueeze(-1)
    size, outputs, ends = len(params) // (1 + bidirectional), [], []
    for side in range(1 + bidirectional):
        into, again, *rest = params[side * size : (side + 1) * size]
        gates = torch.nn.functional.linear(steps, into, rest[0] + rest[1] if has_biases else None)

        def step(state: Any, given: Any, again: Any = again, out: Any = rest[-1]) -> Any:
            i, f, g, o = (given[0] + state[0] @ again.transpose(0, 1)).chunk(4, -1)
            cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
            hidden = (o.sigmoid() * cell.tanh()) @ out.transpose(0, 1)
            if lengths is not None:
                hidden, cell = torch.where(given[1], hidden, state[0]), torch.where(given[1], cell, state[1])
            return (hidden, cell), hidden.clone()

        given = (gates.flip(0), inside.flip(0)) if side else (gates, inside)
        last, found = scan(step, (hx[0][side], hx[1][side]), given)
        outputs.append(found.flip(0) if side else found)
        ends.append(last)
    joined = torch.cat(outputs, -1)
    hidden, cell = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return joined.transpose(0, 1) if batch_first else joined, hidden, cell


def _written(node: Any, gates: Sequence[int]) -> Any:
    """A function that writes a layer as ONNX node ``node``; ``gates`` is ONNX's order of PyTorch's gates."""

    def layer(
        input: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        lengths: Any,
        nonlinearity: str = "",
    ) -> Any:
        states = hx if isinstance(hx, list | tuple) else [hx]
        sides, width, each = 1 + bidirectional, states[0].shape[2], 4 if has_biases else 2
        weights = [params[k * each : (k + 1) * each] for k in range(sides)]
        biases = [part for side in weights for part in side[2:]]
        steps, *last = node(
            onnx.Transpose(input, perm=[1, 0, 2]) if batch_first else input,
            *(_arranged([side[k] for side in weights], 1, gates, width) for k in (0, 1)),
            _arranged(biases, 2, gates, width) if biases else None,
            None if lengths is None else onnx.Cast(lengths, to=ir.DataType.INT32),
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
    """Concatenate and reorder parameters of which ``each`` belong to one direction, with as few nodes as possible."""
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


#: Operations that represent PyTorch's functions in a program, by name.
_KEPT: dict[str, tuple[Any, ...]] = {
    "lstm": (lstm,),
    "gru": (gru,),
    "rnn_tanh": (rnn, "Tanh"),
    "rnn_relu": (rnn, "Relu"),
}

#: Functions that write these operations as ONNX nodes.
TRANSLATIONS = {
    torch.ops.tenonnx.lstm.default: _written(_lstm, [0, 3, 1, 2]),
    torch.ops.tenonnx.gru.default: _written(_gru, [1, 0, 2]),
    torch.ops.tenonnx.rnn.default: _written(_rnn, [0]),
}


class _Longest:
    """Symbolic length of the longest sequence, which depends on contents; for ``pad_packed_sequence``."""

    def __gt__(self, other: Any) -> bool:
        return False  # PyTorch has checked this for the examples


class _Lengths(NamedTuple):
    """Replaces the batch sizes of a packed sequence, whose steps stay padded as ``[steps * batch, ...]``."""

    lengths: torch.Tensor
    steps: Any
    batch: Any
    device: torch.device = torch.device("cpu")

    def __getitem__(self, place: Any) -> Any:
        return self.batch

    def size(self, axis: int) -> _Longest:
        return _Longest()

    def padded(self, data: torch.Tensor) -> torch.Tensor:
        return data.reshape([self.steps, self.batch, *data.shape[1:]])


class Recurrences(TorchFunctionMode):
    """Records recurrent layers as single operations during tracing, since the exporter drops the dropout between
    layers.

    Layers with projections become scans where a length is dynamic, and stay unchanged otherwise. Raises
    ``NotRepresentable`` where another operation reads a packed sequence.
    """

    def __enter__(self) -> Any:
        self._packed: dict[int, torch.Tensor] = {}
        self._checks = [(kind, kind.check_forward_args) for kind in (torch.nn.RNNBase, torch.nn.LSTM)]
        for kind, _ in self._checks:  # these would treat the batch as a number
            kind.check_forward_args = lambda *given: None
        for name in (*_KEPT, "_pad_packed_sequence"):  # PyTorch accepts only tensors there, and would not call us
            setattr(torch._VF, name, self._of_packed(getattr(torch._VF, name)))
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        for kind, check in self._checks:
            kind.check_forward_args = check
        for name in (*_KEPT, "_pad_packed_sequence"):
            delattr(torch._VF, name)
        super().__exit__(*error)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "_pack_padded_sequence":
            return self._pack(*args)
        if not torch.compiler.is_dynamo_compiling() and name not in _OF_PACKED:
            self._check(name, args)
        kept, *more = _KEPT.get(name, (None,))
        if kept is None or kwargs or len(args) != 9 or not isinstance(args[3], bool):
            return function(*args, **(kwargs or {}))
        return self._kept(function, kept, more, args, None)

    def _kept(self, function: Any, kept: Any, more: Any, args: Any, lengths: torch.Tensor | None) -> Any:
        input, state, params, biases, layers, dropout, train, both, batch_first = args
        last_ones: list[Any] = [lengths, *more]
        if kept is lstm and state[0].shape[2] != state[1].shape[2]:
            scanned = lengths is not None or any(isinstance(length, torch.SymInt) for length in input.shape)
            kept, last_ones = (projected_lstm, [lengths]) if scanned else (function, [])
        starts = state if isinstance(state, list | tuple) else [state]
        size, sides, ends = len(params) // layers, 1 + both, []
        for k in range(layers):
            if k and train and dropout:
                input = torch.dropout(input, dropout, True)
            begin = [start[k * sides : (k + 1) * sides] for start in starts]
            input, *last = kept(
                input,
                begin if starts is state else begin[0],
                params[k * size : (k + 1) * size],
                biases,
                1,
                0.0,
                False,
                both,
                batch_first,
                *last_ones,
            )
            ends.append(last)
        return input, *(torch.cat(parts) for parts in zip(*ends, strict=True))

    # ----- packed sequences -------------------------------------------------------------------------------------------

    def _of_packed(self, function: Any) -> Any:
        def computed(*args: Any) -> Any:
            if not isinstance(args[1], _Lengths):
                return function(*args)
            if function.__name__ == "_pad_packed_sequence":
                return _pad(*args)
            data, sizes, *rest = args
            kept, *more = _KEPT[function.__name__]
            steps, *last = self._kept(function, kept, more, (sizes.padded(data), *rest, False), sizes.lengths)
            return self._as_packed(steps), *last

        return computed

    def _pack(self, input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, _Lengths]:
        steps = input.transpose(0, 1) if batch_first else input
        result = _Lengths(lengths, steps.shape[0], steps.shape[1])
        return self._as_packed(steps), result

    def _as_packed(self, steps: torch.Tensor) -> torch.Tensor:
        data = steps.reshape([steps.shape[0] * steps.shape[1], *steps.shape[2:]])
        self._packed[id(data)] = data
        return data

    def _check(self, name: str, args: Any) -> None:
        if self._packed and any(id(each) in self._packed for each in args):
            raise NotRepresentable(
                "packed sequences go through something other than LSTM, GRU and RNN before pad_packed_sequence",
                given=f"torch.{name} of one",
                do="pad the sequence before, and pack what comes of it",
            )


#: Operations that are allowed on a packed sequence.
_OF_PACKED = {"dim", "size", "__get__", "reshape"}


def _pad(
    data: torch.Tensor, sizes: _Lengths, batch_first: bool, value: float, total: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    steps, places = sizes.padded(data), torch.arange(sizes.steps)
    inside = places.unsqueeze(1) < sizes.lengths
    steps = torch.where(inside.reshape([*inside.shape, *[1] * (steps.ndim - 2)]), steps, value)
    if isinstance(total, _Longest):
        steps = steps[places < sizes.lengths.amax()]
    elif not statically_known_true(total == sizes.steps):
        around = [0, 0] * (steps.ndim - 1) + [0, total - sizes.steps]
        steps = torch.nn.functional.pad(steps, around, value=value)
    return steps.transpose(0, 1) if batch_first else steps, sizes.lengths

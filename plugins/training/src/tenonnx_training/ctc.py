"""Connectionist temporal classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tenonnx.extend import DType, InvalidCall, InvalidFeed, TensorType, Value, constant, subgraph
from tenonnx_standard.axis_activation import log_softmax
from tenonnx_standard.casting import cast, cast_like
from tenonnx_standard.control_flow import scan
from tenonnx_standard.cumulative import cumsum
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import and_, equal, greater, less, not_, or_, where
from tenonnx_standard.math import exp, log, maximum
from tenonnx_standard.reduction import reduce_log_sum_exp, reduce_mean, reduce_sum
from tenonnx_standard.shapes import identity, reshape, transpose, unsqueeze
from tenonnx_standard.slicing import gather_elements

Array = np.ndarray[Any, Any]

#: Finite stand-in for log(0): differences of infinities would be NaN.
_NEVER = -1e30


@dataclass(frozen=True)
class CTC:
    """Negative log-likelihood of a label sequence by scores ``[batch, time, classes]`` (Graves et al. 2006).

    Labels ``[batch, length]`` are class numbers other than ``blank``; negative ones are padding. The result is the mean
    of each sample's loss divided by its number of labels, as in PyTorch's ``CTCLoss`` on ``log_softmax``.
    """

    blank: int = 0
    name: ClassVar[str] = "ctc"
    includes: ClassVar[str] = "Softmax"

    def __call__(self, prediction: Value, labels: Value) -> Value:
        scores = log_softmax(prediction, axis=2)
        padding = less(labels, 0)
        blank = cast_like(self.blank, labels)
        known = where(padding, blank, labels)
        blanks = where(equal(known, known), blank, known)
        one = blanks[:, :1]
        between = reshape(concat(unsqueeze(blanks, [2]), unsqueeze(known, [2]), axis=2), [0, -1])
        states = concat(between, one, axis=1)  # blanks before, between and after the labels
        index = unsqueeze(states, [1]) + cast(greater(scores[:, :, :1], scores[:, :, :1]), to=DType.int64)
        emitted = transpose(gather_elements(scores, index, axis=2), perm=[1, 0, 2])
        before = concat(one, one, states[:, :-2], axis=1)
        skips = and_(not_(equal(states, blank)), not_(equal(states, before)))
        places = cumsum(cast(equal(states, states), to=DType.int64), 1) - 1
        never = constant(np.float32(_NEVER))
        start = where(equal(places, constant(np.int64(0))), constant(np.float32(0)), never)
        penalty = where(skips, constant(np.float32(0)), never)
        last = _last(start, penalty, cast(emitted, to=DType.float32))
        length = reduce_sum(cast(not_(padding), to=DType.int64), [1], keepdims=1)
        ends = or_(equal(places, length * 2), equal(places, length * 2 - 1))
        costs = -reduce_log_sum_exp(where(ends, last, never), [1], keepdims=0)
        counts = maximum(cast(reduce_sum(length, [1], keepdims=0), to=DType.float32), constant(np.float32(1)))
        return reduce_mean(costs / counts, keepdims=0)  # type: ignore[no-any-return]

    def labels_type(self, prediction: TensorType) -> TensorType:
        if prediction.shape is not None and len(prediction.shape) != 3:
            raise InvalidCall("ctc: scores are not of shape [batch, time, classes]", given=str(prediction))
        batch = None if prediction.shape is None else prediction.shape[0]
        return TensorType(DType.int64, (batch, None))

    def check(self, prediction: TensorType, labels: Array) -> None:
        time, classes = (None, None) if prediction.shape is None else prediction.shape[1:]
        if labels.ndim != 2 or not labels.shape[1]:
            raise InvalidFeed("ctc: labels are not a sequence for each sample", given=f"labels {list(labels.shape)}")
        if (labels == self.blank).any():
            raise InvalidFeed(
                f"labels of ctc contain the blank {self.blank}",
                do="pad with -1, or choose another blank: tt.CTC(blank=...)",
            )
        if isinstance(classes, int) and labels.max() >= classes:
            raise InvalidFeed(
                "ctc: a label is not a class of the scores", given=str(labels.max()), available=f"0 to {classes - 1}"
            )
        if (np.diff((labels < 0).astype(np.int8)) < 0).any():
            raise InvalidFeed("labels of ctc are padded before their end", do="put negative labels after all others")
        needed = (labels >= 0).sum(1) + ((labels[:, 1:] == labels[:, :-1]) & (labels[:, 1:] >= 0)).sum(1)
        if isinstance(time, int) and needed.max() > time:
            raise InvalidFeed(
                "labels of ctc are longer than the scores",
                given=f"labels that take {needed.max()} steps in sample {needed.argmax()}",
                available=f"{time} steps",
            )


def _last(start: Value, penalty: Value, emitted: Value) -> Value:
    """Log-probabilities of all states after the last time step."""
    kind = start.type

    def step(reached: Value, skipping: Value, score: Value) -> Any:
        none = reached[:, :1] * 0.0 + _NEVER
        moved = concat(none, reached[:, :-1], axis=1)
        skipped = concat(none, none, reached[:, :-2], axis=1) + skipping
        highest = maximum(reached, moved, skipped)
        total = exp(reached - highest) + exp(moved - highest) + exp(skipped - highest)
        return highest + log(total) + score, identity(skipping)

    body = subgraph(step, [("reached", kind), ("skipping", kind), ("score", kind)], name="ctc")
    return scan(start, penalty, emitted, body=body, num_scan_inputs=1)[0]  # type: ignore[no-any-return]

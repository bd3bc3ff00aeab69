"""Cases of indexers. onnxruntime implements these on GPUs only: see tests/test_indexers.py."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.indexers import sparse_attention_indexer
from tenonnx_contrib_ms.packed_indexer import (
    packed_sparse_attention_indexer,
    packed_sparse_attention_indexer_merge,
)
from tenonnx_testing import Gap, call, cases, tensors

SIZE, WIDTH, RATIO, POSITIONS = 8, 4, 2, 16


class RandomInputs:
    """Random inputs of both indexers, with distinct scores."""

    def __init__(self, draw):
        self.random = np.random.default_rng(draw(st.integers(0, 1000)))
        self.csa, self.heads, self.batch = draw(st.booleans()), draw(st.integers(1, 2)), draw(st.integers(1, 2))
        shape = (POSITIONS, WIDTH) if draw(st.booleans()) else (self.batch, POSITIONS, WIDTH)
        weights = [self.random.uniform(0.5, 1.5, SIZE).astype(np.float32) for _ in range(2)]
        self.common = [*weights, self.array(*shape), self.array(*shape)]
        self.attributes = {"compress_ratio": RATIO, "policy_mode": "csa" if self.csa else "qsa"}
        self.attributes |= {"index_topk": 3} if self.csa else {"token_budget": 4}
        if draw(st.booleans()):
            self.attributes |= {"epsilon": 1e-5, "scale": 0.5} | ({"head_weight_scale": 0.7} if self.csa else {})

    def array(self, *shape):
        return self.random.normal(size=shape).astype(np.float32)

    def projections(self, draw, *sizes):
        """Draw query and key, separate or packed."""
        wide = SIZE * (1 + self.csa)
        parts = [self.array(*sizes, self.heads * SIZE), self.array(*sizes, wide)]
        if not self.csa and draw(st.booleans()):
            parts = [np.concatenate(parts, axis=-1), None]
        return parts

    def gates(self, *sizes):
        """Draw ``gate``, ``position_bias`` and ``head_weights``."""
        if not self.csa:
            return [None] * 3
        return [self.array(*sizes, 2 * SIZE), self.array(RATIO, 2 * SIZE), self.array(*sizes, self.heads)]


@cases(sparse_attention_indexer, gradient=False)
def sparse_attention_indexer_cases(draw):
    drawn = RandomInputs(draw)
    length, past, batch = draw(st.integers(1, 5)), draw(st.integers(0, 5)), drawn.batch
    fixed = draw(st.booleans())
    query, key = drawn.projections(draw, batch, length)
    mask = positions = buffer = None
    room = past + 5 if fixed else past
    if drawn.csa:
        waiting = RATIO * min(past, 1) + draw(st.integers(0, RATIO - 1))
        buffer = drawn.array(2, batch, waiting, 2 * SIZE)
        begin = past * RATIO + waiting % RATIO
        positions = np.tile(np.arange(begin, begin + length), (batch, 1))
    elif draw(st.booleans()):
        mask = (drawn.random.random((batch, past + length)) < 0.8).astype(np.int64)
    past_length = np.array([past], np.int32) if fixed else None
    inputs = [query, key, *drawn.common, mask, drawn.array(batch, room, SIZE), *drawn.gates(batch, length)]
    return call(*inputs, positions, past_length, buffer, **drawn.attributes, _outputs=3 if drawn.csa else 2)


@cases(
    packed_sparse_attention_indexer,
    gradient=False,
    gaps=[Gap("requirements", "no drawn call keeps a state, whose capacity is bounded")],
)
def packed_sparse_attention_indexer_cases(draw):
    drawn = RandomInputs(draw)
    csa, batch, room = drawn.csa, drawn.batch, 5
    counts = draw(tensors("int32", shape=(batch,), min_value=0, max_value=3))
    counts[0] = max(counts[0], 1)
    sums, tokens = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), int(counts.sum())
    entries = draw(tensors("int32", shape=(batch,), min_value=0, max_value=3))
    loose = draw(tensors("int32", shape=(batch,), min_value=0, max_value=RATIO - 1))
    past = entries * RATIO + loose
    lengths = np.stack([entries, loose + (RATIO * np.minimum(entries, 1) if csa else 0)], axis=1).astype(np.int32)
    positions = None
    if csa:
        positions = np.concatenate([p + np.arange(n) for p, n in zip(past, counts, strict=True)]).astype(np.int64)
    query, key = drawn.projections(draw, tokens)
    buffers = [drawn.array(batch, 2 * RATIO - 1, SIZE * (1 + csa)) for _ in range(1 + csa)] + [None] * (not csa)
    inputs = [query, key, *drawn.common, sums, past.astype(np.int32), *drawn.gates(tokens), positions]
    inputs += [drawn.array(batch, room, SIZE), *buffers, lengths]
    attributes, outputs = drawn.attributes | {"state_capacity": room}, 6
    if not csa and draw(st.booleans()):
        inputs += [counts, np.array([draw(st.integers(0, 1))], np.int32) if draw(st.booleans()) else None]
        attributes["state_update_capacity"], outputs = 2, 7
    if draw(st.booleans()):
        inputs += [None] * (18 - len(inputs))
        width = draw(st.integers(4, 8))
        merged = drawn.random.integers(0, 9, (tokens, width)), drawn.random.integers(0, width, tokens)
        mode = np.array([draw(st.integers(0, 1))])
        inputs += [x.astype(np.int32) for x in (mode, *merged, drawn.random.integers(0, 3, tokens))]
        attributes["max_output_entries"] = width
        attributes["indexshare_state_policy"] = draw(st.sampled_from(["default", "hold", "advance"]))
        outputs = 9 if outputs == 7 else outputs
    return call(*inputs, **attributes, _outputs=outputs)


@cases(packed_sparse_attention_indexer_merge, gradient=False)
def packed_sparse_attention_indexer_merge_cases(draw):
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    rows, width, queries, most = 3, 4, draw(st.integers(1, 4)), draw(st.integers(1, 8))

    def drawn(low, high, *shape):
        return random.integers(low, high, shape).astype(np.int32)

    inputs = [drawn(0, 6, rows, width), drawn(0, width + 1, rows), drawn(0, rows + (random.random() < 0.2), queries)]
    attributes = {"max_output_entries": most, "policy_mode": draw(st.sampled_from(["append_range", "append_indices"]))}
    if attributes["policy_mode"] == "append_range":
        starts = drawn(0, 6, queries)
        return call(*inputs, starts, starts + drawn(-(random.random() < 0.2), 4, queries), **attributes)
    return call(*inputs, None, None, drawn(0, 8, queries, 3), drawn(0, 4, queries), **attributes)

"""Operators that stay in float32, since their schemas do not allow float16."""

from tenonnx_contrib_ms.image import max_pool_with_mask
from tenonnx_contrib_ms.linear_attention import linear_attention_gate
from tenonnx_contrib_ms.math import cdist
from tenonnx_contrib_ms.sequence import attn_lstm, word_conv_embedding
from tenonnx_contrib_ms.tensors import range_, unfold_tensor
from tenonnx_contrib_ms.tokens import n_gram_repeat_block

NEEDS_FLOAT32 = (
    attn_lstm,
    cdist,
    linear_attention_gate,
    max_pool_with_mask,
    n_gram_repeat_block,
    range_,
    unfold_tensor,
    word_conv_embedding,
)

for _op in NEEDS_FLOAT32:
    _op.traits(needs_float32="its schema has no half floats there")

"""Inputs of ops that are trainable weights; constants at other inputs are not trained."""

from tenonnx.extend import Op
from tenonnx_contrib_ms import (
    attention,
    decoder,
    dropout,
    experts,
    fused_ops,
    gates,
    gelu,
    image,
    layouts,
    linear_attention,
    matrix,
    multi_head,
    nhwc,
    normalization,
    packed_ops,
    position_bias,
    remove_padding,
    sequence,
    tensors,
)

#: Names of weight inputs in the specification; ``beta`` is one next to ``gamma``.
_HELD = frozenset(
    [
        "W",
        "R",
        "P",
        "QW",
        "MW",
        "V",
        "AW",
        "weight",
        "weights",
        "bias",
        "bias_table",
        "gamma",
        "conv_norm_scale",
        "key_norm_scale",
        "query_norm_scale",
        "q_weight",
        "kv_weight",
        "global_weight",
        "global_bias",
        "word_embedding",
        "position_embedding",
        "segment_embedding",
        "q_norm_weight",
        "k_norm_weight",
        "fc1_experts_weights",
        "fc1_experts_bias",
        "fc2_experts_weights",
        "fc2_experts_bias",
        "fc3_experts_weights",
        "fc3_experts_bias",
    ]
)

#: Weight inputs with other names, by op.
_OTHERS = {
    "FusedMatMul": "A B",
    "TransposeMatMul": "A B",
    "FusedMatMulActivation": "A B",
    "SparseToDenseMatMul": "A B",
    "FusedGemm": "B C",
    "BiasGelu": "B",
    "FusedConv": "W B",
    "NhwcConv": "W B",
    "NhwcFusedConv": "W B",
    "ConvTransposeWithDynamicPads": "W B",
    "AttnLSTM": "W R B P QW MW V AW",
    "WordConvEmbedding": "W B C",
    "GatedRMSNorm": "scale",
    "BranchwiseRMSNorm": "scale",
    "ScaledSiLU": "scale",
}

_MODULES = (
    attention,
    decoder,
    dropout,
    experts,
    fused_ops,
    gates,
    gelu,
    image,
    layouts,
    linear_attention,
    matrix,
    multi_head,
    nhwc,
    normalization,
    packed_ops,
    remove_padding,
    position_bias,
    sequence,
    tensors,
)

for _op in {op for module in _MODULES for op in vars(module).values() if isinstance(op, Op)}:
    if _op.domain != "com.microsoft":
        continue
    _inputs = [each.name for each in _op.signature.inputs]
    _named = [name for name in _inputs if name in _HELD or (name == "beta" and "gamma" in _inputs)]
    if _names := _OTHERS.get(_op.name) or " ".join(_named):
        _op.traits(weights=_names)

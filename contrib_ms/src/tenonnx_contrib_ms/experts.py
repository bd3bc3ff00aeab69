"""Mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable

import tenonnx_standard as ops
from tenonnx.extend import (
    REQUIRED,
    DType,
    Value,
    at_least,
    constant,
    differ,
    dims,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
    subgraph,
    symbolic,
)
from tenonnx_standard.gated_activation import clamped_swiglu

#: Relative distance below the best logit within which the sparse mixer considers other experts.
_JITTER = 0.02

#: Copy the weights of selected experts if there are at least this many times as many experts in total.
COPIES = 2


@op("MoE", domain="com.microsoft")
def mixture_of_experts(
    input,
    router_probs,
    fc1_experts_weights,
    fc1_experts_bias=None,
    fc2_experts_weights=REQUIRED,
    fc2_experts_bias=None,
    fc3_experts_weights=None,
    fc3_experts_bias=None,
    *,
    activation_alpha=1.0,
    activation_beta=0.0,
    activation_type="relu",
    k=1,
    normalize_routing_weights=0,
    swiglu_fusion=0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation=0,
    use_sparse_mixer=0,
):
    """The outputs of ``k`` experts per token, weighted by the softmax of the logits ``router_probs``.

    An expert is two layers with an activation in between. With ``fc3``, or a first layer of twice the width, the
    activation of one half gates the other. All experts process all tokens and are weighted; if there are few tokens,
    each is processed only by its own experts.
    """
    size = dims(input)[-1]
    tokens = ops.reshape(input, [-1, size])
    shares, places = _select_experts(router_probs, k, normalize_routing_weights, use_sparse_mixer)

    def of_own_experts() -> Value:
        own = ops.reshape(places, [-1])  # a row per token and expert
        rows = ops.reshape(ops.expand(ops.unsqueeze(tokens, [1]), [1, k, 1]), [-1, 1, size])
        found = mixed(rows, own) * ops.cast(ops.reshape(shares, [-1, 1, 1]), to=input.dtype)
        return ops.reduce_sum(ops.reshape(found, [-1, k, size]), [1], keepdims=0)

    def of_all_experts() -> Value:
        weights = ops.unsqueeze(ops.transpose(_expert_weights(router_probs, shares, places)), [2])
        return ops.reduce_sum(mixed(tokens, None) * ops.cast(weights, to=input.dtype), [0], keepdims=0)

    def mixed(x: Value, own: Value | None) -> Value:
        hidden = _layer(x, fc1_experts_weights, fc1_experts_bias, own)
        if activation_type == "swiglu":
            if swiglu_fusion:
                gate, linear = _halves(hidden, interleaved=swiglu_fusion == 1)
            else:
                gate, linear = hidden, _layer(x, fc3_experts_weights, fc3_experts_bias, own)
            hidden = clamped_swiglu(
                gate,
                linear,
                alpha=activation_alpha,
                beta=activation_beta,
                limit=swiglu_limit,
                after=swiglu_limit_after_activation,
            )
        elif activation_type == "geglu":
            gate, linear = _halves(hidden, interleaved=swiglu_fusion == 1)
            hidden = ops.gelu(gate, approximate="tanh") * linear
        else:
            hidden = _ACTIVATIONS[activation_type](hidden)
            if fc3_experts_weights is not None:
                hidden = hidden * _layer(x, fc3_experts_weights, fc3_experts_bias, own)
        return _layer(hidden, fc2_experts_weights, fc2_experts_bias, own)

    total = _where_few(router_probs, k, of_own_experts, of_all_experts)
    return ops.reshape(total, ops.shape(input))


def _where_few(router_probs: Value, k: int, few: Callable[[], Value], many: Callable[[], Value]) -> Value:
    """Call ``few`` if copying the layers of selected experts is cheaper than computing all, else ``many``."""
    tokens, experts = dims(router_probs)
    most = experts // (COPIES * k) if isinstance(experts, int) else 0
    if isinstance(tokens, int) or not most:
        return few() if isinstance(tokens, int) and tokens <= most else many()
    branches = {"then_branch": subgraph(few, name="few"), "else_branch": subgraph(many, name="many")}
    return ops.if_(tokens <= most, **branches)  # type: ignore[no-any-return]


_ACTIVATIONS = {
    "relu": lambda x: ops.relu(x),
    "gelu": lambda x: ops.gelu(x, approximate="tanh"),
    "silu": lambda x: ops.swish(x),
    "identity": lambda x: x,
    "relu2": lambda x: ops.relu(x) * ops.relu(x),
}


def _layer(x: Value, weights: Value, bias: Value | None, own: Value | None) -> Value:
    """``x`` times the matrix of every expert, or of each row's own expert; matrices are (outputs, inputs)."""
    matrices, added = ops.transpose(weights, perm=[0, 2, 1]), None if bias is None else ops.unsqueeze(bias, [1])
    if own is not None:
        matrices, added = ops.gather(matrices, own), None if added is None else ops.gather(added, own)
    y = x @ matrices
    return y if added is None else y + added


def _halves(x: Value, *, interleaved: bool) -> tuple[Value, Value]:
    """The elements of the last axis with even and odd index, or its two halves."""
    if interleaved:
        return x[..., ::2], x[..., 1::2]
    first, second = ops.split(x, axis=-1, num_outputs=2)
    return first, second


def _select_experts(logits: Value, k: int, normalized: int, sparse: int) -> tuple[Value, Value]:
    """The weights of the ``k`` experts of each token, in float32, and their indices."""
    x = ops.cast(logits, to=DType.float32) if logits.dtype.bits < 32 else logits
    if sparse:
        shares, places = _sparsely_mixed(x, k)
    else:
        shares, places = ops.top_k(ops.softmax(x, axis=1), ops.constant(value_ints=[k]), axis=1)
    return shares / ops.reduce_sum(shares, [1]) if normalized else shares, places


def _expert_weights(logits: Value, shares: Value, places: Value) -> Value:
    """The weight of each expert for each token, zero for experts that are not selected."""
    return ops.scatter_elements(ops.cast(ops.zeros_like(logits), to=shares.dtype), places, shares, axis=1)


def _sparsely_mixed(x: Value, k: int) -> tuple[Value, Value]:
    """Select experts one after the other, weighted by a softmax over close logits (SparseMixer, Liu et al. 2023)."""
    weights, places, left = [], [], x
    for _ in range(k):
        best = ops.reduce_max(left, [1])
        near = ops.less_or_equal(best - x, ops.maximum(ops.absolute(x), best) * _JITTER)
        place = ops.argmax(left, axis=1)
        shares = ops.softmax(ops.where(near, left, float("-inf")), axis=1)
        weights.append(ops.gather_elements(shares, place, axis=1))
        places.append(place)
        left = ops.scatter_elements(left, place, ops.expand(constant(float("-inf"), x.dtype), ops.shape(place)), axis=1)
    return ops.concat(*weights, axis=1), ops.concat(*places, axis=1)


mixture_of_experts.requires(
    shapes(
        router_probs="n e",
        fc1_experts_weights="e i h",
        fc1_experts_bias="e i",
        fc2_experts_weights="e h j",
        fc2_experts_bias="e h",
        fc3_experts_weights="e j h",
        fc3_experts_bias="e j",
        input="n h | batch length h",
    ),
    floats("input"),
    same_dtype(
        "input",
        "router_probs",
        "fc1_experts_weights",
        "fc1_experts_bias",
        "fc2_experts_weights",
        "fc2_experts_bias",
        "fc3_experts_weights",
        "fc3_experts_bias",
    ),
    at_least(k=1),
    holds(
        lambda router_probs, n, batch, length: (
            "router_probs does not have one row for each token" if differ(n, symbolic.multiply(batch, length)) else None
        )
    ),
    one_of(activation_type=(*_ACTIVATIONS, "swiglu", "geglu"), swiglu_fusion=(0, 1, 2)),
    holds(
        lambda activation_type, swiglu_fusion, fc3_experts_weights: (
            "swiglu_fusion is 0 or fc3_experts_weights is given, with activation_type geglu"
            if activation_type == "geglu" and (not swiglu_fusion or fc3_experts_weights is not None)
            else None
        )
    ),
    holds(
        lambda activation_type, swiglu_fusion, fc3_experts_weights: (
            "fc3_experts_weights is missing, with activation_type swiglu and swiglu_fusion 0"
            if activation_type == "swiglu" and not swiglu_fusion and fc3_experts_weights is None
            else None
        )
    ),
)


# ----- routing --------------------------------------------------------------------------------------------------------


@op("MoEGroupRouter", domain="com.microsoft")
def moe_group_router(
    logits,
    expert_bias,
    projection_weight=None,
    *,
    group_topk=2,
    n_group=1,
    router_sentinel=-10000.0,
    top_k: int,
    topk_group=1,
    _outputs=None,
):
    """Log-sigmoids of ``logits`` for the ``top_k`` experts of the best groups; ``router_sentinel`` elsewhere.

    See DeepSeek-AI 2024, arXiv:2412.19437. ``expert_bias`` only affects the selection: groups are ranked by their
    ``group_topk`` best experts. With three outputs the first is absent, and the others are the sigmoids of all experts
    with and without bias; logits may then be ``logits`` times ``projection_weight``.
    """
    x = ops.cast(logits, to=DType.float32) if logits.dtype.bits < 32 else logits
    x = ops.reshape(x, [-1, dims(x)[-1]])
    if projection_weight is not None:
        x = x @ ops.transpose(ops.cast(projection_weight, to=x.dtype), perm=[1, 0])
    probabilities = ops.sigmoid(x)
    scores = probabilities + expert_bias
    if (_outputs or 1) > 1:
        return None, scores, probabilities
    lowest = constant(float("-inf"), scores.dtype)
    if n_group > 1:
        grouped = ops.reshape(scores, [0, n_group, -1])
        size = dims(grouped)[2]
        count = min(group_topk, size) if isinstance(size, int) else ops.minimum(group_topk, size)
        strength = ops.reduce_sum(ops.top_k(grouped, ops.reshape(count, [1]))[0], [2], keepdims=0)
        scores = ops.reshape(ops.where(_among_best(strength, topk_group, [-1, n_group, 1]), grouped, lowest), [0, -1])
    logarithms = ops.cast(ops.log(ops.maximum(probabilities, _LEAST)), to=logits.dtype)
    return ops.where(_among_best(scores, top_k, None), logarithms, router_sentinel)


moe_group_router.traits(on_request=True)


#: Minimum of probabilities before the logarithm.
_LEAST = 1e-20


def _among_best(scores: Value, count: int, shape: list[int] | None) -> Value:
    """Mask of the ``count`` best of each row, optionally reshaped."""
    places = ops.top_k(scores, ops.constant(value_ints=[count]))[1]
    ones = ops.expand(constant(1, DType.int32), ops.shape(places))
    found = ops.scatter_elements(ops.cast(ops.zeros_like(scores), to=DType.int32), places, ones, axis=-1)
    return ops.greater(found if shape is None else ops.reshape(found, shape), 0)


moe_group_router.requires(
    floats("logits"),
    floats("expert_bias"),
    same_dtype("logits", "projection_weight"),
    at_least(top_k=1, group_topk=1, n_group=1, topk_group=1),
    shapes(logits="... _", expert_bias="e", projection_weight="e width"),
    holds(lambda logits, e, n_group, topk_group, top_k: _hold_groups(e, n_group, topk_group, top_k)),
    holds(
        lambda projection_weight, logits, e, width: (
            "number of columns of logits differs from that of the experts or of projection_weight"
            if logits.rank and differ(logits.shape[-1], e if projection_weight is None else width)
            else None
        )
    ),
)


def _hold_groups(experts: object, groups: int, best: int, count: int) -> str | None:
    if best > groups:
        return "topk_group is larger than n_group"
    if isinstance(experts, int) and (experts % groups or count > experts // groups * best):
        return "n_group does not divide the experts, or topk_group groups have fewer than top_k"
    return None

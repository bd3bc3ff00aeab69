"""Cases of QMoE."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_quantized.experts import qmoe
from tenonnx_testing import Tolerance, call, cases, tensors

ACTIVATIONS = ["relu", "gelu", "silu", "identity", "swiglu"]


def network(draw, dtype="float32"):
    """Draw tokens, router logits, and the sizes of experts."""
    experts, tokens = draw(st.integers(2, 3)), draw(st.integers(1, 4))
    shape = draw(st.sampled_from([(tokens,), (1, tokens)]))
    x = draw(tensors(dtype, shape=(*shape, 32), min_value=-1, max_value=1))
    return x, draw(tensors(dtype, shape=(tokens, experts), distinct=True)), experts


def layer(draw, experts, outputs, inputs, bits, block):
    """Draw quantized values, scales, a bias or None, and zero points or None."""
    blocks = (inputs // block,) if block else ()
    packed = (outputs, -(-(inputs // block) * bits // 8)) if block else (-(-outputs * bits // 8),)
    quantized = draw(tensors("uint8", shape=(experts, outputs, inputs * bits // 8), min_value=0, max_value=255))
    scale = draw(tensors("float32", shape=(experts, outputs, *blocks), min_value=0.001, max_value=0.01))
    bias = draw(tensors("float32", shape=(experts, outputs))) if draw(st.booleans()) else None
    zero = draw(tensors("uint8", shape=(experts, *packed), min_value=0, max_value=255)) if draw(st.booleans()) else None
    return quantized, scale, bias, zero


#: Inputs and attributes that onnxruntime's CPU kernel accepts and ignores.
IGNORED = {
    "fc1_act_block_scale": "block scales of activations are for one kind of GPU, and undocumented",
    "fc2_act_block_scale": "block scales of activations are for one kind of GPU, and undocumented",
    "use_sparse_mixer": "the combination of a sparse mixer with router_weights is undocumented, and no kernel has it",
}


@cases(
    qmoe,
    gradient=False,
    undrawn=IGNORED,
    tolerance=Tolerance(2e-2, 1e-2, "onnxruntime approximates Gelu, and may quantize activations to 8 bits"),
)
def qmoe_cases(draw):
    x, router, experts = network(draw)
    bits, block = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([0, 16]))
    activation = draw(st.sampled_from(ACTIVATIONS))
    fused = activation == "swiglu"
    first, second = layer(draw, experts, 16 << fused, 32, bits, block), layer(draw, experts, 32, 16, bits, block)
    weights = draw(tensors("float32", shape=router.shape, min_value=0.1, max_value=1)) if draw(st.booleans()) else None
    swiglu = {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 2.0, "swiglu_fusion": 1}
    return call(
        x,
        router,
        *first[:3],
        *second[:3],
        None,
        None,
        None,
        first[3],
        second[3],
        None,
        weights,
        k=draw(st.integers(1, 2)),
        activation_type=activation,
        expert_weight_bits=bits,
        normalize_routing_weights=draw(st.integers(0, 1)),
        accuracy_level=draw(st.sampled_from([0, 1])),
        weights_prepacked=draw(st.sampled_from([-1, 0])),
        **({"block_size": block} if block else {}),
        **(swiglu if fused else {}),
    )


@cases(qmoe, gradient=["input", "fc1_scales", "fc2_scales"])
def qmoe_cases_2(draw):
    """A third layer, or separate bit widths per layer, which onnxruntime's kernel lacks."""
    x, router, experts = network(draw)
    separate_gate = draw(st.booleans())
    bits = {f"fc{k}_expert_weight_bits": draw(st.sampled_from([4, 8])) for k in (1, 2, 3)}
    first, second, third = (
        layer(draw, experts, rows, columns, bits[f"fc{k}_expert_weight_bits"], 0)
        for k, rows, columns in ((1, 16 if separate_gate else 32, 32), (2, 32, 16), (3, 16, 32))
    )
    extra = (*third[:3],) if separate_gate else (None, None, None)
    return call(
        x,
        router,
        *first[:3],
        *second[:3],
        *extra,
        first[3],
        second[3],
        third[3] if separate_gate else None,
        k=2,
        activation_type="swiglu",
        swiglu_fusion=0 if separate_gate else 2,
        **bits,
    )


@cases(qmoe, gradient=False)
def qmoe_cases_3(draw):
    """Weights in float8 and float4, for which onnxruntime has no CPU kernel."""
    x, router, experts = network(draw)
    form = draw(st.sampled_from(["fp8", "fp8 blocks", "fp4", "nvfp4", "wfp4afp8"]))
    inputs = [x, router]
    for rows, columns in ((32, 32), (32, 32)):
        packed = columns if form.startswith("fp8") else columns // 2
        kind = "float8e4m3fn" if form.startswith("fp8") else "uint8"
        low, high = (-4, 4) if kind != "uint8" else (0, 255)
        shapes = {"fp8": None, "fp8 blocks": (2, 2), "nvfp4": (rows, columns // 16)}
        shape = shapes.get(form, (rows, columns // 32))
        scales = {"fp8 blocks": "float32", "nvfp4": "float8e4m3fn"}.get(form, "float8e8m0")
        weights = draw(tensors(kind, shape=(experts, rows, packed), min_value=low, max_value=high))
        scale = None if shape is None else draw(tensors(scales, shape=(experts, *shape), min_value=0.1, max_value=1))
        inputs += [weights, scale, None]
    whole = [None, None]
    if form != "fp8 blocks":
        whole = [draw(tensors("float32", shape=(experts,), min_value=0.01, max_value=0.1)) for _ in range(2)]
    acts = [None, None]
    if form == "wfp4afp8":
        acts = [draw(tensors("float32", shape=draw(st.sampled_from([(1,), (experts,)])), min_value=0.5)) for _ in "12"]
    return call(
        *inputs,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        *whole,
        *acts,
        quant_type=form.split()[0],
        **({"block_size": 16} if form == "fp8 blocks" else {}),
    )


@cases(qmoe, gradient=False)
def qmoe_cases_4(draw):
    """Features only of GPU kernels: other activations, a limit after one, and 3-bit weights."""
    x, router, experts = network(draw)
    kind = draw(st.sampled_from(["relu2", "geglu", "swiglu"]))
    bits, block = draw(st.sampled_from([(4, 16), (3, 32)]))
    first = layer(draw, experts, 64 if kind != "relu2" else 32, 32, bits, block)
    second = layer(draw, experts, 32, 32, bits, block)
    after = {"swiglu_limit": 0.05, "swiglu_limit_after_activation": 1} if kind == "swiglu" else {}
    fusion = {"swiglu_fusion": draw(st.integers(1, 2))} if kind != "relu2" else {}
    return call(
        x,
        router,
        *first[:3],
        *second[:3],
        None,
        None,
        None,
        first[3],
        second[3],
        activation_type=kind,
        expert_weight_bits=bits,
        block_size=block,
        **fusion,
        **after,
    )

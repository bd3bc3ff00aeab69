"""Ops that are of one device alone: files with them are read and written, and do not run here."""

from __future__ import annotations

from typing import Any

from tenonnx.extend import REQUIRED, NotRepresentable, Op, UnknownType, UnsupportedOp, primitive


@primitive("EPContext", domain="com.microsoft")
def ep_context(
    *inputs, embed_mode=1, ep_cache_context: str | None = None, ep_sdk_version: str | None = None,
    hardware_architecture: str | None = None, main_context=1, max_size=0, notes: str | None = None,
    onnx_model_filename: str | None = None, partition_name: str | None = None, source: str | None = None, _outputs=None,
):  # fmt: skip
    """A part of a model as an execution provider compiled it."""


@primitive("Snpe", domain="com.microsoft")
def snpe(
    *inputs, DLC: str, notes: str | None = None, snpe_version: str | None = None, target_device: str | None = None,
    _outputs=None,
):  # fmt: skip
    """A part of a model as Qualcomm's neural processing engine has it."""


@primitive("SpeculativePrefixCommit", domain="com.microsoft")
def speculative_prefix_commit(
    next_tokens, input_ids, status, ctl, ctx_commit, prefixes, ptrs, *, head_rows=8, _outputs=None
):
    """Commits accepted tokens and tells the host by records at an address of the device."""


@primitive("GatherPacked", domain="com.microsoft")
def gather_packed(data, indices, *, K: int, output_dtype=16, packed_type: int):
    """Rows of a table of numbers that are packed in one of onnxruntime's formats."""


@primitive("MatMulPacked", domain="com.microsoft")
def matmul_packed(A, B, global_scale=None, *, K: int, N: int, activation_type="none", packed_type: int):
    """``A`` by weights that are packed in one of onnxruntime's formats."""


@primitive("MoEPacked", domain="com.microsoft")
def moe_packed(
    input, router_probs, gate_experts_weights, up_experts_weights=None, down_experts_weights=REQUIRED,
    router_weights=None, *,
    activation_type="swiglu", down_type: int, gate_type: int, k=1, normalize_routing_weights=1,
    routed_scaling_factor=1.0, routing_epsilon=0.0, up_type=-1,
):  # fmt: skip
    """A mixture of experts whose weights are packed in one of onnxruntime's formats."""


def _refuse(made: Op, why: str, before: str) -> None:
    @made.type
    def _(*inputs: Any, **attributes: Any) -> Any:
        raise UnknownType(f"{made.title}: {why}", do=f"convert {before}")

    @made.numpy
    def _(*inputs: Any, **attributes: Any) -> Any:
        raise UnsupportedOp(f"{made.title}: {why}", do=f"run the file on the device that it is made for, or {before}")

    @made.lower()
    def _(*inputs: Any, **attributes: Any) -> Any:
        raise NotRepresentable(why)


for _compiled in (ep_context, snpe):
    _refuse(
        _compiled, "what it computes is compiled for one device and cannot be read from it",
        "the model that it was compiled from",
    )  # fmt: skip
_refuse(
    speculative_prefix_commit, "it writes records to an address in the memory of a device, which no tensor is",
    "the model without the loop that verifies drafts",
)  # fmt: skip
for _packed in (gather_packed, matmul_packed, moe_packed):
    _refuse(
        _packed, "the bytes of its weights are packed in a layout that its schema does not tell",
        "the model before its weights were packed",
    )  # fmt: skip

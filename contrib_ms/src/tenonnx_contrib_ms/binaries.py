"""Device-specific ops: models with them can be loaded and saved, but not run here."""

from __future__ import annotations

from typing import Any

from tenonnx.extend import NotRepresentable, Op, UnknownType, UnsupportedOp, primitive


@primitive("EPContext", domain="com.microsoft")
def ep_context(
    *inputs,
    embed_mode=1,
    ep_cache_context: str | None = None,
    ep_sdk_version: str | None = None,
    hardware_architecture: str | None = None,
    main_context=1,
    max_size=0,
    notes: str | None = None,
    onnx_model_filename: str | None = None,
    partition_name: str | None = None,
    source: str | None = None,
    _outputs=None,
):
    """A subgraph compiled by an execution provider (EPContext)."""


@primitive("Snpe", domain="com.microsoft")
def snpe(
    *inputs,
    DLC: str,
    notes: str | None = None,
    snpe_version: str | None = None,
    target_device: str | None = None,
    _outputs=None,
):
    """A subgraph compiled for Qualcomm's SNPE (a DLC container)."""


@primitive("SpeculativePrefixCommit", domain="com.microsoft")
def speculative_prefix_commit(
    next_tokens, input_ids, status, ctl, ctx_commit, prefixes, ptrs, *, head_rows=8, _outputs=None
):
    """Commit accepted tokens and notify the host through records at a device address."""


def _refuse(op: Op, why: str, before: str) -> None:
    @op.type
    def made_type(*inputs: Any, **attributes: Any) -> Any:
        raise UnknownType(f"{op.title}: {why}", do=f"convert {before}")

    @op.numpy
    def made_numpy(*inputs: Any, **attributes: Any) -> Any:
        raise UnsupportedOp(f"{op.title}: {why}", do=f"run the file on the device that it is made for, or {before}")

    @op.lower()
    def made_lowering(*inputs: Any, **attributes: Any) -> Any:
        raise NotRepresentable(why)


for _compiled in (ep_context, snpe):
    _refuse(
        _compiled,
        "what it computes is compiled for one device and cannot be read from it",
        "the model that it was compiled from",
    )
_refuse(
    speculative_prefix_commit,
    "it writes records to an address in the memory of a device, which no tensor is",
    "the model without the loop that verifies drafts",
)

"""Ops that hold what a compiler made for one device: files with them are read and written, and do not run here."""

from __future__ import annotations

from typing import Any

from tenonnx.extend import NotRepresentable, Op, UnknownType, UnsupportedOp, primitive


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


def _refuse(made: Op) -> None:
    why = "what it computes is compiled for one device and cannot be read from it"

    @made.type
    def _(*inputs: Any, **attributes: Any) -> Any:
        raise UnknownType(f"{made.title}: {why}", do="convert the model that it was compiled from")

    @made.numpy
    def _(*inputs: Any, **attributes: Any) -> Any:
        raise UnsupportedOp(f"{made.title}: {why}", do="run the file where it was compiled for")

    @made.lower()
    def _(*inputs: Any, **attributes: Any) -> Any:
        raise NotRepresentable(why)


_refuse(ep_context)
_refuse(snpe)

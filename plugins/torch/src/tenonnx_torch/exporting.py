"""The whole flow: a module as an ONNX file that was compared with it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import tenonnx as tx
from tenonnx.extend import InvalidCall
from tenonnx.extend.checks import Verification
from tenonnx.extend.formats import Report
from tenonnx_torch.differences import verified
from tenonnx_torch.examples import Dims, Examples
from tenonnx_torch.frontend import graph_of


@dataclass(frozen=True)
class Exported:
    """What an export did: ``report`` of each node, and the ``verification`` against the module, None if not wanted."""

    report: Report
    verification: Verification | None

    def to_json(self) -> dict[str, Any]:
        checked = None if self.verification is None else self.verification.to_json()
        return {**self.report.to_json(), "verification": checked}

    def __str__(self) -> str:
        return "\n".join(str(part) for part in (self.report, self.verification) if part is not None)


def export(
    module: torch.nn.Module,
    examples: Any,
    path: str | os.PathLike[str],
    *,
    opset_version: int | Mapping[str, int] | None = None,
    domains: Collection[str] | None = None,
    dims: Dims | None = None,
    dynamic_batch: bool = False,
    keywords: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    task: str | None = None,
    simplify: bool = False,
    verify: bool = True,
    **fields: Any,
) -> Exported:
    """Write ``module`` as an ONNX file at ``opset_version``, compared with the module before anything is written.

    ``examples`` are the arguments of one call: a tuple or list, or the only one. ``dynamic_batch`` lets the first axis
    of every tensor among them vary. The other names are those of ``tx.load`` for modules, and ``fields`` those of
    ``tx.ExportConfig``. Raises ``VerificationFailed`` where the file would not compute what the module does, at the
    size of the examples, at others of the dims that vary, or with these at 1; then nothing is written. Raises what
    ``tx.load`` and ``tx.export`` raise.
    """
    arguments = tuple(examples) if isinstance(examples, tuple | list) else (examples,)
    if not isinstance(module, torch.nn.Module):
        raise InvalidCall("a model of PyTorch must be a torch.nn.Module", given=type(module).__qualname__)
    given = Examples.of(module, arguments, keywords, dims)
    if dynamic_batch:
        batches: Dims = {name: {0: "batch", **given.dims.get(name, {})} for name, t in given.tensors.items() if t.ndim}
        given = Examples.of(module, arguments, keywords, batches)
    graph = graph_of(module, given, None, input_names, output_names, task)
    if simplify:
        graph = tx.simplify(graph)
    checked: list[Verification] = []

    def check(written: tx.Graph) -> None:
        checked.append(verified(module, given, written, graph))

    settings = {"opset_version": opset_version, "domains": domains, "verify": check if verify else None, **fields}
    report = tx.export(graph, path, **settings)
    return Exported(report, checked[0] if checked else None)

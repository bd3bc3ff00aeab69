"""``export``: write a module as an ONNX file, verified against the module."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import onnx
from onnx.external_data_helper import uses_external_data

import tenonnx as tx
from tenonnx.extend import InvalidCall
from tenonnx.extend.checks import Allowed, Verification
from tenonnx.extend.formats import Report
from tenonnx.extend.rules import ImportRule, apply_installed_rules, apply_rules
from tenonnx_frontends import Dims
from tenonnx_torch.calls import Shapes, examples_of
from tenonnx_torch.differences import verified
from tenonnx_torch.frontend import graph_of
from tenonnx_torch.lowerings import Form, Forms
from tenonnx_torch.programs import as_module
from tenonnx_torch.tidying import simplified

if TYPE_CHECKING:
    import torch

#: Default options by preset.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "deploy": {"opset_version": 17, "dynamic_batch": True, "simplify": True},
}


@dataclass(frozen=True)
class Exported:
    """Result of an export: ``report`` on the nodes, and ``verification`` against the module, None if disabled."""

    path: Path
    report: Report
    verification: Verification | None

    @property
    def passed(self) -> bool | None:
        """Whether the file's outputs equal the module's; None where nothing was compared."""
        if self.verification is None or (self.verification.equal and not self.verification.outputs):
            return None
        return self.verification.equal

    @property
    def max_difference(self) -> float | None:
        """The largest absolute difference from the module; None where nothing was compared."""
        largest = None if self.verification is None else self.verification.largest
        return None if largest is None else largest.difference.absolute

    @property
    def size_mb(self) -> float:
        """Size on disk in megabytes, including external data."""
        return sum(path.stat().st_size for path in (self.path, *_data_files(self.path))) / 1e6

    def to_dict(self) -> dict[str, Any]:
        checked = None if self.verification is None else self.verification.to_dict()
        report = {"passed": self.passed, "max_difference": self.max_difference, "size_mb": self.size_mb}
        return {**self.report.to_dict(), **report, "verification": checked}

    def __str__(self) -> str:
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.report.opsets.items())
        compared = {None: "not compared", True: "passed", False: "failed"}[self.passed]
        most = "" if self.max_difference is None else f", largest difference {self.max_difference:.3g}"
        left = {} if self.verification is None else self.verification.unverified
        missing = ", ".join(f"{name} ({why})" for name, why in left.items())
        unverified = f", not verified: {missing}" if left else ""
        return f"{self.path}: {opsets}, {self.size_mb:.3g} MB, {compared}{most}{unverified}"


def _data_files(path: Path) -> list[Path]:
    if path.suffix != ".onnx":
        return []
    model = onnx.load(path, load_external_data=False)
    tensors = filter(uses_external_data, model.graph.initializer)
    places = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    return [path.parent / place for place in sorted(places)]


def export(
    module: torch.nn.Module | torch.export.ExportedProgram,
    examples: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    opset_version: int | Mapping[str, int] | None = None,
    domains: Collection[str] | None = None,
    dims: Dims | str | os.PathLike[str] | None = None,
    dynamic_axes: Dims | str | os.PathLike[str] | None = None,
    dynamic_batch: bool | None = None,
    input_shape: Shapes | None = None,
    height: int | None = None,
    width: int | None = None,
    keywords: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    task: str | None = None,
    forms: Mapping[str, Form] | None = None,
    preset: str | None = None,
    rules: Mapping[str, Callable[..., Any]] | Sequence[ImportRule] | ModuleType | None = None,
    simplify: bool | None = None,
    verify: bool | float = True,
    atol: float | None = None,
    rtol: float | None = None,
    **fields: Any,
) -> Exported:
    """Write ``module`` as an ONNX file at ``opset_version``, after verification against the module.

    ``examples`` are the arguments of one call: a tuple or list, or the only argument. With ``input_shape``, or
    ``height`` and ``width`` of an image, they are omitted: ``export(module, "net.onnx", input_shape=(1, 3, 224,
    224))``. ``dynamic_batch`` makes the first axis of all tensors dynamic. Nodes are folded into weights, which keep
    their names, unless the module is in training mode; ``simplify`` False keeps every parameter unchanged, and True
    also merges several weights into one. ``preset="deploy"`` means opset 17, ``dynamic_batch`` and ``simplify``, unless
    these are passed. The other options are those of ``tx.load`` for modules, and ``fields`` those of
    ``tx.ExportConfig``. Raises ``VerificationFailed``, without writing anything, where outputs would differ from the
    module's: at the sizes of the examples, at other sizes of dynamic dims, or with dynamic dims of 1. Raises the errors
    of ``tx.load`` and ``tx.export``, too.
    """
    if path is None and isinstance(examples, str | os.PathLike):
        examples, path = None, examples
    if not isinstance(path, str | os.PathLike):
        raise InvalidCall(
            "the output of export is not a path", given=repr(path)[:80], do='export(module, examples, "x.onnx")'
        )
    arguments = tuple(examples) if isinstance(examples, tuple | list) else () if examples is None else (examples,)
    module = as_module(module, arguments, keywords)
    if preset is not None and preset not in PRESETS:
        raise InvalidCall("unknown preset", given=repr(preset), available=", ".join(PRESETS))
    chosen = PRESETS.get(preset or "", {})
    if opset_version is None and fields.get("target") is None:
        opset_version = chosen.get("opset_version")
    given = examples_of(
        module,
        arguments,
        keywords=keywords,
        dims=dims,
        dynamic_axes=dynamic_axes,
        dynamic_batch=chosen.get("dynamic_batch", False) if dynamic_batch is None else dynamic_batch,
        input_shape=input_shape,
        height=height,
        width=width,
        input_names=input_names,
    )
    allowed = Allowed.of(verify, atol, rtol)
    known = Forms(forms)
    graph, given = graph_of(module, given, None, input_names, output_names, task, known)
    left = simplified(graph, chosen.get("simplify") if simplify is None else simplify)
    if rules:
        left = apply_rules(left, rules, strict=True, frontend="torch")
    left = apply_installed_rules(left, "torch")
    checked: list[Verification] = []
    check: Callable[[tx.Graph], None] | None = None
    if allowed is not None:
        check = lambda written: checked.append(verified(module, given, written, graph, allowed, known))  # noqa: E731
    settings = {"opset_version": opset_version, "domains": domains, "verify": check, **fields}
    report = tx.export(left, path, **settings)
    return Exported(Path(path), report, checked[0] if checked else None)

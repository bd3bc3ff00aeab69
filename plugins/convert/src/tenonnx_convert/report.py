"""Report of a conversion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenonnx.registry.extensions import html_of
from tenonnx.transforms.report import Change
from tenonnx.transforms.target import Target
from tenonnx_convert.verifying.verification import Verification


class ConversionPlan(NamedTuple):
    """Plan of a conversion: the target, the outcome of each node, and all obstacles.

    ``ir_version`` is None if the target supports none that can hold the graph.
    """

    target: Target
    changes: list[Change]
    ir_version: int | None

    @property
    def refused(self) -> list[Change]:
        """Nodes that the target cannot express, with the reasons."""
        return [change for change in self.changes if change.action == "refused"]

    def to_dict(self) -> dict[str, Any]:
        """The target, the IR version and the outcome of each node, as data for JSON."""
        return {
            "target": str(self.target),
            "possible": not self.refused,
            "ir_version": self.ir_version,
            "nodes": [change.to_dict() for change in self.changes],
        }

    def summary(self) -> str:
        """The verdict and all nodes that are not kept, as text."""
        return "\n".join([str(self), *(f"  {c}" for c in self.changes if c.action != "kept")])

    def __str__(self) -> str:
        verdict = f"not possible, {len(self.refused)} obstacles" if self.refused else "possible"
        return f"{self.target}: {verdict}"

    def __repr__(self) -> str:
        return f"ConversionPlan({self})"

    def _repr_html_(self) -> str | None:
        return html_of(self)


@dataclass(slots=True)
class Report:
    """Report of a conversion: the written files, the outcome of each node, and the comparison.

    ``left_out`` counts the metadata that the IR version does not support: ``{"metadata of nodes": 54}``.
    ``verification`` is the comparison with ``compared_with`` before the file was written; if a transform changes
    numbers on purpose, ``from_source`` is the comparison with the original model. ``notes`` are limitations of the
    comparison. ``findings`` are reports of packages' steps by name, such as ``half_precision``.
    """

    opsets: dict[str, int]
    ir_version: int
    changes: list[Change] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    verification: Verification | None = None
    compared_with: str = ""
    from_source: Verification | None = None
    notes: list[str] = field(default_factory=list)
    findings: dict[str, Any] = field(default_factory=dict)

    @property
    def rewritten(self) -> list[Change]:
        """The nodes that were not kept unchanged."""
        return [change for change in self.changes if change.action != "kept"]

    def to_dict(self) -> dict[str, Any]:
        """The report as data for JSON."""
        against = {"compared_with": self.compared_with}
        return {
            "opsets": self.opsets,
            "ir_version": self.ir_version,
            "left_out": self.left_out,
            "nodes": [change.to_dict() for change in self.changes],
            **{name: finding.to_dict() for name, finding in self.findings.items()},
            "verification": None if self.verification is None else self.verification.to_dict() | against,
            **({} if self.from_source is None else {"from_source": self.from_source.to_dict()}),
        }

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __str__(self) -> str:
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.opsets.items())
        kept = len(self.changes) - len(self.rewritten)
        checked = "not verified" if self.verification is None else self.verification.verdict
        return f"opsets {opsets}; {kept} nodes kept, {len(self.rewritten)} rewritten; {checked}"

    def __repr__(self) -> str:
        return f"Report({self})"

    def summary(self) -> str:
        """The verdict, dropped metadata, and every rewritten node, as text."""
        lines = [str(self)]
        lines += [f"  left out, as IR {self.ir_version} does not support it: {what}" for what in self.notes_left_out]
        return "\n".join([*lines, *(f"  {change}" for change in self.rewritten)])

    @property
    def notes_left_out(self) -> list[str]:
        """Dropped metadata with counts, as text."""
        return [f"{about} ({count:,})" for about, count in self.left_out.items()]

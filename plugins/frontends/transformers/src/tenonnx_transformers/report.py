"""Result of an export: files, and differences from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx_transformers.generation import Generated
    from tenonnx_transformers.precisions import Loss
    from tenonnx_transformers.verification import Compared


@dataclass(frozen=True)
class Report:
    """Result of an export to ``folder``: its ``files``, ``compared`` outputs, and ``generated`` tokens.

    ``graphs`` are the names of the ONNX files. Without verification, ``compared``, ``generated`` and ``losses`` are
    empty. ``losses`` are the errors of a lower precision; all other comparisons were made in float32. ``notes`` list
    steps that were skipped.
    """

    folder: Path
    task: str
    layout: str
    graphs: Sequence[str]
    files: Sequence[str]
    compared: Sequence[Compared] = ()
    generated: Sequence[Generated] = ()
    losses: Sequence[Loss] = ()
    notes: Sequence[str] = ()

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum((self.folder / name).stat().st_size for name in self.files)

    @property
    def max_difference(self) -> float | None:
        """Largest absolute difference from the model; None if nothing was compared."""
        return max((each.absolute for each in self.compared), default=None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "output": str(self.folder),
            "task": self.task,
            "layout": self.layout,
            "graphs": list(self.graphs),
            "files": list(self.files),
            "bytes": self.size,
            "max_difference": self.max_difference,
            "compared": [each.to_dict() for each in self.compared],
            "generated": [each.to_dict() for each in self.generated],
            "losses": [each.to_dict() for each in self.losses],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        verdict = "not compared" if not self.compared else f"equal, largest difference {self.max_difference:.2g}"
        lines = [f"{self.folder}: {self.task} for {self.layout}, {self.size / 1e6:.3g} MB, {verdict}"]
        outputs: dict[tuple[str, str], Any] = {}
        for each in self.compared:
            key = each.part, each.output
            if key not in outputs or each.absolute > outputs[key].absolute:
                outputs[key] = each
        lines += [f"  {part} {name}: {each.absolute:.2g} at {each.call}" for (part, name), each in outputs.items()]
        lines += [f"  {each.runtime}: {each}" for each in self.generated]
        lines += [f"  {each}" for each in self.losses]
        lines += [f"  note: {each}" for each in self.notes]
        return "\n".join([*lines, *(f"  {name}" for name in self.files)])

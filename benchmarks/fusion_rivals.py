"""Fusion of the exports with other tools: ``PYTHON fusion_rivals.py FOLDER OUTPUT`` writes and lists their files.

Requires onnxruntime (its transformer optimizer), onnxscript, onnxslim and onnxsim.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

SIZES = {"batch": 2, "length": 5, "past": 3, "total": 8, "answer": 5}
KINDS = {"gpt2": "gpt2", "t5": "t5", "vit": "vit", "whisper": "bart", "diffusion": "unet"}


def shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    return {
        value.name: [dim.dim_value or SIZES[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }


def by_optimizer(path: Path, fixed: bool) -> onnx.ModelProto:
    from onnxruntime.transformers.optimizer import optimize_model

    kind = KINDS.get(path.stem.split("-")[0], "bert")
    return optimize_model(str(path), model_type=kind, num_heads=4, hidden_size=16, opt_level=0).model


def by_onnxscript(path: Path, fixed: bool) -> onnx.ModelProto:
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    found: Any = optimize_for_ort(onnx_ir.load(path))
    return onnx_ir.to_proto(found[0] if isinstance(found, tuple) else found)


def by_onnxslim(path: Path, fixed: bool) -> onnx.ModelProto:
    import onnxslim

    model = onnx.load(path)
    given = [f"{name}:{','.join(map(str, shape))}" for name, shape in shapes(model).items()]
    return onnxslim.slim(model, input_shapes=given) if fixed else onnxslim.slim(model)


def by_onnxsim(path: Path, fixed: bool) -> onnx.ModelProto:
    import onnxsim

    model = onnx.load(path)
    return onnxsim.simplify(model, overwrite_input_shapes=shapes(model) if fixed else None)[0]


FUSING = {"optimizer": by_optimizer, "onnxscript": by_onnxscript}
SIMPLIFYING = {"onnxslim": by_onnxslim, "onnxsim": by_onnxsim}


def main() -> None:
    logging.disable(logging.CRITICAL)
    folder, output = map(Path, sys.argv[1:3])
    for path in sorted(folder.glob("*.onnx")):
        row: dict[str, Any] = {"file": path.stem}
        implementations: list[tuple[str, Callable[[Path, bool], onnx.ModelProto], bool]] = [
            *((name, make, False) for name, make in {**FUSING, **SIMPLIFYING}.items()),
            *((f"{name}-fixed", make, True) for name, make in SIMPLIFYING.items()),
        ]
        for name, make, fixed in implementations:
            start = time.perf_counter()
            try:
                counts = make(path, fixed)
            except Exception as error:
                row[name] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
                continue
            seconds = time.perf_counter() - start
            target = output / f"{path.stem}-{name}.onnx"
            onnx.save(counts, target)
            row[name] = {"path": str(target), "seconds": seconds}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

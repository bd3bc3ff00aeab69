"""Write ``dtypes.json`` of each package: the element types of its ops at each version, from ``onnx.defs``.

A version has three lists: the types of each input, the types of each output, and for each input the number of its type
constraint, or -1 if no other input has it. Inputs with one constraint have the same type.

Run ``python tools/generate_dtypes.py`` after a new ``onnx`` release; ``--check`` only tells whether the files are up to
date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.defs

ROOT = Path(__file__).parent.parent

#: Ops of ai.onnx that the quantized package owns.
QUANTIZED = {
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "QLinearMatMul",
    "QLinearConv",
}

#: For each data file its domain, and whether it has the quantized ops or the others.
FILES = {
    "plugins/standard/src/tenonnx_standard/dtypes.json": ("", False),
    "quantized/src/tenonnx_quantized/dtypes.json": ("", True),
    "onnx_ml/src/tenonnx_onnx_ml/dtypes.json": ("ai.onnx.ml", False),
    "plugins/training/src/tenonnx_training/dtypes.json": ("ai.onnx.preview.training", False),
}

#: Added to the code of an element type for each container around it (see ``tenonnx.op.dtypes``).
CONTAINERS = {"seq": 100, "optional": 200}


def code(text: str) -> int | None:
    """The number of a type such as ``tensor(float)`` or ``seq(tensor(int64))``; None for maps and sparse tensors."""
    outer, _, rest = text.partition("(")
    inner = rest[:-1]
    if outer == "tensor":
        name = {"double": "DOUBLE"}.get(inner, inner.upper())
        return int(onnx.TensorProto.DataType.Value(name))
    if outer in CONTAINERS:
        found = code(inner)
        return None if found is None else found + CONTAINERS[outer]
    return None


def types_of(schema: onnx.defs.OpSchema, parameter: Any) -> tuple[int, ...] | None:
    """The types of an input or output as numbers; None if none of them has a number."""
    codes = sorted({c for text in parameter.types if (c := code(text)) is not None})
    return tuple(codes) or None


def shared(schema: onnx.defs.OpSchema) -> list[int]:
    """The number of each input's type constraint, -1 if no other input has it."""
    names = [p.type_str for p in schema.inputs]
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    numbers = []
    for formal, name in zip(schema.inputs, names, strict=True):
        repeated = names.count(name) > 1 or formal.option == variadic
        is_shared = name in {c.type_param_str for c in schema.type_constraints} and formal.is_homogeneous and repeated
        numbers.append(names.index(name) if is_shared else -1)
    return numbers


def table(domain: str, quantized: bool) -> str:
    """The contents of a file as JSON, with one op per line."""
    sets: dict[tuple[int, ...] | None, int] = {}
    ops: dict[str, dict[str, Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain != domain or (schema.name in QUANTIZED) != quantized:
            continue
        rows = [
            [sets.setdefault(types_of(schema, p), len(sets)) for p in parameters]
            for parameters in (schema.inputs, schema.outputs)
        ]
        rows.append(shared(schema))
        ops.setdefault(schema.name, {})[str(schema.since_version)] = rows
    ordered = {name: dict(sorted(ops[name].items(), key=lambda entry: int(entry[0]))) for name in sorted(ops)}
    lines = [f'    "{name}": {json.dumps(versions)}' for name, versions in ordered.items()]
    codes = [None if s is None else list(s) for s in sets]
    listed = ",\n".join(f"    {json.dumps(c)}" for c in codes)
    return '{\n  "sets": [\n' + listed + '\n  ],\n  "ops": {\n' + ",\n".join(lines) + "\n  }\n}\n"


def main() -> None:
    stale = []
    for name, (domain, quantized) in FILES.items():
        path, text = ROOT / name, table(domain, quantized)
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, "utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"stale: {', '.join(stale)}; run python tools/generate_dtypes.py")


if __name__ == "__main__":
    main()

"""Program that runs ``onnx.checker`` on a model from stdin or a path, and prints its error to stdout.

It loads only the extension module of onnx by its path, as importing the whole package takes twenty times as long.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

#: Attribute types as named in the extension module of onnx.
_KINDS = {
    "int": "INT",
    "float": "FLOAT",
    "str": "STRING",
    "ints": "INTS",
    "floats": "FLOATS",
    "strs": "STRINGS",
    "Graph": "GRAPH",
    "Constant": "TENSOR",
}


def main(extension: str, path: str, inferred: bool, declared: str) -> int:
    """Exit code: 0 if the model passes, 3 if it does not.

    ``declared`` is a JSON list of ops that are accepted although the specification lacks them: domain, name, and
    attribute types by name.
    """
    spec = importlib.util.spec_from_file_location("onnx_cpp2py_export", extension)
    assert spec is not None
    assert spec.loader is not None
    onnx = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(onnx)
    for domain, name, attributes in json.loads(declared):
        _declare(onnx.defs, domain, name, attributes)
    try:
        if path:
            onnx.checker.check_model_path(path, inferred, False, False)
        else:
            onnx.checker.check_model(sys.stdin.buffer.read(), inferred, False, False)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "replace"))
        return 3
    return 0


def _declare(defs: Any, domain: str, name: str, attributes: dict[str, str]) -> None:
    """Register an op with any inputs and outputs with the checker."""
    schema = defs.OpSchema
    kinds = sorted(defs.get_schema("Identity", "").type_constraints[0].allowed_type_strs)
    anything = schema.FormalParameter(
        "any", "T", "", param_option=schema.FormalParameterOption.Variadic, is_homogeneous=False, min_arity=0
    )
    known = [
        schema.Attribute(attribute, getattr(schema.AttrType, _KINDS[kind]), "", required=False)
        for attribute, kind in attributes.items()
    ]
    defs.register_schema(
        schema(
            name,
            domain,
            1,
            inputs=[anything],
            outputs=[anything],
            type_constraints=[("T", kinds, "")],
            attributes=known,
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3] == "inferred", sys.argv[4]))

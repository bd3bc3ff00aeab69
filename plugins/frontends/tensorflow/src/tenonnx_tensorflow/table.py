"""Loading all rules: those of this package, and those of installed packages."""

from __future__ import annotations

from tenonnx.extend.formats import loaded
from tenonnx_tensorflow.rules import (  # noqa: F401 - what they are imported for is their rules
    blocks,
    complexes,
    control,
    diagonals,
    elementwise,
    gradients,
    hashing,
    images,
    indexing,
    linear,
    lists,
    old_control,
    patterns,
    ragged,
    randomness,
    reductions,
    resizing,
    shapes,
    special,
    stateless,
    strings,
    tables,
    unicode,
    variables,
    windows,
)

#: Entry-point group of modules that register rules on import: ``@tenonnx_tensorflow.rule("NAME")``.
GROUP = "tenonnx.tensorflow_ops"


def load_rules_of_packages() -> None:
    """Import the modules of installed packages that register rules."""
    for _ in loaded(GROUP):
        pass

"""The table of rules: those of this package, and those of installed packages that bring some."""

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

#: Plugins of this entry-point group are modules whose import gives rules: ``@tenonnx_tensorflow.rule("NAME")``.
GROUP = "tenonnx.tensorflow_ops"


def load_rules_of_packages() -> None:
    """Import the modules of installed packages that bring rules for ops of their own."""
    for _ in loaded(GROUP):
        pass

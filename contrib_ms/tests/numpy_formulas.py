"""Comparison of drawn calls of an op with a plain numpy formula."""

import numpy as np


def wide(x):
    """Convert floats to float64; other dtypes and None stay."""
    return None if x is None else x.astype(np.float64) if x.dtype.kind not in "biu" else x


def results(case, formula, draw):
    """Draw a call; return it, the results of the op, and those of a formula in float64."""
    drawn = case.function(draw)
    attributes = case.op.signature.complete(case, drawn.attributes)
    counted = {} if drawn.outputs is None else {"_outputs": drawn.outputs}
    result, expected = case.op(*drawn.inputs, **attributes, **counted), formula(*map(wide, drawn.inputs), **attributes)
    return drawn, *(v if isinstance(v, tuple) else (v,) for v in (result, expected))

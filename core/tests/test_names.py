"""The public names: one list, read by type checkers and by the package itself."""

import subprocess
import sys

import pytest

import tenonnx as tx

#: Unloads the packages before each name, so that each is the first one used.
FIRST = """
import sys
for name in sys.argv[1:]:
    for module in [m for m in sys.modules if m.startswith("tenonnx")]:
        del sys.modules[module]
    import tenonnx
    assert getattr(tenonnx, name) is not None, name
"""


def test_each_may_be_the_first_that_is_used():
    assert {"load", "Graph", "verify", "limits", "__version__"} <= set(dir(tx))
    one_of_each_module = {getattr(getattr(tx, name), "__module__", name): name for name in dir(tx)}
    subprocess.run([sys.executable, "-c", FIRST, *one_of_each_module.values()], check=True)


def test_a_registry_is_had_without_numpy_and_onnx():
    code = "import sys, tenonnx; tenonnx.load, tenonnx.default_registry(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {"numpy", "onnx"}.isdisjoint(done.stdout.split())


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(AttributeError, match=r"tenonnx has no 'retarge'; did you mean retarget or Target\?"):
        tx.retarge  # noqa: B018


def test_the_namespace_of_ops_has_the_building_blocks_of_subgraph_gradients():
    from tenonnx import extend
    from tenonnx.extend import transforms

    for name in ("Demand", "between", "dependents", "pullback"):
        assert getattr(extend, name) is getattr(transforms, name)
    assert all(hasattr(extend, name) for name in extend.__all__)
    with pytest.raises(AttributeError, match=r"tenonnx\.extend has no 'nothing'"):
        extend.nothing  # noqa: B018

"""The interface of skl2onnx: ``to_onnx``, ``convert_sklearn`` and the types of inputs."""

from __future__ import annotations

from tenonnx_compat.refusal import refused
from tenonnx_compat.skl2onnx.convert import convert_sklearn, to_onnx
from tenonnx_compat.skl2onnx.proto import get_latest_tested_opset_version

__all__ = [
    "convert_sklearn",
    "get_latest_tested_opset_version",
    "get_model_alias",
    "supported_converters",
    "to_onnx",
    "update_registered_converter",
    "update_registered_parser",
    "wrap_as_onnx_mixin",
]

__version__ = "1.20.0"
__max_supported_opset__ = 22

_RULE = "write a rule: @tenonnx_sklearn.converts, see docs/how-to/sklearn.md"
_SCOPE = "converters work on Scope and Operator of skl2onnx"

update_registered_converter = refused("skl2onnx.update_registered_converter", _SCOPE, _RULE)
update_registered_parser = refused("skl2onnx.update_registered_parser", _SCOPE, _RULE)
get_model_alias = refused("skl2onnx.get_model_alias", _SCOPE, _RULE)
wrap_as_onnx_mixin = refused("skl2onnx.wrap_as_onnx_mixin", "its classes build nodes of skl2onnx", _RULE)


def supported_converters(from_sklearn: bool = False) -> list[str]:
    """Names of the classes that can be converted: with the prefix ``Sklearn``, or as scikit-learn names them."""
    from tenonnx_sklearn.conversion import known

    names = sorted(name.rpartition(".")[2] for name in known() if name.startswith("sklearn."))
    return names if from_sklearn else [f"Sklearn{name}" for name in names]

"""``ONNXModel``: a wrapper of a ``ModelProto``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tenonnx_compat.models import save

if TYPE_CHECKING:
    import onnx


class ONNXModel:
    """A model, with methods of onnxruntime's class of this name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model

    def nodes(self) -> list[onnx.NodeProto]:
        """The nodes of the main graph."""
        return list(self.model.graph.node)

    def initializer(self) -> list[onnx.TensorProto]:
        """The initializers of the main graph."""
        return list(self.model.graph.initializer)

    def graph(self) -> onnx.GraphProto:
        """The main graph."""
        return self.model.graph

    def save_model_to_file(self, output_path: str | os.PathLike[str], use_external_data_format: bool = False) -> None:
        """Write the model, optionally with all weights in one external data file."""
        save(self.model, output_path, **({"threshold": 0} if use_external_data_format else {}))

"""The backend protocol of the onnx package, so that the standard suites of ONNX run as they are.

    import onnx.backend.test, tenonnx.backend
    tests = onnx.backend.test.BackendTest(tenonnx.backend, __name__)

The module itself runs on numpy; ``with_backend("onnxruntime")`` gives the same for another backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep

from tenonnx.backends.base import Program, compile_graph
from tenonnx.errors import InvalidCall
from tenonnx.formats.loaders import load
from tenonnx.graph.graph import Graph

#: What ONNX calls the devices, and the options that choose them where a backend has such.
_DEVICES: Mapping[str, Mapping[str, Any]] = {"CPU": {}, "CUDA": {"providers": ["CUDAExecutionProvider"]}}


class PreparedModel(BackendRep):
    """A compiled model that takes its inputs by position."""

    def __init__(self, graph: Graph, program: Program) -> None:
        self.graph = graph
        self.program = program

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in order.

        ``inputs`` are those of the graph in order, without those that have an initializer unless all are given; or a
        mapping by name; or the only one. Raises ``InvalidFeed`` for inputs that the graph does not take.
        """
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        else:
            given = list(inputs) if isinstance(inputs, Sequence) else [inputs]
            required = self.graph.inputs
            formals = required if len(given) <= len(required) else self.graph.formals
            if len(given) > len(formals):
                raise InvalidCall(
                    f'graph "{self.graph.name}" takes {len(formals)} inputs',
                    given=f"{len(given)} inputs",
                    available=", ".join(f"{v.name}: {v.type}" for v in formals),
                )
            feeds = {value.name: contents for value, contents in zip(formals, given, strict=False)}
        results = self.program(feeds)
        return tuple(results[value.name] for value in self.graph.outputs)


class Backend(OnnxBackend):
    """The protocol for the backend called ``name``; see ``with_backend``."""

    name = "numpy"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether ``prepare`` would succeed."""
        from tenonnx.errors import TenonnxError

        try:
            cls.prepare(model, device, **kwargs)
        except TenonnxError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Compile a model. ``kwargs`` are options of the backend; the tolerances that test runners pass are ignored."""
        if not cls.supports_device(device):
            raise InvalidCall(f'backend "{cls.name}" does not run on device {device}')
        options = {name: value for name, value in kwargs.items() if name not in ("rtol", "atol")}
        graph = load(model)
        return PreparedModel(graph, compile_graph(graph, cls.name, **_DEVICES[device.split(":")[0]], **options))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of a model, once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of one node at ``opset_version``, the newest of the onnx package if that is not given.

        ``inputs`` are arrays by position for the inputs that the node names, or a mapping by name. ``outputs_info``,
        if given, has the dtype and shape of every output.
        """
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version() if not node.domain else 1)
        names = [name for name in node.input if name]
        feeds = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
        graph = Graph("node", opsets={node.domain or "ai.onnx": version})
        del graph
        model = _single_node(node, feeds, outputs_info, version)
        return cls.run_model(model, feeds, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the backend runs on ``CPU``, ``CUDA`` or ``CUDA:1``."""
        return device.split(":")[0] == "CPU"

"""The backend protocol of the onnx package, so that ONNX's own test suites run unchanged.

``onnx.backend.test.BackendTest(tenonnx.backend, __name__)`` tests the numpy backend. Pass
``with_backend("onnxruntime")`` in place of the module to test another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep

from tenonnx import load
from tenonnx.extend import Graph, InvalidCall
from tenonnx.extend.backends import Program, compile_graph
from tenonnx.extend.formats import write_type
from tenonnx.extend.testing import type_of


class PreparedModel(BackendRep):
    """A compiled model that takes its inputs by position."""

    def __init__(self, graph: Graph, program: Program) -> None:
        self.graph = graph
        self.program = program

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model and return its outputs in order.

        ``inputs`` is a mapping by name, a single array, or a sequence. A sequence has the inputs without an
        initializer or, if it is longer, all inputs. Raises ``InvalidCall`` for too many inputs, ``InvalidFeed`` for
        inputs that do not fit the graph.
        """
        results = self.program(inputs if isinstance(inputs, Mapping) else self._feeds(inputs))
        return tuple(results[value.name] for value in self.graph.outputs)

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        given = inputs if isinstance(inputs, Sequence) else [inputs]
        required = self.graph.inputs
        all_inputs = required if len(given) <= len(required) else self.graph.all_inputs
        if len(given) > len(all_inputs):
            raise InvalidCall(
                f'graph "{self.graph.name}" got more than its {len(all_inputs)} inputs',
                given=f"{len(given)} inputs",
                available=", ".join(f"{v.name}: {v.type}" for v in all_inputs),
            )
        return {value.name: contents for value, contents in zip(all_inputs, given, strict=False)}


class Backend(OnnxBackend):
    """The protocol of onnx for the backend named ``backend``."""

    backend = "numpy"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Compile a model; ``kwargs`` are options of the backend. Raises ``InvalidCall`` unless the device is a CPU."""
        if not cls.supports_device(device):
            raise InvalidCall("cannot prepare a model for an absent device", given=device, available="CPU")
        tolerances = ("rtol", "atol")  # onnx's test runner passes its own keywords too
        options = {name: value for name, value in kwargs.items() if name not in tolerances}
        graph = load(model)
        return PreparedModel(graph, compile_graph(graph, cls.backend, **options))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile and run a model, and return its outputs in order."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node and return its outputs in order.

        ``opset_version`` is that of the node's domain, by default the newest that onnx has. ``inputs`` is a mapping by
        name, or a sequence in the order of the node's distinct input names. ``outputs_info`` is ignored, since output
        types are inferred.
        """
        version = kwargs.pop("opset_version", None) or _newest(node.domain)
        names = list(dict.fromkeys(name for name in node.input if name))
        given = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        feeds = {name: np.asarray(c) if isinstance(c, int | float) else c for name, c in given.items()}
        model = onnx.ModelProto(ir_version=onnx.IR_VERSION)
        model.opset_import.add(domain=node.domain, version=version)
        model.graph.name = node.name or node.op_type
        model.graph.node.add().CopyFrom(node)
        for name in names:
            write_type(type_of(feeds[name]), model.graph.input.add(name=name).type)
        for name in node.output:
            if name:
                model.graph.output.add(name=name)
        return cls.run_model(model, feeds, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


def _newest(domain: str) -> int:
    """Newest version of a domain that onnx knows; 1 for unknown domains."""
    versions = [s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain]
    return int(onnx.defs.onnx_opset_version()) if not domain else max(versions, default=1)


def with_backend(name: str) -> type[Backend]:
    """Return the protocol for another backend, such as ``onnxruntime`` or ``auto``."""
    return type(f"{name.capitalize()}Backend", (Backend,), {"backend": name})


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
is_compatible = Backend.is_compatible

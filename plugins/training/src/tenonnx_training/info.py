"""The training step as ``TrainingInfoProto`` in the file of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.extend.formats import to_model
from tenonnx.extend.transforms import retarget
from tenonnx_training.training_step import TrainingStep

if TYPE_CHECKING:
    import onnx

    from tenonnx.extend.formats import PostExportHook

#: First IR version with ``training_info`` in its current form.
_TRAINING_IR = 7


def training_info(step: TrainingStep) -> PostExportHook:
    """A hook for ``export(post_export_hooks=...)`` that adds the step to the model, at the model's opset versions.

    The step is the algorithm. Its state, except for the parameters, are initializers of ``TrainingInfoProto``, and
    ``update_binding`` maps initializers to the outputs that replace them (onnx.proto).
    """

    def add(model: onnx.ModelProto) -> None:
        opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
        graph = retarget(step.graph(), opsets, list(opsets))
        algorithm = to_model(graph).graph
        shared = {value.name for value in step._source.variables}
        initializers = {tensor.name for tensor in algorithm.initializer}
        info = model.training_info.add()
        info.algorithm.CopyFrom(algorithm)
        del info.algorithm.initializer[:], info.algorithm.input[:]
        info.algorithm.initializer.extend(t for t in algorithm.initializer if t.name not in shared)
        info.algorithm.input.extend(i for i in algorithm.input if i.name not in initializers)
        for name, after in step._step_graph.state.items():
            info.update_binding.add(key=name, value=after)
        model.ir_version = max(model.ir_version, _TRAINING_IR)

    return add

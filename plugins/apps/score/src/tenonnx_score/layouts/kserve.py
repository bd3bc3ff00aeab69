"""The KServe layout: a repository with the model's folder, and the service that runs it on Triton."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tenonnx import InvalidCall
from tenonnx_score.layouts import triton

if TYPE_CHECKING:
    from tenonnx import Graph

#: Pattern of Kubernetes names.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def files(folder: Path, graph: Graph) -> tuple[Path, dict[Path, str]]:
    """Path of the model, and texts of other files by path. Raises ``InvalidCall`` for an invalid Kubernetes name."""
    name = folder.name
    if not _NAME.fullmatch(name):
        raise InvalidCall(
            "the folder's name is not valid as the name of a Kubernetes service",
            given=name,
            available="up to 63 small letters, digits and hyphens, with a letter first",
            do="give another folder (-o)",
        )
    model, texts = triton.files(folder / "models" / name, graph)
    return model, {**texts, folder / "inference-service.yaml": service(name)}


def service(name: str) -> str:
    """The text of an ``InferenceService``; JSON strings are also valid YAML."""
    uri = json.dumps(f"pvc://{name}/models")
    return f"""\
# Copy the folder models/ to a volume whose claim is called {name}, or write another place as storageUri.
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {json.dumps(name)}
spec:
  predictor:
    model:
      modelFormat:
        name: onnx
        version: "1"
      runtime: kserve-tritonserver
      protocolVersion: v2
      storageUri: {uri}
"""

"""``export_transformers_model``: export of a transformers model to a folder of simplified ONNX files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenonnx_compat.models import save
from tenonnx_compat.onnxsim.onnx_simplifier import simplify
from tenonnx_compat.refusal import announce, refuse_options

#: Supported keys of ``export_kwargs``, and the options of ``tenonnx_transformers.export``.
_OF_EXPORT = {"opset": "opset_version", "trust_remote_code": "trust", "atol": "atol"}


def export_transformers_model(
    model_id: str,
    output_dir: str | os.PathLike[str],
    task: str = "auto",
    no_post_process: bool = True,
    check_n: int = 0,
    save_as_external_data: bool = True,
    export_kwargs: Mapping[str, Any] | None = None,
    simplify_kwargs: Mapping[str, Any] | None = None,
) -> dict[str, bool]:
    """Export a transformers model, a folder or a name in the local cache, to a folder of simplified ONNX files.

    Returns for each file whether outputs agreed on ``check_n`` inputs. ``export_kwargs`` may have opset,
    trust_remote_code and atol; ``simplify_kwargs`` has arguments of ``simplify``. Raises ``NotSupported`` for other
    ones, and for decoders merged into one file.
    """
    import transformers

    import tenonnx_transformers

    call = "onnxsim.export_transformers_model"
    announce(call, "tenonnx_transformers.export(model, folder)")
    options = dict(export_kwargs or {})
    refuse_options(call, {name: str(value) for name, value in options.items() if name not in _OF_EXPORT})
    refuse_options(call, {"no_post_process": None if no_post_process else "False"}, "decoders are files of their own")
    source: Any = model_id
    if not Path(model_id).is_dir():
        trust = bool(options.get("trust_remote_code"))
        config = transformers.AutoConfig.from_pretrained(model_id, trust_remote_code=trust)
        source = getattr(transformers, config.architectures[0]).from_pretrained(model_id)
    report = tenonnx_transformers.export(
        source,
        output_dir,
        task=None if task == "auto" else task.removesuffix("-with-past"),
        **{_OF_EXPORT[name]: value for name, value in options.items()},
    )
    agreed = {}
    for name in report.files:
        if name.endswith(".onnx"):
            path = Path(output_dir) / Path(name).name
            model, agreed[path.name] = simplify(path, check_n, **(simplify_kwargs or {}))
            save(model, path, **({"threshold": 0} if save_as_external_data else {}))
    return agreed

"""Layout of transformers.js: the configs that name the variants of a model and their data files.

The loader is ``getSession`` of transformers.js 3: https://github.com/huggingface/transformers.js, src/models.js.
"""

from __future__ import annotations

from pathlib import Path

from tenonnx_transformers.data_files import locations
from tenonnx_transformers.precisions import SUFFIXES
from tenonnx_transformers.sources import CONFIG, json_object, write_json

#: Suffix of the name of a data file, after the name of the graph.
DATA_SUFFIX = "_data"

#: File that lists the variants.
QUANTIZATION = "quantize_config.json"


def write_variants(folder: Path) -> list[str]:
    """Write the entry ``transformers.js_config`` of the config, and ``quantize_config.json`` if graphs are quantized.

    These describe all graphs in a folder, also those of earlier exports: the number of data files of each, and the
    dtype if there is only one. Return the names of the files.
    """
    graphs = sorted((folder / "onnx").glob("*.onnx"))
    counts = {path.name: count for path in graphs if (count := len(locations(path)))}
    dtypes = sorted({_dtype_of(path.stem) for path in graphs})
    config = json_object(folder / CONFIG)
    loading = {**config.get("transformers.js_config", {})}
    loading |= {"use_external_data_format": counts} if counts else {}
    loading |= {"dtype": dtypes[0]} if len(dtypes) == 1 else {}
    write_json(folder / CONFIG, {**config, "transformers.js_config": loading})
    modes = [dtype for dtype in dtypes if dtype != "fp32"]
    if not modes:
        return [CONFIG]
    write_json(folder / QUANTIZATION, _quantization(modes))
    return [CONFIG, QUANTIZATION]


def _dtype_of(stem: str) -> str:
    """The dtype of a graph by the end of its name."""
    return next((dtype for dtype, suffix in SUFFIXES.items() if suffix and stem.endswith(suffix)), "fp32")


def _quantization(modes: list[str]) -> dict[str, object]:
    """Arguments of the quantizer of transformers.js that describe the graphs. Block sizes are its defaults."""
    return {
        "modes": modes,
        "per_channel": None,
        "reduce_range": None,
        "block_size": None,
        "is_symmetric": False,
        "accuracy_level": None,
        "quant_type": 1,
        "op_block_list": None,
    }

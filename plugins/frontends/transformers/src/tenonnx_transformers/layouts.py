"""Folder layouts: the files that a runtime expects in addition to the graphs, and their locations."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenonnx.extend import NotRepresentable
from tenonnx_transformers import genai, transformers_js
from tenonnx_transformers.data_files import SUFFIX
from tenonnx_transformers.precisions import TRANSFORMERS_JS
from tenonnx_transformers.sources import CONFIG, Source, write_json
from tenonnx_transformers.states import State

#: Files of a tokenizer or processor, copied if present.
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "source.spm",
    "target.spm",
    "target_vocab.json",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "image_processor_config.json",
    "feature_extractor_config.json",
    "normalizer.json",
)


@dataclass(frozen=True)
class Layout:
    """Folder layout of a runtime. ``subfolder`` contains the graphs.

    ``fuses`` allows operators that only onnxruntime has. ``check`` raises ``NotRepresentable`` for decoder states that
    the runtime does not support. ``write`` writes further files of the runtime. Weights of more than ``embedded`` bytes
    go to a file of their own, which onnxruntime maps instead of copying it; ``data_suffix`` follows the name of the
    graph there. ``finish`` writes the files that describe all graphs of the output folder, and returns their names.
    """

    name: str
    subfolder: str = ""
    fuses: bool = False
    check: Callable[[str, Sequence[State]], None] = lambda model_type, states: None
    write: Callable[[Source, Path, Mapping[str, Sequence[str]], Sequence[State]], None] = lambda *_: None
    embedded: int = 250_000_000
    data_suffix: str = SUFFIX
    finish: Callable[[Path], Sequence[str]] = lambda folder: ()


def write_configs(source: Source, folder: Path) -> None:
    """Write the model and generation configs, and copy the files of the tokenizer."""
    write_json(folder / CONFIG, {**source.config.to_dict(), "architectures": [type(source.model).__name__]})
    chosen = getattr(source.model, "generation_config", None)
    if chosen is not None:
        write_json(folder / "generation_config.json", chosen.to_diff_dict())
    if source.folder is not None:
        for name in FILES:
            if (source.folder / name).is_file():
                shutil.copyfile(source.folder / name, folder / name)


def _write_genai(source: Source, folder: Path, graphs: Mapping[str, Sequence[str]], states: Sequence[State]) -> None:
    ((name, inputs),) = graphs.items()
    write_json(folder / "genai_config.json", genai.genai_config(source.model, inputs, states, name))


def _check_transformers_js(model_type: str, states: Sequence[State]) -> None:
    """Raise ``NotRepresentable`` for encoder-decoder models, since transformers.js needs merged decoder graphs."""
    crossed = next((state for state in states if state.kind.startswith("encoder.")), None)
    if crossed is not None:
        raise NotRepresentable(
            "transformers.js takes a decoder with an encoder only as one merged graph, which is not written yet",
            given=f'layer {crossed.layer} of "{model_type}": {crossed.kind}',
            do="use --layout onnxruntime",
        )


#: Layouts by name.
LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout("onnxruntime"),
        Layout("genai", fuses=True, check=genai.check_states, write=_write_genai),
        Layout(
            TRANSFORMERS_JS,
            subfolder="onnx",
            check=_check_transformers_js,
            embedded=1_500_000_000,
            data_suffix=transformers_js.DATA_SUFFIX,
            finish=transformers_js.write_variants,
        ),
    )
}

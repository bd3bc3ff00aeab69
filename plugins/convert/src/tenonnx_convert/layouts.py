"""``--layout``: a conversion step that writes the folder structure of a server or runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tenonnx.errors import InvalidCall
from tenonnx.formats.files import write_bytes
from tenonnx.registry.discovery import Plugin, cure, plugins
from tenonnx.registry.hints import provider
from tenonnx.transforms.decorators import step_after
from tenonnx_convert.options import ConvertConfig, option

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph
    from tenonnx_convert.conversion import ConversionState, StepResult

#: Entry-point group of folder layouts, named as for ``--layout``. ``files(folder, graph)`` returns the path of the
#: model and the additional text files by path. A layout of several graphs has ``export(source, folder, **options)``
#: instead: it reads the source itself, and returns a report with ``to_dict``.
LAYOUTS = "tenonnx.layouts"


@step_after("verify")
@dataclass(frozen=True)
class Layout:
    """Write the folder structure of a server or runtime.

    Raises ``InvalidCall`` for an unknown layout or an output that is not a folder, and ``NotRepresentable`` for inputs
    and outputs that it cannot describe; then nothing is written.
    """

    writes_folder: ClassVar[bool] = True

    layout: str | None = option(
        None,
        "Write the folder that a server or runtime takes; the output is then a folder. tenonnx-score has triton and "
        "kserve; tenonnx-transformers has genai, transformers.js and onnxruntime, where MODEL is a folder of "
        "transformers.",
        "--layout",
        kind="text",
        metavar="NAME",
    )

    precision: str | None = option(
        None,
        "With --layout for a folder of transformers: fp32, fp16, bf16, or the precision of weights: int8, int4, bnb4.",
        "--precision",
        kind="text",
        metavar="TYPE",
    )

    max_shard: int | None = option(
        None,
        "With --layout for a folder of transformers: the maximum size of a file of weights.",
        "--max-shard",
        kind="version",
        metavar="BYTES",
    )

    adapters: Collection[str] = option(
        (),
        "With --layout for a folder of transformers: a folder of LoRA adapters of PEFT, which becomes an adapter file. "
        "Repeatable.",
        "--adapter",
        kind="texts",
        metavar="FOLDER",
    )

    cache: str | None = option(
        None,
        "With --layout for a folder of transformers: static=2048 for graphs with a cache of that length, which are for "
        "prompts and for single tokens; static=2048,prefill=128 for prompts of that length, too.",
        "--cache",
        kind="text",
        metavar="static=N",
    )

    def __call__(self, graph: Graph, state: ConversionState) -> StepResult:
        from tenonnx_convert.conversion import StepResult

        given = {
            "--precision": self.precision,
            "--max-shard": self.max_shard,
            "--adapter": self.adapters,
            "--cache": self.cache,
        }
        wrong = next((flag for flag, value in given.items() if value), None)
        if self.layout is None or wrong:
            raise InvalidCall(
                f"the option {wrong} is for a folder of transformers that becomes that of a layout",
                do="use --float16, or tenonnx quantize" if wrong == "--precision" else f"leave out {wrong}",
            )
        path, plugin = state.path, layout_named(self.layout)
        if not isinstance(path, str | os.PathLike) or Path(path).is_file() or Path(path).suffix:
            raise InvalidCall(
                "the output of a layout is not a folder", given=str(path), do="give a folder: -o repository/net"
            )
        files = getattr(plugin.load(), "files", None)
        if files is None:
            raise InvalidCall(
                f"the layout {self.layout} is for a model that becomes several graphs, and was given one graph",
                do="convert the folder of the model by tenonnx convert, or call export of its package",
            )
        model, texts = files(Path(path).absolute(), graph)
        model.parent.mkdir(parents=True, exist_ok=True)
        for place, text in texts.items():
            write_bytes(place, [text.encode("utf-8")])
        return StepResult(graph, path=model)


def layout_named(name: str) -> Plugin:
    """The layout of that name. Raises ``InvalidCall`` if no installed package has it."""
    found = {plugin.name: plugin for plugin in plugins(LAYOUTS)}
    if name not in found:
        package = provider(LAYOUTS, name)
        raise InvalidCall(
            f"unknown layout: {name}",
            available=", ".join(found) or "none; tenonnx-score and tenonnx-transformers have some",
            do=cure([package]) if package else "",
        )
    return found[name]


def folder_export(config: ConvertConfig) -> Callable[..., Any] | None:
    """The ``export`` function of the requested layout, if the layout reads the source itself."""
    name = config.step_options.get("layout")
    return None if name is None else getattr(layout_named(name).load(), "export", None)

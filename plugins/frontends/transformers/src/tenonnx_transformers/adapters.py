"""LoRA adapters: inputs of a decoder for low-rank updates, and ``.onnx_adapter`` files of PEFT folders."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from tenonnx.extend import InvalidCall, InvalidModel, NotRepresentable
from tenonnx.extend.formats import read_tensors
from tenonnx_standard.regular_expressions import compiled
from tenonnx_transformers.mapped_weights import FLOATS
from tenonnx_transformers.parts import Part
from tenonnx_transformers.sources import json_object

#: Suffix of onnxruntime's adapter files, name of the dynamic dim of a rank, and ends of the names of inputs.
SUFFIX, RANK = ".onnx_adapter", "lora_rank"
_SIDES = (".lora_A", ".lora_B")

#: Prefix of names in PEFT's files, and fields of its config that change more than LoRA does, with their usual values.
_PREFIX = "base_model.model."
_PLAIN: Mapping[str, Any] = {
    "bias": "none",
    "use_dora": False,
    "modules_to_save": None,
    "trainable_token_indices": None,
}

#: Rank of the examples.
_RANK = 3


@dataclass(frozen=True)
class Adapter:
    """Low-rank updates by module name: pairs of shapes (inputs, rank) and (rank, outputs), scaled."""

    name: str
    updates: Mapping[str, tuple[Tensor, Tensor]]

    def file_in(self, folder: Path) -> Path:
        """Path of the adapter's file in a folder."""
        return folder / f"{self.name}{SUFFIX}"

    def tensors(self, part: Part) -> dict[str, Tensor]:
        """Tensors for the inputs of a part, of one rank: smaller ones are filled with zeros, like missing modules."""
        most = max(a.shape[1] for a, _ in self.updates.values())
        result = {}
        for name in inputs_of(part):
            module, _, side = name.rpartition(".")
            axis = 1 if side == "lora_A" else 0
            shape = list(part.examples[name].shape)
            shape[axis] = most
            result[name] = torch.zeros(shape)
            if module in self.updates:
                update = self.updates[module][1 - axis]
                result[name].narrow(axis, 0, update.shape[axis]).copy_(update)
        return result


def read_adapters(folders: Sequence[Path], model: nn.Module) -> list[Adapter]:
    """Read folders of PEFT. Raises ``InvalidCall`` for folders of one name, and the errors of ``read_adapter``."""
    names = [folder.resolve().name for folder in folders]
    if len({*names}) < len(names):
        raise InvalidCall("adapter folders share a name, which is that of their files", given=", ".join(names))
    return [read_adapter(folder.resolve(), model) for folder in folders]


def read_adapter(folder: Path, model: nn.Module) -> Adapter:
    """Read a folder of PEFT. Raises ``InvalidModel`` for broken files, and ``NotRepresentable`` for other methods."""
    config = json_object(folder / "adapter_config.json")
    changed = [f"{name}={config[name]}" for name, usual in _PLAIN.items() if config.get(name, usual) not in (usual, [])]
    if config.get("peft_type") != "LORA" or changed:
        raise NotRepresentable(
            f'the adapter "{folder}" is not only LoRA of linear layers',
            given=", ".join([f"peft_type={config.get('peft_type')}", *changed]),
            do="merge the adapter into the base model: merge_and_unload of peft",
        )
    tensors = {
        name: torch.from_numpy(np.frombuffer(entry.region.view(), FLOATS[entry.dtype]).astype(np.float32)).reshape(
            entry.shape
        )
        for name, entry in read_tensors(folder / "adapter_model.safetensors")[0].items()
        if entry.dtype in FLOATS
    }
    modules = dict(model.named_modules())
    updates = {}
    for key in [key for key in tensors if key.endswith(".lora_A.weight")]:
        name = key.removeprefix(_PREFIX).removesuffix(".lora_A.weight")
        other = tensors.pop(key.replace("lora_A", "lora_B"), None)
        module, first = modules.get(name), tensors[key]
        sizes = None if module is None else _sizes(module)
        if (
            other is None
            or sizes is None
            or (first.shape[1], other.shape[0]) != sizes
            or first.shape[0] != other.shape[1]
        ):
            raise InvalidModel(f'the adapter "{folder}" does not fit {type(model).__name__}', given=key)
        updates[name] = first.T, other.T * _scale(config, name, first.shape[0])
    left = [key for key in tensors if not key.endswith(".lora_A.weight")]
    if left or not updates:
        raise NotRepresentable(
            f'the adapter "{folder}" has tensors other than LoRA of linear layers', given=str(left[:3])
        )
    return Adapter(folder.name, updates)


def _sizes(module: nn.Module) -> tuple[int, int] | None:
    """Numbers of inputs and outputs of a linear layer; None for another module."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    weight = getattr(module, "weight", None)
    if type(module).__name__ == "Conv1D" and isinstance(weight, Tensor):
        return int(weight.shape[0]), int(weight.shape[1])
    return None


def _scale(config: Mapping[str, Any], name: str, rank: int) -> float:
    """Factor of an update: alpha over the rank, or over its root for rank-stabilized LoRA."""
    patterns: Mapping[str, Any] = config.get("alpha_pattern") or {}
    own = (a for pattern, a in patterns.items() if compiled("alpha_pattern", rf"(.*\.)?({pattern})").matches(name))
    alpha = float(next(own, config.get("lora_alpha", 8)))
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def inputs_of(part: Part) -> list[str]:
    """Names of a part's inputs for adapters."""
    return [name for name in part.examples if name.endswith(_SIDES)]


def with_adapters(part: Part, adapters: Sequence[Adapter]) -> Part:
    """Add inputs for the low-rank updates of all modules that some adapter changes."""
    sizes: dict[str, tuple[int, int]] = {}
    for adapter in adapters:
        sizes |= {name: (a.shape[0], b.shape[1]) for name, (a, b) in adapter.updates.items()}
    examples, dims = dict(part.examples), dict(part.dims)
    generator = torch.Generator().manual_seed(0)
    for name, (rows, columns) in sizes.items():
        examples[f"{name}.lora_A"] = torch.randn(rows, _RANK, generator=generator)
        examples[f"{name}.lora_B"] = torch.randn(_RANK, columns, generator=generator)
        dims |= {f"{name}.lora_A": {1: RANK}, f"{name}.lora_B": {0: RANK}}

    def call(given: Mapping[str, Tensor]) -> Sequence[Tensor]:
        with contextlib.ExitStack() as stack:
            for name in sizes:
                pair = given[f"{name}.lora_A"], given[f"{name}.lora_B"]
                stack.enter_context(part.model.get_submodule(name).register_forward_hook(_adding(*pair)))
            return part.call({key: tensor for key, tensor in given.items() if key in part.examples})

    return replace(part, call=call, examples=examples, dims=dims)


def _adding(a: Tensor, b: Tensor) -> Callable[..., Tensor]:
    return lambda module, given, output: output + (given[0] @ a) @ b


def set_defaults(path: Path) -> None:
    """Give the adapters' inputs of a file defaults of rank 0, so that it also runs without an adapter."""
    model = onnx.load(path, load_external_data=False)
    for value in model.graph.input:
        if value.name.endswith(_SIDES):
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]  # 0 for a rank
            model.graph.initializer.append(onnx.TensorProto(name=value.name, data_type=1, dims=shape, raw_data=b""))
    onnx.save(model, path)


def write_adapter(adapter: Adapter, part: Part, folder: Path) -> None:
    """Write an adapter as a file of onnxruntime to a folder."""
    form = onnxruntime.AdapterFormat()
    form.set_adapter_version(1)
    form.set_model_version(1)
    values = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in adapter.tensors(part).items()}
    form.set_parameters({name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in values.items()})
    form.export_adapter(str(adapter.file_in(folder)))


@contextlib.contextmanager
def active(adapter: Adapter, folder: Path) -> Iterator[Any]:
    """Yield options of onnxruntime with which a session runs with an adapter of a folder, while it is loaded."""
    loaded, options = onnxruntime.LoraAdapter(), onnxruntime.RunOptions()
    loaded.Load(str(adapter.file_in(folder)))
    options.add_active_adapter(loaded)
    yield options


@contextlib.contextmanager
def merged(model: nn.Module, adapter: Adapter) -> Iterator[None]:
    """Merge an adapter into the weights of a model, and restore them at the end."""
    before = {}
    try:
        for name, (a, b) in adapter.updates.items():
            module: Any = model.get_submodule(name)
            before[module] = module.weight.data
            update = a @ b
            module.weight.data = module.weight.data + (update.T if isinstance(module, nn.Linear) else update)
        yield
    finally:
        for module, weight in before.items():
            module.weight.data = weight

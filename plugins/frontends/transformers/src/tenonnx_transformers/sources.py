"""Loading of models to export: modules in memory, and folders written by ``save_pretrained``."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig

from tenonnx import TenonnxError
from tenonnx.extend import InvalidCall, InvalidModel, NotRepresentable, UnsafePath
from tenonnx_torch import lines
from tenonnx_transformers.mapped_weights import convert_weights, needs_conversion
from tenonnx_transformers.tasks import Task, class_for, task_named, task_of

#: Config file of a transformers folder.
CONFIG = "config.json"


@dataclass(frozen=True)
class Source:
    """A model with its task. ``folder`` has its tokenizer and other files; it is None for a module in memory."""

    model: torch.nn.Module
    task: Task
    folder: Path | None

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def name(self) -> str:
        return str(self.folder or type(self.model).__name__)


def source_of(
    model: torch.nn.Module | str | os.PathLike[str],
    task: str | None = None,
    trust: bool = False,
    scratch: Path | None = None,
) -> Source:
    """Load a module or folder. Nothing is downloaded, and without ``trust`` no code of the folder runs.

    Weights become float32, and stay in files that are mapped: large ones of another type are converted in files of
    the empty folder ``scratch``, if it is given. Raises ``InvalidCall`` for another type of model, for an unknown task,
    and for folders that need ``trust``, with code of their own or pickled weights. Raises ``InvalidModel`` if the files
    of a folder do not match, and ``NotRepresentable`` for quantized weights.
    """
    if isinstance(model, torch.nn.Module):
        if not isinstance(getattr(model, "config", None), transformers.PreTrainedConfig):
            raise InvalidCall(
                "the module is not a model of the transformers library",
                given=type(model).__name__,
                do="export it by tenonnx_torch.export",
            )
        chosen = task_of(type(model).__name__) if task is None else task_named(task)
        return Source(model.eval(), chosen, None)
    if not isinstance(model, str | os.PathLike):
        raise InvalidCall("the model is neither a module nor the path of a folder", given=repr(model)[:80])
    folder = Path(model)
    config = _config(folder, trust)
    names = getattr(config, "architectures", None) or []
    chosen = task_named(task) if task is not None else _task_of_folder(folder, names)
    class_name = names[0] if names and _fits(names[0], chosen) else class_for(chosen, config.model_type)
    weights = folder
    if scratch is not None and needs_conversion(folder):
        _check_shards(folder)
        convert_weights(folder, scratch)
        weights = scratch
    return Source(_weights(weights, config, class_name, trust), chosen, folder)


def _task_of_folder(folder: Path, names: list[str]) -> Task:
    if not names:
        raise InvalidCall(
            f'"{folder / CONFIG}" lists no model class (architectures)',
            do="give the task: task=, or --task of a command",
        )
    return task_of(names[0])


def _fits(class_name: str, task: Task) -> bool:
    return any(name == class_name for _, name in task.classes())


def _config(folder: Path, trust: bool) -> Any:
    if not folder.is_dir():
        raise InvalidCall("the model is not a folder", given=str(folder), do=f"give a folder that has a {CONFIG}")
    path = folder / CONFIG
    if not path.is_file():
        adapter = (folder / "adapter_config.json").is_file()
        raise InvalidCall(
            f'"{folder}" has no {CONFIG}',
            given="adapters without their base model" if adapter else "no folder of transformers",
            do="export the base model with --adapter" if adapter else "give the folder of save_pretrained",
        )
    read = json_object(path)
    if read.get("auto_map") and not trust and not _is_known(read):
        raise InvalidCall(
            f'"{folder}" was not loaded: it contains Python code of its own',
            given=", ".join(map(str, read["auto_map"].values() if isinstance(read["auto_map"], dict) else ())),
            do="read that code, then pass --trust of a command, or trust=True",
        )
    if read.get("quantization_config"):
        raise NotRepresentable(
            "the weights of the folder are quantized",
            given=str(read["quantization_config"])[:200],
            do="export the original weights, then quantize the file: tenonnx quantize",
        )
    try:
        with quiet():
            config = AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=trust and not _is_known(read)
            )
            config._attn_implementation = None  # else transformers would download a kernel named in the file
            return config
    except Exception as error:  # fields of the file may cause any error
        raise InvalidModel(f'transformers cannot read "{path}"', given=_first_line(error)) from error


def json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file with an object. Raises ``InvalidModel`` if it cannot be read or is not an object."""
    try:
        read = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidModel(f'cannot read "{path}"', given=str(error)[:200]) from error
    if not isinstance(read, dict):
        raise InvalidModel(f'"{path}" is not a JSON object', given=type(read).__name__)
    return read


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(contents, indent=2, sort_keys=True, default=str) + "\n", "utf-8")


def _check_shards(folder: Path) -> None:
    """Raise ``UnsafePath`` if an index of sharded weights refers to a file outside of the folder."""
    for path in folder.glob("*.index.json"):
        listed = json_object(path).get("weight_map")
        names = listed.values() if isinstance(listed, dict) else [listed]
        wrong = [name for name in names if not isinstance(name, str) or Path(name).name != name]
        if wrong:
            raise UnsafePath(f'"{path}" lists weights outside of the folder', given=repr(wrong[0])[:200])


def _is_known(read: Mapping[str, Any]) -> bool:
    """Whether transformers itself has the model class of a config."""
    names = read.get("architectures")
    first = names[0] if isinstance(names, list) and names else ""
    return isinstance(first, str) and hasattr(transformers, first) and first.isidentifier()


def _weights(folder: Path, config: Any, class_name: str, trust: bool) -> torch.nn.Module:
    """Load the model of a folder, in evaluation mode. Raises ``InvalidModel`` if weights are missing or mismatched."""
    if not any(folder.glob("*.safetensors")) and not trust:
        pickled = sorted(each.name for each in (*folder.glob("*.bin"), *folder.glob("*.pt")))
        raise InvalidCall(
            f'"{folder}" has no weights in safetensors files',
            given=", ".join(pickled) or "no weights",
            do="a pickle runs code when it is read: pass --trust of a command, or trust=True, if you trust it"
            if pickled
            else "give the folder of save_pretrained",
        )
    _check_shards(folder)
    kind = getattr(transformers, class_name, None)
    options: dict[str, Any] = {"config": config, "local_files_only": True, "dtype": torch.float32}
    if kind is None:  # a class of the folder's own code
        kind, options = transformers.AutoModelForCausalLM, {**options, "trust_remote_code": trust}
    if not trust:
        options["use_safetensors"] = True
    try:
        with quiet():
            model, info = kind.from_pretrained(folder, output_loading_info=True, **options)
    except Exception as error:
        raise InvalidModel(f'transformers cannot read the weights of "{folder}"', given=_first_line(error)) from error
    missing = sorted(info.get("missing_keys", ()))
    wrong = sorted(map(str, info.get("mismatched_keys", ())))
    if missing or wrong:
        raise InvalidModel(
            f'the weights of "{folder}" are not those of {class_name}',
            given=", ".join([*missing, *wrong][:5]),
            do="give the task that the weights are for: task=, or --task of a command",
        )
    result: torch.nn.Module = model.eval()
    return result


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


@contextlib.contextmanager
def failures_of(model: torch.nn.Module) -> Iterator[None]:
    """Report errors that a model raises by itself as ``InvalidCall`` with its innermost layer and lines."""
    try:
        yield
    except TenonnxError:
        raise
    except Exception as error:
        layers = [
            type(module).__name__
            for frame, _ in traceback.walk_tb(error.__traceback__)
            if isinstance(module := frame.f_locals.get("self"), torch.nn.Module)
        ]
        if not layers:
            raise
        raise InvalidCall(
            f"{type(model).__name__} failed on example inputs of its task",
            given=f"{layers[-1]}: {_first_line(error)}",
            do="check the sizes in its config",
            also=lines.of_error(error)[-3:],
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress logs and warnings of transformers, since the errors raised here report the cause."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)
        if bars:
            transformers.utils.logging.enable_progress_bar()

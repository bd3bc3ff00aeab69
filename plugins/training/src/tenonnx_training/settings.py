"""Serialization of training settings, for resumed runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from tenonnx.extend import InvalidCall
from tenonnx.extend.formats import TrainingState
from tenonnx_training.losses import LOSSES
from tenonnx_training.optimizers import OPTIMIZERS, Adam, Optimizer
from tenonnx_training.recipe import Group, Recipe
from tenonnx_training.schedules import SCHEDULES

#: Defaults of settings that are neither passed nor in the state.
DEFAULTS: dict[str, Any] = {
    **{field.name: field.default for field in fields(Recipe)},
    "optimizer": Adam(),
    "seed": 0,
    "batch_size": 32,
    "shuffle": True,
}

#: Classes whose objects a file can store, as name and fields.
KINDS: dict[str, Any] = {
    **OPTIMIZERS,
    **{kind.__name__: kind for kind in (*SCHEDULES, Group)},
    **{kind.__name__: kind for kind in LOSSES.values() if isinstance(kind, type)},
}

#: Allowed types of settings in a state.
TYPES: dict[str, Any] = {
    "optimizer": Mapping,
    "loss": str | Mapping,
    "loss_weights": Mapping,
    "output": str,
    "temperature": int | float,
    "teacher_weight": int | float,
    "trainable": str | list,
    "clip_norm": int | float,
    "clip_value": int | float,
    "groups": list,
    "accumulate": int,
    "average": int | float,
    "precision": str,
    "loss_scale": int | float,
    "frozen_statistics": bool,
    "unbiased_statistics": bool,
    "recompute": list,
    "seed": int,
    "batch_size": int,
    "shuffle": bool,
}


#: Key of settings by output.
_BY_OUTPUT = "outputs"


def resolved_settings(state: TrainingState | None, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Resolve settings: those in ``given`` unless None, else those of ``state``, else defaults; with notes on changes.

    Raises ``InvalidCall`` for a missing setting that files cannot store.
    """
    stored = {} if state is None else state.settings
    result, notes = {}, []
    for name, value in given.items():
        before = stored.get(name)
        same = name == "optimizer" and isinstance(before, Mapping) and value == before.get("name")
        if value is None or same:
            result[name] = DEFAULTS.get(name) if before is None else revived(before, name)
            continue
        result[name] = value
        if name in stored and described(value) != before:
            notes += _changes(name, before, described(value))
    return result, notes


def described(setting: Any) -> Any:
    """JSON form of a setting; a user-defined function becomes its name."""
    if isinstance(setting, Mapping):
        return {_BY_OUTPUT: {name: described(each) for name, each in setting.items()}}
    if hasattr(setting, "settings") and not isinstance(setting, type):
        return {"name": setting.name, **setting.settings()}
    name = type(setting).__name__
    if KINDS.get(name) is type(setting):
        return {"name": name, **{field.name: described(getattr(setting, field.name)) for field in fields(setting)}}
    if callable(setting):
        return {"name": getattr(setting, "__name__", name)}
    if isinstance(setting, list | tuple):
        return [described(item) for item in setting]
    return setting.tolist() if isinstance(setting, np.ndarray | np.generic) else setting


def lost(text: Any) -> str:
    """Name of the user-defined function in a result of ``described``, which cannot be restored; empty without one."""
    if not isinstance(text, Mapping):
        return ""
    if isinstance(inner := text.get(_BY_OUTPUT), Mapping):
        return next(filter(None, map(lost, inner.values())), "")
    name = str(text.get("name") or text.get("schedule"))
    if name not in KINDS:
        return name
    if text.get("learning_rate", 0) is None:
        return "the learning rate"
    return next(filter(None, map(lost, text.values())), "")


def revived(text: Any, what: str) -> Any:
    """Restore the setting ``what`` from its form by ``described``."""
    if what == "groups" and isinstance(text, list) and all(isinstance(item, Mapping) for item in text):
        return [revived(item, "group") for item in text]
    words = not isinstance(text, list) or all(isinstance(item, str | int | float) for item in text)
    if not words or not isinstance(text, TYPES.get(what, object)):
        raise _invalid_setting(what, text)
    if not isinstance(text, Mapping):
        return text
    if isinstance(by_output := text.get(_BY_OUTPUT), Mapping):
        return {name: revived(each, "weight" if what == "loss_weights" else what) for name, each in by_output.items()}
    if own := lost(text):
        raise InvalidCall(
            f"cannot resume with the {what} of the file: files do not store custom functions",
            given=own,
            do=f"--{what} / {what}=",
        )
    inner = {name: revived(value, name) for name, value in text.items() if name not in ("name", "schedule")}
    try:
        return KINDS[text.get("name") or text["schedule"]](**inner)
    except TypeError as error:
        raise _invalid_setting(what, text) from error


def _invalid_setting(what: str, text: Any) -> InvalidCall:
    return InvalidCall(f'"{what}" of the training state is invalid', given=repr(text)[:200], do=f"{what}=...")


def named_optimizer(name: str | None, state: TrainingState | None, changes: Mapping[str, Any]) -> Optimizer:
    """The optimizer of that name, with the settings of ``state`` or defaults, updated by ``changes``."""
    before = None if state is None else state.settings.get("optimizer")
    if isinstance(before, Mapping) and name in (None, before.get("name")):
        result: Optimizer = revived({**before, **changes}, "optimizer")
        return result
    if name is not None and name not in OPTIMIZERS:
        raise InvalidCall(f'no optimizer is called "{name}"', available=", ".join(OPTIMIZERS))
    optimizer: Optimizer = OPTIMIZERS[name or "adam"](**changes)
    return optimizer


def _changes(name: str, before: Any, now: Any) -> list[str]:
    """Notes on a changed setting."""
    if isinstance(before, Mapping) and isinstance(now, Mapping) and before.get("name") == now.get("name"):
        return [note for key in now if now[key] != before.get(key) for note in _changes(key, before.get(key), now[key])]
    return [f"{name} is now {_shown(now)}, was {_shown(before)}"]


def _shown(text: Any) -> str:
    if isinstance(text, Mapping) and _BY_OUTPUT in text:
        return ", ".join(f"{name}: {_shown(each)}" for name, each in text[_BY_OUTPUT].items())
    if isinstance(text, Mapping):
        numbers = [f"{key}={_shown(value)}" for key, value in text.items() if key not in ("name", "schedule")]
        return f"{text.get('name') or text.get('schedule')}({', '.join(numbers)})"
    return "the default" if text is None else str(text)

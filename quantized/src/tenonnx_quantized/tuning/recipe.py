"""Recipes: settings of a quantization by name, or from a TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidCall, did_you_mean
from tenonnx_quantized.tuning.config import LayerSettings, QuantizeConfig

#: Entries of a recipe that are not settings.
_ABOUT = ("description", "source")


def recipes() -> dict[str, str]:
    """The built-in recipes, each with its purpose."""
    return {name: _read(text, name)["description"] for name, text in _texts().items()}


def config_of(recipe: str | os.PathLike[str] | None, settings: Mapping[str, Any]) -> QuantizeConfig:
    """The settings of a recipe, by its name or path, overridden by ``settings``.

    Raises ``InvalidCall`` for a recipe that is unknown or cannot be read, and for unknown settings.
    """
    given = {} if recipe is None else read_recipe(recipe)
    given |= settings
    given["layers"] = [_layer(each) for each in given.get("layers", ())]
    try:
        return QuantizeConfig(**given)
    except TypeError as error:
        known = QuantizeConfig.__dataclass_fields__
        unknown = [name for name in given if name not in known]
        raise InvalidCall(
            "quantize: unknown option",
            given=", ".join(unknown or given),
            available=", ".join(known),
            do=did_you_mean(unknown[0], known) if unknown else "",
        ) from error


def read_recipe(recipe: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings of a recipe: one of ``recipes()``, or a TOML file."""
    texts, name = _texts(), os.fspath(recipe)
    if name in texts:
        found = _read(texts[name], name)
    else:
        path = Path(name)
        if path.suffix != ".toml" and not path.is_file():
            raise InvalidCall(
                f'unknown recipe "{name}"', given=name, available=", ".join(texts), do=did_you_mean(name, list(texts))
            )
        try:
            found = _read(path.read_text("utf-8"), name)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidCall(f'cannot read the recipe "{name}"', given=str(error)) from error
    return {key: value for key, value in found.items() if key not in _ABOUT}


def _read(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidCall(f'the recipe "{name}" is not valid TOML', given=str(error)) from error


def _texts() -> dict[str, str]:
    folder = resources.files("tenonnx_quantized.tuning") / "recipes"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text("utf-8") for file in files if file.name.endswith(".toml")}


def _layer(given: Any) -> LayerSettings:
    if isinstance(given, LayerSettings):
        return given
    known = LayerSettings.__dataclass_fields__
    unknown = [name for name in given if name not in known] if isinstance(given, Mapping) else [str(given)]
    if unknown or "pattern" not in given:
        raise InvalidCall(
            "quantize: settings of layers with an unknown key"
            if unknown
            else "quantize: settings of layers lack a pattern",
            given=", ".join(unknown or map(str, given)),
            available=", ".join(known),
        )
    return LayerSettings(**given)

"""Names of inputs and outputs: the caller's, or derived from paths in nested structures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenonnx.extend import InvalidCall


def path_parts(path: Sequence[Any]) -> list[str]:
    """Keys, indices and attributes of a path in a tree of PyTorch, JAX or optree."""
    return [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]


def joined(start: str, path: Sequence[Any]) -> str:
    """The name of the leaf at ``path``: keys, attributes and indices after ``start``."""
    return "_".join([start, *path_parts(path)] if start else path_parts(path))


def output_names(paths: Sequence[Sequence[Any]], inputs: Sequence[str]) -> list[str]:
    """Names of the leaves of a result: keys if all paths begin with one, and distinct from the inputs."""
    keyed = all(hasattr(path[0], "key") for path in paths if path)
    found = [joined("" if keyed and path else "output", path) for path in paths]
    return [f"output_{name}" if name in inputs else name for name in found]


def chosen_names(
    kind: str, names: Sequence[str] | None, default: Sequence[str], taken: Sequence[str] = (), what: str = ""
) -> list[str]:
    """The caller's names, or the default ones. Raises ``InvalidCall`` unless they are new, and one for each."""
    chosen = list(default if names is None else names)
    if (
        len(chosen) != len(default)
        or len(set(chosen)) != len(chosen)
        or (names is not None and set(chosen) & set(taken))
    ):
        raise InvalidCall(
            f"{what or f'the names of {kind}'} are not {len(default)} different names, one for each of the {kind}",
            given=", ".join(chosen),
        )
    return chosen

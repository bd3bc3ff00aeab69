"""Many devices: how the arrays of a graph lie on a mesh, and what each device holds."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tenonnx.extend import Graph, InvalidCall, TensorType

#: For patterns of names, the axis of the mesh by which each axis of an array is cut, or None.
Sharding = Mapping[str, Sequence[Any]]


class Layouts:
    """How arrays lie on a mesh, by their names: the first pattern that fits counts; what none fits is everywhere."""

    def __init__(self, mesh: Mesh | Mapping[str, int], sharding: Sharding | None) -> None:
        """Raises ``InvalidCall`` for more devices than there are, and for unknown axes."""
        self.mesh = _mesh(mesh) if isinstance(mesh, Mapping) else mesh
        self._specs = {pattern: P(*spec) for pattern, spec in (sharding or {}).items()}
        for spec in self._specs.values():
            axes = [a for each in spec for a in (each if isinstance(each, tuple) else (each,)) if a is not None]
            if missing := [axis for axis in axes if axis not in self.mesh.axis_names]:
                available = ", ".join(map(str, self.mesh.axis_names))
                raise InvalidCall("an axis must be one of the mesh", given=repr(missing[0]), available=available)

    def check(self, names: Iterable[str]) -> None:
        """Raise ``InvalidCall`` for a pattern that fits none of the names."""
        known = list(names)
        for pattern in self._specs:
            if not fnmatch.filter(known, pattern):
                raise InvalidCall(
                    "a pattern of sharding must fit an input, a variable or a state",
                    given=repr(pattern),
                    available=", ".join(known[:20]),
                )

    def of(self, name: str, shape: Sequence[int], exact: bool = False) -> NamedSharding:
        """The layout of an array. What cannot be cut evenly is everywhere, or raises ``InvalidCall`` if ``exact``."""
        spec = next((s for pattern, s in self._specs.items() if fnmatch.fnmatchcase(name, pattern)), P())
        parts = [self._parts(each) for each in spec]
        if len(parts) <= len(shape) and all(size % n == 0 for size, n in zip(shape, parts, strict=False)):
            return NamedSharding(self.mesh, spec)
        if exact:
            given = f"shape {list(shape)} by {spec}, into {' times '.join(map(str, parts))} parts"
            raise InvalidCall(f'"{name}" must have axes that can be cut evenly', given=given)
        return NamedSharding(self.mesh, P())

    def _parts(self, axes: Any) -> int:
        names = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
        return math.prod(self.mesh.shape[name] for name in names)


def _mesh(sizes: Mapping[str, int]) -> Mesh:
    number, devices = math.prod(sizes.values()), jax.devices()
    if not sizes or min(sizes.values()) < 1 or number > len(devices):
        raise InvalidCall(
            "a mesh must have axes with sizes, and no more devices than JAX finds",
            given=", ".join(f"{name}={size}" for name, size in sizes.items()) or "no axes",
            available=f"{len(devices)} devices",
        )
    return Mesh(np.array(devices[:number]).reshape(*sizes.values()), tuple(sizes))


@dataclass(frozen=True)
class Placed:
    """One array of a graph: its layout and how many bytes of it each device holds."""

    name: str
    shape: tuple[int, ...]
    layout: str
    bytes: int


@dataclass(frozen=True)
class LayoutPlan:
    """What each device holds before anything is compiled: the variables of a graph, as they are cut."""

    arrays: tuple[Placed, ...]
    whole: int

    @property
    def bytes_per_device(self) -> int:
        return sum(each.bytes for each in self.arrays)

    def __str__(self) -> str:
        lines = [f"{each.bytes:>14,}  {each.name} {list(each.shape)} {each.layout}" for each in self.arrays]
        return "\n".join([*lines, f"{self.bytes_per_device:>14,}  bytes on each device, {self.whole:,} in all"])


def layout_plan(graph: Graph, mesh: Mesh | Mapping[str, int], sharding: Sharding | None = None) -> LayoutPlan:
    """How the variables of ``graph`` lie on ``mesh``. Raises ``InvalidCall`` where one cannot be cut evenly.

    It also refuses patterns that fit nothing, which a program takes, as a training compiles several graphs by one.
    """
    layouts = Layouts(mesh, sharding)
    layouts.check(v.name for v in (*graph.all_inputs, *graph.variables))
    found, whole = [], 0
    for value in graph.variables:
        if not isinstance(value.type, TensorType) or value.data is None:
            continue
        shape = tuple(int(n) for n in value.shape)  # type: ignore[arg-type]
        layout = layouts.of(value.name, shape, exact=True)
        size = math.ceil(math.prod(shape) * value.dtype.bits / 8)
        parts = math.prod(layouts._parts(each) for each in layout.spec)
        found.append(Placed(value.name, shape, str(layout.spec) if len(layout.spec) else "everywhere", size // parts))
        whole += size
    return LayoutPlan(tuple(found), whole)

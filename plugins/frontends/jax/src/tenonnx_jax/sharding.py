"""Sharding of a graph's arrays over a mesh of devices."""

from __future__ import annotations

import fnmatch
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tenonnx.extend import Graph, InvalidCall, TensorType, did_you_mean, listing

#: By pattern of names, the mesh axis that splits each axis of an array, or None.
Sharding = Mapping[str, Sequence[Any]]

#: Mesh axes with a default meaning: one splits batches, the other splits weights.
DATA, MODEL = "data", "model"


class Layouts:
    """Layouts of arrays on a mesh by name: the first matching pattern counts; others are replicated.

    Without patterns, the mesh axis "data" splits the ``batch`` axis of feeds, by name, and "model" the longest evenly
    divisible axis of each weight and state, the last of equal ones.
    """

    def __init__(self, mesh: Mesh | AbstractMesh, sharding: Sharding | None, batch: Mapping[str, int | None]) -> None:
        """Raises ``InvalidCall`` for an invalid sharding, unknown axes, and where nothing would be split."""
        self.mesh, self._batch = mesh, batch
        self.everywhere = NamedSharding(self.mesh, P())
        self._is_given = sharding is not None
        available = ", ".join(map(str, self.mesh.axis_names))
        if sharding is None and {DATA, MODEL}.isdisjoint(self.mesh.axis_names):
            raise InvalidCall(
                f'a mesh without a sharding has no axis "{DATA}" or "{MODEL}"',
                given=available,
                do='sharding={"x": ("batch",)} / --sharding x=batch',
            )
        self._specs = {pattern: _spec(pattern, spec) for pattern, spec in _items(sharding)}
        for spec in self._specs.values():
            axes = [axis for each in spec for axis in axes_of(each)]
            if missing := [axis for axis in axes if axis not in self.mesh.axis_names]:
                what, do = f"the mesh has no axis {missing[0]!r}", did_you_mean(missing[0], self.mesh.axis_names)
                raise InvalidCall(what, available=available, do=do)
            if len(set(axes)) < len(axes):
                raise InvalidCall("an axis of the mesh splits several axes of an array", given=str(tuple(spec)))

    def check(self, names: Iterable[str]) -> None:
        """Raise ``InvalidCall`` for a pattern that matches none of the names."""
        known = list(dict.fromkeys(names))
        for pattern in self._specs:
            if not fnmatch.filter(known, pattern):
                raise InvalidCall(
                    "a pattern of sharding fits no input, variable or state",
                    given=repr(pattern),
                    available=listing(known),
                    do=did_you_mean(pattern, known),
                )

    def of(self, name: str, shape: Sequence[int], exact: bool = False) -> NamedSharding:
        """The layout of an array. Arrays that cannot be split evenly are replicated, or raise ``InvalidCall`` if
        ``exact``.

        A sharding with more axes than the array raises it too, if the pattern is the array's name.
        """
        if not self._is_given:
            return NamedSharding(self.mesh, self._usual(name, shape))
        found = next((item for item in self._specs.items() if fnmatch.fnmatchcase(name, item[0])), ("", P()))
        pattern, spec = found
        parts = [self.parts(each) for each in spec]
        if len(parts) <= len(shape) and all(size % n == 0 for size, n in zip(shape, parts, strict=False)):
            return NamedSharding(self.mesh, spec)
        if exact or (pattern == name and len(parts) > len(shape)):
            given = f"shape {list(shape)} by {spec}, into {' times '.join(map(str, parts))} parts"
            raise InvalidCall(f'axes of "{name}" cannot be split evenly', given=given)
        return self.everywhere

    def _usual(self, name: str, shape: Sequence[int]) -> P:
        """The default layout, without a sharding."""
        is_fed = name in self._batch
        axis, axes = (DATA, [self._batch[name]]) if is_fed else (MODEL, [*range(len(shape))] if len(shape) > 1 else [])
        if axis not in self.mesh.axis_names:
            return P()
        even = [k for k in axes if k is not None and shape[k] and shape[k] % self.mesh.shape[axis] == 0]
        if not even:
            return P()
        longest = max(even, key=lambda k: (shape[k], k))
        return P(*[axis if k == longest else None for k in range(longest + 1)])

    def parts(self, axes: Any) -> int:
        """Number of parts into which these mesh axes split."""
        return math.prod(self.mesh.shape[name] for name in axes_of(axes))

    def put(self, name: str, array: Any) -> Any:
        """Place an array on the mesh. In a multi-process setup, each process has the complete array and places its
        parts.
        """
        layout = self.of(name, np.shape(array))
        if isinstance(array, jax.Array) and array.sharding == layout:
            return array
        if layout.is_fully_addressable:
            return jax.device_put(array, layout)
        contents = np.asarray(array)
        return jax.make_array_from_callback(contents.shape, layout, lambda index: contents[index])


def _items(sharding: Any) -> Iterable[tuple[str, Any]]:
    if sharding is not None and not isinstance(sharding, Mapping):
        raise InvalidCall(
            "a sharding does not map names to axes of the mesh", given=repr(sharding), do='sharding={"x": ("data",)}'
        )
    return (sharding or {}).items()


def _spec(pattern: str, spec: Any) -> P:
    if isinstance(spec, str) or not isinstance(spec, Sequence | P):
        raise InvalidCall(
            "a sharding is not a sequence with an axis of the mesh, or None, for each axis of an array",
            given=f"{pattern!r}: {spec!r}",
            do='sharding={"x": ("data",)}',
        )
    return P(*(tuple(each) if isinstance(each, list) else each for each in spec))


def axes_of(each: Any) -> tuple[Any, ...]:
    """The mesh axes that split one axis of an array."""
    return each if isinstance(each, tuple) else () if each is None else (each,)


def batch_axes(graph: Graph, state: Mapping[str, str]) -> dict[str, int | None]:
    """Inputs that every call feeds, with the batch axis of each, None if there is none.

    The batch dim is the first symbolic dim at the start of an input, wherever it occurs in others; else the first axis.
    """
    shapes = {v.name: v.type.shape or () for v in graph.inputs if isinstance(v.type, TensorType)}
    shapes = {name: shape for name, shape in shapes.items() if name not in state}
    first = [shape[0] for shape in shapes.values() if shape]
    batch = next((dim for dim in first if not isinstance(dim, int)), next(iter(first), None))
    return {name: shape.index(batch) if batch in shape else None for name, shape in shapes.items()}


def made_mesh(mesh: Any, devices: int | None) -> Mesh:
    """A mesh with these axes, or of this many devices.

    Raises ``InvalidCall`` for an invalid mesh, and for more devices than there are.
    """
    # on CPUs, overlapping calls deadlock: the next call occupies threads for which reductions wait
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if isinstance(mesh, Mesh):
        return mesh
    sizes = sizes_of(mesh, devices)
    if devices is not None:
        _divide_processors(devices)
    number, found = math.prod(sizes.values()), jax.devices()
    if number > len(found):
        given = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise InvalidCall("a mesh has more devices than JAX finds", given=given, available=f"{len(found)} devices")
    return Mesh(np.array(found[:number]).reshape(*sizes.values()), tuple(sizes))


def sizes_of(mesh: Mapping[str, int] | None, devices: int | None) -> dict[str, int]:
    """The axes of a mesh and their sizes. Raises ``InvalidCall`` for an invalid or inconsistent number of devices."""
    if mesh is not None and not isinstance(mesh, Mapping):
        raise InvalidCall("a mesh does not map axes to sizes", given=repr(mesh), do='mesh={"data": 4, "model": 2}')
    sizes = dict(mesh) if mesh is not None else {DATA: devices or 0}
    shown = ", ".join(f"{name}={size}" for name, size in sizes.items())
    if not sizes or any(not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1 for n in sizes.values()):
        raise InvalidCall("a mesh has no axes, or one without devices", given=shown or "no axes")
    if devices is not None and math.prod(sizes.values()) != devices:
        raise InvalidCall(
            "the axes of a mesh do not multiply to the number of devices", given=f"{shown} for {devices} devices"
        )
    return sizes


def _divide_processors(devices: int) -> None:
    """Create this many CPU devices, unless JAX is initialized, or the environment sets their number."""
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "") or jax.distributed.is_initialized():
        return
    try:
        if jax.config.jax_num_cpu_devices < devices:
            jax.config.update("jax_num_cpu_devices", devices)
    except RuntimeError:  # the existing devices may suffice
        return


def fetched(array: Any) -> Any:
    """A complete copy of an array for the caller. In a multi-process setup all processes have to call this."""
    if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
        mesh = array.sharding.mesh
        array = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P()))(array)
    return np.array(array)

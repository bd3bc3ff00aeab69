"""Options of placement: the backend's device, or a mesh of devices with sharding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import click

from tenonnx_cli.options import gathered, in_order


@dataclass(frozen=True)
class DeviceOptions:
    """Options of the device. Missing ones are None and not passed to the backend."""

    device: str | None
    provider: str | None
    threads: int | None
    devices: int | None
    mesh: Mapping[str, int] | None
    sharding: Mapping[str, Sequence[Any]] | None

    @property
    def options(self) -> dict[str, Any]:
        """The options for a backend."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}


def _mesh(ctx: click.Context, option: click.Parameter, text: str | None) -> dict[str, int] | None:
    """Parse ``data=4,model=2`` as mesh axes with sizes."""
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    names = [name.strip() for name, _, _ in pairs]
    sizes = [size.strip() for _, _, size in pairs]
    if not all(names) or len({*names}) < len(names) or not all(n.isascii() and n.isdigit() and int(n) for n in sizes):
        raise click.BadParameter(f"{text!r} is not a mesh such as data=4,model=2", ctx, option)
    return {name: int(size) for name, size in zip(names, sizes, strict=True)}


def _sharding(
    ctx: click.Context, option: click.Parameter, texts: Sequence[str]
) -> dict[str, tuple[str | tuple[str, ...] | None, ...]] | None:
    """Parse ``*.weight=-,model`` as mesh axes; ``-`` is None and ``data+model`` are two for one axis."""
    found: dict[str, tuple[str | tuple[str, ...] | None, ...]] = {}
    for text in texts:
        pattern, equals, axes = text.rpartition("=")
        parts = [part.strip() for part in axes.split(",")]
        if not pattern or not equals or not all(all(part.split("+")) for part in parts):
            raise click.BadParameter(f"{text!r} is not a sharding such as *.weight=-,model", ctx, option)
        found[pattern] = tuple(
            None if part == "-" else tuple(part.split("+")) if "+" in part else part for part in parts
        )
    return found or None


_DEVICE = click.option(
    "--device", metavar="NAME", help="The device of the backend, such as cuda or gpu:1.  [default: the backend's own]"
)

_MESH = (
    click.option(
        "--devices",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of devices. Without --mesh, each batch is split over them. Without accelerators, the CPU is split "
        "into this many devices.",
    ),
    click.option(
        "--mesh",
        callback=_mesh,
        metavar="AXIS=N,...",
        help="Device mesh, such as data=4,model=2. Without --sharding, batches are sharded over the axis data, and "
        "weights over the axis model.",
    ),
    click.option(
        "--sharding",
        multiple=True,
        callback=_sharding,
        metavar="PATTERN=AXIS,...",
        help="Mesh axis over which each axis of an input, weight or training state is sharded, or - for none: x=data, "
        "*.weight=-,model. Repeatable; the first matching pattern applies.",
    ),
)

_PROVIDER = click.option(
    "--provider", metavar="NAME", help="The execution provider of onnxruntime, such as cuda.  [default: cpu]"
)

_THREADS = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads of the backend. By default, it chooses.",
)

#: ``--device``, ``--provider``, ``--threads``, ``--devices``, ``--mesh`` and ``--sharding``, as ``where``.
device_options = in_order(_DEVICE, _PROVIDER, _THREADS, *_MESH, gathered("where", DeviceOptions))

#: the mesh options, each as its own argument
mesh_options = in_order(*_MESH)

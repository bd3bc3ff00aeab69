"""Images as grids of patches, as in Qwen2-VL: example inputs, and sizes that are constants of a trace."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import vision_utils

#: Height and width of the example grid, in merged patches.
_GRID = (2, 3)


def grid_inputs(model: Any, images: int, generator: torch.Generator | None = None) -> dict[str, Tensor] | None:
    """Random patches and the grids of images; None if the model takes images as a whole.

    ``pixel_values`` are float32 of shape (patches, numbers of a patch), ``image_grid_thw`` int64 of shape (images, 3).
    """
    config = getattr(model.config, "vision_config", None)
    if "image_grid_thw" not in inspect.signature(model.forward).parameters or config is None:
        return None
    merge = config.spatial_merge_size
    grid = torch.tensor([[1, merge * _GRID[0], merge * _GRID[1]]] * images)
    channels = getattr(config, "in_channels", None) or getattr(config, "in_chans", 3)
    size = channels * config.temporal_patch_size * config.patch_size**2
    return {
        "pixel_values": torch.randn(int(grid.prod(1).sum()), size, generator=generator),
        "image_grid_thw": grid,
    }


def constant_grid(model: Any, grid: Tensor) -> dict[str, Any]:
    """Keywords of ``get_image_features`` for a grid that is a constant of the graph."""
    places = vision_utils.get_vision_position_ids(grid, model.config.vision_config.spatial_merge_size)
    lengths = vision_utils.get_vision_cu_seqlens(grid)
    return {"image_grid_thw": Sizes(grid), "image_position_ids": places, "image_cu_seqlens": Sizes(lengths)}


class Sizes:
    """Integers in the place of a tensor of sizes, so that a model that reads its contents can be traced."""

    device = torch.device("cpu")

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, torch.int64

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Sizes:
        return Sizes(self.values[place])

    def __sub__(self, other: Sizes) -> Sizes:
        return Sizes(self.values - other.values)

    def __mul__(self, other: Sizes) -> Sizes:
        return Sizes(self.values * other.values)

    def __floordiv__(self, other: int) -> Sizes:
        return Sizes(self.values // other)

    def prod(self, axis: int) -> Sizes:
        return Sizes(self.values.prod(axis))

    def tolist(self) -> Any:
        return self.values.tolist()

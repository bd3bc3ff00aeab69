"""Settings of image processors from ``preprocessor_config.json``, and the defaults of their classes.

Source: transformers 5.24, the classes ``*ImageProcessorPil``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tenonnx.extend import InvalidModel, NotRepresentable
from tenonnx_extensions.pipelines.resampling import FILTERS

Settings = dict[str, Any]

_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))

#: Steps in the order of most classes; the setting ``do_NAME`` enables a step.
_STEPS = ("resize", "center_crop", "rescale", "normalize", "pad")
_BEFORE_PAD = _STEPS[:-1]
_DETECTION = ("resize", "rescale", "normalize", "pad")

#: Keys without effect on the pixels of RGB images, or only about labels.
_WITHOUT_EFFECT = {
    "_valid_processor_keys",
    "annotations",
    "auto_map",
    "default_to_square",
    "device",
    "disable_grouping",
    "do_convert_annotations",
    "do_convert_rgb",
    "do_reduce_labels",
    "feature_extractor_type",
    "format",
    "image_processor_type",
    "image_seq_length",
    "input_data_format",
    "model_input_names",
    "num_labels",
    "processor_class",
    "reduce_labels",
    "return_segmentation_masks",
    "return_tensors",
    "transformers_version",
    "use_fast",
}

#: Sets of keys that define a size.
_SIZES = ({"height", "width"}, {"shortest_edge"}, {"shortest_edge", "longest_edge"}, {"max_height", "max_width"})


@dataclass(frozen=True)
class Processor:
    """A class of image processors: its steps, its defaults, and a function that adapts its settings."""

    steps: tuple[str, ...]
    defaults: Mapping[str, Any]
    adapt: Callable[[Settings], None] = lambda settings: None
    #: Whether an ``int`` for ``size`` is height and width instead of the shortest edge.
    is_square: bool = True
    #: Whether padding adds the output ``pixel_mask``.
    has_mask: bool = False


def _processor(
    size: Settings, resample: int, colors: tuple[Any, Any], steps: tuple[str, ...] = _STEPS, **more: Any
) -> Processor:
    fields = {name: more.pop(name) for name in ("adapt", "is_square", "has_mask") if name in more}
    mean, std = colors
    defaults = {
        "do_resize": True,
        "size": size,
        "resample": resample,
        "do_center_crop": "crop_size" in more,
        "crop_size": None,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
        "do_pad": False,
        "pad_size": None,
    }
    return Processor(steps, defaults | more, **fields)


def _square(size: int) -> Settings:
    return {"height": size, "width": size}


def _shortest(size: int) -> Settings:
    return {"shortest_edge": size}


def _convnext(settings: Settings) -> None:
    edge = settings["size"].get("shortest_edge")
    if edge is None:
        raise _unsupported("size", settings["size"], "shortest_edge")
    if settings["do_center_crop"]:
        raise _unsupported("do_center_crop", True, "false")
    if edge < 384:
        settings.update(size=_shortest(int(edge / settings["crop_pct"])), do_center_crop=True, crop_size=_square(edge))
    else:
        settings["size"] = _square(edge)


def _poolformer(settings: Settings) -> None:
    size, part = settings["size"], settings["crop_pct"]
    edge = size.get("shortest_edge") or (size.get("height") if size.get("height") == size.get("width") else None)
    if edge is not None:
        settings["size"] = _shortest(int(edge / part))
    else:
        settings["size"] = {name: int(number / part) for name, number in size.items()}


def _levit(settings: Settings) -> None:
    if "shortest_edge" in settings["size"]:
        settings["size"] = _shortest(int((256 / 224) * settings["size"]["shortest_edge"]))


_EDGES = {"shortest_edge": 800, "longest_edge": 1333}
_DETR = _processor(_EDGES, 2, _IMAGENET, _DETECTION, do_pad=True, is_square=False, has_mask=True, max_size=1333)
_CLIP_LIKE = _processor(_shortest(224), 3, _CLIP, crop_size=_square(224), is_square=False)
_MOBILENET = _processor(_shortest(256), 2, _HALF, crop_size=_square(224), is_square=False)

#: Classes by name without ``ImageProcessor``.
PROCESSORS = {
    "Beit": _processor(_square(224), 3, _HALF, _BEFORE_PAD, crop_size=_square(224), do_center_crop=False),
    "Bit": _CLIP_LIKE,
    "Blip": _processor(_square(384), 3, _CLIP),
    "CLIP": _CLIP_LIKE,
    "ChineseCLIP": _CLIP_LIKE,
    "ConditionalDetr": _DETR,
    "ConvNext": _processor(_shortest(384), 3, _HALF, _BEFORE_PAD, is_square=False, crop_pct=224 / 256, adapt=_convnext),
    "DPT": _processor(
        _square(384), 3, _HALF, ("resize", "rescale", "normalize"), ensure_multiple_of=1, keep_aspect_ratio=False
    ),
    "DeformableDetr": _DETR,
    "DeiT": _processor(_square(256), 3, _HALF, crop_size=_square(224)),
    "Detr": _DETR,
    "EfficientNet": _processor(
        _square(346),
        3,
        _HALF,
        (*_BEFORE_PAD, "include_top"),
        crop_size=_square(289),
        do_center_crop=False,
        rescale_offset=False,
        include_top=True,
    ),
    "GroundingDino": _DETR,
    "Levit": _processor(_shortest(224), 3, _IMAGENET, crop_size=_square(224), is_square=False, adapt=_levit),
    "MobileNetV1": _MOBILENET,
    "MobileNetV2": _processor(_shortest(256), 2, _HALF, _BEFORE_PAD, crop_size=_square(224), is_square=False),
    "MobileViT": _processor(
        _shortest(224),
        3,
        _HALF,
        ("resize", "rescale", "center_crop", "flip_channel_order"),
        crop_size=_square(256),
        is_square=False,
        do_flip_channel_order=True,
    ),
    "OwlViT": _processor(_square(768), 3, _CLIP, crop_size=_square(768), do_center_crop=False),
    "PoolFormer": _processor(
        _shortest(224), 3, _IMAGENET, crop_size=_square(224), is_square=False, crop_pct=0.9, adapt=_poolformer
    ),
    "Pvt": _processor(_square(224), 3, _IMAGENET),
    "RTDetr": _processor(_square(640), 2, _IMAGENET, _DETECTION, do_normalize=False, is_square=False, has_mask=True),
    "Segformer": _processor(_square(512), 2, _IMAGENET, ("resize", "rescale", "normalize")),
    "Siglip": _processor(_square(224), 3, _HALF, is_square=False),
    "ViT": _processor(_square(224), 2, _HALF),
    "Yolos": _processor(
        _EDGES, 2, _IMAGENET, _DETECTION, do_pad=True, is_square=False, has_mask=True, max_size=1333, size_multiple=16
    ),
}


def settings_of(config: Mapping[str, Any]) -> tuple[Processor, Settings]:
    """The class named by a configuration, and its settings with the class's defaults.

    Raises ``NotRepresentable`` for a class or key without a graph, and ``InvalidModel`` for an invalid value.
    """
    key = next((name for name in ("image_processor_type", "feature_extractor_type") if config.get(name)), None)
    if key is None:
        raise InvalidModel(
            "the configuration lacks the type of the image processor",
            given=", ".join(config)[:500],
            available="image_processor_type",
        )
    name = str(config[key])
    for ending in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(ending)
    if name not in PROCESSORS:
        raise _unsupported(key, config[key], ", ".join(f"{each}ImageProcessor" for each in PROCESSORS))
    result = PROCESSORS[name]
    settings = dict(result.defaults)
    given = {key: value for key, value in config.items() if value is not None}
    if "pad_and_return_pixel_mask" in given and result.has_mask:
        given.setdefault("do_pad", given["pad_and_return_pixel_mask"])
        del given["pad_and_return_pixel_mask"]
    for key, value in given.items():
        if key in settings:
            settings[key] = value
        elif key not in _WITHOUT_EFFECT and value is not False and (key, value) != ("data_format", "channels_first"):
            raise _unsupported(key, value, ", ".join(settings))
    _check(settings, result, given)
    result.adapt(settings)
    return result, settings


def _unsupported(key: str, value: Any, available: str) -> NotRepresentable:
    return NotRepresentable(
        f"unsupported setting of the image processor: {key}", given=f"{value!r}"[:200], available=available
    )


def _wrong(key: str, value: Any, available: str) -> InvalidModel:
    return InvalidModel(f"wrong value of {key} in the configuration", given=f"{value!r}"[:200], available=available)


def _check(settings: Settings, kind: Processor, given: Mapping[str, Any]) -> None:
    """Check the values, and normalize sizes and colors."""
    settings["size"] = _size("size", settings["size"], kind.is_square)
    if not kind.is_square and isinstance(given.get("size"), int) and "max_size" in settings:
        settings["size"]["longest_edge"] = settings["max_size"]
    if settings["do_resize"] and set(settings["size"]) not in _SIZES:
        raise _unsupported("size", settings["size"], "; ".join(", ".join(sorted(each)) for each in _SIZES))
    for key in ("crop_size", "pad_size"):
        if settings[key] is not None:
            settings[key] = _size(key, settings[key], True)
            if set(settings[key]) != {"height", "width"}:
                raise _unsupported(key, settings[key], "height, width")
    if settings["do_center_crop"] and "center_crop" in kind.steps and settings["crop_size"] is None:
        raise _wrong("crop_size", None, "height and width, as do_center_crop is true")
    resample = settings["resample"]
    if resample not in (0, *FILTERS) or isinstance(resample, bool):
        raise _unsupported("resample", resample, "0 to 5")
    for key in ("image_mean", "image_std"):
        colors = settings[key]
        colors = tuple(colors) if isinstance(colors, list | tuple) else (colors,) * 3
        if len(colors) != 3 or not all(_is_number(number) for number in colors):
            raise _wrong(key, settings[key], "a number, or three")
        settings[key] = colors
    for key in ("rescale_factor", "crop_pct"):
        if key in settings and not (_is_number(settings[key]) and settings[key] > 0):
            raise _wrong(key, settings[key], "a positive number")
    if settings.get("ensure_multiple_of", 1) != 1 and settings["do_resize"]:
        raise _unsupported("ensure_multiple_of", settings["ensure_multiple_of"], "1")
    if settings.get("keep_aspect_ratio") and settings["do_resize"]:
        raise _unsupported("keep_aspect_ratio", True, "false")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _size(key: str, value: Any, is_square: bool) -> Settings:
    """Normalize a size like transformers: an ``int``, a pair of height and width, or a dict."""
    result = value
    if isinstance(value, list | tuple) and len(value) == 2:
        result = {"height": value[0], "width": value[1]}
    elif isinstance(value, int):
        result = _square(value) if is_square else _shortest(value)
    if not isinstance(result, dict):
        raise _wrong(key, value, "a whole number, or an object with height and width")
    result = {name: number for name, number in result.items() if number is not None}
    if not all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in result.values()):
        raise _wrong(key, value, "positive whole numbers")
    return result

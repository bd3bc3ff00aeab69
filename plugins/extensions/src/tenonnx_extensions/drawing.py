"""Boxes drawn on images."""

from __future__ import annotations

import numpy as np

from tenonnx.extend import TypeMismatch, dtypes, one_of, primitive, shapes
from tenonnx_extensions.images import DOMAIN
from tenonnx_standard.checking import numpy_rule

#: Colors as blue, green and red, in the order in which classes or boxes receive them.
_COLORS = np.array(
    [
        (0, 0, 255),
        (0, 255, 255),
        (0, 255, 0),
        (255, 0, 0),
        (255, 255, 0),
        (255, 0, 255),
        (0, 128, 255),
        (0, 0, 128),
        (0, 128, 0),
        (128, 0, 0),
    ],
    np.uint8,
)


@primitive("DrawBoundingBoxes", domain=DOMAIN)
def draw_bounding_boxes(image, boxes, *, thickness=4, num_classes=10, mode="XYXY", colour_by_classes=1):
    """Draw the outlines of ``boxes``, float32[count, 6], on an image, uint8[height, width, 3] in BGR.

    A box has four coordinates by ``mode`` ("XYXY", "XYWH" or "CENTER_XYWH"), a score and a class. With
    ``colour_by_classes``, the ten classes with the best scores have a color each, and others are not drawn; otherwise
    the ten best boxes are drawn. Better boxes are drawn on top. ``num_classes`` has no effect.
    """


draw_bounding_boxes.requires(
    dtypes(image="uint8", boxes="float32"),
    shapes(image="height width 3", boxes="count 6"),
    one_of(mode=("XYXY", "XYWH", "CENTER_XYWH")),
)


@draw_bounding_boxes.type
def draw_bounding_boxes_type(image, boxes, *, thickness, num_classes, mode, colour_by_classes):
    if thickness < 1:
        raise TypeMismatch(f"{draw_bounding_boxes.title}: thickness is not positive", given=str(thickness))
    return image.tensor


@numpy_rule(draw_bounding_boxes)
def draw_bounding_boxes_numpy(image, boxes, *, thickness, num_classes, mode, colour_by_classes):
    drawn = image.copy()
    ordered = boxes[np.argsort(-boxes[:, 4], kind="stable")]
    if colour_by_classes:
        numbers = {each: k for k, each in enumerate(dict.fromkeys(ordered[:, 5].tolist()))}
        colors = [numbers[each] for each in ordered[:, 5].tolist()]
    else:
        colors = list(range(len(ordered)))
    shown = [pair for pair in zip(colors, ordered, strict=True) if pair[0] < len(_COLORS)]
    shown.reverse()
    for color, box in sorted(shown, key=lambda pair: -pair[0]):
        _draw(drawn, _corners(box[:4], mode), _COLORS[color], thickness)
    return drawn


def _corners(box, mode):
    """Left, top, right and bottom."""
    if mode == "XYXY":
        return box
    start = box[:2] - box[2:] / np.float32(2) if mode == "CENTER_XYWH" else box[:2]
    end = box[:2] + box[2:] / np.float32(2) if mode == "CENTER_XYWH" else box[:2] + box[2:]
    return np.concatenate([start, end])


def _draw(image, corners, color, thickness):
    """Draw an outline; boxes without area, or outside the image, have none."""
    most = np.array([image.shape[1] - 1, image.shape[0] - 1])
    rounded = np.nan_to_num(np.trunc(corners + np.copysign(np.float32(0.5), corners)), posinf=2**31, neginf=-(2**31))
    end = np.clip(rounded[2:], 0, most).astype(np.int64)
    start = np.minimum(np.clip(rounded[:2], 0, None).astype(np.int64), end)
    least = int((end - start).min())
    width = min(thickness, least)
    if width < 1:
        return
    if width != least:
        start, end = start - width // 2, end + width - width // 2
    (left, top), (right, bottom) = np.maximum(start, 0).tolist(), np.minimum(end, most).tolist()
    image[top : top + width, left:right] = image[bottom - width : bottom, left:right] = color
    image[top:bottom, left : left + width] = image[top:bottom, right - width : right] = color

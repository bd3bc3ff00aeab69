"""Detectors with data-dependent numbers of boxes, at dynamic sizes; operators of torchvision."""

import pytest
import torch
from torch import nn

import tenonnx_torch

SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
}


def suppressed(boxes, scores, threshold):
    area, kept = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]), []
    for place in scores.argsort(descending=True, stable=True).tolist():
        low, high = torch.maximum(boxes[place, :2], boxes[:, :2]), torch.minimum(boxes[place, 2:], boxes[:, 2:])
        both = (high - low).clamp(min=0).prod(1)
        if not any((both / (area + area[place] - both))[kept] > threshold):
            kept.append(place)
    return torch.tensor(kept, dtype=torch.int64)


def pooled(x, rois, scale, height, width, ratio, aligned):
    """Reference: bilinear samples at ``ratio`` positions of each window along each axis."""
    shift = 0.5 if aligned else 0.0
    result = []
    for image, *corners in rois.tolist():
        left, top, right, bottom = (corner * scale - shift for corner in corners)
        sizes = [bottom - top, right - left] if aligned else [max(bottom - top, 1.0), max(right - left, 1.0)]
        places = [
            start + (torch.arange(count * ratio) + 0.5) * size / (count * ratio)
            for start, size, count in zip((top, left), sizes, (height, width), strict=True)
        ]
        grid = torch.stack(torch.meshgrid(*places, indexing="ij")[::-1], -1)
        ends = torch.tensor([x.shape[3] - 1, x.shape[2] - 1])
        outside = ((grid < -1) | (grid > ends + 1)).any(-1)
        near = torch.minimum(grid.clamp(min=0), ends)
        sampled = nn.functional.grid_sample(
            x[int(image)][None], (near / ends * 2 - 1)[None], padding_mode="border", align_corners=True
        )
        result.append(nn.functional.avg_pool2d(sampled.masked_fill(outside, 0.0), ratio)[0])
    return torch.stack(result) if result else x.new_zeros(0, x.shape[1], height, width)


def deformed(x, weight, offset, mask, bias, sh, sw, ph, pw, dh, dw, groups, offset_groups, use_mask):
    """Reference: each kernel element reads an image shifted by its offsets."""
    height, width = offset.shape[2:]
    rows, columns = weight.shape[2:]
    ends = torch.tensor([x.shape[3] - 1, x.shape[2] - 1])
    sampled = []
    for place in range(rows * columns):
        y = torch.arange(height)[:, None] * sh - ph + place // columns * dh + offset[:, 2 * place]
        across = torch.arange(width) * sw - pw + place % columns * dw + offset[:, 2 * place + 1]
        grid = torch.stack([across, y], -1) / ends * 2 - 1
        part = nn.functional.grid_sample(x, grid, padding_mode="zeros", align_corners=True)
        sampled.append(part * mask[:, place, None] if use_mask else part)
    columns_of_x = torch.stack(sampled, 2).flatten(1, 2).flatten(2)
    return (weight.flatten(1) @ columns_of_x).reshape(x.shape[0], -1, height, width) + bias[:, None, None]


@pytest.fixture(scope="module", autouse=True)
def operators():
    """Define torchvision's operators in PyTorch, since torchvision is not installed."""
    if hasattr(torch.ops.torchvision, "nms"):
        yield
        return
    with torch.library._scoped_library("torchvision", "DEF") as library:
        for name, function in (("nms", suppressed), ("roi_align", pooled), ("deform_conv2d", deformed)):
            library.define(name + SCHEMAS[name])
            library.impl(name, function, "CPU")
        count = lambda: torch.library.get_ctx().new_dynamic_size()  # noqa: E731
        torch.library.register_fake(
            "torchvision::nms", lambda d, s, t: d.new_empty(count(), dtype=torch.int64), lib=library
        )
        torch.library.register_fake(
            "torchvision::roi_align",
            lambda x, rois, scale, height, width, *rest: x.new_empty(rois.shape[0], x.shape[1], height, width),
            lib=library,
        )
        torch.library.register_fake(
            "torchvision::deform_conv2d",
            lambda x, weight, offset, *rest: x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:]),
            lib=library,
        )
        yield


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize(("use_mask", "settings"), [(False, (1, 1, 0, 0, 1, 1)), (True, (2, 1, 1, 2, 1, 2))])
def test_convolutions_that_read_where_offsets_say(opset, use_mask, settings, tmp_path):
    torch.manual_seed(0)
    sh, sw, ph, pw, dh, dw = settings
    x, weight, bias = torch.rand(2, 4, 7, 8), torch.randn(3, 4, 3, 2), torch.randn(3)
    size = (7 + 2 * ph - 2 * dh - 1) // sh + 1, (8 + 2 * pw - dw - 1) // sw + 1
    offset, mask = torch.randn(2, 12, *size), torch.rand(2, 6, *size)

    class Deformed(nn.Module):
        def forward(self, x, weight, offset, mask, bias):
            given = mask if use_mask else mask[:0]
            return torch.ops.torchvision.deform_conv2d(x, weight, offset, given, bias, *settings, 1, 1, use_mask)

    path, given = tmp_path / "m.onnx", (x, weight, offset, mask, bias)
    assert tenonnx_torch.export(Deformed(), given, path, opset_version=opset).passed


class Detector(nn.Module):
    """Scores and a box at each position; suppression of boxes above a score; and pooling of the kept boxes."""

    def __init__(self, aligned=True, classes=3):
        super().__init__()
        self.aligned, self.classes = aligned, classes
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU())
        self.boxes, self.scores = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 1, 1)
        self.head = nn.Linear(8 * 9, classes)

    def forward(self, image):
        result = self.body(image)
        rows, columns = torch.arange(result.shape[2]) * 4.0 + 2, torch.arange(result.shape[3]) * 4.0 + 2
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        middle = torch.stack([x, y], -1).reshape(-1, 2)
        sizes = self.boxes(result)[0].flatten(1).T.sigmoid() * 8 + 1
        boxes = torch.cat([middle - sizes[:, :2], middle + sizes[:, 2:]], 1)
        scores = self.scores(result)[0].flatten().sigmoid()
        chosen = scores > scores.mean()
        boxes, scores = boxes[chosen], scores[chosen]
        kept = torch.ops.torchvision.nms(boxes, scores, 0.3)
        boxes, scores = boxes[kept], scores[kept]
        rois = torch.cat([boxes.new_zeros(boxes.shape[0], 1), boxes], 1)
        parts = torch.ops.torchvision.roi_align(result, rois, 0.25, 3, 3, 2, self.aligned)
        return {"boxes": boxes, "labels": self.head(parts.flatten(1)).argmax(1), "scores": scores}


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("aligned", [True, False])
def test_a_detector_of_images_of_any_size(opset, aligned, tmp_path):
    torch.manual_seed(0)
    image = torch.rand(1, 3, 48, 64)
    sizes = {"image": {2: "height", 3: "width"}}
    done = tenonnx_torch.export(
        Detector(aligned).eval(), image, tmp_path / "m.onnx", dims=sizes, opset_version=opset, task="detection"
    )
    assert done.passed
    assert [value.name for value in done.verification.outputs[:3]] == ["boxes", "labels", "scores"]

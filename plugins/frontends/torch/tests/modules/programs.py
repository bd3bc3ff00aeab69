"""Control flow, training mode, structured inputs and outputs, dynamic shapes, detection."""

import torch
from torch import nn
from torch.nn import functional

from . import case, function, normal, whole


def lines(layer, *more):
    return nn.Sequential(layer, *more)


# ----- control flow ---------------------------------------------------------------------------------------------------

function(
    "control flow",
    "cond",
    lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)),
    normal(2, 5),
    quick=True,
)


@case("control flow", "cond over parameters")
def control_flow_case():
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return torch.cond(x.mean() > 0, lambda x: self.one(x), lambda x: self.other(x), (x,))

    return Chosen(), torch.randn(2, 4)


@case("control flow", "while_loop", dims=None)
def control_flow_case_2():
    from torch._higher_order_ops import while_loop

    def halve(x):
        return while_loop(lambda x: x.abs().sum() > 1, lambda x: (x / 2,), (x,))[0]

    return halve, torch.randn(2, 3)


@case("control flow", "scan", dims=None)
def control_flow_case_3():
    from torch._higher_order_ops.scan import scan

    def running(x):
        return scan(lambda carry, row: (carry + row, carry * row), x[0] * 0, x)

    return running, torch.randn(4, 3)


function("control flow", "a branch on a size", lambda x: x[:, :3] if x.shape[1] > 3 else x, normal(2, 5))
function("control flow", "a loop over channels", lambda x: sum(x[:, k] * k for k in range(4)), normal(2, 5))

# ----- training mode --------------------------------------------------------------------------------------------------

case("training form", "BatchNorm2d in training", training=True, quick=True)(
    lambda: (nn.BatchNorm2d(3), torch.randn(4, 3, 5, 5))
)
case("training form", "convolution and BatchNorm in training", training=True)(
    lambda: (lines(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.randn(4, 3, 5, 5))
)
case("training form", "Dropout in training", training=True)(lambda: (lines(nn.Dropout(0.5)), torch.randn(4, 3)))
case("training form", "Dropout outside of the compared outputs", training=True)(
    lambda: (lambda x: (functional.dropout(x), x * 2), torch.randn(4, 3))
)


@case("training form", "tied parameters", quick=True)
def training_form_case():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    return Tied(), whole(9, 2, 3)()


@case("training form", "equal parameters that are not tied")
def training_form_case_2():
    return lines(nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4)), torch.randn(2, 4)


@case("training form", "a frozen buffer", quick=True)
def training_form_case_quick():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.tensor([0.5, 1.0, 2.0]))

        def forward(self, x):
            return x - self.mean

    return Shifted(), torch.randn(2, 3)


# ----- structures -----------------------------------------------------------------------------------------------------

function(
    "structures",
    "a dict as the last argument",
    lambda x, more: x + more["bias"],
    normal(2, 3),
    lambda: {"bias": torch.ones(3)},
    quick=True,
)
function(
    "structures",
    "a list of tensors",
    lambda parts: torch.cat(parts, 1),
    lambda: [torch.randn(2, 3), torch.randn(2, 2)],
    dims=None,
)
function(
    "structures", "a dict of outputs", lambda x: {"sum": x.sum(1), "parts": [x + 1, x * 2]}, normal(2, 3), quick=True
)
function("structures", "an output twice, and an input", lambda x: (x, x + 1, x + 1), normal(2, 3))
function("structures", "an argument that is a number", lambda x, by: x * by, normal(2, 3), lambda: 3)
function(
    "structures",
    "an optional argument left out",
    lambda x, mask: x if mask is None else x * mask,
    normal(2, 3),
    lambda: None,
)
function("structures", "a constant output", lambda x: (x, torch.ones(3)), normal(2, 3))

# ----- dynamic shapes -------------------------------------------------------------------------------------------------

IMAGE = {0: {0: "batch", 2: "height", 3: "width"}}

case("dynamic shapes", "convolutions on any size", dims=IMAGE)(
    lambda: (lines(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), torch.randn(2, 3, 8, 10))
)
function(
    "dynamic shapes",
    "interpolation to the size of another",
    lambda x, y: functional.interpolate(x, size=y.shape[2:], mode="bilinear"),
    normal(2, 3, 4, 5),
    normal(2, 3, 8, 9),
    dims={1: {2: "h", 3: "w"}},
)
function(
    "dynamic shapes",
    "pooling to one on any size",
    lambda x: functional.adaptive_avg_pool2d(x, 1),
    normal(2, 3, 4, 5),
    dims=IMAGE,
)
function(
    "dynamic shapes",
    "two inputs of one length",
    lambda x, y: x * y,
    normal(2, 5),
    normal(2, 5),
    dims={k: {1: "n"} for k in (0, 1)},
    quick=True,
)
function("dynamic shapes", "a batch of one", lambda x: x.softmax(1), normal(1, 5), quick=True)
function("dynamic shapes", "windows that overlap", lambda x: x.unfold(1, 4, 2).mean(2), normal(2, 8))

# ----- detection ------------------------------------------------------------------------------------------------------


def decoded(anchors, deltas):
    """Boxes from anchors and the network's offsets."""
    size = anchors[:, 2:] - anchors[:, :2]
    center = anchors[:, :2] + size / 2 + deltas[:, :2] * size
    half = deltas[:, 2:].clamp(max=4.0).exp() * size / 2
    return torch.cat([center - half, center + half], 1)


def overlaps(boxes):
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    low, high = torch.maximum(boxes[:, None, :2], boxes[:, :2]), torch.minimum(boxes[:, None, 2:], boxes[:, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    return shared / (area[:, None] + area - shared)


def boxes(count):
    return lambda: torch.cat([torch.rand(count, 2), 1 + torch.rand(count, 2)], 1)


BOXES = {0: {0: "boxes"}}
function("detection", "decoding of boxes", decoded, boxes(6), normal(6, 4), dims={0: {0: "n"}, 1: {0: "n"}}, quick=True)
function("detection", "intersection over union", overlaps, boxes(6), dims=BOXES)
function(
    "detection",
    "the best boxes by score",
    lambda b, s: (b[s.topk(3).indices], *s.topk(3)),
    boxes(6),
    normal(6),
    dims=None,
)
function("detection", "boxes above a score", lambda b, s: (b[s > 0], s[s > 0]), boxes(6), normal(6), dims=None)


@case("detection", "suppression by a matrix", dims=BOXES)
def detection_case():
    def kept(found):
        order = found[:, 0].argsort(descending=True)
        worst = overlaps(found[order]).tril(-1).amax(1)
        return found[order] * (worst < 0.5)[:, None]

    return kept, boxes(6)()

"""Layers of ``torch.nn``."""

from torch import nn

from . import case, normal

#: Name, module, shape of the input, and whether tests run it.
LAYERS = [
    ("Linear", lambda: nn.Linear(4, 3), (2, 4), True),
    ("Linear without bias on a sequence", lambda: nn.Linear(4, 3, bias=False), (2, 5, 4), False),
    ("Conv1d", lambda: nn.Conv1d(3, 4, 3, padding=1), (2, 3, 9), False),
    ("Conv2d with stride", lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), (2, 3, 9, 9), True),
    ("Conv2d with padding same", lambda: nn.Conv2d(3, 4, 4, padding="same"), (2, 3, 9, 9), False),
    (
        "Conv2d with circular padding",
        lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
        (2, 3, 9, 9),
        False,
    ),
    ("Conv2d with groups and dilation", lambda: nn.Conv2d(4, 8, 3, groups=2, dilation=2), (2, 4, 9, 9), False),
    ("Conv3d", lambda: nn.Conv3d(2, 3, 2), (2, 2, 4, 4, 4), False),
    ("ConvTranspose1d", lambda: nn.ConvTranspose1d(3, 4, 3, stride=2), (2, 3, 5), False),
    ("ConvTranspose2d", lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (2, 3, 5, 5), False),
    ("MaxPool2d", lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 9, 9), True),
    ("MaxPool2d with ceil_mode", lambda: nn.MaxPool2d(2, 2, ceil_mode=True), (2, 3, 9, 9), False),
    ("AvgPool2d", lambda: nn.AvgPool2d(3, 2, 1), (2, 3, 9, 9), False),
    ("AvgPool2d without padding counted", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 9, 9), False),
    ("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 7, 5), True),
    ("AdaptiveAvgPool2d to several", lambda: nn.AdaptiveAvgPool2d((2, 3)), (2, 3, 8, 9), False),
    ("LPPool2d", lambda: nn.LPPool2d(2, 2), (2, 3, 8, 8), False),
    ("BatchNorm1d", lambda: nn.BatchNorm1d(4), (3, 4), False),
    ("BatchNorm2d", lambda: nn.BatchNorm2d(3), (2, 3, 4, 4), True),
    ("BatchNorm without parameters", lambda: nn.BatchNorm2d(3, affine=False), (2, 3, 4, 4), False),
    ("LayerNorm", lambda: nn.LayerNorm(6), (2, 5, 6), True),
    ("LayerNorm over two axes", lambda: nn.LayerNorm((5, 6)), (2, 5, 6), False),
    ("GroupNorm", lambda: nn.GroupNorm(2, 4), (2, 4, 5, 5), False),
    ("InstanceNorm2d", lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 5, 5), False),
    ("RMSNorm", lambda: nn.RMSNorm(6), (2, 5, 6), False),
    ("LocalResponseNorm", lambda: nn.LocalResponseNorm(3), (2, 5, 4, 4), False),
    ("ReLU6", nn.ReLU6, (2, 4), False),
    ("GELU", nn.GELU, (2, 4), True),
    ("GELU by tanh", lambda: nn.GELU("tanh"), (2, 4), False),
    ("SiLU", nn.SiLU, (2, 4), False),
    ("Mish", nn.Mish, (2, 4), False),
    ("Hardswish", nn.Hardswish, (2, 4), False),
    ("PReLU", lambda: nn.PReLU(3), (2, 3, 4), False),
    ("CELU", nn.CELU, (2, 4), False),
    ("Softplus", lambda: nn.Softplus(2.0), (2, 4), False),
    ("GLU", nn.GLU, (2, 4), False),
    ("LogSoftmax", lambda: nn.LogSoftmax(1), (2, 4), False),
    ("Upsample nearest", lambda: nn.Upsample(scale_factor=2), (2, 3, 4, 4), False),
    ("Upsample bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 4), False),
    ("Upsample bicubic", lambda: nn.Upsample(size=(7, 9), mode="bicubic", align_corners=True), (2, 3, 4, 4), False),
    ("PixelShuffle", lambda: nn.PixelShuffle(2), (2, 8, 3, 3), False),
    ("ReflectionPad2d", lambda: nn.ReflectionPad2d(2), (2, 3, 5, 5), False),
    ("ReplicationPad1d", lambda: nn.ReplicationPad1d((1, 2)), (2, 3, 5), False),
    ("Unfold", lambda: nn.Unfold(2), (2, 3, 4, 4), False),
    ("Flatten", nn.Flatten, (2, 3, 4), False),
]

for _name, _build, _shape, _quick in LAYERS:
    case("layers", _name, quick=_quick)(lambda build=_build, shape=_shape: (build(), normal(*shape)()))

"""Small instances of twenty architectures, with random weights."""

import torch
from torch import nn
from torch.nn import functional

from . import case, whole

seq = nn.Sequential


def conv(inputs, outputs, kernel=3, stride=1, groups=1, act=nn.ReLU):
    return seq(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        act(),
    )


def head(channels):
    return seq(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))


class Residual(nn.Module):
    def __init__(self, body, shortcut=None, after=None):
        super().__init__()
        self.body, self.shortcut, self.after = body, shortcut or nn.Identity(), after or nn.Identity()

    def forward(self, x):
        return self.after(self.body(x) + self.shortcut(x))


class Concatenated(nn.Module):
    """Concatenated outputs of parallel branches."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gate = seq(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), nn.ReLU(), nn.Conv2d(4, channels, 1), nn.Hardsigmoid()
        )

    def forward(self, x):
        return x * self.gate(x)


def inverted(inputs, outputs, *, stride=1, act=nn.ReLU6, squeeze=False):
    wide = 2 * inputs
    gate = [Squeeze(wide)] if squeeze else []
    body = seq(
        conv(inputs, wide, 1, act=act),
        conv(wide, wide, 3, stride, wide, act),
        *gate,
        conv(wide, outputs, 1, act=nn.Identity),
    )
    return Residual(body) if stride == 1 and inputs == outputs else body


IMAGES = {0: {0: "batch"}}
SIZED = {0: {0: "batch", 2: "height", 3: "width"}}
TOKENS = {0: {0: "batch", 1: "steps"}}


def network(name, dims=IMAGES, *, quick=False, size=32):
    def register(build):
        case("architectures", name, dims=dims, quick=quick)(lambda: (build(), torch.randn(2, 3, size, size)))

    return register


@network("LeNet")
def le_net_network():
    return seq(
        nn.Conv2d(3, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 5), nn.Tanh(), nn.Flatten(), nn.Linear(800, 5)
    )


@network("VGG")
def vgg_network():
    return seq(
        conv(3, 8),
        nn.MaxPool2d(2),
        conv(8, 8),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 16),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(16, 5),
    )


@network("ResNet with basic blocks", SIZED, quick=True)
def res_net_with_basic_blocks_network():
    down = seq(nn.Conv2d(8, 12, 1, 2, bias=False), nn.BatchNorm2d(12))
    blocks = (
        Residual(seq(conv(8, 8), conv(8, 8, act=nn.Identity)), after=nn.ReLU()),
        Residual(seq(conv(8, 12, stride=2), conv(12, 12, act=nn.Identity)), down, nn.ReLU()),
    )
    return seq(conv(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, head(12))


@network("ResNeXt bottleneck")
def res_ne_xt_bottleneck_network():
    body = seq(conv(8, 8, 1), conv(8, 8, groups=4), conv(8, 8, 1, act=nn.Identity))
    return seq(conv(3, 8), Residual(body, after=nn.ReLU()), head(8))


@network("DenseNet")
def dense_net_network():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                seq(nn.BatchNorm2d(8 + 4 * k), nn.ReLU(), nn.Conv2d(8 + 4 * k, 4, 3, padding=1)) for k in range(3)
            )

        def forward(self, x):
            for layer in self.layers:
                x = torch.cat([x, layer(x)], 1)
            return x

    return seq(nn.Conv2d(3, 8, 3), Dense(), nn.AvgPool2d(2), head(20))


@network("Inception")
def inception_network():
    pool = seq(nn.MaxPool2d(3, 1, 1), conv(8, 4, 1))
    return seq(conv(3, 8, stride=2), Concatenated(conv(8, 4, 1), conv(8, 4, 3), conv(8, 4, 5), pool), head(16))


@network("SqueezeNet")
def squeeze_net_network():
    return seq(
        conv(3, 8, stride=2),
        conv(8, 4, 1),
        Concatenated(conv(4, 8, 1), conv(4, 8, 3)),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        head(16),
    )


@network("MobileNetV2", SIZED)
def mobile_net_v2_network():
    return seq(
        conv(3, 8, stride=2, act=nn.ReLU6), inverted(8, 8), inverted(8, 12, stride=2), inverted(12, 12), head(12)
    )


@network("MobileNetV3")
def mobile_net_v3_network():
    act = nn.Hardswish
    return seq(
        conv(3, 8, stride=2, act=act),
        inverted(8, 8, act=act, squeeze=True),
        inverted(8, 12, stride=2, act=act),
        head(12),
    )


@network("EfficientNet")
def efficient_net_network():
    return seq(conv(3, 8, stride=2, act=nn.SiLU), inverted(8, 8, act=nn.SiLU, squeeze=True), head(8))


@network("ShuffleNet")
def shuffle_net_network():
    return seq(conv(3, 8, stride=2), conv(8, 8, 1, groups=2), nn.ChannelShuffle(2), conv(8, 8, groups=8), head(8))


@network("ConvNeXt")
def conv_ne_xt_network():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.depthwise, self.norm = nn.Conv2d(8, 8, 7, padding=3, groups=8), nn.LayerNorm(8)
            self.mix, self.scale = (
                seq(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)),
                nn.Parameter(torch.full((8,), 0.1)),
            )

        def forward(self, x):
            y = self.mix(self.norm(self.depthwise(x).permute(0, 2, 3, 1))) * self.scale
            return x + y.permute(0, 3, 1, 2)

    return seq(nn.Conv2d(3, 8, 4, 4), Block(), Block(), head(8))


@network("U-Net", {0: {0: "batch"}})
def u_net_network():
    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.inner, self.up = conv(3, 8), conv(8, 12), nn.ConvTranspose2d(12, 8, 2, 2)
            self.out = nn.Conv2d(16, 2, 1)

        def forward(self, x):
            a = self.down(x)
            return self.out(torch.cat([a, self.up(self.inner(functional.max_pool2d(a, 2)))], 1))

    return UNet()


@network("DeepLab with pooling at several rates")
def deep_lab_with_pooling_at_several_rates_network():
    class Atrous(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = conv(3, 8, stride=4)
            self.rates = nn.ModuleList(nn.Conv2d(8, 4, 3, padding=r, dilation=r) for r in (1, 2, 3))
            self.whole, self.out = seq(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1)), nn.Conv2d(16, 3, 1)

        def forward(self, x):
            y = self.stem(x)
            wide = functional.interpolate(self.whole(y), size=y.shape[2:], mode="bilinear", align_corners=False)
            y = self.out(torch.cat([*(rate(y) for rate in self.rates), wide], 1))
            return {"masks": functional.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)}

    return Atrous()


@network("SSD detector")
def ssd_detector_network():
    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.place, self.kind = (
                conv(3, 8, stride=8),
                nn.Conv2d(8, 8, 3, padding=1),
                nn.Conv2d(8, 6, 3, padding=1),
            )

        def forward(self, x):
            y = self.body(x)
            boxes = self.place(y).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
            scores = self.kind(y).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 3).softmax(-1)
            best, labels = scores.max(-1)
            order = best.argsort(1, descending=True)[:, :5]
            return boxes.gather(1, order[..., None].expand(-1, -1, 4)), labels.gather(1, order), best.gather(1, order)

    return Detector()


@network("Vision Transformer")
def vision_transformer_network():
    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.first = nn.Conv2d(3, 8, 8, 8), nn.Parameter(torch.randn(1, 1, 8))
            self.places = nn.Parameter(torch.randn(1, 17, 8))
            self.blocks = seq(
                *(
                    nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, norm_first=True)
                    for _ in range(2)
                )
            )
            self.out = nn.Linear(8, 5)

        def forward(self, x):
            tokens = self.patches(x).flatten(2).mT
            tokens = torch.cat([self.first.expand(x.shape[0], -1, -1), tokens], 1) + self.places
            return self.out(self.blocks(tokens)[:, 0])

    return Vision()


class Attention(nn.Module):
    def __init__(self, width, heads, keys=None, *, causal=True, rotary=False):
        super().__init__()
        self.heads, self.keys, self.causal, self.rotary = heads, keys or heads, causal, rotary
        each = width // heads
        self.q, self.k, self.v = (nn.Linear(width, n * each, bias=False) for n in (heads, self.keys, self.keys))
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = (
            f(x).view(batch, steps, n, -1).transpose(1, 2)
            for f, n in ((self.q, self.heads), (self.k, self.keys), (self.v, self.keys))
        )
        if self.rotary:
            half = q.shape[-1] // 2
            angles = torch.arange(steps)[:, None] / 100 ** (torch.arange(half) / half)
            cos, sin = angles.cos(), angles.sin()

            def turn(y):
                one, other = y[..., :half], y[..., half:]
                return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)

            q, k = turn(q), turn(k)
        k, v = (y.repeat_interleave(self.heads // self.keys, 1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.o(y.transpose(1, 2).reshape(batch, steps, width))


class Language(nn.Module):
    """Blocks between an embedding and a head."""

    def __init__(self, norm, block, *, places=True):
        super().__init__()
        self.words, self.places = nn.Embedding(17, 8), nn.Embedding(16, 8) if places else None
        self.blocks, self.norm = nn.ModuleList(block() for _ in range(2)), norm(8)
        self.head = nn.Linear(8, 17, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def language(name, *, quick=False):
    def register(build):
        case("architectures", name, dims=TOKENS, quick=quick)(lambda: (build(), whole(17, 2, 6)()))

    return register


@language("GPT-2", quick=True)
def gpt_2_language():
    def block():
        mix = seq(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU("tanh"), nn.Linear(16, 8))
        return seq(Residual(seq(nn.LayerNorm(8), Attention(8, 2))), Residual(mix))

    return Language(nn.LayerNorm, block)


@language("BERT")
def bert_language():
    def block():
        mix = seq(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        return seq(Residual(Attention(8, 2, causal=False), after=nn.LayerNorm(8)), Residual(mix, after=nn.LayerNorm(8)))

    return Language(nn.LayerNorm, block)


@language("Llama")
def llama_language():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x):
            return self.down(functional.silu(self.gate(x)) * self.up(x))

    def block():
        attention = Attention(8, 4, 2, rotary=True)
        return seq(Residual(seq(nn.RMSNorm(8, 1e-6), attention)), Residual(seq(nn.RMSNorm(8, 1e-6), Gated())))

    return Language(nn.RMSNorm, block, places=False)


@case("architectures", "LSTM tagger", dims={0: {0: "batch"}})
def architectures_case():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.cells = nn.Embedding(17, 6), nn.LSTM(6, 5, bidirectional=True, batch_first=True)
            self.head = nn.Linear(10, 4)

        def forward(self, tokens):
            return self.head(self.cells(self.words(tokens))[0])

    return Tagger(), whole(17, 2, 6)()

"""Small models of common architectures, freshly initialized, with an example input."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

CLASSES, BATCH, WORDS = 3, 4, 11

Made = tuple[nn.Module, torch.Tensor]


class Sum(nn.Module):
    """``x + inner(x)``, with a projection where the number of channels changes."""

    def __init__(self, inner: nn.Module, around: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.around = inner, around or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.around(x) + self.inner(x))


class Dense(nn.Module):
    """A dense block: each layer reads the outputs of all earlier ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(2 + 2 * k), nn.Conv2d(2 + 2 * k, 2, 3, padding=1)) for k in range(3)
        )
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(x.mean((2, 3)))


class Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.up(functional.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.head = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = functional.relu(self.down(x))
        low = functional.relu(self.low(functional.max_pool2d(high, 2)))
        return self.head(torch.cat([high, self.up(low)], 1)).mean((2, 3))


class Vision(nn.Module):
    """A vision transformer: patches, a class token and position embeddings, and an encoder of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(2, 8, 4, 4), nn.Parameter(torch.zeros(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8) * 0.02)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.encoder(x))[:, 0])


class Attention(nn.Module):
    """Self-attention by three separate Linear layers, as in BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, 4)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.first, self.second = Attention(), nn.LayerNorm(8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x + self.attention(x))
        return self.second(x + self.down(functional.gelu(self.up(x))))


class Language(nn.Module):
    """A language model of ``layers`` with a head that may be ``tied`` to the embedding; or a classifier."""

    def __init__(self, layers: nn.ModuleList, *, tied: bool | None) -> None:
        super().__init__()
        self.table, self.places, self.norm = nn.Embedding(WORDS, 8), nn.Embedding(6, 8), nn.LayerNorm(8)
        self.layers = layers
        self.head = nn.Linear(8, CLASSES) if tied is None else nn.Linear(8, WORDS, bias=False)
        self.classifies = tied is None
        if tied:
            self.head.weight = self.table.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.3)
            elif not (parameter == 1).all():
                nn.init.zeros_(parameter)  # as in Hugging Face

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.table(ids) + self.places(torch.arange(6)))
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0] if self.classifies else x.mean(1))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.tokens = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6))
        self.channels = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.channels(self.n2(x))).mean(1))


class Siamese(nn.Module):
    """One network for both halves of the input, with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head((self.tower(x[:, :4]) - self.tower(x[:, 4:])).abs())


class Last(nn.Module):
    """The last state of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase, width: int) -> None:
        super().__init__()
        self.layer, self.norm, self.head = layer, nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layer(x)[0][:, -1]))


class Encoder(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, **options)  # type: ignore[arg-type]
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(1))


class Translator(nn.Module):
    """An encoder and a decoder that reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.head = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.model(x[:, :4], x[:, 4:]).mean(1))


class Adapted(nn.Module):
    """Low-rank adapters of frozen layers; all second factors are initially zero, and thus equal."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(5, 2, bias=False) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(2, 5, bias=False) for _ in range(3))
        self.head = nn.Linear(5, CLASSES)
        for up in self.up:
            nn.init.zeros_(up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for base, down, up in zip(self.base, self.down, self.up, strict=True):
            x = functional.relu(base(x) + up(down(x)))
        return self.head(x)


class Tables(nn.Module):
    """Concatenated embeddings of categories, followed by a perceptron with normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(WORDS, 3) for _ in range(3))
        self.rest = nn.Sequential(
            nn.Linear(9, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Linear(8, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Linear(8, CLASSES),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.rest(torch.cat([table(ids[:, k]) for k, table in enumerate(self.tables)], 1))


class Normalized(nn.Module):
    """Normalization with a manual scale and shift, three times."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.ones(5) for _ in range(3))
        self.shifts = nn.ParameterList(torch.zeros(5) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for scale, shift, layer in zip(self.scales, self.shifts, self.layers, strict=True):
            x = torch.tanh(layer(x)) * scale + shift
        return self.head(x)


class TiedLayers(nn.Module):
    """Two layers, and two normalizations, that share their weights on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.n1, self.n2, self.n3 = (
            nn.Linear(5, 5),
            nn.Linear(5, 5),
            *(nn.LayerNorm(5) for _ in range(3)),
        )
        self.second.weight, self.n2.weight = self.first.weight, self.n1.weight
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.n3(self.n2(self.second(self.n1(self.first(x))))))


def _rows(*sizes: int) -> torch.Tensor:
    return torch.randn(BATCH, *sizes)


def _ids(length: int = 6) -> torch.Tensor:
    return torch.randint(0, WORDS, (BATCH, length))


def _block(first: int, second: int) -> nn.Module:
    layers = (
        nn.Conv2d(first, second, 3, padding=1, bias=False),
        nn.BatchNorm2d(second),
        nn.ReLU(),
        nn.Conv2d(second, second, 3, padding=1, bias=False),
        nn.BatchNorm2d(second),
    )
    return Sum(nn.Sequential(*layers), nn.Conv2d(first, second, 1) if first != second else None)


def _ends(channels: int, *layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def _language(count: int, *, tied: bool | None, shared: bool = False) -> nn.Module:
    layer = Layer()
    return Language(nn.ModuleList(layer if shared else Layer() for _ in range(count)), tied=tied)


ARCHITECTURES: dict[str, Callable[[], Made]] = {
    "perceptron": lambda: (
        nn.Sequential(
            nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, CLASSES)
        ),
        _rows(5),
    ),
    "LeNet": lambda: (
        nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(36, 8),
            nn.Tanh(),
            nn.Linear(8, CLASSES),
        ),
        _rows(2, 8, 8),
    ),
    "VGG": lambda: (
        _ends(
            4,
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
        ),
        _rows(2, 10, 10),
    ),
    "ResNet": lambda: (_ends(6, _block(2, 4), _block(4, 4), _block(4, 6)), _rows(2, 6, 6)),
    "DenseNet": lambda: (Dense(), _rows(2, 6, 6)),
    "MobileNet": lambda: (
        _ends(
            6,
            nn.Conv2d(2, 4, 1),
            nn.BatchNorm2d(4),
            nn.ReLU6(),
            nn.Conv2d(4, 4, 3, groups=4),
            nn.BatchNorm2d(4),
            nn.ReLU6(),
            nn.Conv2d(4, 6, 1),
        ),
        _rows(2, 6, 6),
    ),
    "EfficientNet": lambda: (
        _ends(4, nn.Conv2d(2, 4, 3), nn.SiLU(), Squeeze(4), nn.Conv2d(4, 4, 1), Squeeze(4)),
        _rows(2, 6, 6),
    ),
    "ConvNeXt": lambda: (
        _ends(
            4,
            nn.Conv2d(2, 4, 2, 2),
            nn.GroupNorm(1, 4),
            nn.Conv2d(4, 4, 3, padding=1, groups=4),
            nn.GroupNorm(1, 4),
            nn.GELU(),
        ),
        _rows(2, 8, 8),
    ),
    "instance norms": lambda: (
        _ends(
            4,
            nn.Conv2d(2, 4, 3),
            nn.InstanceNorm2d(4, affine=True),
            nn.ReLU(),
            nn.Conv2d(4, 4, 1),
            nn.InstanceNorm2d(4, affine=True),
            nn.PReLU(4),
        ),
        _rows(2, 7, 7),
    ),
    "U-Net": lambda: (Unet(), _rows(2, 8, 8)),
    "ViT": lambda: (Vision(), _rows(2, 8, 8)),
    "BERT": lambda: (_language(2, tied=None), _ids()),
    "GPT with a tied head": lambda: (_language(2, tied=True), _ids()),
    "GPT": lambda: (_language(2, tied=False), _ids()),
    "ALBERT": lambda: (_language(3, tied=None, shared=True), _ids()),
    "encoder": lambda: (Encoder(), _rows(6, 8)),
    "encoder, norm first": lambda: (Encoder(norm_first=True, activation="gelu"), _rows(6, 8)),
    "encoder and decoder": lambda: (Translator(), _rows(7, 8)),
    "mixer": lambda: (Mixer(), _rows(6, 8)),
    "siamese": lambda: (Siamese(), _rows(8)),
    "LSTM": lambda: (Last(nn.LSTM(5, 6, batch_first=True), 6), _rows(7, 5)),
    "GRU": lambda: (Last(nn.GRU(5, 6, batch_first=True), 6), _rows(7, 5)),
    "two layers of RNN": lambda: (Last(nn.RNN(5, 6, 2, batch_first=True), 6), _rows(7, 5)),
    "LoRA": lambda: (Adapted(), _rows(5)),
    "tables": lambda: (Tables(), _ids(3)),
    "own scales": lambda: (Normalized(), _rows(5)),
    "tied layers": lambda: (TiedLayers(), _rows(5)),
}

"""Second set of small architectures for ``exits.py``, and sizes common to both sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}

#: Sizes of a feature encoder for audio.
WAVES = {
    "conv_dim": [16, 16],
    "conv_kernel": [10, 3],
    "conv_stride": [5, 2],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 2,
}

#: The encoder's sizes for images of 32 pixels, in patches of 8.
PATCHES = {**SIZES, "image_size": 32, "patch_size": 8}

_WORDS = {**SIZES, "vocab_size": 50, "pad_token_id": 0}
_CACHED = {**_WORDS, "num_key_value_heads": 2}

TEXT = {
    "deberta": ("DebertaV2Model", "DebertaV2Config", {**_WORDS, "relative_attention": True, "pos_att_type": ["p2c"]}),
    "squeezebert": (
        "SqueezeBertModel",
        "SqueezeBertConfig",
        {**_WORDS, "embedding_size": 32, "q_groups": 2, "k_groups": 2, "v_groups": 2, "output_groups": 2},
    ),
    "convbert": ("ConvBertModel", "ConvBertConfig", {**_WORDS, "embedding_size": 32, "head_ratio": 2}),
    "mobilebert": (
        "MobileBertModel",
        "MobileBertConfig",
        {**_WORDS, "embedding_size": 32, "intra_bottleneck_size": 16, "num_feedforward_networks": 2},
    ),
    "fnet": ("FNetModel", "FNetConfig", _WORDS),
    "nystromformer": (
        "NystromformerModel",
        "NystromformerConfig",
        {**_WORDS, "num_landmarks": 4, "segment_means_seq_len": 8},
    ),
    "ernie": ("ErnieModel", "ErnieConfig", _WORDS),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50}),
    "gptj": (
        "GPTJForCausalLM",
        "GPTJConfig",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "vocab_size": 50},
    ),
    "phi": ("PhiForCausalLM", "PhiConfig", _WORDS),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**_CACHED, "head_dim": 8}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_CACHED, "sliding_window": 4}),
    "falcon": ("FalconForCausalLM", "FalconConfig", _WORDS),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", _CACHED),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", _CACHED),
    "mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        {"hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 50, "state_size": 4},
    ),
}
IMAGES = {
    "beit": ("BeitModel", "BeitConfig", PATCHES),
    "poolformer": (
        "PoolFormerModel",
        "PoolFormerConfig",
        {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
    ),
    "efficientnet": (
        "EfficientNetModel",
        "EfficientNetConfig",
        {"width_coefficient": 0.25, "depth_coefficient": 0.25, "image_size": 32, "hidden_dim": 320},
    ),
    "convnextv2": (
        "ConvNextV2Model",
        "ConvNextV2Config",
        {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
    ),
    "focalnet": (
        "FocalNetModel",
        "FocalNetConfig",
        {"image_size": 32, "embed_dim": 16, "depths": [1, 1], "focal_levels": [2, 2], "focal_windows": [3, 3]},
    ),
    "swinv2": (
        "Swinv2Model",
        "Swinv2Config",
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4},
    ),
    "pvt": (
        "PvtModel",
        "PvtConfig",
        {
            "image_size": 32,
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 16, 16, 16],
            "num_attention_heads": [1, 2, 2, 2],
            "mlp_ratios": [2, 2, 2, 2],
        },
    ),
    "cvt": ("CvtModel", "CvtConfig", {"embed_dim": [16, 16, 32], "num_heads": [1, 2, 2], "depth": [1, 1, 1]}),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", PATCHES),
    "yolos": (
        "YolosForObjectDetection",
        "YolosConfig",
        {**PATCHES, "image_size": [32, 32], "num_detection_tokens": 5},
    ),
    "mobilevit": (
        "MobileViTModel",
        "MobileViTConfig",
        {
            "image_size": 32,
            "hidden_sizes": [16, 16, 16],
            "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32],
            "num_attention_heads": 2,
        },
    ),
}
SOUND = {
    "wavlm": ("WavLMModel", "WavLMConfig", {**SIZES, **WAVES}),
    "unispeech": ("UniSpeechModel", "UniSpeechConfig", {**SIZES, **WAVES}),
    "sew": ("SEWModel", "SEWConfig", {**SIZES, **WAVES, "squeeze_factor": 2}),
}


def further() -> Iterator[tuple[str, Callable[[], object], tuple[object, ...]]]:
    """Names of architectures, functions that make a module in evaluation mode, and its arguments."""
    import torch
    import transformers
    from torch import nn
    from torch.nn import functional

    ids, image, waves = torch.randint(1, 50, (2, 8)), torch.randn(2, 3, 32, 32), torch.randn(2, 400)

    class First(nn.Module):
        def __init__(self, kind: str, config: str, small: dict[str, object]) -> None:
            super().__init__()
            config_object = getattr(transformers, config)(**small)
            if hasattr(config_object, "use_cache"):
                config_object.use_cache = False
            try:
                self.model = getattr(transformers, kind)._from_config(config_object, attn_implementation="eager")
            except (TypeError, ValueError):
                self.model = getattr(transformers, kind)(config_object)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x, return_dict=False)[0]

    for family, argument in ((TEXT, ids), (IMAGES, image), (SOUND, waves)):
        for name, given in family.items():
            yield name, lambda given=given: First(*given), (argument,)

    class Attending(nn.Module):
        """A recurrent encoder, and attention of its last state over all states."""

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.encoder = nn.Embedding(50, 16), nn.GRU(16, 16, bidirectional=True, batch_first=True)
            self.attend, self.head = nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            states, _ = self.encoder(self.embed(x))
            return self.head(self.attend(states[:, -1:], states, states)[0][:, 0])

    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTMCell(8, 16), nn.GRUCell(16, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = c = x.new_zeros(x.shape[0], 16)
            other, found = x.new_zeros(x.shape[0], 12), []
            for step in range(4):
                h, c = self.first(x[:, step], (h, c))
                other = self.second(h, other)
                found.append(other)
            return torch.stack(found, 1)

    class Spoken(nn.Module):
        """Convolutions over spectra, and a recurrent network over time."""

        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.Sequential(nn.Conv2d(1, 8, 3, (2, 1), 1), nn.BatchNorm2d(8), nn.Hardtanh(0, 20))
            self.rnn, self.head = nn.LSTM(32, 16, 2, bidirectional=True, batch_first=True), nn.Linear(32, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.convs(x.unsqueeze(1)).flatten(1, 2).transpose(1, 2)
            return self.head(self.rnn(y)[0]).log_softmax(-1)

    class Generator(nn.Module):
        """Transposed convolutions with residual stacks, as in vocoders."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv1d(8, 16, 7, padding=3), nn.Conv1d(4, 1, 7, padding=3)
            self.ups = nn.ModuleList([nn.ConvTranspose1d(16, 8, 4, 2, 1), nn.ConvTranspose1d(8, 4, 4, 2, 1)])
            self.stacks = nn.ModuleList([nn.Conv1d(n, n, 3, padding=d, dilation=d) for n, d in ((8, 1), (4, 3))])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            for up, stack in zip(self.ups, self.stacks, strict=True):
                y = up(functional.leaky_relu(y, 0.1))
                y = y + stack(functional.leaky_relu(y, 0.1))
            return torch.tanh(self.last(y))

    class Volumes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv3d(1, 4, 3, 2, 1), nn.ConvTranspose3d(4, 2, 2, 2)
            self.norm, self.pool = nn.GroupNorm(2, 4), nn.AdaptiveAvgPool3d(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.pool(self.up(functional.elu(self.norm(self.down(x)))))

    class Pyramid(nn.Module):
        """A feature pyramid of three sizes with a shared head."""

        def __init__(self) -> None:
            super().__init__()
            self.downs = nn.ModuleList([nn.Conv2d(a, b, 3, 2, 1) for a, b in ((3, 8), (8, 8), (8, 8))])
            self.head = nn.Conv2d(8, 6, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = []
            for down in self.downs:
                x = functional.mish(down(x))
                found.append(x)
            y, heads = found[-1], []
            for feature in found[::-1][1:]:
                y = feature + functional.interpolate(y, size=feature.shape[-2:], mode="nearest")
                heads.append(self.head(y).flatten(2).transpose(1, 2))
            boxes, scores = torch.cat(heads, 1).sigmoid().split([4, 2], -1)
            best = scores.amax(-1).topk(5).indices
            return boxes.gather(1, best.unsqueeze(-1).expand(-1, -1, 4))

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(16, 4)
            self.experts = nn.ModuleList(
                [nn.Sequential(nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 16)) for _ in range(4)]
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, chosen = self.gate(x).softmax(-1).topk(2)
            mask = functional.one_hot(chosen, 4).to(x.dtype)
            shares = (mask * weights.unsqueeze(-1)).sum(-2)
            return sum(expert(x) * shares[..., k : k + 1] for k, expert in enumerate(self.experts))

    class Spectral(nn.Module):
        """A spectrogram by a strided convolution with windows, and its cumulative mean."""

        def __init__(self) -> None:
            super().__init__()
            angles = torch.outer(torch.arange(17), torch.arange(32)) * (2 * torch.pi / 32)
            self.register_buffer("basis", torch.cat([angles.cos(), angles.sin()]).unsqueeze(1) * torch.hann_window(32))
            self.mix = nn.Linear(17, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            real, imaginary = functional.conv1d(x.unsqueeze(1), self.basis, stride=16).chunk(2, 1)
            power = (real.square() + imaginary.square() + 1e-6).log().transpose(1, 2)
            steps = torch.arange(1, power.shape[1] + 1, dtype=power.dtype).unsqueeze(-1)
            return self.mix(power - power.cumsum(1) / steps)

    yield "attending", Attending, (ids,)
    yield "cells", Cells, (torch.randn(2, 4, 8),)
    yield "spoken", Spoken, (torch.randn(2, 8, 12),)
    yield "generator", Generator, (torch.randn(2, 8, 10),)
    yield "volumes", Volumes, (torch.randn(2, 1, 8, 8, 8),)
    yield "pyramid", Pyramid, (image,)
    yield "mixture", Mixture, (torch.randn(2, 6, 16),)
    yield "spectral", Spectral, (waves,)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.LocalResponseNorm(3), nn.CELU(), nn.AdaptiveMaxPool2d(4), nn.Flatten()]
    yield "classic", lambda: nn.Sequential(*layers, nn.Linear(128, 10), nn.Softsign()), (image,)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    yield "encoder", lambda: nn.TransformerEncoder(layer, 2), (torch.randn(2, 7, 16),)

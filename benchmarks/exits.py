"""Share of the files of PyTorch's exporters that are converted to another format correctly.

    python benchmarks/exits.py make FOLDER [NAME ...]        # needs torch, transformers and onnxscript
    python benchmarks/exits.py make FOLDER further           # the architectures of further_architectures.py
    python benchmarks/exits.py convert FOLDER .stablehlo     # needs the package of the format

``make`` writes small architectures with random weights, by both exporters of PyTorch and with a dynamic batch.
``convert`` writes each file in a format, and compares the outputs of the format's own runtime at several batch sizes.
It prints a line per file and the share: a file is ``right``, ``refused`` with the reason, ``wrong`` or ``failed``.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from further_architectures import PATCHES, SIZES, WAVES, further

#: Time limit of one conversion in seconds; on a busy machine, imports take most of it.
LIMIT = 300

#: Architectures of transformers: model class, configuration class, and small sizes.
TEXT = {
    "bert": ("BertModel", "BertConfig", {**SIZES, "vocab_size": 50}),
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 50},
    ),
    "roberta": ("RobertaModel", "RobertaConfig", {**SIZES, "vocab_size": 50}),
    "albert": ("AlbertModel", "AlbertConfig", {**SIZES, "vocab_size": 50, "embedding_size": 16}),
    "electra": ("ElectraModel", "ElectraConfig", {**SIZES, "vocab_size": 50, "embedding_size": 16}),
    "mpnet": ("MPNetModel", "MPNetConfig", {**SIZES, "vocab_size": 50}),
    "t5": (
        "T5EncoderModel",
        "T5Config",
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 50},
    ),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50}),
    "opt": ("OPTForCausalLM", "OPTConfig", {**SIZES, "ffn_dim": 64, "word_embed_proj_dim": 32, "vocab_size": 50}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 2, "vocab_size": 50}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**SIZES, "num_key_value_heads": 2, "vocab_size": 50}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**SIZES, "vocab_size": 50}),
}
IMAGES = {
    "vit": ("ViTModel", "ViTConfig", PATCHES),
    "deit": ("DeiTModel", "DeiTConfig", PATCHES),
    "dinov2": ("Dinov2Model", "Dinov2Config", PATCHES),
    "swin": (
        "SwinModel",
        "SwinConfig",
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4},
    ),
    "resnet": ("ResNetModel", "ResNetConfig", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}),
    "convnext": ("ConvNextModel", "ConvNextConfig", {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}),
    "mobilenet": ("MobileNetV2Model", "MobileNetV2Config", {"depth_multiplier": 0.25}),
    "segformer": (
        "SegformerModel",
        "SegformerConfig",
        {
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "regnet": (
        "RegNetModel",
        "RegNetConfig",
        {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
    ),
}
SOUND = {
    "wav2vec2": (
        "Wav2Vec2Model",
        "Wav2Vec2Config",
        {**SIZES, **WAVES},
    ),
    "hubert": (
        "HubertModel",
        "HubertConfig",
        {**SIZES, **WAVES},
    ),
    "ast": ("ASTModel", "ASTConfig", {**SIZES, "num_mel_bins": 16, "max_length": 64}),
}


def architectures() -> Iterator[tuple[str, Callable[[], object], tuple[object, ...]]]:
    """Names of architectures, functions that make a module in evaluation mode, and its arguments."""
    import torch
    import transformers
    from torch import nn

    ids = (torch.randint(0, 50, (2, 7)),)
    image = (torch.randn(2, 3, 32, 32),)
    waves, spectra = (torch.randn(2, 400),), (torch.randn(2, 64, 16),)
    inputs = {
        **dict.fromkeys(TEXT, ids),
        **dict.fromkeys(IMAGES, image),
        "wav2vec2": waves,
        "hubert": waves,
        "ast": spectra,
    }

    def of_transformers(kind: str, config: str, small: dict[str, object]) -> Callable[[], object]:
        class First(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                options = {} if kind in ("MobileNetV2Model",) else {"attn_implementation": "eager"}
                config_object = getattr(transformers, config)(**small, **options)
                if hasattr(config_object, "use_cache"):
                    config_object.use_cache = False
                self.model = getattr(transformers, kind)(config_object)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.model(x, return_dict=False)[0]

        return First

    for name, (kind, config, small) in {**TEXT, **IMAGES, **SOUND}.items():
        yield name, of_transformers(kind, config, small), inputs[name]

    class Recurrent(nn.Module):
        def __init__(self, kind: type[nn.Module], **options: object) -> None:
            super().__init__()
            self.inner = kind(8, 16, batch_first=True, **options)
            self.head = nn.Linear(32 if options.get("bidirectional") else 16, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.inner(x)[0]).log_softmax(-1)

    rows = (torch.randn(2, 6, 8),)
    yield "lstm", lambda: Recurrent(nn.LSTM, num_layers=2), rows
    yield "bilstm", lambda: Recurrent(nn.LSTM, bidirectional=True), rows
    yield "gru", lambda: Recurrent(nn.GRU), rows
    yield "rnn", lambda: Recurrent(nn.RNN), rows
    layers = [
        *(nn.Conv2d(3, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True), nn.SiLU()),
        *(nn.Upsample(scale_factor=2, mode="bilinear"), nn.ConvTranspose2d(8, 4, 2, 2), nn.PReLU(), nn.PixelShuffle(2)),
        *(nn.ReflectionPad2d(1), nn.MaxPool2d(3, 2, 1, ceil_mode=True)),
    ]
    yield "unet", lambda: nn.Sequential(*layers), image
    yield (
        "tcn",
        lambda: nn.Sequential(
            nn.Conv1d(1, 8, 3, padding=4, dilation=4),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.AvgPool1d(2),
            nn.Conv1d(8, 4, 3, groups=4),
        ),
        (torch.randn(2, 1, 64),),
    )


def make(folder: Path, names: Sequence[str]) -> None:
    """Export every architecture, or those in ``names``, with both exporters; skips those that an exporter rejects."""
    import torch

    folder.mkdir(exist_ok=True)
    chosen = further() if names == ["further"] else architectures()
    for name, module, arguments in chosen:
        if names and name not in names and names != ["further"]:
            continue
        for dynamo in (True, False):
            path = folder / f"{name}-{'dynamo' if dynamo else 'script'}.onnx"
            if path.exists():
                continue
            torch.manual_seed(0)
            shapes = (
                {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)}
                if dynamo
                else {"dynamic_axes": {"x": {0: "batch"}}, "input_names": ["x"]}
            )
            quiet = io.StringIO()
            try:
                with (
                    warnings.catch_warnings(action="ignore"),
                    contextlib.redirect_stdout(quiet),
                    contextlib.redirect_stderr(quiet),
                ):
                    torch.onnx.export(
                        module().eval(), arguments, path, dynamo=dynamo, opset_version=18, external_data=False, **shapes
                    )
            except Exception as error:  # the exporters raise many kinds
                sys.stdout.write(f"{path.stem}: not exported: {type(error).__name__} {str(error)[:80]!r}\n")


def convert(path: Path, suffix: str) -> tuple[str, str]:
    """Convert one file; returns the outcome and the reason in one line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tenonnx", "convert", str(path), "-o", f"{folder}/m{suffix}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return "failed", f"not within {LIMIT} seconds"
    lines = done.stderr.strip().splitlines() or [""]
    if done.returncode == 0:
        return "right", done.stdout.partition("\n")[0].partition(": ")[2][:100]
    reason = " ".join(" ".join(lines[:3]).split())[:200]
    kind = lines[0].partition(":")[0]
    outcome = (
        "wrong" if "differ" in lines[0] else "refused" if kind in ("NotRepresentable", "UnsupportedOp") else "failed"
    )
    return outcome, reason


def main() -> int:
    command, folder, *suffixes = sys.argv[1:]
    if command == "make":
        make(Path(folder), suffixes)
        return 0
    for suffix in suffixes:
        counts: Counter[str] = Counter()
        for path in sorted(Path(folder).glob("*.onnx")):
            outcome, reason = convert(path, suffix)
            counts[outcome] += 1
            sys.stdout.write(f"{path.stem}{suffix}: {outcome}{'' if outcome == 'right' else f': {reason}'}\n")
            sys.stdout.flush()
        sys.stdout.write(f"{suffix}: {counts['right']} of {counts.total()} right, {dict(counts)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

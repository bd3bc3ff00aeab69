"""Layout of onnxruntime-genai: ``genai_config.json``, and generation for verification.

The keys are documented in https://onnxruntime.ai/docs/genai/reference/config.html.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import VerificationFailed
from tenonnx.extend import NotRepresentable
from tenonnx_transformers.generation import Prompts, ends_of, pad_of
from tenonnx_transformers.states import PAST, State

#: Model types of onnxruntime-genai 0.18 that fit decoders of this package; others are written as ``decoder``.
TYPES = frozenset(
    {
        "decoder",
        "ernie4_5",
        "gemma",
        "gemma2",
        "gemma3_text",
        "granite",
        "lfm2",
        "llama",
        "mistral",
        "nemotron",
        "olmo",
        "phi",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen3",
        "smollm3",
    }
)

#: Names of the runtime for the kinds of states that it supports.
NAMES = {"key": "key", "value": "value", "conv_state": "conv"}

#: Search options with their defaults.
_SEARCH = {
    "diversity_penalty": 0.0,
    "do_sample": False,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
}


def check_states(model_type: str, states: Sequence[State]) -> None:
    """Raise ``NotRepresentable``, with the layer, for states that the runtime does not support."""
    if not states:
        raise NotRepresentable(
            "onnxruntime-genai serves only decoders that generate text",
            given=model_type,
            available="onnxruntime, transformers.js",
            do="use --layout onnxruntime",
        )
    sizes = {}
    for state in states:
        if state.kind not in NAMES or (state.kind == "conv_state" and model_type != "lfm2"):
            raise NotRepresentable(
                "onnxruntime-genai does not keep this state of a decoder",
                given=f'layer {state.layer} of "{model_type}": {state.kind}',
                do="use --layout onnxruntime, whose caller keeps the states",
            )
        if PAST in state.axes.values():
            sizes[tuple(state.shape[axis] for axis in range(len(state.shape)) if axis not in state.axes)] = state
    if len(sizes) > 1:
        given = ", ".join(f"layer {each.layer} {each.kind}: {size}" for size, each in sizes.items())
        raise NotRepresentable(
            "onnxruntime-genai needs keys and values of one number of heads and one size",
            given=f'"{model_type}": {given}',
            do="use --layout onnxruntime, whose caller keeps the states",
        )


def genai_config(model: Any, inputs: Sequence[str], states: Sequence[State], filename: str) -> dict[str, Any]:
    """Return the contents of ``genai_config.json``. ``inputs`` are the names of the graph's inputs."""
    config = model.config.get_text_config(decoder=True)
    chosen = model.generation_config
    key = next(state for state in states if state.kind == "key")
    kinds = {state.kind for state in states}
    own = [name for name in ("input_ids", "attention_mask", "position_ids") if name in inputs]
    ends = ends_of(chosen) or ends_of(config)
    first = getattr(config, "bos_token_id", None)
    context = context_length(config)
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": filename,
        "head_size": key.shape[-1],
        "hidden_size": config.hidden_size,
        "inputs": {name: name for name in own}
        | {f"past_{NAMES[kind]}_names": f"past_key_values.%d.{kind}" for kind in NAMES if kind in kinds},
        "outputs": {"logits": "logits"}
        | {f"present_{NAMES[kind]}_names": f"present.%d.{kind}" for kind in NAMES if kind in kinds},
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": 1 + max(state.layer for state in states),
        "num_key_value_heads": key.shape[1],
    }
    if "conv_state" in kinds:
        decoder["layer_types"] = list(config.layer_types)
    search = {name: getattr(chosen, name, None) for name in _SEARCH}
    given = {name: default if search[name] is None else search[name] for name, default in _SEARCH.items()}
    return {
        "model": {
            "bos_token_id": first if isinstance(first, int) else (ends or [0])[0],
            "context_length": context,
            "decoder": decoder,
            "eos_token_id": ends[0] if len(ends) == 1 else ends,
            "pad_token_id": pad_of(config),
            "type": config.model_type if config.model_type in TYPES else "decoder",
            "vocab_size": config.vocab_size,
        },
        "search": {
            **given,
            "early_stopping": True,
            "max_length": context,
            "min_length": 0,
            "past_present_share_buffer": False,
        },
    }


def context_length(config: Any) -> int:
    """Maximum number of tokens of a model; 2048 if its config has no such field."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        given = getattr(config, name, None)
        if isinstance(given, int) and given > 0:
            return given
    return 2048


def is_installed() -> bool:
    return find_spec("onnxruntime_genai") is not None


#: Session options for comparing: weights stay in the file that is mapped.
_UNPACKED = json.dumps({"model": {"decoder": {"session_options": {"session.disable_prepacking": "1"}}}})


def generated_by_genai(folder: Path, prompts: Prompts, steps: int, adapter: Path | None = None) -> np.ndarray[Any, Any]:
    """Generate greedy tokens with onnxruntime-genai, int of shape (batch, ``steps``), without stopping early.

    ``adapter`` is the file of an adapter to use.

    Raises ``VerificationFailed`` if the runtime cannot run the folder.
    """
    import onnxruntime_genai as runtime

    length = prompts.tokens.shape[1] + steps
    try:
        config = runtime.Config(str(folder))
        config.overlay(_UNPACKED)
        model = runtime.Model(config)
        parameters = runtime.GeneratorParams(model)
        parameters.set_search_options(
            max_length=length,
            min_length=length,
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            batch_size=len(prompts.tokens),
        )
        generator = runtime.Generator(model, parameters)
        if adapter is not None:
            known = runtime.Adapters(model)
            known.load(str(adapter), adapter.stem)
            generator.set_active_adapter(known, adapter.stem)
        generator.append_tokens(prompts.on_the_right().numpy().astype(np.int32))
        for _ in range(steps):
            generator.generate_next_token()
        return np.stack([generator.get_sequence(row)[-steps:] for row in range(len(prompts.tokens))])
    except Exception as error:  # the binding raises its own types
        raise VerificationFailed("onnxruntime-genai does not run the folder", given=str(error)[:400]) from error

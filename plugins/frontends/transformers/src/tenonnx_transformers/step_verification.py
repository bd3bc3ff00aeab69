"""Comparison of encoder-decoder graphs with the model, on logits and greedy tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers

from tenonnx.extend.checks import Tolerance
from tenonnx_torch.examples import to_numpy
from tenonnx_transformers.calls import inputs_for
from tenonnx_transformers.encoder_decoders import MASK, Parts, start_tokens
from tenonnx_transformers.generation import Generated, compare_tokens, ends_of, pad_of, steps_for
from tenonnx_transformers.sources import Source, quiet
from tenonnx_transformers.verification import Compared, Session, check

#: Batch size, encoder length, and numbers of new tokens in successive decoder calls.
_CALLS = ((1, 5, (1, 1, 2)), (2, 8, (4, 1, 3)), (3, 11, (1, 3, 1)))


class Decoding:
    """Decoding loop over two graphs: the first call runs the one without past, later calls the one with states."""

    def __init__(self, parts: Parts, runs: Sequence[Session], inputs: Mapping[str, torch.Tensor]) -> None:
        self.parts, self.runs = parts, runs
        hidden, *mask = runs[0]({name: tensor.numpy() for name, tensor in inputs.items()})
        self.hidden, self.inputs = hidden, {"encoder_hidden_states": hidden}
        if "attention_mask" in inputs:
            self.inputs[MASK] = mask[0] if mask else inputs["attention_mask"].numpy()
        self.began = False

    def __call__(self, tokens: Any) -> Any:
        """Return the logits of new tokens, float32 of shape (batch, new, vocabulary)."""
        part, run = (self.parts.step, self.runs[2]) if self.began else (self.parts.first, self.runs[1])
        logits, *states = run({**self.inputs, "input_ids": np.asarray(tokens)})
        names = [name.replace("present", "past_key_values") for name in part.outputs[1:]]
        self.inputs.update(zip(names, states, strict=True))
        self.began = True
        return np.asarray(logits, np.float32)


def compare_steps(source: Source, parts: Parts, runs: Sequence[Session], allowed: Tolerance) -> list[Compared]:
    """Compare step-by-step logits with one call of the model for the whole text. Raises ``VerificationFailed``."""
    model: Any = source.model
    result = []
    for seed, (batch, length, news) in enumerate(_CALLS):
        inputs = inputs_for(source, batch, length, seed)
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(3, _vocabulary(model), (batch, sum(news)), generator=generator)
        with torch.no_grad():
            encoded = to_numpy(parts.encoder.call(inputs)[0])
            whole = model(**inputs, decoder_input_ids=tokens, use_cache=False).logits.float().numpy()
        decoding = Decoding(parts, runs, inputs)
        where = f"batch {batch}, length {length}"
        seen = decoding.inputs.get(MASK, np.ones(encoded.shape[:2])) == 1
        result.append(
            check(parts.encoder.name, "last_hidden_state", where, decoding.hidden[seen], encoded[seen], allowed)
        )
        begin = 0
        for new in news:
            end = begin + new
            name = parts.step.name if decoding.began else parts.first.name
            logits = decoding(tokens[:, begin:end])
            place = f"{where}, past {begin}, new {new}"
            result.append(check(name, "logits", place, logits, whole[:, begin:end], allowed))
            begin = end
    return result


def _vocabulary(model: Any) -> int:
    return int(model.config.get_text_config(decoder=True).vocab_size)


def compare_texts(source: Source, parts: Parts, runs: Sequence[Session], allowed: Tolerance) -> Generated:
    """Compare greedy tokens of a batch with those of ``generate``. Raises ``VerificationFailed`` if they differ."""
    model: Any = source.model
    inputs = inputs_for(source, 3, 11)
    limit = getattr(model.config, "max_target_positions", None)
    steps = steps_for(model.config)
    steps = min(steps, limit - 2) if isinstance(limit, int) else steps
    begin = start_tokens(model, 3)
    config = model.config.get_text_config(decoder=True)
    plain = dict.fromkeys(
        ("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens"), None
    )
    with quiet(), torch.no_grad():
        expected = transformers.GenerationMixin.generate(
            model,
            **inputs,
            decoder_input_ids=begin,
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            num_beams=1,
            pad_token_id=pad_of(config),
            **plain,
        )[:, -steps:].numpy()
    decoding, tokens, found = Decoding(parts, runs, inputs), begin.numpy(), []
    for _ in range(steps):
        last = np.array(decoding(tokens)[:, -1])
        last[:, ends_of(model.generation_config) or ends_of(config)] = -np.inf
        found.append(last.argmax(-1))
        tokens = found[-1][:, None]

    def logits(row: int, step: int) -> Any:
        seen = torch.cat([begin[row], torch.from_numpy(expected[row, :step])])[None]
        one = {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        with torch.no_grad():
            return model(**one, decoder_input_ids=seen, use_cache=False).logits[0, -1].float().numpy()

    return compare_tokens("onnxruntime", np.stack(found, 1), expected, logits, allowed)

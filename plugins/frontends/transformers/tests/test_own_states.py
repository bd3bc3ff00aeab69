"""States in model-specific caches and in attributes of modules, by layer and kind."""

import pytest
import torch
from configurations import make

from tenonnx_transformers.decoders import decoder_parts, decoder_states, token_inputs
from tenonnx_transformers.sources import quiet
from tenonnx_transformers.states import run_model


@pytest.mark.parametrize(
    ("name", "kinds", "parts"),
    [
        ("rwkv", {(0, "state"), (4, "state")}, ["model"]),
        ("minimax", {(0, "linear_cache"), (1, "key")}, ["decoder_model", "decoder_with_past_model"]),
        (
            "recurrent_gemma",
            {(0, "conv1d_state"), (0, "recurrent_states"), (1, "value")},
            ["decoder_model", "decoder_with_past_model"],
        ),
    ],
)
def test_states_continue_a_text(name, kinds, parts):
    """The number of parts depends on whether continuing from the states gives the logits of the whole text."""
    model = make(name)
    with quiet():
        states = decoder_states(model)
        result = decoder_parts(model, states)
    assert kinds <= {(state.layer, state.kind) for state in states}
    assert [part.name for part in result] == parts


def test_attributes_created_by_a_call_are_not_states():
    model = make("recurrent_gemma")
    model.model.final_norm.register_forward_hook(lambda module, given, found: setattr(module, "held", found))
    tokens = torch.tensor([[5, 6, 7]])
    with torch.no_grad(), quiet():
        _, held = run_model(model, token_inputs(model, tokens, torch.ones_like(tokens)), {})
    assert {kind for _, kind in held} == {"conv1d_state", "recurrent_states", "key", "value"}


def test_attributes_of_modules_stay_as_they_were():
    """States of an earlier call do not affect a new one, although modules keep them."""
    model = make("recurrent_gemma")
    tokens = torch.tensor([[5, 6, 7]])
    given = token_inputs(model, tokens, torch.ones_like(tokens))
    with torch.no_grad(), quiet():
        first, held = run_model(model, given, {})
        run_model(model, given, {key: torch.ones_like(tensor) for key, tensor in held.items()})
        model(**given, use_cache=True)
        again, _ = run_model(model, given, {})
    assert torch.equal(first, again)

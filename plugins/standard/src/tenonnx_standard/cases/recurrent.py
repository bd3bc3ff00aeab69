"""Cases of recurrent layers."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_standard.recurrent import gru, lstm, rnn
from tenonnx_testing import Gap, call, cases, tensors

FLOATS = ["float32", "float64", "float16"]
#: Smooth activations, for the gradient checks.
ACTIVATIONS = ["Tanh", "Sigmoid", "Softsign", "Softplus", "ScaledTanh", "Affine"]


def layer(draw, gates, states, activations):
    """The inputs of a layer with this number of gates and states, and the attributes that all layers share."""
    length, batch, size, hidden = (draw(st.integers(1, 3)) for _ in range(4))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    layout = draw(st.sampled_from([0, 0, 1]))
    dtype = draw(st.sampled_from(FLOATS))

    def weights(*shape):
        return draw(tensors(dtype, shape=shape, min_value=-1, max_value=1))

    x = weights(*((batch, length) if layout else (length, batch)), size)
    w, r = weights(directions, gates * hidden, size), weights(directions, gates * hidden, hidden)
    b = weights(directions, 2 * gates * hidden) if draw(st.booleans()) else None
    lengths = None
    if draw(st.booleans()):
        lengths = draw(tensors("int32", shape=(batch,), min_value=1, max_value=length))
        lengths[0] = length
    sides = (batch, directions, hidden) if layout else (directions, batch, hidden)
    initial = [weights(*sides) if draw(st.booleans()) else None for _ in range(states)]
    attributes = {
        "direction": direction,
        "layout": layout,
        "hidden_size": hidden,
        "clip": draw(st.sampled_from([None, None, 20.0])),
    }
    if draw(st.booleans()):
        names = [draw(st.sampled_from(ACTIVATIONS)) for _ in range(activations * directions)]
        attributes["activations"] = names
        if count := sum(name in ("Affine", "ScaledTanh") for name in names):
            attributes |= {"activation_alpha": [0.5] * count, "activation_beta": [0.25] * count}
    peepholes = [weights(directions, 3 * hidden) if draw(st.booleans()) else None] if states == 2 else []
    return [x, w, r, b, lengths, *initial, *peepholes], attributes


def _beyond_reference(call):
    return "activations" in call.attributes or call.inputs[4] is not None


PLAIN = Gap("reference", "it supports neither other activations nor sequence lengths", when=_beyond_reference)

MISSPELT = Gap("signature", 'version 1 misspells the default of direction as "foward"')


@cases(rnn, gaps=[PLAIN])
def rnn_cases(draw):
    inputs, attributes = layer(draw, 1, 1, 1)
    return call(*inputs, _outputs=2, **attributes)


@cases(gru, gaps=[PLAIN, MISSPELT])
def gru_cases(draw):
    inputs, attributes = layer(draw, 3, 1, 2)
    return call(*inputs, _outputs=2, linear_before_reset=draw(st.integers(0, 1)), **attributes)


@cases(lstm, gaps=[PLAIN])
def lstm_cases(draw):
    inputs, attributes = layer(draw, 4, 2, 3)
    return call(*inputs, _outputs=3, input_forget=draw(st.sampled_from([0, 0, 1])), **attributes)

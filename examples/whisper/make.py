"""Generator of ``whisper.onnx``: a Whisper-like encoder and decoder in a WhisperBeamSearch node.

Run ``python make.py [folder]``. The weights are random numbers of a fixed seed; ``samples.npz`` has the inputs. As in
models of onnxruntime's converter, the encoder graph also decodes the first tokens, and the decoder takes its states.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LAYERS, HIDDEN, HEADS, MELS, FRAMES, VOCABULARY, POSITIONS = 2, 16, 2, 8, 12, 40, 24
SIZE = HIDDEN // HEADS
# Token ids as in Whisper's tokenizer, but fewer: words, special tokens, timestamps.
END, START, TRANSLATE, TRANSCRIBE, START_OF_LM, NO_SPEECH, NO_TIMESTAMPS, FIRST_TIMESTAMP = range(24, 32)
STATES = [f"{part}_self_{layer}" for layer in range(LAYERS) for part in ("key", "value")]
CROSS = [f"{part}_cross_{layer}" for layer in range(LAYERS) for part in ("key", "value")]


class Builder:
    """A builder of one graph. Weights of the same name are equal in both graphs."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def weight(self, name: str, *shape: int, around: float = 0.0) -> str:
        if name not in self.weights:
            random = np.random.default_rng(list(name.encode()))
            values = random.standard_normal(shape) / np.sqrt(shape[0]) + around
            self.weights[name] = numpy_helper.from_array(values.astype(np.float32), name)
        return name

    def constant(self, name: str, values: object) -> str:
        self.weights[name] = numpy_helper.from_array(np.asarray(values, np.int64), name)
        return name

    def add(self, op_type: str, *inputs: str, outputs: list[str], domain: str = "", **attributes: object) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def fused(self, op_type: str, *inputs: str, outputs: list[str], **attributes: object) -> str:
        return self.add(op_type, *inputs, outputs=outputs, domain="com.microsoft", **attributes)

    def linear(self, x: str, name: str, width: int = HIDDEN, to: int = HIDDEN) -> str:
        product = self.add("MatMul", x, self.weight(f"{name}.weight", width, to), outputs=[f"{name}/product"])
        return self.add("Add", product, self.weight(f"{name}.bias", to), outputs=[f"{name}/sum"])

    def norm(self, x: str, name: str) -> str:
        shift = self.weight(f"{name}.scale", HIDDEN, around=1.0), self.weight(f"{name}.shift", HIDDEN)
        return self.add("LayerNormalization", x, *shift, outputs=[f"{name}/norm"], axis=-1, epsilon=1e-5)

    def skip(self, x: str, beside: str, name: str) -> tuple[str, str]:
        shift = self.weight(f"{name}.scale", HIDDEN, around=1.0), self.weight(f"{name}.shift", HIDDEN)
        outputs = [f"{name}/norm", "", "", f"{name}/sum"]
        self.fused("SkipLayerNormalization", beside, x, *shift, outputs=outputs, epsilon=1e-5)
        return f"{name}/sum", f"{name}/norm"

    def heads(self, x: str, name: str) -> str:
        reshaped = self.add("Reshape", x, self.constant("heads.shape", [0, 0, HEADS, SIZE]), outputs=[f"{name}/apart"])
        return self.add("Transpose", reshaped, outputs=[name], perm=[0, 2, 1, 3])

    def feed_forward(self, norm: str, name: str) -> str:
        """The feed-forward part of a layer."""
        wide = self.add("MatMul", norm, self.weight(f"{name}.wide", HIDDEN, 2 * HIDDEN), outputs=[f"{name}/wide"])
        bent = self.fused("BiasGelu", wide, self.weight(f"{name}.wide_bias", 2 * HIDDEN), outputs=[f"{name}/bent"])
        return self.linear(bent, f"{name}.back", 2 * HIDDEN)

    def encode(self) -> str:
        """Hidden states of features of shape (rows, mels, frames); the second convolution halves the frames."""
        x = "encoder_input_ids"
        for number, (width, stride) in enumerate(((MELS, 1), (HIDDEN, 2))):
            name = f"encoder.conv_{number}"
            weights = self.weight(f"{name}.weight", HIDDEN, width, 3), self.weight(f"{name}.bias", HIDDEN)
            found = self.add("Conv", x, *weights, outputs=[name], kernel_shape=[3], pads=[1, 1], strides=[stride])
            x = self.fused("Gelu", found, outputs=[f"{name}/gelu"])
        x = self.add("Transpose", x, outputs=["encoder.frames"], perm=[0, 2, 1])
        x = self.add("Add", x, self.weight("encoder.places", FRAMES // 2, HIDDEN), outputs=["encoder.first"])
        norm = self.norm(x, "encoder.layer_0.before")
        for layer in range(LAYERS):
            name = f"encoder.layer_{layer}"
            weights = self.weight(f"{name}.qkv", HIDDEN, 3 * HIDDEN), self.weight(f"{name}.qkv_bias", 3 * HIDDEN)
            seen = self.fused("Attention", norm, *weights, outputs=[f"{name}/seen"], num_heads=HEADS)
            x, norm = self.skip(x, self.linear(seen, f"{name}.out"), f"{name}.middle")
            x, norm = self.skip(x, self.feed_forward(norm, name), f"{name}.after")
        return self.add("Identity", norm, outputs=["encoder_hidden_states"])

    def decode(self, tokens: str, past: bool) -> None:
        """Add the decoder: logits and states of the first tokens, or of one token after a past."""
        words = self.add("Gather", self.weight("decoder.words", VOCABULARY, HIDDEN), tokens, outputs=["words"])
        self.add("Shape", tokens, outputs=["length"], start=1, end=2)
        if past:
            begin = self.add("Shape", "past_key_self_0", outputs=["past_length"], start=2, end=3)
        else:
            begin = self.constant("zero", [0])
        end = self.add("Add", begin, "length", outputs=["end"])
        table = self.weight("decoder.places", POSITIONS, HIDDEN)
        places = self.add("Slice", table, begin, end, self.constant("axis", [0]), outputs=["places"])
        x = self.add("Add", words, places, outputs=["decoder.first"])
        norm = self.norm(x, "decoder.layer_0.before")
        for layer in range(LAYERS):
            name = f"decoder.layer_{layer}"
            query, key, value = (self.linear(norm, f"{name}.self.{part}") for part in ("query", "key", "value"))
            states = [f"past_key_self_{layer}", f"past_value_self_{layer}"] if past else ["", ""]
            present = [f"present_key_self_{layer}", f"present_value_self_{layer}"]
            seen = self.fused(
                "MultiHeadAttention",
                query,
                key,
                value,
                "",
                "",
                "",
                *states,
                outputs=[f"{name}/seen", *present],
                num_heads=HEADS,
                unidirectional=1,
            )
            x, norm = self.skip(x, self.linear(seen, f"{name}.self.out"), f"{name}.middle")
            across = self.across(norm, layer, past)
            x, norm = self.skip(x, self.linear(across, f"{name}.cross.out"), f"{name}.then")
            x, norm = self.skip(x, self.feed_forward(norm, name), f"{name}.after")
        self.add("MatMul", norm, self.weight("logits.weight", HIDDEN, VOCABULARY), outputs=["logits"])

    def across(self, norm: str, layer: int, past: bool) -> str:
        """Cross-attention to the encoder's states; its keys and values are only computed for the first tokens."""
        name = f"decoder.layer_{layer}.cross"
        query = self.linear(norm, f"{name}.query")
        if past:
            states = [f"past_key_cross_{layer}", f"past_value_cross_{layer}"]
        else:
            states = [
                self.heads(self.linear("encoder_hidden_states", f"{name}.{part}"), f"present_{part}_cross_{layer}")
                for part in ("key", "value")
            ]
        return self.fused("MultiHeadAttention", query, *states, outputs=[f"{name}/seen"], num_heads=HEADS)


def value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def states(prefix: str, names: list[str], length: str) -> list[onnx.ValueInfoProto]:
    return [value(f"{prefix}_{name}", "rows", HEADS, length, SIZE) for name in names]


def encoder() -> onnx.GraphProto:
    graph = Builder()
    graph.encode()
    graph.decode("decoder_input_ids", past=False)
    inputs = [value("encoder_input_ids", "rows", MELS, FRAMES)]
    inputs.append(value("decoder_input_ids", "rows", "begun", kind=TensorProto.INT32))
    outputs = [value("logits", "rows", "begun", VOCABULARY), value("encoder_hidden_states", "rows", "frames", HIDDEN)]
    outputs += states("present", STATES, "begun") + states("present", CROSS, "frames")
    return helper.make_graph(graph.nodes, "encoder", inputs, outputs, list(graph.weights.values()))


def decoder() -> onnx.GraphProto:
    graph = Builder()
    graph.decode("input_ids", past=True)
    inputs = [value("input_ids", "rows", 1, kind=TensorProto.INT32)]
    inputs += states("past", STATES, "before") + states("past", CROSS, "frames")
    outputs = [value("logits", "rows", 1, VOCABULARY), *states("present", STATES, "after")]
    return helper.make_graph(graph.nodes, "decoder", inputs, outputs, list(graph.weights.values()))


def model() -> onnx.ModelProto:
    counts = {"min_length": 1, "num_beams": 3, "num_return_sequences": 2, "logits_processor": 1}
    factors = {"length_penalty": 1.0, "repetition_penalty": 1.1}
    names = ["input_features", "max_length", "min_length", "num_beams", "num_return_sequences", *factors]
    node = helper.make_node(
        "WhisperBeamSearch",
        [*names, "", "", "", "decoder_input_ids", "logits_processor"],
        ["sequences", "sequences_scores"],
        name="search",
        domain="com.microsoft",
        encoder=encoder(),
        decoder=decoder(),
        eos_token_id=END,
        pad_token_id=END,
        decoder_start_token_id=START,
        translate_token_id=TRANSLATE,
        transcribe_token_id=TRANSCRIBE,
        start_of_lm_token_id=START_OF_LM,
        no_timestamps_token_id=NO_TIMESTAMPS,
        beginning_timestamp_token_id=FIRST_TIMESTAMP,
        no_repeat_ngram_size=3,
    )
    initializers = [numpy_helper.from_array(np.array([number], np.int32), name) for name, number in counts.items()]
    initializers += [numpy_helper.from_array(np.array([number], np.float32), name) for name, number in factors.items()]
    inputs = [
        value("input_features", "batch", MELS, FRAMES),
        value("decoder_input_ids", "batch", "begun", kind=TensorProto.INT32),
        value("max_length", 1, kind=TensorProto.INT32),
    ]
    outputs = [
        value("sequences", "batch", 2, "max_length", kind=TensorProto.INT32),
        value("sequences_scores", "batch", 2),
    ]
    graph = helper.make_graph([node], "whisper", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def main(folder: Path) -> None:
    random = np.random.default_rng(1)
    feeds = {
        "input_features": random.standard_normal((2, MELS, FRAMES)).astype(np.float32),
        "decoder_input_ids": np.array([[START, TRANSCRIBE]] * 2, np.int32),
        "max_length": np.array([14], np.int32),
    }
    path = folder / "whisper.onnx"
    onnx.save(model(), path)
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.savez(folder / "samples.npz", **feeds)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

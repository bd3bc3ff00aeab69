"""Hand-written files with one integer LSTM."""

import flatbuffers
import numpy as np
import tflite

OPERATOR = tflite.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM

STEPS, BATCH, INPUTS, CELLS = 5, 2, 9, 16


class _File:
    def __init__(self):
        self.builder, self.data, self.tensors = flatbuffers.Builder(1 << 14), [b""], []

    def vector(self, start, tables):
        start(self.builder, len(tables))
        for table in reversed(tables):
            self.builder.PrependUOffsetTRelative(table)
        return self.builder.EndVector()

    def table(self, kind, *fields):
        getattr(tflite, f"{kind}Start")(self.builder)
        for name, value in fields:
            getattr(tflite, f"{kind}Add{name}")(self.builder, value)
        return getattr(tflite, f"{kind}End")(self.builder)

    def numbers(self, values, dtype=np.int32):
        return self.builder.CreateNumpyVector(np.asarray(values, dtype))

    def tensor(self, shape, kind, scale, zero=0, data=None, variable=False):
        """Add a tensor; returns its index."""
        self.data += [] if data is None else [data.tobytes()]
        name, sizes = self.builder.CreateString(f"t{len(self.tensors)}"), self.numbers(shape)
        parts = ("Scale", self.numbers([scale], np.float32)), ("ZeroPoint", self.numbers([zero], np.int64))
        quantization = self.table("QuantizationParameters", *parts)
        buffer = 0 if data is None else len(self.data) - 1
        fields = ("Shape", sizes), ("Type", kind), ("Buffer", buffer), ("Name", name), ("Quantization", quantization)
        self.tensors.append(self.table("Tensor", *fields, ("IsVariable", variable), ("HasRank", True)))
        return len(self.tensors) - 1

    def finished(self, inputs, inside, output, clip):
        option = self.table("UnidirectionalSequenceLSTMOptions", ("FusedActivationFunction", 4), ("CellClip", clip))
        fields = [("OpcodeIndex", 0), ("Inputs", self.numbers(inputs)), ("Outputs", self.numbers([output]))]
        fields += [("Intermediates", self.numbers(inside)), ("BuiltinOptions", option)]
        kind = tflite.BuiltinOptions.UnidirectionalSequenceLSTMOptions
        operators = self.vector(
            tflite.SubGraphStartOperatorsVector, [self.table("Operator", *fields, ("BuiltinOptionsType", kind))]
        )
        tensors = self.vector(tflite.SubGraphStartTensorsVector, self.tensors)
        ends = ("Inputs", self.numbers([0])), ("Outputs", self.numbers([output]))
        subgraph = self.table("SubGraph", ("Tensors", tensors), ("Operators", operators), *ends)
        code = self.table(
            "OperatorCode", ("DeprecatedBuiltinCode", OPERATOR), ("BuiltinCode", OPERATOR), ("Version", 1)
        )
        buffers = []
        for raw in self.data:
            place = self.numbers(np.frombuffer(raw, np.uint8), np.uint8) if raw else None
            buffers.append(self.table("Buffer", *([("Data", place)] if raw else [])))
        lists = (
            ("OperatorCodes", self.vector(tflite.ModelStartOperatorCodesVector, [code])),
            ("Subgraphs", self.vector(tflite.ModelStartSubgraphsVector, [subgraph])),
            ("Buffers", self.vector(tflite.ModelStartBuffersVector, buffers)),
        )
        self.builder.Finish(self.table("Model", ("Version", 3), *lists), b"TFL3")
        return bytes(self.builder.Output())


def integer_lstm(seed, *, cell=-11, peephole=False, normalized=False, coupled=False, clip=0.0):
    """The bytes of a file with random weights.

    ``cell`` is the exponent of the cell state's scale; a ``coupled`` LSTM (CIFG) has no input gate.
    """
    draw, file, kind = np.random.default_rng(seed), _File(), tflite.TensorType

    def weights(columns, scale):
        data = draw.integers(-127, 128, (CELLS, columns)).astype(np.int8)
        return file.tensor(data.shape, kind.INT8, scale, data=data)

    def numbers(low, high, dtype, number, scale):
        return file.tensor((CELLS,), number, scale, data=draw.integers(low, high, CELLS).astype(dtype))

    x = file.tensor((BATCH, STEPS, INPUTS), kind.INT8, 1 / 64, 3)
    scales = [(1 + gate / 10) / 90 for gate in range(4)]
    input_weights = [weights(INPUTS, scale) for scale in scales]
    hidden_weights = [weights(CELLS, (1 + gate / 7) / 100) for gate in range(4)]
    peepholes = [numbers(-32767, 32768, np.int16, kind.INT16, 1 / 30000) if peephole else -1 for _ in range(3)]
    norms = [numbers(1000, 32767, np.int16, kind.INT16, 1 / 32767) if normalized else -1 for _ in range(4)]
    most = 800000 if normalized else 2500
    biases = [
        numbers(-most, most, np.int32, kind.INT32, 2.0**-10 / 32767 if normalized else scale / 64) for scale in scales
    ]
    states = (
        file.tensor((BATCH, CELLS), kind.INT8, 1 / 120, -5, variable=True),
        file.tensor((BATCH, CELLS), kind.INT16, 2.0**cell, variable=True),
    )
    output = file.tensor((BATCH, STEPS, CELLS), kind.INT8, 1 / 120, -5)
    inside = [file.tensor((), kind.INT16, 1 / 4000 if normalized else 2.0**-12) for _ in range(4)]
    inside.append(file.tensor((), kind.INT8, 1 / 120, -5))
    if coupled:
        for part in (input_weights, hidden_weights, peepholes, biases, norms):
            part[0] = -1
    inputs = [x, *input_weights, *hidden_weights, *peepholes, *biases, -1, -1, *states, *norms]
    return file.finished(inputs, inside, output, clip)


def drawn(seed):
    return np.random.default_rng(seed).integers(-128, 128, (BATCH, STEPS, INPUTS)).astype(np.int8)

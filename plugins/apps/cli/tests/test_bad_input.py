"""Invalid arguments and input: a clear error on stderr, exit code 2, nothing on stdout, nothing written."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_attribute as attribute


def edit(path, change):
    model = onnx.load(path, load_external_data=False)
    change(model)
    onnx.save(model, path)


def write(path, data):
    path.write_bytes(data)


def nested(depth):
    """A model with ``depth`` nested graphs, as bytes, since protobuf itself would refuse to serialize it."""

    def field(tag, data):
        size, encoded = len(data), bytearray()
        while size > 127:
            encoded.append(size & 127 | 128)
            size >>= 7
        return bytes([tag]) + bytes([*encoded, size]) + data

    graph = b""
    for _ in range(depth):
        graph = field(0x0A, field(0x2A, field(0x32, graph)))
    return b"\x08\x08" + field(0x3A, graph)


def external(**entries):
    """Make the initializer external, at the location in ``entries``."""

    def change(model):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)

    return change


def cycle(model):
    first, last = model.graph.node[0], model.graph.node[-1]
    first.input[0] = last.output[0]


def twice(model):
    model.graph.node.append(model.graph.node[0])


def huge(model):
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def second_initializer(model):
    model.graph.initializer.append(model.graph.initializer[0])


BROKEN = {
    "empty": (lambda path: write(path, b""), "no graph"),
    "not a protobuf": (lambda path: write(path, b"\xff" * 100), "is not an ONNX model"),
    "text": (lambda path: write(path, b"hello, world\n"), "is not an ONNX model"),
    "truncated": (lambda path: write(path, path.read_bytes()[:-40]), "is not an ONNX model"),
    "nested": (lambda path: write(path, nested(10_000)), "nested too deeply"),
    "no graph": (lambda path: edit(path, lambda m: m.ClearField("graph")), "no graph"),
    "unknown attribute": (
        lambda path: edit(path, lambda m: m.graph.node[0].attribute.append(attribute("color", 1))),
        "has no attribute color",
    ),
    "attribute of another type": (
        lambda path: edit(
            path, lambda m: m.graph.node[2].attribute[0].CopyFrom(onnx.helper.make_attribute("scale", "2"))
        ),
        'attribute "scale" is not a number',
    ),
    "too many inputs": (lambda path: edit(path, lambda m: m.graph.node[0].input.extend(["x"] * 3)), "inputs"),
    "unknown name": (lambda path: edit(path, lambda m: m.graph.node[0].input.__setitem__(0, "nobody")), '"nobody"'),
    "no output": (lambda path: edit(path, lambda m: setattr(m.graph.output[0], "name", "z")), 'its output "z"'),
    "cyclic": (lambda path: edit(path, cycle), "has a cycle"),
    "name twice": (lambda path: edit(path, twice), "two values have the name"),
    "initializer twice": (lambda path: edit(path, second_initializer), "two initializers named"),
    "input twice": (
        lambda path: edit(path, lambda m: m.graph.input.append(m.graph.input[0])),
        "two inputs named",
    ),
    "huge dims": (lambda path: edit(path, huge), "more elements than any memory holds"),
    "negative dims": (
        lambda path: edit(path, lambda m: m.graph.initializer[0].dims.__setitem__(0, -3)),
        "negative dims",
    ),
    "unknown element type": (
        lambda path: edit(path, lambda m: setattr(m.graph.initializer[0], "data_type", 99)),
        "unknown element type",
    ),
    "missing external": (
        lambda path: edit(path, external(location="none.bin")),
        "cannot read the file of external data",
    ),
    "absolute external": (lambda path: edit(path, external(location="/etc/hostname")), "UnsafePath"),
    "external above": (lambda path: edit(path, external(location="../outside.bin")), "UnsafePath"),
    "external link": (lambda path: edit(path, external(location="link.bin")), "symbolic link"),
    "external second name": (lambda path: edit(path, external(location="hard.bin")), "second name"),
    "offset past the end": (
        lambda path: edit(path, external(location="w.bin", offset="1000")),
        "beyond the end of its file",
    ),
    "length past the end": (
        lambda path: edit(path, external(location="w.bin", length="1000")),
        "beyond the end of its file",
    ),
    "no number": (lambda path: edit(path, external(location="w.bin", offset="1e3")), "not a decimal number"),
    "wrong length": (lambda path: edit(path, external(location="w.bin", length="8")), "does not have 12 bytes"),
}


@pytest.fixture
def data_files(tmp_path):
    """External data inside the folder, and names in it that lead outside."""
    (tmp_path / "w.bin").write_bytes(np.ones(3, np.float32).tobytes())
    outside = tmp_path.parent / f"{tmp_path.name}-outside.bin"
    outside.write_bytes(b"\0" * 12)
    (tmp_path / "link.bin").symlink_to(outside)
    (tmp_path / "hard.bin").hardlink_to(outside)


@pytest.mark.parametrize(("breaks", "text"), BROKEN.values(), ids=BROKEN)
def test_a_broken_model_is_refused(tenonnx, model, data_files, tmp_path, breaks, text):
    breaks(model)
    before = sorted(tmp_path.iterdir())
    for command in (["convert", model, "-o", "out.onnx"], ["inspect", model], ["run", model, "--json"]):
        result = tenonnx(*command)
        assert result.code == 2
        assert text in result.err
        assert "Traceback" not in result.err
        assert "unexpected" not in result.err
        assert set(result.json) == {"error"} if "--json" in command else result.out == ""
    assert sorted(tmp_path.iterdir()) == before
    result = tenonnx("check", model, "--json")
    assert result.code == 1
    assert text.removeprefix("UnsafePath") in result.json["problems"][0]["problem"]


def test_wrong_inputs_of_an_op_are_found_where_types_are_needed(tenonnx, model, tmp_path):
    edit(model, lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", TensorProto.INT64))
    assert tenonnx("inspect", model).code == 0
    assert "the inputs have different dtypes" in tenonnx("check", model).out
    result = tenonnx("run", model)
    assert result.code == 2
    assert 'node "Mul"' in result.err
    assert "the inputs have different dtypes" in result.err


def test_names_cannot_steer_the_terminal(tenonnx, model):
    edit(model, lambda m: setattr(m.graph, "name", "\x1b[2J\x07name"))
    result = tenonnx("inspect", model)
    assert "\\x1b[2J\\x07name" in result.out
    assert "\x1b" not in result.out


USE = {
    "no such file": (["inspect", "none.onnx"], "cannot read"),
    "folder": (["inspect", "."], "cannot read"),
    "a Python file alone": (["convert", "net.py", "-o", "m.onnx"], "net.py:FUNCTION"),
    "no such command": (["frobnicate"], "No such command"),
    "no such option": (["run", "{model}", "--frobnicate"], "No such option"),
    "no model": (["run"], "Missing argument"),
    "no output": (["convert", "{model}"], "Missing option"),
    "opset": (["plan", "{model}", "--opset", "thirteen"], "neither a version"),
    "opset of a domain": (["plan", "{model}", "--opset", "ai.onnx="], "neither a version"),
    "opset zero": (["plan", "{model}", "--opset", "0"], "neither a version"),
    "domains": (["plan", "{model}", "--domains", "ai.onnx,,"], "not a list"),
    "shapes": (["run", "{model}", "--input-shapes", "1,2"], "not a shape"),
    "empty shape": (["run", "{model}", "--input-shapes", "x:1,,2"], "not a shape"),
    "shape of no input": (["run", "{model}", "--input-shapes", "z:1"], 'no graph input "z"'),
    "rank": (["run", "{model}", "--input-shapes", "x:1"], "does not have the rank of graph input"),
    "dim": (["run", "{model}", "--input-shapes", "x:1,4"], "float32[n, 3]"),
    "negative dim": (["run", "{model}", "--input-shapes", "x:-2,3"], "is negative"),
    "backend": (["run", "{model}", "--backend", "abacus"], 'no backend "abacus"'),
    "input": (["run", "{model}", "--input", "x"], "neither name=file"),
    "unknown input": (["run", "{model}", "--input", "z=x.npy"], 'no input "z"'),
    "missing array": (["run", "{model}", "--input", "x=none.npy"], "cannot read"),
    "no array": (["run", "{model}", "--input", "x={model}"], "as a .npy or .npz file"),
    "pickled array": (["run", "{model}", "--input", "x=pickled.npy"], "as a .npy or .npz file"),
    "cut array": (["run", "{model}", "--input", "x=cut.npy"], "as a .npy or .npz file"),
    "array without the name": (["run", "{model}", "--input", "x=other.npz"], 'has no array "x"'),
    "array of another dtype": (["run", "{model}", "--input", "x=words.npy"], "got a feed that is not float32[n, 3]"),
    "archive": (["run", "{model}", "--inputs", "x.npy"], "holds a single array without a name"),
    "output format": (["run", "{model}", "-o", "y.txt"], "cannot write these outputs to a file of this format"),
    "output folder": (["run", "{model}", "-o", "none/y.npz"], "folder of an output file does not exist"),
    "convert into nowhere": (["convert", "{model}", "-o", "none/m.onnx"], "folder of an output file does not exist"),
    "convert onto a folder": (["convert", "{model}", "-o", "folder"], "which is a folder"),
    "convert into an unknown format": (["convert", "{model}", "-o", "zz.xyz"], "available  .onnx, .safetensors"),
    "native onto a folder": (["convert", "{model}", "-o", "folder.safetensors"], "which is a folder"),
    "threshold": (["convert", "{model}", "-o", "m.onnx", "--external-data-threshold", "-1"], "not in the range"),
}


@pytest.mark.parametrize(("arguments", "text"), USE.values(), ids=USE)
def test_bad_use_is_refused(tenonnx, model, tmp_path, arguments, text):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.safetensors").mkdir()
    np.save("x.npy", np.zeros((2, 3), np.float32))
    np.save("words.npy", np.array([["a", "b", "c"]]))
    np.save("pickled.npy", np.array([[print]], dtype=object), allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-5])
    np.savez("other.npz", y=np.zeros(1))
    before = sorted(tmp_path.rglob("*"))
    result = tenonnx(*(argument.format(model=model) for argument in arguments))
    assert result.code == 2
    assert text in result.err
    assert "Traceback" not in result.err
    assert "unexpected" not in result.err
    assert result.out == ""
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody can write")
def test_a_folder_that_cannot_be_written_is_refused(tenonnx, model):
    for output in ("/proc/m.onnx", "/proc/m.safetensors"):
        result = tenonnx("convert", model, "-o", output)
        assert result.code == 2
        assert "cannot write to the folder" in result.err
        assert result.out == ""


def test_a_failed_conversion_leaves_the_source_as_it_was(tenonnx, model, tmp_path):
    shutil.copy(model, "copy.onnx")
    assert tenonnx("convert", "copy.onnx", "-o", "copy.onnx", "--domains", "ai.onnx").code == 2
    assert (tmp_path / "copy.onnx").read_bytes() == model.read_bytes()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("inspect digts.onnx", "did you mean digits.onnx?"),
        ("inspect digits", "did you mean digits.onnx?"),
        ("inspect digit.onx", "did you mean digits.onnx?"),
        ("inspect below/modle.onnx", f"did you mean {Path('below/model.onnx')}?"),
        ("run digits.onnx --inputs sampels.npz", "did you mean samples.npz?"),
        ("run digits.onnx --inputs sampels.csv", "did you mean samples.npz?"),
        ("convert nets.py:make -o out.onnx", "did you mean net.py?"),
        ("inspect digits.onnx --config tenonn.toml", "did you mean tenonnx.toml?"),
        ("inspect nowhere/digits.onnx", ""),
        ("inspect something.else", ""),
    ],
)
def test_a_file_that_is_not_there_gets_its_neighbor_of_a_similar_name(tenonnx, model, line, meant):
    shutil.move(model, "digits.onnx")
    Path("below").mkdir()
    for name in ("samples.npz", "net.py", "tenonnx.toml", "below/model.onnx"):
        Path(name).touch()
    result = tenonnx(*line.split())
    assert result.code == 2
    assert result.out == ""
    assert meant in result.err
    assert ("did you mean" in result.err) == bool(meant)

"""External data is copied completely, with as few kernel calls as possible."""

from __future__ import annotations

import errno
import gzip
import io
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.external_data_helper
import pytest

import tenonnx as tx
from tenonnx.errors import InvalidCall, InvalidModel
from tenonnx.formats import external
from tenonnx.formats.external import ExternalDataWriter, ExternalFiles, Pieces
from tenonnx.formats.files import AtomicWriter, available_name
from tenonnx.formats.onnx.tensors import TensorContents

posix = pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")
CONTENT = bytes(range(256)) * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a data file in it, one in a subfolder, and a secret outside."""
    (tmp_path / "secret.bin").write_bytes(b"secret" * 100)
    (tmp_path / "model" / "weights").mkdir(parents=True)
    (tmp_path / "model" / "data.bin").write_bytes(CONTENT)
    (tmp_path / "model" / "weights" / "deep.bin").write_bytes(CONTENT[::-1])
    (tmp_path / "model" / "empty.bin").touch()
    return tmp_path / "model"


@pytest.fixture(params=["kernel", "chunks", "map"])
def copying(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to copy, including the one that works on every system."""
    if request.param != "kernel":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    if request.param == "map":
        monkeypatch.delattr(os, "preadv", raising=False)
    return str(request.param)


# ----- writing -----


def test_offsets_and_padding(tmp_path: Path) -> None:
    large = bytes([7]) * external.LARGE
    with (tmp_path / "out").open("wb") as file, ExternalDataWriter(file) as writer:
        places = [writer.append(source) for source in (b"abc", b"de", b"", large, b"f", b"")]
    assert places == [(0, 3), (64, 2), (66, 0), (4096, len(large)), (4096 + len(large), 1), (4097 + len(large), 0)]
    written = (tmp_path / "out").read_bytes()
    assert written == b"abc".ljust(64, b"\0") + b"de".ljust(4032, b"\0") + large + b"f"


@pytest.mark.parametrize("alignment", [1, 16, 64, 4096, 65536])
def test_alignment(alignment: int) -> None:
    file = io.BytesIO()
    with ExternalDataWriter(file, alignment) as writer:
        places = [writer.append(bytes(length)) for length in (5, external.LARGE, 5, 100, external.LARGE + 3)]
    for offset, length in places:
        assert offset % (alignment if length >= external.LARGE else min(alignment, 64)) == 0
    assert len(file.getvalue()) == sum(places[-1])
    with pytest.raises(InvalidCall):
        ExternalDataWriter(file, 0)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.array(2.5),
        np.float64(2.5),
        np.zeros((0, 3)),
        np.array([1, 2, 3], ml_dtypes.bfloat16),
        np.array([[1, 2], [3, 4]], ml_dtypes.float8_e4m3fn),
        np.array([True, False]),
        np.array([1j]),
        np.frombuffer(b"read-only", np.uint8),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays(array: Any) -> None:
    file = io.BytesIO()
    with ExternalDataWriter(file) as writer:
        assert writer.append(array) == (0, array.nbytes)
    assert file.getvalue() == array.tobytes()


@pytest.mark.parametrize("source", [bytearray(b"abc"), memoryview(b"abc"), np.arange(6.0).reshape(2, 3).data])
def test_buffers(source: Any) -> None:
    file = io.BytesIO()
    with ExternalDataWriter(file) as writer:
        writer.append(source)
    assert file.getvalue() == bytes(source)


@pytest.mark.parametrize(
    "source",
    [[1, 2], "text", None, np.zeros((4, 4)).T[1:], np.zeros(4)[::2], np.array(["a"], object), memoryview(b"abc")[::2]],
)
def test_buffers_that_are_not_contiguous(source: Any) -> None:
    file = io.BytesIO()
    with pytest.raises(InvalidCall, match="contiguous"):
        ExternalDataWriter(file).append(source)
    assert file.getvalue() == b""


def target(kind: str, path: Path) -> Any:
    if kind == "memory":
        return io.BytesIO()
    if kind == "gzip":
        return gzip.open(path, "wb", compresslevel=1)
    return path.open("ab" if kind == "appending" else "wb", buffering=0 if kind == "raw" else -1)


@pytest.mark.parametrize("kind", ["buffered", "raw", "appending", "memory", "gzip"])
@pytest.mark.parametrize("seed", range(3))
def test_any_mixture_arrives(
    tmp_path: Path, copying: str, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "LARGE", 700)
    monkeypatch.setattr(external, "_CHUNK", 256)
    monkeypatch.setattr(external, "_KERNEL_CHUNK", 1000)
    monkeypatch.setattr(external, "_BLOCK", 1)
    choose = random.Random(seed)
    contents = {name: choose.randbytes(20_000) for name in "ab"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = ExternalFiles(tmp_path)
    expected, places = [], []
    with target(kind, tmp_path / "out") as file, ExternalDataWriter(file, choose.choice([1, 64, 512])) as writer:
        start = 0
        for _ in range(150):
            name, length = choose.choice("aab"), choose.choice([0, 1, 5, 64, 128, 640, 1024, 4096])
            start = choose.choice([start, start, choose.randrange(15_000)]) % 15_000
            content = contents[name][start : start + length]
            if choose.random() < 0.3:
                places.append(writer.append(content))
            else:
                places.append(writer.append(files.region(name, start, str(length))))
            expected.append(content)
            start += length
        writer.flush()
        written = file.getvalue() if kind == "memory" else b""
    if kind != "memory":
        written = (gzip.decompress if kind == "gzip" else bytes)((tmp_path / "out").read_bytes())
    end = 0
    for (offset, length), content in zip(places, expected, strict=True):
        assert written[end:offset] == bytes(offset - end)
        assert written[offset : offset + length] == content
        end = offset + length
    assert len(written) == end


@pytest.fixture
def kernel_copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The (offset, count) of each call to the kernel."""
    if not hasattr(os, "copy_file_range"):
        pytest.skip("this system has no copy_file_range")
    calls: list[tuple[int, int]] = []
    original = os.copy_file_range

    def record(source: int, destination: int, count: int, offset: int) -> int:
        calls.append((offset, count))
        return original(source, destination, count, offset)

    monkeypatch.setattr(os, "copy_file_range", record)
    return calls


def test_neighbors_are_copied_at_once(tmp_path: Path, kernel_copies: list[tuple[int, int]]) -> None:
    content = np.random.default_rng(0).bytes(4 << 20)
    (tmp_path / "in").write_bytes(content)
    files = ExternalFiles(tmp_path)
    step = 64 << 10
    with (tmp_path / "out").open("wb") as file, ExternalDataWriter(file) as writer:
        for offset in range(0, len(content), step):
            assert writer.append(files.region("in", offset, step)) == (offset, step)
        assert kernel_copies == []
    assert kernel_copies == [(0, len(content))]
    assert (tmp_path / "out").read_bytes() == content


def test_a_gap_or_another_order_is_kept(tmp_path: Path, kernel_copies: list[tuple[int, int]]) -> None:
    large = external.LARGE
    content = np.random.default_rng(0).bytes(4 * large + 1)
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "copy").write_bytes(content)
    files = ExternalFiles(tmp_path)
    with (tmp_path / "out").open("wb") as file, ExternalDataWriter(file) as writer:
        writer.append(files.region("in", large, large))
        writer.append(files.region("in", 0, large))
        writer.append(files.region("in", large, large))  # after the previous one
        writer.append(files.region("copy", 2 * large, large))  # the right offset, but in another file
        writer.append(files.region("copy", 3 * large + 1, large))
    # The last one would have another offset within a block, for which the kernel is slow.
    assert kernel_copies == [(large, large), (0, 2 * large), (2 * large, large)]
    order = content[large : 2 * large] + content[: 3 * large] + content[3 * large + 1 :]
    assert (tmp_path / "out").read_bytes() == order


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, 0])
@pytest.mark.parametrize("copied", [0, 100_000])
def test_copies_that_the_kernel_refuses_are_made_anyway(
    tmp_path: Path, code: int, copied: int, monkeypatch: pytest.MonkeyPatch, kernel_copies: list[tuple[int, int]]
) -> None:
    content = np.random.default_rng(0).bytes(3 << 20)
    (tmp_path / "in").write_bytes(content)
    partly = os.copy_file_range

    def refuse(source: int, destination: int, count: int, offset: int) -> int:
        if offset < copied:
            return partly(source, destination, copied, offset)
        if code:
            raise OSError(code, os.strerror(code))
        return 0

    monkeypatch.setattr(os, "copy_file_range", refuse)
    with (tmp_path / "out").open("wb") as file, ExternalDataWriter(file) as writer:
        writer.append(b"before".ljust(4096))
        assert writer.append(ExternalFiles(tmp_path).region("in")) == (4096, len(content))
        assert writer.append(b"behind") == (4096 + len(content), 6)
    assert (tmp_path / "out").read_bytes() == b"before".ljust(4096) + content + b"behind"


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="this system has no copy_file_range")
def test_more_than_the_kernel_copies_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates the kernel's limit, without filling a disk."""
    length = 5 << 30
    (tmp_path / "in").touch()
    os.truncate(tmp_path / "in", length)
    copied = 0

    def pretend(source: int, destination: int, count: int, offset: int) -> int:
        nonlocal copied
        assert offset == copied
        assert count < 1 << 31
        count = min(count, 700 << 20)
        os.lseek(destination, count, os.SEEK_CUR)
        copied += count
        return count

    monkeypatch.setattr(os, "copy_file_range", pretend)
    with (tmp_path / "out").open("wb") as file, ExternalDataWriter(file) as writer:
        assert writer.append(ExternalFiles(tmp_path).region("in", "0", str(length))) == (0, length)
        assert writer.append(b"end") == (length, 3)
    assert copied == length
    assert (tmp_path / "out").stat().st_size == length + 3


@pytest.mark.parametrize("size", [1000, external.LARGE * 2])
def test_a_source_that_became_shorter(tmp_path: Path, copying: str, size: int) -> None:
    if copying == "map":
        pytest.skip("a system that can only map does not shorten a mapped file")
    (tmp_path / "in").write_bytes(bytes(size))
    region = ExternalFiles(tmp_path).region("in")
    os.truncate(tmp_path / "in", size - 10)
    with (tmp_path / "out").open("wb") as file:
        writer = ExternalDataWriter(file)
        writer.append(region)
        with pytest.raises(InvalidModel, match=rf"(?s)was truncated.*{size - 10} bytes"):
            writer.flush()


@pytest.mark.parametrize("source", ["region", "array"])
def test_copying_needs_no_memory(tmp_path: Path, copying: str, source: str) -> None:
    size = 64 << 20
    (tmp_path / "in").touch()
    os.truncate(tmp_path / "in", size)
    region = ExternalFiles(tmp_path).region("in")
    array = np.frombuffer(region.view(), np.float32)
    tracemalloc.start()
    try:
        with (tmp_path / "out").open("wb") as file, ExternalDataWriter(file) as writer:
            writer.append(region if source == "region" else array)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "out").stat().st_size == size
    assert peak < 4 << 20
    (tmp_path / "out").unlink()  # pytest keeps remaining files


# ----- together -----


@posix
def test_export_over_the_files_that_are_read(tmp_path: Path, copying: str) -> None:
    content = np.random.default_rng(0).bytes(external.LARGE * 2)
    (tmp_path / "model.onnx.data").write_bytes(content)
    (tmp_path / "model.onnx").write_bytes(b"model.onnx.data")
    files = ExternalFiles(tmp_path)
    kept = files.region("model.onnx.data", 10, 10).view()
    for _ in range(3):  # from the same regions repeatedly
        with AtomicWriter(tmp_path / "model.onnx") as writer:
            name = available_name(writer.folder, "model.onnx.data")
            with ExternalDataWriter(writer.open(name)) as data:
                data.append(files.region("model.onnx.data"))
            writer.open().write(name.encode())
            writer.discard((tmp_path / "model.onnx").read_text())
        assert (tmp_path / (tmp_path / "model.onnx").read_text()).read_bytes() == content
        assert len(list(tmp_path.iterdir())) == 2
    assert kept == content[10:20]
    files.close()


def test_onnx_reads_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    weights: dict[str, Any] = {
        "a": np.arange(300, dtype=np.float32),
        "b": np.ones((600, 600), np.float32),
        "c": np.array([5], np.int8),
    }
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], tensors))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)

    files, loaded = ExternalFiles(tmp_path), onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with AtomicWriter(tmp_path / "n.onnx") as output, ExternalDataWriter(output.open("n.data")) as writer:
        for tensor in loaded.graph.initializer:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            region = files.region(entries["location"], entries["offset"], entries["length"], tensor=tensor.name)
            assert region.view() == weights[tensor.name].tobytes()
            tensor.raw_data = b""
            offset, length = writer.append(region)
            onnx.external_data_helper.set_external_data(tensor, "n.data", offset, length)
            tensor.ClearField("raw_data")
        output.open().write(loaded.SerializeToString())
    for tensor in onnx.load(tmp_path / "n.onnx").graph.initializer:
        assert np.array_equal(onnx.numpy_helper.to_array(tensor), weights[tensor.name])
    onnx.checker.check_model(tmp_path / "n.onnx")


def test_the_import_is_cheap() -> None:
    program = (
        "import sys, types; package = sys.modules['tenonnx'] = types.ModuleType('tenonnx')\n"
        "package.__path__ = sys.argv[1:]\n"
        "import tenonnx.formats.external, tenonnx.formats.files\n"
        "sys.exit(' '.join({'numpy', 'onnx', 'tempfile', 'shutil'} & set(sys.modules)) or 0)"
    )
    package = str(Path(external.__file__).parents[1])
    result = subprocess.run([sys.executable, "-c", program, package], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_rows_are_read_without_a_map(tmp_path: Path) -> None:
    """Also for elements that share bytes; data in pieces is stored like data in one piece."""
    codes = np.arange(21).reshape(7, 3) % 8
    graph = tx.Graph(opsets={"ai.onnx": 21})
    for dtype in (tx.DType.int4, tx.DType.float32, tx.DType.uint8):
        graph.output(f"{dtype}/out", graph.variable(str(dtype), codes.astype(dtype.numpy)))
    tx.export(graph, tmp_path / "rows.onnx", external_data_threshold=0)
    for value in tx.load(tmp_path / "rows.onnx").variables:
        contents = value.data
        assert isinstance(contents, TensorContents)
        assert contents.region is not None
        for start, stop in ((0, 7), (0, 1), (3, 4), (1, 6), (6, 7), (2, 2), (5, 9)):
            np.testing.assert_array_equal(contents.rows(start, stop).astype(int), codes[start:stop])
        assert contents.region.file._map is None


def test_pieces_arrive_as_one_tensor(tmp_path: Path) -> None:
    parts = [np.arange(k, k + 5, dtype=np.int16) for k in range(3)]
    with (tmp_path / "data").open("wb") as file, ExternalDataWriter(file) as writer:
        assert writer.append(b"abc") == (0, 3)
        assert writer.append(Pieces(30, lambda: iter(parts))) == (64, 30)
        assert writer.append(b"d") == (128, 1)
    written = (tmp_path / "data").read_bytes()
    assert written[64:94] == np.concatenate(parts).tobytes()
    assert (written[:3], written[128:]) == (b"abc", b"d")

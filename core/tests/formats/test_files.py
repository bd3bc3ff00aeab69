"""Files of an export appear together or not at all, whatever happens in between."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tenonnx.errors import InvalidCall, TenonnxError, UnsafePath
from tenonnx.formats.files import AtomicWriter, available_name, check_file_name, write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

posix = pytest.mark.skipif(os.name != "posix", reason="modes, links and signals of POSIX")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def write_pair(folder: Path, generation: str, **options: Any) -> None:
    """Write a model and its data as an exporter does. The model names its data file and the expected contents."""
    path = folder / "model.onnx"
    with AtomicWriter(path, **options) as writer:
        data_name = available_name(writer.folder, "model.onnx.data")
        writer.open(data_name).write(generation.encode())
        writer.open().write(json.dumps({"data": data_name, "generation": generation}).encode())
        if path.exists():
            writer.discard(json.loads(path.read_bytes())["data"])


def read_pair(folder: Path) -> str:
    """The generation of the pair in the folder, which must match."""
    model = json.loads((folder / "model.onnx").read_bytes())
    assert (folder / model["data"]).read_bytes() == model["generation"].encode()
    assert (folder / model["data"]).stat().st_nlink == 1
    return str(model["generation"])


def test_a_pair_is_written_and_replaced(tmp_path: Path) -> None:
    write_pair(tmp_path, "first")
    assert read_pair(tmp_path) == "first"
    assert names(tmp_path) == ["model.onnx", "model.onnx.data"]
    write_pair(tmp_path, "second")
    assert read_pair(tmp_path) == "second"
    assert names(tmp_path) == ["model.onnx", "model.onnx-1.data"]
    write_pair(tmp_path, "third")
    assert names(tmp_path) == ["model.onnx", "model.onnx.data"]


def test_nothing_is_visible_before_the_end(tmp_path: Path) -> None:
    with AtomicWriter(tmp_path / "model.onnx") as writer:
        writer.open("model.data").write(b"data")
        writer.open().write(b"model")
        assert all(name.startswith(".tenonnx-") and name.endswith(".tmp") for name in names(tmp_path))
    assert names(tmp_path) == ["model.data", "model.onnx"]


def test_a_relative_path_survives_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with AtomicWriter("model.onnx") as writer:
        os.chdir("elsewhere")
        writer.open().write(b"model")
    assert (tmp_path / "model.onnx").read_bytes() == b"model"
    assert names(tmp_path / "elsewhere") == []


def test_write_bytes(tmp_path: Path) -> None:
    write_bytes(tmp_path / "file", (bytes([value]) * 3 for value in b"abc"))
    write_bytes(tmp_path / "empty", [])
    assert (tmp_path / "file").read_bytes() == b"aaabbbccc"
    assert (tmp_path / "empty").read_bytes() == b""


@posix
def test_modes(tmp_path: Path) -> None:
    def modes() -> set[int]:
        return {entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir()}

    previous = os.umask(0o027)
    try:
        write_pair(tmp_path, "first")
        assert modes() == {0o640}
        (tmp_path / "model.onnx").chmod(0o606)
        write_pair(tmp_path, "second")
        assert modes() == {0o606}, "the new data file must be no more open than the model was"
    finally:
        os.umask(previous)


@posix
def test_a_link_is_replaced_and_its_target_unchanged(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"target")
    (tmp_path / "model.onnx").symlink_to("target")
    write_bytes(tmp_path / "model.onnx", [b"new"])
    assert not (tmp_path / "model.onnx").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"target"


# ----- refused before anything is written -----


@pytest.mark.parametrize(
    "path",
    [
        "",
        "new/",
        "missing/model.onnx",
        "file/model.onnx",
        "folder",
        "nul\0.onnx",
        "x" * 300,
        "y" * 300 + "/z",
        "\ud800",
    ],
)
def test_refused_paths(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidCall), AtomicWriter(f"{tmp_path}/{path}" if path else path):
        raise AssertionError("entered")
    assert names(tmp_path) == ["file", "folder"]
    assert names(tmp_path / "folder") == []


@posix
@pytest.mark.parametrize("link", [False, True])
def test_a_pipe_is_refused(tmp_path: Path, link: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(InvalidCall, match="binary stream"):
        write_bytes(tmp_path / ("link" if link else "pipe"), [b""])
    assert names(tmp_path) == ["link", "pipe"]


def test_an_unwritable_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InvalidCall, match=r"(?s)cannot write to the folder.*Permission denied"):
        write_bytes(tmp_path / "model.onnx", [b""])


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that refuses root too")
def test_a_folder_that_refuses_even_root() -> None:
    with pytest.raises(InvalidCall, match="cannot write to the folder"):
        write_bytes("/sys/model.onnx", [b""])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../data", "a/data", "/data", "a\\data", "C:data", "nul\0", "\\\\a\\b"]
)
def test_unsafe_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafePath):
        check_file_name(name)
    with pytest.raises(UnsafePath):
        available_name(tmp_path, name)
    for method in ("open", "discard"):
        with pytest.raises(UnsafePath), AtomicWriter(tmp_path / "model.onnx") as writer:
            getattr(writer, method)(name)
    assert names(tmp_path) == []


def test_available_name(tmp_path: Path) -> None:
    for wanted, expected in [
        ("w.data", "w.data"),
        ("w.data", "w-1.data"),
        ("w.data", "w-2.data"),
        ("w", "w"),
        ("w", "w-1"),
    ]:
        assert available_name(tmp_path, wanted) == expected
        (tmp_path / expected).touch()


@posix
def test_the_name_of_a_dangling_link_is_taken(tmp_path: Path) -> None:
    (tmp_path / "w.data").symlink_to("nowhere")
    assert available_name(tmp_path, "w.data") == "w-1.data"


# ----- failures leave the old files -----


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("old", [False, True])
def test_an_interrupted_block_changes_nothing(tmp_path: Path, error: type[BaseException], old: bool) -> None:
    if old:
        write_pair(tmp_path, "old")

    def block() -> None:
        with AtomicWriter(tmp_path / "model.onnx") as writer:
            writer.open("new.data").write(b"new")
            writer.open().write(b"new")
            writer.discard("model.onnx.data")
            raise error

    with pytest.raises(error):
        block()
    assert names(tmp_path) == (["model.onnx", "model.onnx.data"] if old else [])
    assert not old or read_pair(tmp_path) == "old"


def test_a_block_without_a_model_changes_nothing(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    with pytest.raises(InvalidCall, match="never opened"), AtomicWriter(tmp_path / "model.onnx") as writer:
        writer.open("new.data").write(b"new")
    assert read_pair(tmp_path) == "old"
    assert names(tmp_path) == ["model.onnx", "model.onnx.data"]


def test_a_data_file_never_replaces_one(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    with pytest.raises(InvalidCall, match=r"model\.onnx-1\.data"), AtomicWriter(tmp_path / "model.onnx") as writer:
        writer.open("model.onnx.data")
    assert read_pair(tmp_path) == "old"


@pytest.mark.parametrize("name", [None, "new.data"])
def test_a_file_is_opened_once(tmp_path: Path, name: str | None) -> None:
    with AtomicWriter(tmp_path / "model.onnx") as writer:
        writer.open()
        writer.open("new.data")
        with pytest.raises(InvalidCall, match="opened twice"):
            writer.open(name)


@pytest.mark.parametrize("links", [True, False])
def test_a_concurrent_file_is_not_overwritten(tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    write_pair(tmp_path, "old")

    def meanwhile() -> None:
        (tmp_path / "model.onnx-1.data").write_bytes(b"somebody else's")

    with pytest.raises(InvalidCall, match="exists"):
        write_pair(tmp_path, "new", before_replace=meanwhile)
    assert read_pair(tmp_path) == "old"
    assert (tmp_path / "model.onnx-1.data").read_bytes() == b"somebody else's"
    assert names(tmp_path) == ["model.onnx", "model.onnx-1.data", "model.onnx.data"]


def no_links(*_: Any) -> None:
    raise OSError(errno.EPERM, "no hard links here")


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    write_pair(tmp_path, "old")
    write_pair(tmp_path, "new")
    assert read_pair(tmp_path) == "new"
    assert names(tmp_path) == ["model.onnx", "model.onnx-1.data"]


def test_a_full_disk(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    expected = pytest.raises(TenonnxError, match=r"(?s)fit on the disk.*nothing was changed")
    with expected, AtomicWriter(tmp_path / "model.onnx") as writer:
        writer.open("new.data").write(b"new")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert read_pair(tmp_path) == "old"
    assert names(tmp_path) == ["model.onnx", "model.onnx.data"]


def test_other_errors_of_the_block_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError), AtomicWriter(tmp_path / "model.onnx"):
        raise ConnectionResetError(errno.ECONNRESET, "reset")


def test_a_failing_rename_leaves_the_old_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "The file is in use")

    write_pair(tmp_path, "old")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(TenonnxError, match="The file is in use"):
        write_pair(tmp_path, "new")
    assert read_pair(tmp_path) == "old"
    assert names(tmp_path) == ["model.onnx", "model.onnx.data"]


# ----- order of events -----


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Enable Ctrl-C as in a terminal: background processes and their children ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_before_replace_comes_when_all_is_written_and_nothing_renamed(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    seen: list[object] = []

    def hook() -> None:
        seen.append(read_pair(tmp_path))
        seen.append(sorted(path.read_bytes() for path in tmp_path.glob("*.tmp"))[0])

    write_pair(tmp_path, "new", before_replace=hook)
    assert seen == ["old", b"new"]
    with pytest.raises(KeyboardInterrupt):
        write_pair(tmp_path, "newer", before_replace=lambda: signal.raise_signal(signal.SIGINT))
    assert read_pair(tmp_path) == "new"
    assert len(names(tmp_path)) == 2


def test_discard(tmp_path: Path) -> None:
    (tmp_path / "old.data").touch()
    with AtomicWriter(tmp_path / "model.onnx") as writer:
        writer.open("new.data").write(b"new")
        writer.open().write(b"model")
        for name in ("old.data", "new.data", "model.onnx", "missing.data"):
            writer.discard(name)
    assert names(tmp_path) == ["model.onnx", "new.data"]


STEPS = [("link", 1), ("unlink", 1), ("replace", 1), ("unlink", 2)]  # the second unlink removes the old data


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_between_two_steps(
    tmp_path: Path, step: tuple[str, int], after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pair(tmp_path, "old")
    with monkeypatch.context() as patch:
        stop_at(step, after, lambda: signal.raise_signal(signal.SIGINT), patch.setattr)
        with pytest.raises(KeyboardInterrupt):
            write_pair(tmp_path, "new")
    replaced = step == STEPS[3] or (step == STEPS[2] and after)
    assert read_pair(tmp_path) == ("new" if replaced else "old")
    assert not list(tmp_path.glob(".tenonnx-*"))
    assert len(names(tmp_path)) <= (3 if replaced else 2)  # the old data file may remain, unused


def stop_at(step: tuple[str, int], after: bool, stop: Any, setattr_: Any = setattr) -> None:
    """Call ``stop`` before or after the nth call of a function of ``os``."""
    name, left = step
    original = getattr(os, name)

    def wrapper(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            stop()
        result = original(*arguments)
        if left == 0 and after:
            stop()
        return result

    setattr_(os, name, wrapper)


@posix
@pytest.mark.parametrize("step", [*STEPS, None])
@pytest.mark.parametrize("after", [False, True])
def test_a_killed_process_leaves_a_pair(tmp_path: Path, step: tuple[str, int] | None, after: bool) -> None:
    write_pair(tmp_path, "old")
    child = os.fork()
    if child == 0:
        try:
            if step is not None:
                stop_at(step, after, kill)
            write_pair(tmp_path, "new", before_replace=None if step else kill)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    replaced = step == STEPS[3] or (step == STEPS[2] and after)
    assert read_pair(tmp_path) == ("new" if replaced else "old")
    write_pair(tmp_path, "newest")  # leftovers do not prevent the next export
    assert read_pair(tmp_path) == "newest"


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@posix
def test_the_files_being_read_can_be_replaced(tmp_path: Path) -> None:
    write_pair(tmp_path, "old")
    with contextlib.ExitStack() as stack:
        old = stack.enter_context((tmp_path / "model.onnx.data").open("rb"))
        with AtomicWriter(tmp_path / "model.onnx") as writer:
            writer.open("new.data").write(old.read(2))
            writer.open().write(b"model")
            writer.discard("model.onnx.data")
        assert old.read() == b"d"
    assert (tmp_path / "new.data").read_bytes() == b"ol"
    assert names(tmp_path) == ["model.onnx", "new.data"]

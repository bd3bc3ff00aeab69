"""External data is read only from the model's folder, and copied completely."""

from __future__ import annotations

import gc
import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tenonnx.errors import InvalidCall, InvalidModel, UnsafePath
from tenonnx.formats import files as files_module
from tenonnx.formats.external import ExternalFiles, Region

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.fixture(params=["below", "checked"])
def files(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalFiles]:
    """The folder's files, opened as on POSIX and as on systems without ``dir_fd``."""
    if request.param == "checked":
        monkeypatch.setattr(files_module, "_OPENS_BELOW", False)
    elif not files_module._OPENS_BELOW:
        pytest.skip("this system has no dir_fd")
    opened = ExternalFiles(folder)
    yield opened
    opened.close()


def in_time(action: Callable[[], Any]) -> Any:
    """Result or error of an action that must not block."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(action())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert result, "it blocks"
    return result[0]


# ----- reading -----


@pytest.mark.parametrize(
    ("location", "offset", "length", "expected"),
    [
        ("data.bin", None, None, CONTENT),
        ("data.bin", "0", "1024", CONTENT),
        ("data.bin", "16", "007", CONTENT[16:23]),
        ("data.bin", 16, 7, CONTENT[16:23]),
        ("data.bin", "1000", None, CONTENT[1000:]),
        ("data.bin", "1024", "0", b""),
        ("data.bin", "1024", None, b""),
        ("empty.bin", None, None, b""),
        ("empty.bin", "0", "0", b""),
        ("weights/deep.bin", "0", "4", b"\xff\xfe\xfd\xfc"),
        ("weights\\deep.bin", "0", "4", b"\xff\xfe\xfd\xfc"),
        ("./weights//./deep.bin", "0", "4", b"\xff\xfe\xfd\xfc"),
    ],
)
def test_views(files: ExternalFiles, location: str, offset: Any, length: Any, expected: bytes) -> None:
    view = files.region(location, offset, length, tensor="w").view()
    assert view == expected
    assert view.readonly
    assert view.contiguous


def test_a_view_makes_an_array_that_cannot_be_written(files: ExternalFiles) -> None:
    array = np.frombuffer(files.region("data.bin", "4", "8").view(), np.uint32)
    assert array.tolist() == [0x07060504, 0x0B0A0908]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_a_file_is_opened_and_mapped_once(files: ExternalFiles, folder: Path) -> None:
    first, second = files.region("data.bin", 0, 8), files.region("./data.bin", 8, 8)
    assert first.file is second.file
    assert first.view().obj is second.view().obj
    assert first.path == str(folder / "data.bin")
    assert first.file.identity == ((folder / "data.bin").stat().st_dev, (folder / "data.bin").stat().st_ino)
    assert first == Region(first.file, 0, 8)
    assert first.end == second.offset


def test_a_view_outlives_everything(folder: Path) -> None:
    files = ExternalFiles(folder)
    region = files.region("data.bin", 4, 4)
    array = np.frombuffer(region.view(), np.uint8)
    files.close()
    files.close()
    if os.name == "posix":
        (folder / "data.bin").unlink()
    with pytest.raises(InvalidCall, match="closed"):
        region.view()
    with pytest.raises(InvalidCall, match="closed"):
        region.file.read_into(memoryview(bytearray(1)), 0)
    del files, region
    gc.collect()
    assert array.tolist() == [4, 5, 6, 7]


def test_a_region_outlives_the_files_and_then_closes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    region = ExternalFiles(folder).region("data.bin", 4, 4)
    gc.collect()
    assert region.view() == CONTENT[4:8]
    descriptor = region.file.fileno()
    closed: list[int] = []
    close = os.close
    monkeypatch.setattr(os, "close", lambda number: (closed.append(number), close(number)))
    del region
    gc.collect()
    assert descriptor in closed


def test_after_close_files_can_be_opened_again(files: ExternalFiles) -> None:
    files.region("data.bin").view()
    files.close()
    assert files.region("data.bin", 0, 2).view() == CONTENT[:2]


def test_huge_sparse_files(tmp_path: Path) -> None:
    far = 5 << 30
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(far)
        file.seek(far)
        file.write(b"the end!")
    files = ExternalFiles(tmp_path)
    assert bytes(files.region("huge.bin", str(far), "8").view()) == b"the end!"
    view = files.region("huge.bin", str(2 << 30), str((3 << 30) + 8)).view()
    assert len(view) == (3 << 30) + 8
    assert bytes(view[-8:]) == b"the end!"
    files.close()


@posix
def test_the_folder_may_be_a_link(folder: Path) -> None:
    (folder.parent / "latest").symlink_to("model")
    assert bytes(ExternalFiles(folder.parent / "latest").region("weights/deep.bin", 0, 1).view()) == b"\xff"


# ----- refusing -----

OUTSIDE = [
    "../secret.bin",
    "weights/../../secret.bin",
    "weights/../data.bin",
    "..",
    "..\\secret.bin",
    "weights\\..\\..\\secret.bin",
    "/etc/passwd",
    "//server/share/data.bin",
    "\\\\server\\share\\data.bin",
    "\\\\?\\C:\\data.bin",
    "\\data.bin",
    "C:\\data.bin",
    "C:/data.bin",
    "c:data.bin",
    "",
    ".",
    "./",
    "data.bin\0",
    "\0",
]


@pytest.mark.parametrize("location", OUTSIDE)
def test_locations_outside_the_folder(files: ExternalFiles, location: str) -> None:
    with pytest.raises(UnsafePath, match=r"(?s)relative path inside.*'encoder\.w'"):
        files.region(location, "0", "1", tensor="encoder.w")


def test_absolute_paths_are_refused_even_into_the_folder(files: ExternalFiles, folder: Path) -> None:
    with pytest.raises(UnsafePath):
        files.region(str(folder / "data.bin"), tensor="w")
    files.region("data.bin")
    for location in (str(folder / "data.bin"), "weights/../data.bin"):
        with pytest.raises(UnsafePath):  # not even if the file is open already
            files.region(location, tensor="w")


@posix
@pytest.mark.parametrize("target", ["../secret.bin", "data.bin", "nowhere", "link"])
@pytest.mark.parametrize("location", ["link", "weights/link", "link/data.bin", "link/deep/data.bin"])
def test_links(files: ExternalFiles, folder: Path, target: str, location: str) -> None:
    (folder / "link").symlink_to(target)
    (folder / "weights" / "link").symlink_to(target)
    with pytest.raises(UnsafePath, match=r"(?s)symbolic link.*tensor 'w'"):
        files.region(location, tensor="w")


@posix
@pytest.mark.parametrize("target", ["..", "weights", "."])
def test_linked_folders(files: ExternalFiles, folder: Path, target: str) -> None:
    (folder / "link").symlink_to(target, target_is_directory=True)
    (folder / "weights" / "link").symlink_to("..", target_is_directory=True)
    for location in ("link/secret.bin", "link/deep.bin", "link/data.bin", "weights/link/data.bin", "link"):
        with pytest.raises(UnsafePath, match=r"(?s)symbolic link.*tensor 'w'"):
            files.region(location, tensor="w")


@posix
def test_hard_links(files: ExternalFiles, folder: Path) -> None:
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    with pytest.raises(UnsafePath, match=r"(?s)second name.*tensor 'w'"):
        files.region("hard.bin", tensor="w")


@posix
def test_special_files_are_refused(files: ExternalFiles, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for location in ("weights", "weights/", "pipe"):
        error = in_time(partial(files.region, location, tensor="w"))
        assert isinstance(error, UnsafePath)
        assert "regular file" in str(error)
        assert "'w'" in str(error)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices")
def test_devices_and_sockets() -> None:
    with pytest.raises(UnsafePath, match="regular file"):
        ExternalFiles("/dev").region("zero", 0, 10, tensor="w")


@pytest.mark.parametrize("location", ["missing.bin", "missing/data.bin", "data.bin/data.bin", "x" * 300, "\ud800"])
def test_missing_files(files: ExternalFiles, folder: Path, location: str) -> None:
    with pytest.raises(InvalidModel, match="cannot read the file of external data") as caught:
        files.region(location, tensor="encoder.w")
    assert not isinstance(caught.value, UnsafePath)
    for part in ("encoder.w", repr(location[:200]), str(folder)):
        assert part in str(caught.value)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="cannot read the file of external data"):
        ExternalFiles(tmp_path / "missing").region("data.bin", tensor="w")
    with pytest.raises(InvalidModel, match=r"(?s)'w'.*base_dir="):
        ExternalFiles(None).region("data.bin", tensor="w")
    with pytest.raises(UnsafePath):
        ExternalFiles(None).region("../data.bin", tensor="w")


JUNK = [
    "",
    " ",
    "-1",
    "+1",
    "1.0",
    "1e3",
    " 1",
    "1\n",
    "0x10",
    "1_000",
    "\u0661",
    "\u00b2",
    "9" * 5000,
    -1,
    True,
    1.0,
    b"1",
]


@pytest.mark.parametrize("number", JUNK)
def test_junk_numbers(files: ExternalFiles, number: Any) -> None:
    with pytest.raises(InvalidModel, match=r"(?s)not a decimal number.*tensor 'w', .*, offset "):
        files.region("data.bin", number, "1", tensor="w")
    with pytest.raises(InvalidModel, match=r"(?s)not a decimal number.*tensor 'w'.*, length ") as caught:
        files.region("data.bin", "1", number, tensor="w")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("offset", "length"),
    [("1025", "0"), ("1025", None), ("0", "1025"), ("1024", "1"), ("1", "1024"), ("9" * 19, "1"), ("1", "9" * 19)],
)
def test_ranges_outside_the_file(files: ExternalFiles, offset: str, length: str | None) -> None:
    with pytest.raises(InvalidModel, match=r"(?s)beyond the end of its file.*tensor 'w'.*1024 bytes"):
        files.region("data.bin", offset, length, tensor="w")


def test_messages_stay_short(files: ExternalFiles) -> None:
    with pytest.raises(InvalidModel) as caught:
        files.region("x" * 100_000, tensor="y" * 100_000)
    assert len(str(caught.value)) < 1500


@posix
def test_a_folder_that_is_swapped_while_it_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A race that breaks checking a path before opening it (TOCTOU)."""
    (folder.parent / "deep.bin").write_bytes(b"secret")
    original = os.open

    def swap(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "deep.bin":
            (folder / "weights").rename(folder / "moved")
            (folder / "weights").symlink_to("..")
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", swap)
    assert ExternalFiles(folder).region("weights/deep.bin").view() == CONTENT[::-1]


@posix
@pytest.mark.parametrize("swapped", ["file by file", "file by link", "folder by link"])
def test_swapped_files_without_dir_fd(folder: Path, swapped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_OPENS_BELOW", False)
    original = os.open
    victim = folder / "weights" / "deep.bin" if swapped.startswith("file") else folder / "weights"

    def swap(path: Any, *arguments: Any, **options: Any) -> int:
        victim.rename(folder / "moved")
        if swapped.endswith("link"):
            victim.symlink_to(folder / "moved")
        else:
            victim.write_bytes(b"other")
        return original(folder / "moved" if swapped == "file by file" else path, *arguments, **options)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(UnsafePath):
        ExternalFiles(folder).region("weights/deep.bin", tensor="w")


@posix
def test_refusals_leave_no_descriptor_open(files: ExternalFiles, folder: Path) -> None:
    if not Path("/dev/fd").is_dir():
        pytest.skip("descriptors cannot be counted here")
    os.link(folder / "data.bin", folder / "hard.bin")
    (folder / "link").symlink_to("weights")
    before = len(list(Path("/dev/fd").iterdir()))
    for location in ("hard.bin", "weights", "missing", "weights/missing", "link/deep.bin", "../secret.bin"):
        with pytest.raises(InvalidModel):
            files.region(location, tensor="w")
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_file_that_became_shorter_is_not_mapped(folder: Path) -> None:
    region = ExternalFiles(folder).region("data.bin", tensor="w")
    os.truncate(folder / "data.bin", 10)
    with pytest.raises(InvalidModel, match="into memory"):
        region.view()

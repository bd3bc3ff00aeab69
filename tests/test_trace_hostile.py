"""The hostile files of ``tools/trace_hostile.py``, and detection of reads outside the model's folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
try:
    import trace_hostile
    from traced import traced
finally:
    sys.path.pop(0)


@pytest.mark.filterwarnings("ignore:Duplicate name")  # an archive with a member twice is hostile
@pytest.mark.parametrize("kind", ["onnx", "npz", "tflite", "lightgbm", "xgboost-json", "xgboost-ubj", "shards"])
def test_each_format_has_twenty_files(kind: str, tmp_path: Path) -> None:
    made = trace_hostile.make(kind, 25, tmp_path)
    assert len(made) >= 20
    assert len({name for name, _ in made}) == len(made)
    assert all(any(Path(folder).iterdir()) for _, folder in made)


def test_without_strace_the_reason_is_printed(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "trace_hostile.py"), "--kinds", "npz", "--mutants", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == 2
    assert "strace is not installed" in done.stderr


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_reads_of_native_code_are_found(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("inside", "outside")]
    for folder in folders:
        folder.mkdir()
        (folder / "w.bin").write_bytes(b"x")
    code = "import sys; [open(path, 'rb').read() for path in sys.argv[1:]]"
    command = [sys.executable, "-c", code, *(str(folder / "w.bin") for folder in folders)]
    result, exit_code = traced(command, [], [str(folders[0])])
    assert (result, exit_code) == ([f"read {folders[1]}/w.bin"], 0)

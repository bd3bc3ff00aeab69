"""Workers and runs that are killed, and full disks."""

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import tenonnx as tx
from tenonnx_score import OutputFailed, Watch

KILLS = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "kills.py"))
ROWS, PARTS = KILLS["ROWS"], KILLS["PARTS"]


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(5)
    rows = {"id": np.arange(ROWS), **{name: rng.standard_normal(ROWS) for name in "abcd"}}
    parquet.write_table(pa.table(rows), tmp_path / "t.parquet", row_group_size=ROWS // PARTS)
    return tmp_path / "t.parquet"


def options(on="local:2"):
    return {"keep": ["id"], "part_rows": ROWS // PARTS, "on": on, "threads": 1, "batch": 50}


def is_whole(folder):
    return parquet.read_table(folder)["id"].to_pylist() == list(range(ROWS))


def workers_of(process):
    """Process IDs of the workers that a process started."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return [int(each) for each in children if b"engines.worker" in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc").exists(), reason="asks Linux for processes")
def test_a_worker_that_is_killed_is_replaced(matrix, data, tmp_path):
    killed = []

    def progress(each):
        if len(killed) < 2 and each.share > 0.2 * (1 + len(killed)):
            worker = workers_of(os.getpid())[0]
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)

    scores = tx.score(matrix, data, tmp_path / "out", watch=Watch(progress=progress), **options())
    assert len(killed) == 2
    assert scores.rows == ROWS
    assert is_whole(tmp_path / "out")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return KILLS["Runs"](tmp_path_factory.mktemp("runs"))


@pytest.mark.skipif(not Path("/proc").exists(), reason="kills by a signal of Unix")
@pytest.mark.parametrize("role", KILLS["ROLES"])
def test_a_run_killed_at_any_point_is_complete_in_the_end(role, runs):
    """The command ``python plugins/apps/score/benchmarks/kills.py`` does so at any number of places."""
    good = np.delete(np.arange(ROWS), np.arange(0, ROWS, 1001))
    assert np.array_equal(runs.whole(), good), "no row twice, in order, without the bad ones"
    for place in runs.places(role, 2):
        assert not runs.killed(role, place)


def test_a_model_that_ends_its_process_is_reported(matrix, data, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'tenonnx_score.engines.worker' in sys.orig_argv:\n"
        "    import os, threading\n"
        "    threading.Timer(0.1, os._exit, (3,)).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(tx.TenonnxError, match="exited unexpectedly") as raised:
        tx.score(matrix, data, tmp_path / "out", **options())
    assert "code 3, 3 times" in str(raised.value)


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
from tenonnx_cli import main
sys.exit(main(["score", sys.argv[1], "--input", sys.argv[2], "-o", sys.argv[3], "--keep", "id", "--on", "local:1",
               "--threads", "1", "--batch-size", "50", "--part-rows", "1000"]))
"""


@pytest.mark.skipif(os.name == "nt", reason="the system has no limit of files")
def test_a_full_disk_is_reported_and_nothing_is_lost(matrix, data, tmp_path):
    command = [sys.executable, "-c", LIMITED, matrix, str(data), str(tmp_path / "out")]
    result = subprocess.run([*command, "9000"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].strip().startswith("do")
    assert "cannot write the output" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list((tmp_path / "out").glob(".part*")), "what was begun is gone"
    scores = tx.score(matrix, data, tmp_path / "out", **options())
    assert scores.rows == ROWS
    assert is_whole(tmp_path / "out")


def test_two_runs_in_one_folder_are_refused(matrix, data, tmp_path):
    seen = []

    def progress(each):
        if not seen:
            seen.append(each)
            with pytest.raises(tx.InvalidCall, match="another run is writing"):
                tx.score(matrix, data, tmp_path / "out", **options())

    tx.score(matrix, data, tmp_path / "out", watch=Watch(progress=progress), **options())
    assert seen


def test_a_folder_that_cannot_be_created_is_reported(matrix, data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFailed, match="cannot write the output"):
        tx.score(matrix, data, tmp_path / "file" / "out", **options())


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="a terminal of POSIX sends Ctrl-C to a group of processes")
def test_ctrl_c_explains_how_to_resume(matrix, tmp_path):
    """The signal reaches only the command, not its workers, each of which would print a traceback."""
    rows = {name: np.zeros(200_000) for name in "abcd"}
    parquet.write_table(pa.table(rows), tmp_path / "t.parquet")
    command = [sys.executable, "-m", "tenonnx", "score", str(matrix), "--input", "t.parquet", "-o", "out"]
    command += ["--on", "local:2", "--part-rows", "500"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": tmp_path}
    with subprocess.Popen(command, start_new_session=True, **streams) as process:
        for _ in range(600):
            if process.poll() is not None or (tmp_path / "out" / "part-000001.parquet").exists():
                break
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert output.splitlines()[-1] == "interrupted: repeat the command to go on"
    assert output.count("interrupted") == 1
    assert "Traceback" not in output


def test_a_model_that_is_replaced_during_a_run_ends_it(matrix, data, tmp_path):
    """A worker that starts later reloads the file: rows of two models must not be mixed in one output."""
    path = tmp_path / "live.onnx"
    tx.export(tx.load(matrix), path)
    killed = []

    def progress(each):
        if not killed and each.share > 0.2:
            other = tx.load(matrix)
            other.doc = "another"
            tx.export(other, tmp_path / "new.onnx")
            (tmp_path / "new.onnx").replace(path)
            killed.append(workers_of(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(tx.InvalidCall, match=r"live\.onnx\" was replaced while it was being used"):
        tx.score(path, data, tmp_path / "out", watch=Watch(progress=progress), **options())


def test_a_run_resumes_if_the_model_is_the_same(matrix, data, tmp_path):
    path = tmp_path / "live.onnx"
    tx.export(tx.load(matrix), path)
    first = path.read_bytes()

    def progress(each):
        (tmp_path / "again.onnx").write_bytes(first)
        (tmp_path / "again.onnx").replace(path)

    assert tx.score(path, data, tmp_path / "out", watch=Watch(progress=progress), **options()).rows == ROWS

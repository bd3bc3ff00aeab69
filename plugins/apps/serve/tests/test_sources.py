"""Served folders and uploads."""

import io
import os
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tenonnx_serve import sources
from tenonnx_serve.sources import MOST_FEEDS

EXAMPLES = Path(__file__).parents[4] / "examples"
DIGITS = (EXAMPLES / "digits" / "digits.onnx").read_bytes()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "models"
    (made / "inner").mkdir(parents=True)
    (made / ".hidden").mkdir()
    for way in ("a.onnx", "inner/b.onnx", ".hidden/c.onnx", "notes.md"):
        (made / way).write_bytes(DIGITS)
    (tmp_path / "outside.onnx").write_bytes(DIGITS)
    (made / "link.onnx").symlink_to(tmp_path / "outside.onnx")
    (made / "within.onnx").symlink_to(made / "a.onnx")
    (made / "away").symlink_to(tmp_path)
    return made


def test_models_of_the_folder_are_listed_and_opened(serve, folder):
    page = serve(folder)
    assert page.client.get("/api/state").json()["files"] == ["a.onnx", "link.onnx", "within.onnx", "inner/b.onnx"]
    assert page.ask("/models", file="inner/b.onnx")["name"] == "inner/b.onnx"
    assert page.ask("/models", file="within.onnx")["name"] == "within.onnx"
    assert page.ask("/models", file="a.onnx") == page.ask("/models", file="a.onnx"), "one model, however often"


@pytest.mark.parametrize(
    ("way", "status"),
    [
        ("../outside.onnx", 403),
        ("inner/../../outside.onnx", 403),
        ("link.onnx", 403),
        ("away/outside.onnx", 403),
        ("/etc/passwd", 403),
        ("notes.md", 403),
        ("inner", 403),
        ("", 403),
        ("none.onnx", 404),
        ("a\0.onnx", 404),
        ("a.onnx/b", 404),
        ("x" * 5000, 404),
    ],
)
def test_files_outside_the_folder_are_refused(serve, folder, way, status):
    assert serve(folder).ask("/models", status=status, file=way)["what"]


def test_without_a_folder_no_file_of_this_machine_is_opened(serve):
    assert "not given a folder" in serve().ask("/models", 403, file="/etc/passwd")["what"]


def test_static_files_end_at_their_folder(serve):
    client = serve().client
    for way in ("../application.py", "..%2fapplication.py", "%2e%2e/application.py", "/etc/passwd"):
        assert client.get(f"/static/{way}").status_code == 404


@pytest.mark.parametrize(
    "name",
    [
        "../m.onnx",
        "a/m.onnx",
        "a\\m.onnx",
        "/m.onnx",
        ".onnx",
        "..",
        "",
        "m.py",
        "m.onnx\n",
        "m\0.onnx",
        "x" * 300 + ".onnx",
    ],
)
def test_names_that_lead_elsewhere_are_refused(serve, name):
    page = serve()
    assert page.send(name, DIGITS, 400)["what"]
    assert not any(page.server.folder.rglob("*.*"))


def test_an_uploaded_file_is_opened_and_removed_on_release(serve):
    page = serve()
    model = page.send("digits.onnx", DIGITS)
    assert page.ask(f"/models/{model['id']}/open")["inputs"][0]["name"] == "pixels"
    assert [path.name for path in page.server.folder.rglob("*.onnx")] == ["digits.onnx"]
    assert page.client.delete(f"/api/models/{model['id']}").status_code == 200
    assert not any(page.server.folder.rglob("*.onnx"))
    assert page.ask(f"/models/{model['id']}/open", 404)["what"]


def test_external_data_is_stored_next_to_its_model(serve, tmp_path):
    import tenonnx as tx

    graph = tx.load(DIGITS)
    tx.export(graph, tmp_path / "m.onnx", external_data_threshold=16)
    (data,) = (path for path in tmp_path.iterdir() if path.suffix != ".onnx")
    page = serve()
    model = page.send("m.onnx", (tmp_path / "m.onnx").read_bytes())
    assert page.ask(f"/models/{model['id']}/open")["missing"]
    page.send(data.name, data.read_bytes(), beside=model["id"])
    opened = page.ask(f"/models/{model['id']}/open")
    assert not opened["missing"]
    assert opened["broken"] is None
    assert opened["weights"]["bytes"] > 0
    assert "there already" in page.send(data.name, b"", 409, beside=model["id"])["what"]


def test_uploads_are_not_stored_next_to_a_model_of_the_folder(serve, folder):
    page = serve(folder)
    model = page.ask("/models", file="a.onnx")
    assert page.send("b.data", b"x", 403, beside=model["id"])["what"]
    assert not (folder / "b.data").exists()


def test_too_large_uploads_are_refused_by_declared_and_by_actual_size(serve):
    page = serve(largest=1000)
    answer = page.client.put("/api/files?name=m.onnx", content=b"", headers={"content-length": str(10 * 10**9)})
    assert answer.status_code == 413

    def endless():
        for _ in range(100):
            yield b"x" * 100

    answer = page.client.put("/api/files?name=m.onnx", content=endless())
    assert answer.status_code == 413
    assert "1,000 bytes" in answer.json()["what"]
    assert not any(page.server.folder.rglob("*.onnx"))
    assert page.client.post("/api/jobs", content=b"x" * (2 << 20)).status_code == 413
    assert page.send("m.onnx", b"x" * 1000), "the server answers afterwards"


def test_uploads_keep_some_disk_space_free(serve, monkeypatch):
    monkeypatch.setattr("tenonnx_serve.sources.SPARED", 1 << 62)
    assert "disk" in serve().send("m.onnx", DIGITS, 507)["what"]


def test_fifty_files_at_once_are_taken_or_refused(serve):
    page = serve()
    with ThreadPoolExecutor(50) as threads:
        answers = list(
            threads.map(lambda k: page.client.put(f"/api/files?name=m{k}.onnx", content=DIGITS).status_code, range(50))
        )
    assert set(answers) <= {200, 429}
    assert 200 in answers
    assert len(list(page.server.folder.rglob("*.onnx"))) == answers.count(200)
    assert page.client.get("/api/state").status_code == 200


def test_the_oldest_models_are_let_go_of(serve, monkeypatch):
    monkeypatch.setattr("tenonnx_serve.sources.MOST_MODELS", 3)
    page = serve()
    for k in range(5):
        page.send(f"m{k}.onnx", DIGITS)
    assert sorted(path.name for path in page.server.folder.rglob("*.onnx")) == ["m2.onnx", "m3.onnx", "m4.onnx"]


def test_only_files_of_inputs_are_taken_as_inputs(serve):
    page = serve()
    assert ".npz" in page.send("m.onnx", b"x", 400, feeds="1")["what"]
    assert page.send("m.npz", b"x", feeds="1")["id"]
    assert not page.server.sources.models


def test_files_of_inputs_are_not_models(serve):
    """They have a limit of their own, so that they do not evict models."""
    page = serve()
    model = page.send("m.onnx", DIGITS)
    for number in range(MOST_FEEDS + 3):
        page.send(f"images-{number}.npz", b"x")
    state = page.client.get("/api/state").json()
    assert [each["name"] for each in state["models"]] == ["m.onnx"]
    assert len(list(page.server.folder.rglob("*.npz"))) == MOST_FEEDS
    page.ask(f"/models/{model['id']}/open")


def saved_model(names=("model/saved_model.pb", "model/variables/variables.index")):
    """An archive with these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"x")
    return made.getvalue()


def damaged_archive():
    """An archive whose member is not decompressed."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("saved_model.pb", bytes(1000))
    data = bytearray(made.getvalue())
    data[50:60] = b"\xff" * 10
    return bytes(data)


@pytest.fixture
def front_ends(monkeypatch):
    """Front ends for two file formats are installed."""
    monkeypatch.setattr(sources, "read_suffixes", lambda: (".onnx", ".safetensors", ".keras", ".pb"))


def test_models_of_front_ends_are_listed_and_sent(serve, tmp_path, front_ends):
    (tmp_path / "saved").mkdir()
    for name in ("m.keras", "m.onnx", "graph.pb", "saved/saved_model.pb", "saved/fingerprint.pb"):
        (tmp_path / name).write_bytes(DIGITS)
    page = serve(tmp_path)
    assert page.client.get("/api/state").json()["files"] == ["m.keras", "m.onnx", "saved"]
    assert page.ask("/models", file="saved")["name"] == "saved"
    assert page.ask("/models", file="graph.pb")["name"] == "graph.pb"
    sent = page.send("m.zip", saved_model())
    source = page.server.sources.find(sent["id"]).source
    assert {each.name for each in Path(source).iterdir()} == {"saved_model.pb", "variables"}
    page.client.delete(f"/api/models/{sent['id']}")
    assert not list(page.server.folder.rglob("saved_model.pb"))


@pytest.mark.parametrize(
    "body",
    [
        b"no archive",
        saved_model(["readme.txt"]),
        saved_model([f"{number}" for number in range(10_001)]),
        saved_model(["../../../escaped/saved_model.pb"]),
        damaged_archive(),
        saved_model(["", "saved_model.pb"]),
    ],
    ids=["no archive", "no model", "too many", "leads out", "damaged", "no name"],
)
def test_archives_of_something_else_are_refused(serve, front_ends, body, tmp_path):
    page = serve()
    answer = page.client.put("/api/files", params={"name": "m.zip"}, content=body)
    assert not list(page.server.folder.parent.glob("escaped/*"))
    if answer.status_code == 200:  # malicious paths were sanitized
        source = page.server.sources.find(answer.json()["id"]).source
        assert Path(source).is_relative_to(page.server.folder)
    else:
        assert answer.status_code in (400, 413)
        assert not any((page.server.folder / "sent").iterdir())


def test_the_folder_of_a_server_that_was_killed_is_removed(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = tmp_path / f"tenonnx-serve-{ended.stdout.decode().strip()}-x"
    other = tmp_path / f"tenonnx-serve-{os.getpid()}-x"
    for folder in (left, other):
        (folder / "sent").mkdir(parents=True)
    serve()
    assert not left.exists()
    assert other.exists()

"""``tenonnx serve`` exports a PyTorch module, and compares the file with the module."""

import onnxruntime
import torch

from tenonnx_serve.tasks.compare import compare
from tenonnx_serve.tasks.export import export
from tenonnx_serve.tasks.look import draw, open_model
from tenonnx_serve.tasks.run import run

NET = """
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x)))


def make_model():
    torch.manual_seed(0)
    return Block().eval()
"""


def test_a_module_is_drawn_exported_compared_and_run(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    source, steps = f"{tmp_path / 'net.py'}:make_model", []
    reading = {"examples": ["batch=2,4"]}

    def tell(**said):
        steps.append(said.get("step"))

    jobs = [tmp_path / name for name in ("export", "compare", "run")]
    for job in jobs:
        job.mkdir()
    about = open_model(tell, source, reading)
    assert [each["name"] for each in about["inputs"]]
    assert any("Gelu" in str(box) or "Erf" in str(box) for box in draw(tell)["boxes"])

    found = export(tell, source, "net", str(jobs[0]), {"convert": {"--opset": "13"}}, reading)
    assert found["passed"], found
    written = jobs[0] / found["file"]
    scope = {}
    exec(NET, scope)
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 12
    session = onnxruntime.InferenceSession(written)
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), scope["make_model"]()(x), rtol=1e-5, atol=1e-5)

    assert compare(tell, source, str(written), "net", str(jobs[1]), {}, reading)["passed"]
    assert run(tell, source, "net", str(jobs[2]), {"backend": "numpy"}, reading)["times"]

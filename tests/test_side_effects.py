"""Side effects of a default run: it leaves no files behind."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest

RELU = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'

RUNS = """
    import sys
    import numpy as np
    import tenonnx as tx

    opened = []
    def watch(event, arguments):
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            opened.append(arguments[0])
        if event in ("os.mkdir", "os.rename", "subprocess.Popen", "socket.connect"):
            opened.append((event, arguments))
    sys.addaudithook(watch)
    graph = tx.load(sys.argv[1])
    program = graph.compile(**({"state": {"x": "y"}} if "--state" in sys.argv else {}))
    program({} if "--state" in sys.argv else {"x": np.ones((2, 4), "f4")})
    print(program.backend, "openvino" in sys.modules, "torch" in sys.modules, "jax" in sys.modules, opened)
"""


@pytest.mark.parametrize("arguments", [[], ["--state"]])
def test_a_default_run_writes_nothing_and_imports_one_runtime(tmp_path, arguments):
    text = RELU.replace("float[n, 4]", "float[2, 4]") if arguments else RELU
    model = onnx.parser.parse_model(text)
    if arguments:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 4), "f4"), "x"))
    onnx.save(model, tmp_path / "m.onnx")
    home = tmp_path / "home"
    home.mkdir()
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(home))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUNS), str(tmp_path / "m.onnx"), *arguments],
        env={**{name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}, **places},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "onnxruntime False False False []\n", done.stderr
    assert list(home.rglob("*")) == []

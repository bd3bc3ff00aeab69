import gc
import os
import re
import threading
import warnings
import weakref

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_onnxruntime import compiling, kernels
from tenonnx_run import fallback

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'

AFFINE = """
<ir_version: {ir}, opset_import: ["" : {opset}]>
affine (float[N, 3] x, float[3] shift) => (float[N, 3] y, float total)
<float[3] shift = {{1, 2, 3}}, float[3] scale = {{2, 2, 2}}>
{{ scaled = Mul(x, scale)
   y = Add(scaled, shift)
   total = ReduceSum<keepdims = 0>(y) }}
"""


def model(text, **values):
    return onnx.parser.parse_model(text.format(**values))


def graph(text, **values):
    return tx.load(model(text, **values))


X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = X * 2 + np.array([1, 2, 3], np.float32)


@pytest.mark.parametrize(("opset", "ir"), [(7, 3), (11, 6), (13, 7), (18, 8), (22, 10), (25, 12), (28, 14)])
def test_models_of_every_age_run(opset, ir):
    results = graph(AFFINE, opset=opset, ir=ir).compile("onnxruntime", strict=True)({"x": X})
    np.testing.assert_array_equal(results["y"], Y)
    np.testing.assert_array_equal(results["total"], Y.sum())
    assert results["total"].shape == ()
    assert list(results) == ["y", "total"]


def test_a_graph_that_the_runtime_accepts_is_not_rewritten(monkeypatch):
    monkeypatch.setattr("tenonnx.extend.backends.retarget_to", None)
    graph(AFFINE, opset=18, ir=8).compile("onnxruntime", strict=True)
    graph(AFFINE, opset=18, ir=14).compile("onnxruntime", strict=True)


@pytest.mark.parametrize("state", [None, {"shift": "y"}])
def test_an_unreferenced_program_frees_its_session(monkeypatch, state):
    """Sessions hold memory and threads, which must be released without the garbage collector."""
    sessions = weakref.WeakSet()
    begin = onnxruntime.InferenceSession.__init__

    def begun(session, *args, **kwargs):
        begin(session, *args, **kwargs)
        sessions.add(session)

    monkeypatch.setattr(onnxruntime.InferenceSession, "__init__", begun)
    graph = tx.Graph()
    x, shift = graph.input("x", "float32", (3,)), graph.input("shift", "float32", (3,))
    graph.output("y", x + shift)
    feeds = {"x": np.ones(3, np.float32), "shift": np.ones(3, np.float32)}
    gc.collect()
    gc.disable()
    try:
        program = graph.compile("onnxruntime", state=state)
        program(feeds)
        assert len(sessions) == 1
        del program
        assert not sessions
    finally:
        gc.enable()


def test_inputs_with_a_default_may_be_fed():
    program = graph(AFFINE, opset=18, ir=8).compile("onnxruntime")
    np.testing.assert_array_equal(program({"x": X, "shift": np.zeros(3, np.float32)})["y"], X * 2)
    np.testing.assert_array_equal(program({"x": X})["y"], Y)


def test_auto_is_onnxruntime_where_that_can_run_the_graph():
    assert graph(AFFINE, opset=18, ir=8).compile().backend == "onnxruntime"


# ----- element types --------------------------------------------------------------------------------------------------


def test_a_node_without_a_kernel_is_cast_wider(single):
    a, b = np.array([[1, 2], [3, 4]], np.int8), np.array([[5, 6], [7, 8]], np.int8)
    program = single("Add", [("int8", [2, 2])] * 2, ("int8", [2, 2])).compile("onnxruntime", strict=True)
    result = program({"x0": a, "x1": b})["y"]
    np.testing.assert_array_equal(result, a + b)
    assert result.dtype == np.int8


def test_extended_element_types_are_arrays_of_ml_dtypes(single):
    a = np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16)
    program = single("MatMul", [("bfloat16", ["N", 2])] * 2, ("bfloat16", ["N", 2])).compile("onnxruntime", strict=True)
    result = program({"x0": a, "x1": a})["y"]
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(result.astype(np.float32), np.array([[7, 10], [15, 22]], np.float32))


@pytest.mark.parametrize("name", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2", "bfloat16", "int2", "uint2"])
def test_extended_element_types_go_in_and_come_out(name, single):
    dtype = np.dtype(getattr(ml_dtypes, name))
    code = tx.DType.of(dtype)
    values = np.array([[1, 0, 1], [0, 1, 1]], np.float32)
    out = single("Cast", [("float32", ["N", "M"])], (code, ["N", "M"]), opset=25, to=int(code))
    known = {kind for _, _, kinds in kernels._kernels()["ai.onnx", "Cast"] for kind in kinds["T2"]}
    if f"tensor({code.name})" not in known:  # an old runtime, which no program then is told to have it
        with pytest.raises(tx.UnsupportedOp, match="cannot run the graph"):
            out.compile("onnxruntime", strict=True)
        return
    result = out.compile("onnxruntime", strict=True)({"x0": values})["y"]
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.astype(np.float32), values)
    back = single("Cast", [(code, ["N", "M"])], ("float32", ["N", "M"]), opset=25, to=1)
    program = back.compile("onnxruntime", strict=True)
    np.testing.assert_array_equal(program({"x0": result})["y"], values)
    np.testing.assert_array_equal(program({"x0": result.T})["y"], values.T)
    assert program({"x0": np.zeros((0, 3), dtype)})["y"].shape == (0, 3)


def test_strings(single):
    program = single("Identity", [("string", ["N"])], ("string", ["N"])).compile("onnxruntime", strict=True)
    result = program({"x0": np.array(["a", "", "été"])})["y"]
    assert result.dtype == object
    assert result.tolist() == ["a", "", "été"]


def test_sequences_are_lists_and_an_absent_optional_is_none():
    sequence = graph(
        '<ir_version: 8, opset_import: ["" : 18]> g (seq(float[N]) x) => (seq(float[N]) y) {{ y = Identity(x) }}'
    )
    program = sequence.compile("onnxruntime", strict=True)
    (one,) = program({"x": [np.ones(2, np.float32)]})["y"]
    np.testing.assert_array_equal(one, [1, 1])
    assert program({"x": []})["y"] == []
    optional = graph(HEAD + "g (optional(float[N]) x) => (bool y) {{ y = OptionalHasElement(x) }}")
    program = optional.compile("onnxruntime", strict=True)
    assert not program({"x": None})["y"]
    assert program({"x": np.ones(2, np.float32)})["y"]


# ----- unsupported graphs ---------------------------------------------------------------------------------------------


@pytest.fixture
def no_kernel(single):
    """Atan has only a float32 kernel, and no type is wider than float64."""
    return single("Atan", [("float64", ["N"])], ("float64", ["N"]))


@pytest.mark.parametrize("name", ["onnxruntime", "auto"])
def test_numpy_replaces_the_runtime_with_one_warning(name, no_kernel):
    with pytest.warns(tx.FallbackWarning, match="numpy runs the graph") as caught:
        program = no_kernel.compile(name)
    assert len(caught) == 1
    assert re.search(r"Atan at version \d+ for \(float64\)", str(caught[0].message))
    assert program.backend == "numpy"
    assert program({"x0": np.zeros(2)})["y"].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["onnxruntime", "auto"])
def test_strict_refuses_instead(name, no_kernel):
    with pytest.raises(tx.UnsupportedOp, match=r"onnxruntime .* cannot run the graph") as caught:
        no_kernel.compile(name, strict=True)
    assert caught.value.do


def test_state_survives_the_change_to_numpy():
    counting = graph(
        '<ir_version: 8, opset_import: ["" : 18]> g (double[2] x) => (double[2] y) {{ e = Atan(x) y = Add(e, x) }}'
    )
    with pytest.warns(tx.FallbackWarning):
        program = counting.compile("onnxruntime", state={"x": "y"})
    program.state["x"] = np.zeros(2)
    program({})
    assert program.state["x"].tolist() == [0, 0]


# ----- wrong use ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"providers": ["NopeExecutionProvider"]}, "CPUExecutionProvider"),
        ({"optimization": "most"}, "basic"),
        ({"session_options": {"threads": 1}}, "intra_op_num_threads"),
        ({"session_options": {"intra_op_num_threads": "many"}}, "'many'"),
        ({"session_options": 3}, "int"),
        ({"threads": 0}, "threads is not a positive integer"),
        ({"threads": "many"}, "threads is not a positive integer"),
        ({"threads": 2, "session_options": onnxruntime.SessionOptions()}, "set intra_op_num_threads"),
        ({"speed": 3}, "session_options"),
        ({"state": {"x": "nothing"}}, "total"),
    ],
)
@pytest.mark.parametrize("name", ["onnxruntime", "auto"])
def test_wrong_options_say_what_there_is(name, options, message):
    with pytest.raises(tx.InvalidCall) as caught:
        graph(AFFINE, opset=18, ir=8).compile(name, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "feeds",
    [
        {},
        {"x": X, "z": X},
        {"x": X[0]},
        {"x": X[:, :2]},
        {"x": X + 0.1j},
        {"x": np.array([["a", "b", "c"]])},
        {"x": X.astype(np.float64) * 1e300},
    ],
)
def test_wrong_feeds_are_refused(feeds):
    program = graph(AFFINE, opset=18, ir=8).compile("onnxruntime")
    with pytest.raises(tx.InvalidFeed):
        program(feeds)


def test_a_feed_of_another_dtype_is_cast():
    program = graph(AFFINE, opset=18, ir=8).compile("onnxruntime")
    for other in (np.int64, np.float64):
        with pytest.warns(UserWarning, match=f'input "x": {np.dtype(other)} is cast to float32'):
            np.testing.assert_array_equal(program({"x": X.astype(other)})["y"], Y)
    np.testing.assert_array_equal(program({"x": X.tolist()})["y"], Y)
    np.testing.assert_array_equal(program({"x": X.astype(">f4")})["y"], Y)
    np.testing.assert_array_equal(program({"x": np.asfortranarray(X)})["y"], Y)


@pytest.fixture
def reshape(single):
    return single("Reshape", [("float32", ["N"]), ("int64", ["K"])], ("float32", None))


def test_a_call_that_the_runtime_refuses_names_the_inputs(capfd, reshape):
    with pytest.raises(tx.InvalidCall, match="onnxruntime cannot compute the graph") as caught:
        reshape.compile("onnxruntime", strict=True)({"x0": np.ones(3, np.float32), "x1": np.array([2])})
    assert "x0: float32[3]" in caught.value.given
    assert capfd.readouterr().err == ""


def test_a_call_that_numpy_refuses_too_names_the_node(reshape):
    with pytest.raises(tx.InvalidCall, match=r"ai\.onnx::Reshape"):
        reshape.compile("onnxruntime")({"x0": np.ones(3, np.float32), "x1": np.array([2])})


EMPTY = (
    HEAD.replace("18", "20")
    + """
    g (bool[N] x, float[1] count) => (bool y, float[1] next) <float[1] count = {{1}}>
    {{ y = ReduceMax<keepdims = 0>(x)  next = Add(count, count) }}"""
)


@pytest.mark.parametrize("state", [None, {"count": "next"}])
def test_numpy_computes_a_call_that_the_runtime_refuses(state):
    """The maximum of an empty set of booleans is False by the specification."""
    program = graph(EMPTY).compile("onnxruntime", state=state)
    assert program({"x": np.array([True, False])})["y"]
    with pytest.warns(tx.FallbackWarning, match="numpy computes what onnxruntime refuses") as caught:
        results = [program({"x": np.zeros(0, bool)}) for _ in range(2)]
    assert len(caught) == 1
    assert not any(r["y"] for r in results)
    assert program({"x": np.array([True, False])})["next"].item() == (16 if state else 2)


class LeavesUnwritten:
    """A session whose kernels leave an output unwritten, like SkipLayerNormalization's mean in old runtimes."""

    def __init__(self, session):
        self.session = session

    def __getattr__(self, name):
        return getattr(self.session, name)

    def run(self, names, feeds, options):
        return [None for _ in names]


def test_an_output_that_the_runtime_leaves_unwritten_is_computed_by_numpy(monkeypatch):
    feeds = {"x": np.array([[-1, 2, 0], [0, 3, 5]], np.float32)}
    expected = graph(AFFINE, opset=18, ir=8).compile("numpy")(feeds)
    opened = onnxruntime.InferenceSession
    monkeypatch.setattr(compiling.onnxruntime, "InferenceSession", lambda *a, **k: LeavesUnwritten(opened(*a, **k)))
    program = graph(AFFINE, opset=18, ir=8).compile("onnxruntime")
    with pytest.warns(tx.FallbackWarning, match="numpy computes what onnxruntime refuses"):
        assert np.array_equal(program(feeds)["y"], expected["y"])


def test_large_graphs_are_not_computed_twice(monkeypatch):
    monkeypatch.setattr(fallback, "LARGEST_FALLBACK", 3)
    with pytest.raises(tx.InvalidCall, match="onnxruntime cannot compute the graph"):
        graph(EMPTY).compile("onnxruntime")({"x": np.zeros(0, bool)})


# ----- options and sizes ----------------------------------------------------------------------------------------------


def test_session_options_are_an_object_or_its_fields(tmp_path):
    path = tmp_path / "optimized.onnx"
    fields = {"optimized_model_filepath": os.fspath(path), "intra_op_num_threads": 1}
    graph(AFFINE, opset=18, ir=8).compile("onnxruntime", session_options=fields, optimization="basic")
    assert path.exists()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    program = graph(AFFINE, opset=18, ir=8).compile("onnxruntime", session_options=options)
    np.testing.assert_array_equal(program({"x": X})["y"], Y)


def test_threads_are_a_field_that_session_options_may_replace():
    settings = compiling._with_threads(None, 3)
    assert settings == {"intra_op_num_threads": 3, "inter_op_num_threads": 1}
    assert compiling._with_threads({"intra_op_num_threads": 2}, 3)["intra_op_num_threads"] == 2
    program = graph(AFFINE, opset=18, ir=8).compile("onnxruntime", threads=1)
    np.testing.assert_array_equal(program({"x": X})["y"], Y)


def test_other_providers_are_judged_by_schemas():
    others = [name for name in onnxruntime.get_available_providers() if name != "CPUExecutionProvider"]
    if not others:
        pytest.skip("this build of onnxruntime has the CPU provider alone")
    program = graph(AFFINE, opset=28, ir=14).compile("onnxruntime", providers=[others[0], ("CPUExecutionProvider", {})])
    np.testing.assert_array_equal(program({"x": X})["y"], Y)


def test_huge_graphs_are_not_optimized(monkeypatch):
    monkeypatch.setattr(compiling, "LARGEST_OPTIMIZED", 2)
    settings = compiling._settings(None, None, graph(AFFINE, opset=18, ir=8), trains=False)
    assert settings.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings = compiling._settings(None, "all", graph(AFFINE, opset=18, ir=8), trains=False)
    assert settings.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


def linear(width, path=None):
    weight = np.random.default_rng(0).standard_normal((3, width), np.float32)
    made = model(HEAD + "g (float[N, 3] x) => (float[N, M] y) {{ y = MatMul(x, w) }}")
    made.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    if path is not None:  # this moves the tensors to external data
        onnx.save(made, path, save_as_external_data=True, location="data.bin", size_threshold=0)
    return made, weight


@pytest.mark.parametrize("external", [True, False])
def test_large_initializers_are_passed_separately_from_the_message(tmp_path, monkeypatch, external):
    path = tmp_path / "model.onnx" if external else None
    made, weight = linear(1 << 14, path)
    source = path or made
    sizes = []
    given = onnxruntime.InferenceSession

    def session(message, *arguments, **keywords):
        sizes.append(len(message))
        return given(message, *arguments, **keywords)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    program = tx.load(source).compile("onnxruntime", strict=True)
    assert sizes[-1] < 1000
    np.testing.assert_allclose(program({"x": X})["y"], X @ weight, rtol=1e-5, atol=1e-5)
    options = onnxruntime.SessionOptions()
    program = tx.load(source).compile("onnxruntime", strict=True, session_options=options)
    assert sizes[-1] > weight.nbytes, "a caller's own options are left without initializers"
    np.testing.assert_allclose(program({"x": X})["y"], X @ weight, rtol=1e-5, atol=1e-5)


def test_more_than_two_gigabytes(tmp_path):
    if not os.environ.get("TENONNX_LARGE_TESTS"):
        pytest.skip("takes 3 GB of memory and some seconds; set TENONNX_LARGE_TESTS=1")
    rows, width = 700, 1 << 20
    made = model(HEAD + "g (int64[N] x) => (float[N, M] y) {{ y = Gather(w, x) }}")
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(rows * width * 4)
        file.seek(width * 4)
        file.write(np.arange(3, dtype=np.float32).tobytes())
    tensor = made.graph.initializer.add(name="w", data_type=1, dims=[rows, width], data_location=1)
    tensor.external_data.add(key="location", value="data.bin")
    onnx.save(made, tmp_path / "model.onnx")
    result = tx.load(tmp_path / "model.onnx").compile("onnxruntime", strict=True)({"x": np.array([1])})["y"]
    assert result[0, :4].tolist() == [0, 1, 2, 0]


# ----- ownership and threads ------------------------------------------------------------------------------------------


def test_results_belong_to_the_caller():
    aliases = graph("""
        <ir_version: 8, opset_import: ["" : 18]>
        g (float[N] x) => (float[N] x, float[2] w, float[N] y, float[N] z) <float[2] w = {{1, 2}}>
        {{ y = Identity(x)  z = Identity(y) }}""")
    program = aliases.compile("onnxruntime", strict=True)
    x = np.ones(2, np.float32)
    first = program({"x": x})
    for array in first.values():
        array[:] = 7
    assert x.tolist() == [1, 1]
    second = program({"x": x})
    assert [second[name].tolist() for name in ("x", "w", "y", "z")] == [[1, 1], [1, 2], [1, 1], [1, 1]]
    assert first["y"].tolist() == [7, 7]


def test_several_threads_may_call_one_program():
    program = graph(AFFINE, opset=18, ir=8).compile("onnxruntime")
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal((seed + 1, 3), np.float32)
        for _ in range(50):
            if not np.allclose(program({"x": x})["y"], x * 2 + np.array([1, 2, 3], np.float32)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_compiling_is_quiet(capfd, no_kernel):
    with pytest.raises(tx.UnsupportedOp):
        no_kernel.compile("onnxruntime", strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(AFFINE, opset=28, ir=14).compile("onnxruntime", strict=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_an_empty_batch_that_would_end_the_process_is_computed_by_numpy():
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", (5, "batch", 3))
    weights = [graph.variable(n, np.ones((1, 6, k), np.float32)) for n, k in (("w", 3), ("r", 2))]
    graph.output("y", ops.gru(x, *weights, hidden_size=2)[0])
    none = {"x": np.zeros((5, 0, 3), np.float32)}
    program = graph.compile(backend="onnxruntime")
    with pytest.warns(tx.FallbackWarning, match="end the process"):
        assert program(none)["y"].shape == (5, 1, 0, 2)
    with pytest.raises(tx.TenonnxError, match="end the process"):
        graph.compile(backend="onnxruntime", strict=True)(none)


def test_constants_that_end_the_process_where_they_are_folded_are_left_to_the_run():
    """onnxruntime 1.31 reads freed memory when it inlines nested branches."""
    text = "r4 = Neg(x)"
    for k, limit in reversed(list(enumerate(("one", "one", "s", "s")))):
        other = f"other{k} () => (e{k}) {{ e{k} = Abs(x) }}"
        branches = f"then_branch = then{k} () => (r{k + 1}) {{ {text} }}, else_branch = {other}"
        text = f"c{k} = Less(zero, {limit}) r{k} = If(c{k}) <{branches}>"
    head = '<ir_version: 10, opset_import: ["": 20]> g (float[3] x, float s) => (float[3] r0)'
    nested = tx.load(onnx.parser.parse_model(f"{head} <float zero = {{0}}, float one = {{1}}> {{ {text} }}"))
    program = nested.compile("onnxruntime", strict=True)
    np.testing.assert_array_equal(program({"x": X[0], "s": np.float32(1)})["r0"], -X[0])


def test_kernels_that_end_the_process_in_old_versions_are_not_asked():
    one_axis = graph("""
        <ir_version: 8, opset_import: ["" : 15]>
        g (float[3] x) => (float[3] y) <float[1] s = {{2}}, float[1] b = {{1}}, float[1] m = {{0}}, float[1] v = {{1}}>
        {{ y = BatchNormalization <epsilon = 0.0> (x, s, b, m, v) }}""")
    program = one_axis.compile("onnxruntime", strict=True)
    np.testing.assert_allclose(program({"x": np.ones(3, np.float32)})["y"], [3, 3, 3])


def test_one_signal_has_one_spectrum():
    signal = graph("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[4, 1] x) => (float[n, 2] y) {{ y = DFT <axis = 0> (x) }}""")
    result = signal.run({"x": np.ones((4, 1), np.float32)})["y"]
    np.testing.assert_allclose(result, [[4, 0], [0, 0], [0, 0], [0, 0]], atol=1e-6)


def test_an_input_that_is_an_output_stays_the_callers():
    """Old runtimes return an input without copying, in memory that they release."""
    passed = graph(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] x, float[2] y) {{ y = Neg(x) }}'
    )
    program, x = passed.compile("onnxruntime", strict=True), np.ones(2, np.float32)
    for result in (program({"x": x}), program.bind({"x": x})()):
        assert not np.shares_memory(result["x"], x)

"""Exports of modules with equal outputs, and failures that write no file."""

import json
import math

import numpy as np
import onnx
import pytest
import torch
from modules import CASES, Apply, architectures, functions, layers, programs, sequences  # noqa: F401  (they register cases)
from torch import nn

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_torch
from tenonnx.extend.rules import import_rule
from tenonnx_convert import apply_rules as user_rules


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.quick])
def test_a_module_is_the_same_at_an_old_opset(name, tmp_path):
    case = CASES[name]
    module, examples = case.make()
    done = tenonnx_torch.export(module, examples, tmp_path / "m.onnx", opset_version=14, dims=case.dims)
    assert done.verification.equal
    assert done.verification.outputs
    written = onnx.load(tmp_path / "m.onnx")
    assert {o.domain: o.version for o in written.opset_import} == {"": 14}
    assert not [node for node in written.graph.node if node.metadata_props]
    variables = tx.load(tmp_path / "m.onnx").variables
    folded = {name for value in variables if value.role is not None for name in value.role.made_of}
    assert {name for name, _ in module.named_parameters()} <= folded | {value.name for value in variables}


def test_an_export_builds_its_message_once_by_the_table_of_conversions(tmp_path, monkeypatch):
    from tenonnx.formats.onnx.writer import GraphWriter
    from tenonnx_convert import convert

    names, messages, write = [], [], GraphWriter.write
    noted = {name: lambda state, n=name, s=step: names.append(n) or s(state) for name, step in convert.STEPS.items()}
    monkeypatch.setattr(convert, "STEPS", noted)
    monkeypatch.setattr(GraphWriter, "write", lambda self: messages.append(self.graph) or write(self))
    tenonnx_torch.export(nn.Linear(3, 2), torch.randn(1, 3), tmp_path / "m.onnx", opset_version=14)
    assert names == [
        "functions",
        "retarget",
        "as_functions",
        "tidy",
        "message",
        "hooks",
        "verify",
        "verify_with",
        "write",
    ]
    assert len(messages) == 1


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(3), nn.LayerNorm(3)])
        self.head = nn.Linear(3, 2)

    def forward(self, x, more):
        for norm in self.norms:
            x = norm(x)
        return {"logits": self.head(x) + more["bias"]}


def test_a_graph_has_the_names_of_the_module():
    more = {"bias": torch.ones(2)}
    graph = tx.load(Mixed(), torch.randn(1, 3), more, dims={"x": {0: "batch"}})
    assert [(v.name, str(v.type)) for v in graph.inputs] == [("x", "float32[batch, 3]"), ("more_bias", "float32[2]")]
    assert [(v.name, str(v.type)) for v in graph.outputs] == [("logits", "float32[batch, 2]")]
    assert {v.name for v in graph.variables} == {name for name, _ in Mixed().named_parameters()}
    named = tx.load(Mixed(), torch.randn(2, 3), more, input_names=["a", "b"], output_names=["c"], verify=False)
    assert [v.name for v in (*named.inputs, *named.outputs)] == ["a", "b", "c"]


def test_parameters_may_be_called_like_what_is_computed():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.add, self.mul = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))
            self.register_buffer("index", torch.tensor([2, 0, 1]))

        def forward(self, x):
            return x[:, self.index] * self.mul + self.add

    graph = tx.load(Shifted(), torch.randn(2, 3))
    assert {v.name for v in graph.variables} == {"add", "mul", "index"}


def test_tasks_name_the_outputs(tmp_path):
    class Detector(nn.Module):
        def forward(self, image):
            return image.mean((2, 3)), image.sum((1, 2, 3)) > 0, image.amax((1, 2, 3))

    path = tmp_path / "m.onnx"
    image = torch.randn(2, 4, 3, 3)
    done = tenonnx_torch.export(Detector(), image, path, opset_version=17, task="detection", dynamic_batch=True)
    model = onnx.load(path)
    assert [value.name for value in model.graph.output] == ["boxes", "labels", "scores"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert {output.run for output in done.verification.outputs} == {"batch=1", "batch=2", "batch=5"}
    assert json.loads(json.dumps(done.to_dict()))["verification"]["equal"]
    with pytest.raises(tx.InvalidCall, match=r"the task .classification. are not 3 different names"):
        tx.load(Detector(), image, task="classification")
    with pytest.raises(tx.InvalidCall, match="unknown task"):
        tx.load(Detector(), image, task="detecting")


def test_batch_normalization_in_training_uses_the_statistics_of_the_batch():
    module, x = nn.BatchNorm1d(3).train(), torch.randn(4, 3)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    graph = tx.load(module, x)
    assert graph.nodes[0].attributes["training_mode"] == 1
    expected = (x - x.mean(0)) / x.var(0, correction=0).add(1e-5).sqrt()
    for backend in ("numpy", "onnxruntime"):
        assert np.allclose(graph.run({"input": x.numpy()}, backend=backend)["output"], expected, atol=1e-5)
    assert all(torch.equal(before[name], buffer) for name, buffer in module.named_buffers())  # loading does not train


def test_dropout_between_layers_of_a_recurrence_stays():
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        graph = tx.load(kind(3, 4, num_layers=3, dropout=0.5).train(), torch.randn(5, 2, 3))
        assert [node.op_type for node in graph.nodes].count("Dropout") == 2
        assert "weight_hh_l2" in {value.name for value in graph.variables}


class Bags(nn.Module):
    """EmbeddingBag in each mode, with an empty bag and a bag of padding only."""

    def __init__(self):
        super().__init__()
        kinds = [("sum", None, False), ("mean", 2, False), ("max", 2, True), ("max", None, False)]
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(7, 4, mode=mode, padding_idx=padding, include_last_offset=last)
            for mode, padding, last in kinds
        )

    def forward(self, indices, offsets, weights):
        ends = torch.cat([offsets, offsets.new_full((1,), indices.shape[0])])
        joined = [self.bags[0](indices, offsets, weights), self.bags[1](indices, offsets)]
        return *joined, self.bags[2](indices, ends), self.bags[3](indices.reshape(-1, 2))


def test_bags_of_embeddings_are_joined_without_a_loop(tmp_path):
    """onnxruntime 1.31 crashes on the loop that PyTorch's exporter writes."""
    examples = torch.tensor([2, 2, 1, 2, 5, 6]), torch.tensor([0, 2, 2, 4]), torch.randn(6)
    path, dims = tmp_path / "m.onnx", {"offsets": {0: "bags"}}
    done = tenonnx_torch.export(Bags().eval(), examples, path, opset_version=13, dims=dims)
    assert {output.location for output in done.verification.outputs} == {
        "onnxruntime, bags=4",
        "onnxruntime, bags=1",
        "onnxruntime, bags=9",
    }
    assert not done.verification.notes
    assert not {"Loop", "If", "SequenceEmpty"}.intersection(node.op_type for node in tx.load(path).walk())


def test_operators_that_the_exporter_lacks(tmp_path):
    def compute(x):
        whole = (x.nan_to_num(0.0) * 3).to(torch.int32)
        result = [x.median(1).values, x.nan_to_num(0.0).kthvalue(2, 1, keepdim=True).values, whole.median(0).values]
        result += [torch.cdist(x, x + 1), torch.cdist(x, x - 1, p=1.0), torch.hypot(x, x - 1)]
        edges = torch.tensor([[-1.0, 0.0, 0.0, 1.0]]).expand(x.shape[0], 4).contiguous()
        result += [torch.searchsorted(edges[0], x.round()), torch.searchsorted(edges, x, side="right", out_int32=True)]
        scores, labels = x.nan_to_num(0.0), torch.arange(x.shape[0]) % 6
        result.append(nn.functional.cross_entropy(scores, labels, label_smoothing=0.1, ignore_index=1))
        return *result, x.cumprod(1), whole.cumprod(0)

    x = torch.randn(4, 6)
    x[2, 3] = torch.nan
    path, dims = tmp_path / "m.onnx", {0: {0: "rows"}}
    done = tenonnx_torch.export(Apply(compute), x, path, opset_version=13, dims=dims)
    assert {output.run for output in done.verification.outputs} == {"rows=4", "rows=1", "rows=9", "rows=26"}


def test_random_outputs_are_not_verified_and_the_others_are_compared(tmp_path):
    class Both(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x, 0.5), x * 2

    from tenonnx_torch.examples import Examples
    from tenonnx_torch.verification import verify_against

    module, x = Both().train(), torch.randn(4, 8)
    graph = tx.load(module, x, verify=False)
    result = verify_against(module, Examples.of(module, (x,)), graph)
    assert (result.unverified, result.notes) == ({"output_0": "drawn at random"}, [])
    assert [(state.name, state.state) for state in result.states] == [
        ("output_1", "verified"),
        ("output_0", "not verified"),
    ]
    done = tenonnx_torch.export(module, x, tmp_path / "m.onnx")
    assert (done.passed, done.verification.verified) == (True, False)
    assert str(done).endswith("largest difference 0, not verified: output_0 (drawn at random)")
    alone = tenonnx_torch.export(nn.Dropout(0.5).train(), x, tmp_path / "alone.onnx")
    assert alone.passed is None
    assert "not compared, not verified: output (drawn at random)" in str(alone)


def test_rules_of_the_user_apply_to_modules():
    module, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(4, 3)
    graph = tx.load(module, x, rules={"Relu": lambda node, x: x * 2.0})
    expected = module[0](x).detach().numpy() * 2
    assert np.allclose(graph.run({"input": x.numpy()})["output"], expected, atol=1e-6)


class Fixed(nn.Module):
    def forward(self, x):
        y = x * 3
        return y.reshape(4, 3) * 2


class Branching(nn.Module):
    def forward(self, x):
        y = x + 1
        if y.sum() > 0:
            return y
        return -y


class Unknown(nn.Module):
    def forward(self, x):
        y = x + 1
        return torch.linalg.svd(y)[1]


class Sparse(nn.Module):
    def forward(self, x):
        return torch.sparse.mm(x.to_sparse(), x.T)


class Special(nn.Module):
    def forward(self, x):
        y = x.clamp(0, 1)
        return torch.linalg.svdvals(y) + 1


class Histogram(nn.Module):
    def forward(self, x):
        return torch.histc(x, bins=4)


class Counted(nn.Module):
    def forward(self, x):
        count = int(x.sum().item())
        return x * count


class Halving(nn.Module):
    def forward(self, x):
        while x.abs().max() > 1:
            x = x / 2
        return x


class Arrays(nn.Module):
    def forward(self, x):
        y = np.exp(x.numpy())
        return torch.from_numpy(y)


class Foreign(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return torch.from_numpy(x.detach().numpy() * 2)


class Custom(nn.Module):
    def forward(self, x):
        return Foreign.apply(x)


class Mismatched(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(4, 2)

    def forward(self, x):
        y = self.first(x)
        return self.second(y)


class Refusing(nn.Module):
    def forward(self, x):
        if x.dim() != 4:
            raise ValueError(f"an image has 4 axes, not {x.dim()}")
        return x


class Lacking(nn.Module):
    def forward(self, x):
        return self.missing(x)


class Odd(nn.Module):
    def forward(self, x):
        return x[x > 100].reshape(-1, 2, 0)


class Spectral(nn.Module):
    def forward(self, x):
        return {"whole": torch.fft.fft(x), "size": x.abs()}


class Speaking(nn.Module):
    def forward(self, x):
        return {"scores": x, "told": "done"}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    ("module", "dims", "what", "where"),
    [
        (Fixed(), {0: {0: "batch"}}, 'cannot vary dim "batch", axis 0 of input "x"', "fixes it to 4"),
        (Fixed(), {0: {0: "batch"}}, "cannot vary dim", "in forward: return y.reshape(4, 3) * 2"),
        (Apply(lambda x: x.reshape(4, 3)), {0: {0: "b"}}, 'dim "b", axis 0 of input "inputs_0"', "fixes it to 4"),
        (Branching(), None, "PyTorch cannot trace Branching", "in forward: if y.sum() > 0:"),
        (Unknown(), None, "operations without a form in ONNX", "in forward: return torch.linalg.svd(y)[1]"),
        (Sparse(), None, "a form in ONNX", "in forward: return torch.sparse.mm(x.to_sparse(), x.T)"),
        (Special(), None, "a form in ONNX", "in forward: return torch.linalg.svdvals(y) + 1"),
        (Histogram(), None, "a form in ONNX", "in forward: return torch.histc(x, bins=4)"),
        (Counted(), None, "cannot trace", "in forward: count = int(x.sum().item())"),
        (Halving(), None, "cannot trace", "in forward: while x.abs().max() > 1:"),
        (Arrays(), None, "cannot trace", "in forward: y = np.exp(x.numpy())"),
        (Custom(), None, "cannot trace", "in forward: return Foreign.apply(x)"),
    ],
)
def test_unsupported_operators_are_reported_with_the_line_of_the_module(module, dims, what, where):
    with pytest.raises(tx.NotRepresentable, match=what) as caught:
        tx.load(module, torch.randn(4, 3), dims=dims)
    assert where in str(caught.value)
    assert "torch/_" not in str(caught.value)
    assert "site-packages" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "what", "where"),
    [
        (Mismatched(), "Mismatched failed on its examples", "in forward: return self.second(y)"),
        (Refusing(), "failed on its examples", "an image has 4 axes, not 2"),
        (Lacking(), "failed on its examples", "in forward: return self.missing(x)"),
        (Odd(), "failed on its examples", "in forward: return x[x > 100].reshape(-1, 2, 0)"),
        (Spectral(), "takes or returns complex numbers", "output_whole: torch.complex64"),
        (Speaking(), "Speaking returns something other than tensors", "output_told: 'done'"),
    ],
)
def test_a_failing_module_is_reported_with_its_line(module, what, where):
    with pytest.raises(tx.InvalidCall, match=what) as caught:
        tx.load(module, torch.randn(4, 3))
    assert where in str(caught.value)


def test_nothing_is_written_where_the_file_differs_from_the_module(tmp_path, monkeypatch):
    module = nn.Linear(3, 2)
    graph = tx.load(module, torch.randn(1, 3))
    graph.assign({"weight": np.zeros((2, 3), np.float32)})
    monkeypatch.setattr("tenonnx_torch.exporting.graph_of", lambda *arguments: (graph, arguments[1]))
    with pytest.raises(tx.VerificationFailed, match="differ from those of the original on PyTorch") as caught:
        tenonnx_torch.export(module, torch.randn(1, 3), tmp_path / "m.onnx", opset_version=13)
    assert "output (onnxruntime): float32[1, 2]" in caught.value.given
    assert not list(tmp_path.iterdir())


class Blind(nn.Module):
    """With fewer keys than queries, the first queries attend to no key: PyTorch returns 0 for them."""

    def forward(self, q, k):
        mask = torch.ones(q.shape[1], k.shape[1]).tril(k.shape[1] - q.shape[1]).bool()
        return nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask) * 2


BLIND = (torch.randn(2, 4, 3), torch.randn(2, 6, 3)), {0: {1: "queries"}, 1: {1: "keys"}}


def test_queries_without_visible_keys_result_in_0(tmp_path):
    assert tenonnx_torch.export(Blind(), BLIND[0], tmp_path / "m.onnx", dims=BLIND[1]).passed


def test_the_line_is_named_whose_numbers_differ(tmp_path):
    wrong = {"aten::scaled_dot_product_attention": lambda q, k, v, *rest, **options: q}
    with pytest.raises(tx.VerificationFailed, match=r"keys=1\): float32\[2, 4, 3\]") as caught:
        tenonnx_torch.export(Blind(), BLIND[0], tmp_path / "m.onnx", dims=BLIND[1], forms=wrong)
    assert "in forward: return nn.functional.scaled_dot_product_attention(" in caught.value.also
    assert not list(tmp_path.iterdir())


def test_a_module_that_counts_on_the_size_it_was_traced_at_is_found_out():
    class Counting(nn.Module):
        def forward(self, x):
            return x * math.prod(int(size) for size in x.shape) if not torch.compiler.is_exporting() else x * 6

    with pytest.raises(tx.VerificationFailed, match="differ from those of the original on PyTorch"):
        tx.load(Counting(), torch.randn(2, 3), dims={"x": {0: "batch"}})


@pytest.mark.parametrize(
    ("examples", "options", "what"),
    [
        ((), {}, "Linear.forward does not take these examples"),
        ((1.0,), {}, "hold no tensor"),
        ((torch.ones(2, 3),), {"dims": {"y": {0: "b"}}}, "dims name no input that is a tensor"),
        ((torch.ones(2, 3),), {"dims": {"input": {2: "b"}}}, "name an axis that it does not have"),
        ((torch.ones(2, 3),), {"output_names": ["a", "b"]}, "are not 1 different names, one for each of the outputs"),
        ((torch.ones(2, 3),), {"output_names": ["input"]}, 'name "input" is already used'),
        ((torch.ones(2, 3),), {"output_names": ["a"], "task": "detection"}, "both output_names and a task"),
        ((torch.ones(2, 3),), {"dim": {}}, "does not take these examples and options"),
    ],
)
def test_bad_calls_are_refused(examples, options, what):
    with pytest.raises(tx.InvalidCall, match=what):
        tx.load(nn.Linear(3, 2), *examples, **options)


def test_resized_examples_are_not_copies():
    from tenonnx_torch.examples import Examples

    boxes, classes = torch.tensor([[0.0, 0.0, 1.0, 2.0], [1.0, 1.0, 2.0, 2.0]]), torch.tensor([5, 3])
    given = Examples.of(nn.Bilinear(4, 2, 1), (boxes, classes), None, {k: {0: "n"} for k in (0, 1)})
    larger, repeated = given.resized({"n": 5}).tensors.values()
    assert larger.shape == (5, 4)
    assert len(larger[:, 3].unique()) == 3
    assert torch.all(larger[:, 2:] > larger[:, :2])
    assert repeated.tolist() == [5, 3, 5, 3, 5]


def test_one_name_of_a_dim_is_one_number():
    class Product(nn.Module):
        def forward(self, x, y):
            return x.sum() * y.sum()

    with pytest.raises(tx.InvalidCall, match='dim "n" has two sizes') as caught:
        tx.load(Product(), torch.ones(2), torch.ones(3), dims={"x": ["n"], "y": ["n"]})
    assert caught.value.given == '2 in "x", 3 in "y"'


def test_other_sources_than_modules_are_refused():
    with pytest.raises(tx.InvalidCall, match=r"is neither a torch\.nn\.Module"):
        tx.load(torch.ones(2))
    with pytest.raises(tx.InvalidCall, match=r"is neither a torch\.nn\.Module"):
        tenonnx_torch.export(torch.sin, torch.ones(2), "never.onnx")


def test_the_command_line_converts_what_a_function_makes(tmp_path, capsys):
    from tenonnx_cli import main

    source = tmp_path / "net.py"
    source.write_text("from torch import nn\n\ndef make_model():\n    return nn.Linear(4, 2).eval()\n")
    path = tmp_path / "net.onnx"
    code = main(["convert", f"{source}:make_model", "-o", str(path), "--example", "batch=2,4", "--opset", "13"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert str(path) in printed.out
    assert [(entry.domain, entry.version) for entry in onnx.load(path).opset_import] == [("", 13)]
    assert onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def _clipped(node, x):
    return ops.clip(x, 0.0)


def test_import_rules_of_the_call_and_of_packages_are_for_what_is_exported(tmp_path, monkeypatch):
    module, examples = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), torch.randn(2, 3)
    path = tmp_path / "m.onnx"
    kinds = lambda: {node.op_type for node in tx.load(path).nodes}  # noqa: E731
    tenonnx_torch.export(module, examples, path, rules={"Relu": _clipped})
    assert "Clip" in kinds()
    for frontend in ("onnx", "torch"):  # the exporter's own model is not a user's model
        rule = import_rule("Relu", frontend=frontend)(_clipped)
        monkeypatch.setattr(user_rules, "installed_rules", lambda rule=rule: [user_rules.Offered(rule, None, "Relu")])
        tenonnx_torch.export(module, examples, path)
        monkeypatch.undo()
        assert ("Clip" in kinds()) == (frontend == "torch")
    with pytest.raises(tx.VerificationFailed):
        tenonnx_torch.export(module, examples, path, rules={"Relu": lambda node, x: ops.sigmoid(x)})

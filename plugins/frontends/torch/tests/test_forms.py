"""Lowerings of user-defined operators, from an argument or a package."""

import io

import onnx
import pytest
import torch
from torch import nn

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_torch
from tenonnx.extend import PluginWarning, op
from tenonnx.extend.formats import Plugin
from tenonnx_contrib_ms.gelu import bias_gelu
from tenonnx_torch import lowerings


@torch.library.custom_op("acme::squareplus", mutates_args=())
def squareplus(x: torch.Tensor, b: float, scale: torch.Tensor | None = None) -> torch.Tensor:
    result = (x + (x * x + b).sqrt()) / 2
    return result if scale is None else result * scale


@squareplus.register_fake
def squareplus_fake(x, b, scale=None):
    return torch.empty_like(x)


@torch.library.custom_op("acme::parts", mutates_args=())
def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clamp(min=0), x.clamp(max=0)


@parts.register_fake
def parts_fake(x):
    return torch.empty_like(x), torch.empty_like(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(3))

    def forward(self, x):
        y = squareplus(x, 4.0, self.scale)
        above, below = parts(y - 1)
        return above, below * squareplus(x, b=2.0)


def of_squareplus(x, b, scale=None):
    result = (x + ops.sqrt(x * x + b)) / 2.0
    return result if scale is None else result * scale


def of_parts(x):
    zero = x - x
    return ops.maximum(x, zero), ops.minimum(x, zero)


FORMS = {"acme::squareplus": of_squareplus, "acme::parts": of_parts}
X = torch.randn(4, 3)


def test_operators_have_the_forms_of_the_caller(tmp_path):
    path, dims = tmp_path / "m.onnx", {"x": {0: "batch"}}
    done = tenonnx_torch.export(Net(), X, path, opset_version=13, domains=["ai.onnx"], forms=FORMS, dims=dims)
    assert done.passed
    assert {node.domain for node in onnx.load(path).graph.node} == {""}
    assert "scale" in {tensor.name for tensor in onnx.load(path).graph.initializer}


@op("Squareplus", domain="com.acme", since=1)
def squareplus_op(x, scale=None, *, b=1.0):
    return of_squareplus(x, b, scale)


def same_by_contributed_op(x):
    """``x``, plus and minus a BiasGelu."""
    gelu = bias_gelu(x, ops.constant(value_floats=[0.0, 0.0, 0.0]))
    return x + gelu - gelu


@pytest.mark.parametrize(
    ("domain", "form"),
    [
        ("com.acme", lambda x, b, scale=None: squareplus_op(x, scale, b=b)),
        ("com.microsoft", lambda x, b, scale=None: same_by_contributed_op(of_squareplus(x, b, scale))),
    ],
)
def test_a_form_may_call_an_op_of_another_domain(domain, form):
    graph = tx.load(Net(), X, forms={**FORMS, "acme::squareplus": form})
    assert domain in {node.domain for node in graph.nodes}
    assert graph.opsets[domain] == 1
    stream = io.BytesIO()
    tx.export(graph, stream)
    model = onnx.load_from_string(stream.getvalue())
    assert {each.domain: each.version for each in model.opset_import}[domain] == 1


ACME = Plugin("acme", "acme.forms", "tenonnx.torch_ops", "acme", "1.0")


def test_packages_provide_forms(monkeypatch):
    monkeypatch.setattr(lowerings, "loaded", lambda group: [(ACME, FORMS)] if group == "tenonnx.torch_ops" else [])
    assert tx.load(Net(), X)
    with pytest.raises(
        tx.VerificationFailed, match="outputs of the model differ from those of the original on PyTorch"
    ):
        tx.load(Net(), X, forms={"acme::squareplus": lambda x, b, scale=None: x * 1.0})


class Plain(nn.Module):
    def forward(self, x):
        return torch.relu(x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"squareplus": of_squareplus}, "squareplus"),
        ([of_squareplus], "of_squareplus"),
        ({"acme::parts": 3}, "acme::parts"),
        ({"aten::relu": lambda x: x}, "aten::relu, which is PyTorch's"),
        ({nn.ReLU: lambda module, x: x}, r"torch\.nn.*ReLU, which is PyTorch's"),
    ],
)
def test_packages_do_not_change_what_others_export(monkeypatch, given, message):
    monkeypatch.setattr(lowerings, "loaded", lambda group: [(ACME, given)] if group == "tenonnx.torch_ops" else [])
    with pytest.warns(PluginWarning, match=rf"(?s)the forms of acme 1\.0 are not functions.*{message}"):
        assert [node.op_type for node in tx.load(nn.Sequential(Plain(), nn.ReLU()), X).nodes] == ["Relu", "Relu"]


def test_a_form_of_a_package_that_ends_the_program_is_named(monkeypatch):
    def leaving(*arguments, **options):
        raise SystemExit(0)

    monkeypatch.setattr(lowerings, "loaded", lambda group: [(ACME, {**FORMS, "acme::parts": leaving})])
    with pytest.raises(tx.PluginError, match=r"(?s)acme 1\.0 has a rule for acme::parts that failed.*SystemExit: 0"):
        tx.load(Net(), X)


def test_the_group_is_known():
    from tenonnx.registry.discovery import GROUPS

    group = GROUPS["tenonnx.torch_ops"]
    assert group.fits(FORMS)
    assert not group.fits(of_parts)


def test_a_refusal_explains_how_to_define_a_form():
    with pytest.raises(tx.NotRepresentable) as caught:
        tx.load(Net(), X)
    assert "in forward: y = squareplus(x, 4.0, self.scale)" in str(caught.value)
    assert 'forms={"acme::squareplus": function}, or tenonnx.torch_ops of a package' in str(caught.value)


@pytest.mark.parametrize("given", [[of_parts], {"parts": of_parts}, {"acme::parts": 1}, {1: of_parts}])
def test_bad_forms_are_refused(given):
    with pytest.raises(tx.InvalidCall, match="forms are not functions by operator"):
        tx.load(Net(), X, forms=given)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        (lambda x, b, scale=None: 1, "returned something other than values"),
        (lambda x, b, scale=None: (x, x), "did not return 1 value,"),
        (lambda x: x, "unexpected keyword|positional argument"),
    ],
)
def test_a_mismatched_form_is_reported(form, error):
    with pytest.raises(Exception, match=error):
        tx.load(Net(), X, forms={**FORMS, "acme::squareplus": form})


# ----- module classes -------------------------------------------------------------------------------------------------


class Router(nn.Module):
    """A module whose forward cannot be traced."""

    def __init__(self):
        super().__init__()
        self.gates = nn.ModuleList([nn.Linear(4, 3)])
        self.register_buffer("offset", torch.rand(3))
        self.kept = 2

    def forward(self, x, scale=1.0):
        weight = self.gates[0].weight.detach().numpy()
        y = torch.from_numpy(x.detach().numpy() @ weight.T) + self.gates[0].bias + self.offset
        return {"all": y * scale, "kept": torch.cat([y[:, : self.kept], y[:, : self.kept]])}


def of_router(router, x, scale=1.0):
    gate = router.gates[0]
    y = ops.matmul(x, ops.transpose(gate.weight, perm=[1, 0])) + gate.bias + router.offset
    kept = ops.slice_(y, [0], [router.kept], [1])
    return {"all": y * scale, "kept": ops.concat(kept, kept, axis=0)}


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.between, self.second = Router(), nn.Linear(3, 4), Router()

    def forward(self, x):
        result = self.second(self.between(self.first(x, scale=2.0)["all"].relu()))
        return result["all"], result["kept"] + result["all"].sum()


@pytest.mark.parametrize("name", [Router, f"{Router.__module__}.Router"], ids=["class", "name"])
def test_classes_of_modules_have_the_forms_of_the_caller(tmp_path, name):
    path, module = tmp_path / "m.onnx", Routed().eval()
    done = tenonnx_torch.export(module, X4, path, opset_version=13, forms={name: of_router}, dims={"x": {0: "batch"}})
    assert done.passed
    written = onnx.load(path)
    assert [entry.domain for entry in written.opset_import] == [""]
    assert "first.offset" in {tensor.name for tensor in written.graph.initializer}
    assert "forward" not in vars(module.first)
    assert tx.load(Router().eval(), X4, forms={name: of_router}).outputs[0].name == "all"


X4 = torch.randn(5, 4)


def test_forms_of_classes_are_verified_and_come_from_packages(monkeypatch):
    with pytest.raises(
        tx.VerificationFailed, match="outputs of the model differ from those of the original on PyTorch"
    ):
        tx.load(Routed(), X4, forms={Router: lambda router, x, scale=1.0: of_router(router, x, 3.0)})
    monkeypatch.setattr(lowerings, "loaded", lambda group: [(ACME, {f"{Router.__module__}.Router": of_router})])
    assert tx.load(Routed(), X4)


def test_a_refusal_explains_how_to_define_a_form_of_a_class():
    with pytest.raises(tx.NotRepresentable, match="PyTorch cannot trace Routed") as caught:
        tx.load(Routed(), X4)
    assert "forms={Router: function}, or tenonnx.torch_ops of a package" in str(caught.value)


def test_a_form_of_a_class_without_values_is_reported():
    with pytest.raises(tx.InvalidCall, match="the form of Router returned something other than values"):
        tx.load(Routed(), X4, forms={Router: lambda router, x, scale=1.0: 1})

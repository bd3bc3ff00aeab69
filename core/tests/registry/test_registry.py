"""The registry: version ranges, conflicts, and failing plugins."""

import importlib
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tiny

from tenonnx import Graph
from tenonnx.errors import PluginError, PluginWarning, TypeMismatch
from tenonnx.extend import DType, TensorType, op
from tenonnx.graph.definitions import defined_by
from tenonnx.op.op import Opaque
from tenonnx.op.rules import find_rule
from tenonnx.registry.contents import RegistryContents
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.registry import Registry


def test_lookup_returns_the_meaning_of_the_version():
    registry = tiny.registry()
    assert registry.lookup("tiny", "Affine", 3) is tiny.shift_first
    assert registry.lookup("tiny", "Affine", 4) is tiny.affine
    assert registry.lookup("tiny", "Affine", 99) is tiny.affine
    assert registry.lookup("tiny", "OnlyNew", 3) is None
    assert isinstance(registry.resolve("tiny", "Nothing", 1), Opaque)


def test_two_claims_of_one_op_raise_and_name_both():
    @op("Double", domain="tiny")
    def other(x):
        return x

    registry = tiny.registry()
    with pytest.raises(PluginError, match="is defined twice") as caught:
        registry.add(other)
    assert "this program" in str(caught.value)


def test_two_ops_of_one_name_may_divide_the_versions():
    registry = Registry()

    @op("Thing", domain="tiny", since=1, before=5)
    def old(x):
        return x

    @op("Thing", domain="tiny", since=5)
    def new(x):
        return x

    registry.add(old, new)
    assert registry.lookup("tiny", "Thing", 4) is old
    assert registry.lookup("tiny", "Thing", 5) is new


def plugin_from(tmp_path, monkeypatch, name, text, domain="tiny", distribution=None):
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return Plugin(domain, name, "tenonnx.ops", distribution or f"dist-{name}", "1.0")


GOOD = """
    from tenonnx.extend import hookimpl, op

    @op("FromPlugin", domain="tiny")
    def from_plugin(x):
        return x

    @hookimpl
    def register_ops(registry):
        registry.add(from_plugin)
"""


def test_only_the_domains_asked_for_are_imported(tmp_path, monkeypatch):
    plugin = plugin_from(tmp_path, monkeypatch, "tenonnx_test_good", GOOD)
    registry = Registry([plugin])
    registry.lookup("other", "Thing", 1)
    assert "tenonnx_test_good" not in sys.modules
    result = registry.lookup("tiny", "FromPlugin", 1)
    assert registry.source(result) == "dist-tenonnx_test_good 1.0"


def test_a_failing_plugin_is_reported_and_affects_no_other(tmp_path, monkeypatch):
    bad = plugin_from(tmp_path, monkeypatch, "tenonnx_test_bad", "import no_such_module_anywhere")
    good = plugin_from(tmp_path, monkeypatch, "tenonnx_test_good", GOOD)
    registry = Registry([bad, good])
    with pytest.warns(PluginWarning, match="tenonnx_test_bad"):
        assert registry.lookup("tiny", "FromPlugin", 1) is not None
    (failure,) = registry.failures.values()
    assert "dist-tenonnx_test_bad 1.0" in str(failure)
    assert "no_such_module_anywhere" in str(failure)


def test_a_hook_with_an_unknown_argument_is_reported(tmp_path, monkeypatch):
    text = "from tenonnx.extend import hookimpl\n@hookimpl\ndef register_ops(registry, color): ...\n"
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_hook", text)])
    with pytest.warns(PluginWarning, match="tenonnx_test_hook"):
        registry.load("tiny")
    (failure,) = registry.failures.values()
    assert "color" in str(failure)


def test_a_hook_without_its_mark_is_reported(tmp_path, monkeypatch):
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_bare", "def register_ops(registry): ...\n")])
    with pytest.warns(PluginWarning, match="tenonnx_test_bare"):
        registry.load("tiny")
    (failure,) = registry.failures.values()
    assert "marked with @hookimpl" in str(failure)


# ----- registrations are attributed to one package --------------------------------------------------------------------

HALF = """
    from tenonnx.extend import Operators, hookimpl, op

    @op("First")
    def first(x):
        return x

    @hookimpl
    def register_tables(registry):
        registry.add_dtypes("ai.onnx", lambda: {"First": {"1": {"inputs": [{1}], "outputs": [None], "shared": [-1]}}})
        registry.add_operators(lambda: Operators(add=first))

    @hookimpl
    def register_ops(registry):
        registry.add(first)
        registry.add_rule(first, "toy", lambda x: x)
        raise SystemExit("half-way")
"""


def test_a_plugin_that_fails_half_way_is_reverted(tmp_path, monkeypatch):
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_half", HALF, domain="ai.onnx")])
    with pytest.warns(PluginWarning, match="tenonnx_test_half"):
        assert registry.lookup("ai.onnx", "First", 1) is None
    (failure,) = registry.failures.values()
    assert "SystemExit: half-way" in str(failure)
    assert "tenonnx_test_half.py:17" in failure.do, "the line of the package that raised"
    first = sys.modules["tenonnx_test_half"].first
    assert registry.rule(first, "toy") is None
    assert registry.operators().add is not first
    assert registry.element_types(first) is None


TABLES = """
    from tenonnx.extend import Operators, hookimpl

    @hookimpl
    def register_tables(registry):
        {line}

    @hookimpl
    def register_ops(registry):
        pass
"""
SAID = 'registry.add_dtypes("ai.onnx", lambda: {{"Relu": {{"1": {{"inputs": [{{{code}}}]}}}}}})'


def test_the_owner_of_an_op_declares_its_element_types(tmp_path, monkeypatch):
    def says(name, line):
        return plugin_from(tmp_path, monkeypatch, name, TABLES.format(line=line), "ai.onnx", name.replace("_", "-"))

    ours, theirs = says("tenonnx_standard_", SAID.format(code=1)), says("aaa_stranger", SAID.format(code=7))
    raising = says("zzz_stranger", "registry.add_dtypes('ai.onnx', lambda: 1 / 0)")
    ours = ours._replace(distribution="tenonnx-standard")
    monkeypatch.setattr(Plugin, "is_ours", property(lambda plugin: plugin.distribution == "tenonnx-standard"))
    for order in ([ours, theirs, raising], [raising, theirs, ours]):
        registry = Registry(order)
        assert registry.dtypes("ai.onnx", "Relu", 1) == {"inputs": [{1}]}
        ((failed, failure),) = registry.failures.items()
        assert (failed, "could not give its table" in str(failure)) == (raising, True)


def test_only_the_package_of_ai_onnx_registers_operators(tmp_path, monkeypatch):
    text = TABLES.format(line="registry.add_operators(Operators)")
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_operators", text)])
    with pytest.warns(PluginWarning, match="tenonnx_test_operators"):
        registry.load("tiny")
    (failure,) = registry.failures.values()
    assert "does not define ai.onnx registers Python's operators" in str(failure)


# ----- ownership ------------------------------------------------------------------------------------------------------

OWN = {
    "owned/__init__.py": "",
    "owned/ops.py": """
        from tenonnx.extend import op, primitive

        @op("Owned", domain="tiny")
        def owned(x, *, by=1.0):
            return x * by

        def made():
            return op("Made", domain="tiny")(lambda x: x)
    """,
    "owned/gradients.py": """
        from owned.ops import owned

        @owned.vjp
        def _(g, y, x, *, by):
            return (g * by,)
    """,
}

CHANGES = {
    "rules": "owned.rule('toy', max)",
    "requirements": "owned.requires(floats('x'))",
    "signature_changes": "owned.until(5, ignored=['by'])",
    "since": "owned.until(7)(lambda x: x)",
    "lowerings": "owned.lower()(max)",
    "function": "owned.function = max",
    "pure": "owned.pure = False",
    "signature": "owned.signature = None",
}


@pytest.fixture
def owned(tmp_path, monkeypatch):
    """A package of two modules, one of which adds rules to the ops of the other; neither is imported yet."""
    for path, text in OWN.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("owned", "strange")]:
        del sys.modules[name]


@pytest.mark.parametrize("change", CHANGES)
def test_the_op_of_another_package_cannot_be_changed(owned, change):
    head = "from owned.ops import owned\nfrom tenonnx.extend import floats\n"
    (owned / "strange.py").write_text(head + CHANGES[change])
    with pytest.raises(PluginError, match="tiny::Owned@1 was changed after the import of owned") as caught:
        importlib.import_module("strange")  # it imports the other one first
    assert caught.value.given == f"a change of its {change}"
    assert "tenonnx.extend.add_rule" in caught.value.do


def test_any_module_of_a_package_may_add_rules_to_its_ops(owned):
    gradients = importlib.import_module("owned.gradients")
    assert set(gradients.owned.rules) == {"vjp"}
    with pytest.raises(TypeError, match="does not support item assignment"):
        gradients.owned.rules["numpy"] = max
    with pytest.raises(PluginError, match="was changed after the import of owned"):
        gradients.owned.numpy(max)


def test_an_op_can_be_changed_until_a_package_registers_it(owned):
    made = importlib.import_module("owned.ops").made()
    made.rule("toy", max)
    contents = RegistryContents()
    contents.add(made, None)
    made.rule("tvm", max)
    RegistryContents().add(made, Plugin("tiny", "owned", "tenonnx.ops", "owned", "1.0"))
    with pytest.raises(PluginError, match="was changed after the import of owned"):
        made.numpy(max)


def test_only_an_ops_package_or_a_program_may_declare_its_rules(tmp_path, monkeypatch):
    text = """
        from tenonnx.extend import add_rule, hookimpl
        import tiny

        @hookimpl
        def register_ops(registry):
            registry.add_rule(tiny.double, "toy", max)
            registry.add_rule(tiny.double, "numpy", max)
    """
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_foreign", text)])
    with pytest.warns(PluginWarning, match="dist-tenonnx_test_"):
        registry.load("tiny")
    (failure,) = registry.failures.values()
    assert "a package other than that of tiny::Double@1 registers a numpy rule for it" in str(failure)
    assert (registry.rule(tiny.double, "toy"), registry.rule(tiny.double, "numpy")) == (None, None)
    at_import = "import tiny\nfrom tenonnx.extend import add_rule\nadd_rule(tiny.double, 'vjp', max)"
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_at_import", at_import)])
    with pytest.warns(PluginWarning, match="dist-tenonnx_test_"):
        registry.load("tiny")
    (failure,) = registry.failures.values()
    assert "registers a vjp rule for it" in str(failure)
    assert "tenonnx_test_at_import.py:3" in failure.do
    registry.add_rule(tiny.double, "vjp", max)
    assert registry.rule(tiny.double, "vjp") is max


def test_a_module_named_by_two_domains_registers_once(tmp_path, monkeypatch):
    text = """
        from tenonnx.extend import hookimpl
        calls = []

        @hookimpl
        def register_ops(registry):
            calls.append(registry)
    """
    one = plugin_from(tmp_path, monkeypatch, "tenonnx_test_two_domains", text)
    other = Plugin("tiny.more", one.value, one.group, one.distribution, one.version)
    registry = Registry([one, other])
    registry.operators()
    registry.load_all()
    registry.load_all()
    assert sys.modules["tenonnx_test_two_domains"].calls == [registry]


def test_a_hook_may_ask_for_the_ops_of_others(tmp_path, monkeypatch):
    text = """
        from tenonnx.extend import hookimpl

        @hookimpl
        def register_ops(registry):
            registry.add_rule(registry.lookup("tiny", "FromPlugin", 1), "toy", max)
            registry.lookup("asking", "Nothing", 1)
    """
    asking = plugin_from(tmp_path, monkeypatch, "tenonnx_test_asking", text, domain="asking")
    good = plugin_from(tmp_path, monkeypatch, "tenonnx_test_good", GOOD)
    registry = Registry([asking, good])
    registry.load("asking")
    assert not registry.failures
    assert registry.rule(registry.lookup("tiny", "FromPlugin", 1), "toy") is max


def test_rules_operators_and_tables_are_those_of_one_registry():
    mine, yours = tiny.registry(), Registry()
    mine.add_rule(tiny.exp, "toy", max)
    mine.add_dtypes("tiny", lambda: {"Exp": {"1": {"inputs": [{1}], "outputs": [None], "shared": [-1]}}})
    assert mine.rule(tiny.exp, "toy") is max
    assert mine.element_types(tiny.exp)["inputs"] == [{1}]
    assert mine.operators().multiply is tiny.multiply
    assert yours.operators().multiply is not tiny.multiply
    assert (yours.rule(tiny.exp, "toy"), yours.element_types(tiny.exp)) == (None, None)
    with defined_by(mine):
        assert find_rule(tiny.exp, "toy") is max
        with pytest.raises(TypeMismatch, match="takes no"):
            tiny.exp(np.ones(1, np.int32))
    assert find_rule(tiny.exp, "toy") is None
    with pytest.raises(PluginError, match="a toy rule from another package already"):
        mine.add_rule(tiny.exp, "toy", min)
    with pytest.raises(PluginError, match="Python's operators are already defined"):
        mine.add_operators(lambda: tiny.OPERATORS)
    with defined_by(yours), pytest.raises(TypeMismatch, match=r"operator 'add' is undefined"):
        yours.operators().add(1, 2)


def test_a_graph_is_read_by_the_rules_of_its_own_registry():
    registry = tiny.registry()
    registry.add_rule(tiny.double, "numpy", lambda x: x * 3)
    graph = Graph(opsets={"tiny": 4})
    graph.output("y", tiny.double(graph.input("x", "float32", (1,))))
    assert graph.run({"x": np.float32([1])}, backend="numpy")["y"] == 2
    graph.registry = registry
    assert graph.run({"x": np.float32([1])}, backend="numpy")["y"] == 3


def test_a_type_rule_of_an_inner_op_counts_where_it_was_added_and_from_then_on():
    @op("Inner", domain="tiny")
    def inner(x):
        return tiny.identity(x)

    @op("Outer", domain="tiny")
    def outer(x):
        return inner(x)

    mine, yours = Registry(), Registry()

    def dtype(registry):
        graph = Graph(opsets={"tiny": 4})
        graph.registry = registry
        return str(outer(graph.input("x", "float32", (1,))).dtype)

    assert [dtype(mine), dtype(yours)] == ["float32", "float32"]
    mine.add_rule(inner, "type", lambda x: (TensorType(DType.float64),))
    assert [dtype(mine), dtype(yours)] == ["float64", "float32"]


def test_threads_that_load_first_all_find_the_ops(tmp_path, monkeypatch):
    slow = "import time\ntime.sleep(0.2)\n" + textwrap.dedent(GOOD)
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_slow", slow)])
    start = threading.Barrier(8)

    def find(_):
        start.wait()
        return registry.lookup("tiny", "FromPlugin", 1)

    with ThreadPoolExecutor(8) as pool:
        result = set(pool.map(find, range(8)))
    assert len(result) == 1
    assert None not in result


# ----- two packages for one op ----------------------------------------------------------------------------------------

THIRD_PARTY = """
    from tenonnx.extend import hookimpl, op

    @op("{name}", domain="{domain}")
    def thing(x):
        return x

    @op("Another", domain="{domain}")
    def another(x):
        return x

    @hookimpl
    def register_ops(registry):
        registry.add(thing, another)
"""


def rivals(tmp_path, monkeypatch, name, domain, *distributions):
    text = THIRD_PARTY.format(name=name, domain=domain)
    return [
        plugin_from(tmp_path, monkeypatch, f"tenonnx_test_{k}", text, domain, distribution)
        for k, distribution in enumerate(distributions)
    ]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_packages_for_one_op_the_first_by_name_has_it(tmp_path, monkeypatch, order):
    result = rivals(tmp_path, monkeypatch, "Thing", "tiny", "A-first", "b-second")
    registry = Registry([result[k] for k in order])
    with pytest.warns(PluginWarning, match=r"tiny::Another, tiny::Thing of b-second 1.0 left out.*tenonnx_test_1.py:4"):
        held = registry.lookup("tiny", "Thing", 1)
    assert registry.source(held) == "A-first 1.0"
    assert {conflict.source for conflict in registry.conflicts} == {"b-second 1.0"}
    assert not registry.failures


def test_the_owner_of_a_domain_has_its_ops(tmp_path, monkeypatch):
    plugins = rivals(tmp_path, monkeypatch, "Softmax", "ai.onnx", "aaa-stranger", "tenonnx-standard")
    registry = Registry(plugins)
    monkeypatch.setattr(Plugin, "is_ours", property(lambda plugin: plugin.distribution == "tenonnx-standard"))
    with pytest.warns(PluginWarning, match="of aaa-stranger 1.0 left out"):
        registry.load("ai.onnx")
    assert [registry.source(op) for op in registry.ops("ai.onnx")] == ["tenonnx-standard 1.0"] * 2


def test_rules_added_by_a_program_stay(tmp_path, monkeypatch):
    @op("Thing", domain="tiny")
    def mine(x):
        return x

    registry = Registry(rivals(tmp_path, monkeypatch, "Thing", "tiny", "other"))
    registry.add(mine)
    with pytest.warns(PluginWarning, match="as this program has the first claim"):
        assert registry.lookup("tiny", "Thing", 1) is mine


def test_a_package_that_claims_an_op_twice_is_left_out(tmp_path, monkeypatch):
    text = GOOD.replace("registry.add(from_plugin)", "registry.add(from_plugin, op('FromPlugin', domain='tiny')(max_))")
    text += "\n    def max_(x):\n        return x\n"
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_twice", text)])
    with pytest.warns(PluginWarning, match="tenonnx_test_twice"):
        assert registry.lookup("tiny", "FromPlugin", 1) is None
    (failure,) = registry.failures.values()
    assert "is defined twice" in str(failure)

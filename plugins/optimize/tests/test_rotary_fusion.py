"""Rotary embeddings are found in both layouts, with angles that are computed, gathered or constant."""

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops

HEADS = ("batch", 2, "length", 8)
FREQUENCIES = np.float32([1, 0.1, 0.01, 0.001])
ANGLES = np.arange(16, dtype=np.float32)[:, None] * FREQUENCIES


def swapped_halves(x):
    return ops.concat(-x[:, :, :, 4:], x[:, :, :, :4], axis=-1)


def swapped_pairs(x):
    parts = (ops.unsqueeze(part, [4]) for part in (-x[:, :, :, 1::2], x[:, :, :, ::2]))
    return ops.reshape(ops.concat(*parts, axis=-1), [0, 0, 0, 8])


def pairs_of_numbers(x):
    pairs = ops.reshape(x, [0, 0, 0, 4, 2])
    a, b = (ops.gather(pairs, place, axis=-1) for place in (np.int64(0), np.int64(1)))
    return a, b


def twice(x):
    return ops.concat(x, x, axis=-1)


def each_twice(x):
    wide = ops.expand(ops.unsqueeze(x, [-1]), [1, 1, 1, 2])
    return ops.reshape(wide, [0, 0, 8])


def computed(x, axis=2):
    """Angles for the positions in ``x``."""
    positions = ops.cast(ops.range_(np.int64(0), ops.gather(ops.shape(x), np.int64(axis)), np.int64(1)), to=1)
    return ops.unsqueeze(ops.unsqueeze(positions, [1]) * FREQUENCIES, [0])


def by_halves(x, angles=computed, swapped=swapped_halves, wide=twice, axis=1):
    spread = wide(angles(x))
    cosine, sine = (ops.unsqueeze(part, [axis]) for part in (ops.cos(spread), ops.sin(spread)))
    return x * cosine + swapped(x) * sine


def commuted(x):
    spread = twice(computed(x))
    cosine, sine = (ops.unsqueeze(part, [1]) for part in (ops.cos(spread), ops.sin(spread)))
    return sine * swapped_halves(x) + cosine * x


def part_by_part(x):
    cosine, sine = (ops.unsqueeze(part, [1]) for part in (ops.cos(computed(x)), ops.sin(computed(x))))
    a, b = ops.split(x, axis=-1, num_outputs=2)
    return ops.concat(cosine * a - sine * b, sine * a + b * cosine, axis=-1)


def pair_by_pair(x):
    cosine, sine = (ops.unsqueeze(part, [1]) for part in (ops.cos(computed(x)), ops.sin(computed(x))))
    a, b = pairs_of_numbers(x)
    parts = (ops.unsqueeze(part, [-1]) for part in (a * cosine - b * sine, a * sine + b * cosine))
    return ops.reshape(ops.concat(*parts, axis=-1), [0, 0, 0, 8])


def before_its_heads(x):
    """Rotary embedding of (batch, length, heads, size)."""
    return by_halves(x, lambda x: computed(x, 1), axis=2)


def before_few_heads(x, swapped=swapped_halves):
    """As exporters write it: heads are split, rotated, and then transposed."""
    reshaped = ops.reshape(x, [0, 0, 2, 8])
    turned = by_halves(reshaped, lambda x: computed(x, 1), swapped, axis=2)
    return ops.transpose(turned, perm=[0, 2, 1, 3])


def of_the_first(x):
    return ops.concat(by_halves(x[:, :, :, :8]), x[:, :, :, 8:], axis=-1)


FORMS = {
    "halves": (by_halves, {}),
    "commuted": (commuted, {}),
    "part by part": (part_by_part, {}),
    "in turns": (lambda x: by_halves(x, swapped=swapped_pairs, wide=each_twice), {"interleaved": 1}),
    "pair by pair": (pair_by_pair, {"interleaved": 1}),
    "first features alone": (of_the_first, {"rotary_embedding_dim": 8}),
}


def made_for(domains):
    """A graph at an opset at which only the last domain has the op."""
    return tx.Graph(opsets={"ai.onnx": 23} if domains == ["ai.onnx"] else {"ai.onnx": 18, "com.microsoft": 1})


def check(form, shape, domains, count=1, **attributes):
    graph = made_for(domains)
    inputs = [graph.input("x", "float32", shape)]
    graph.output("y", form(*inputs))
    fused = tx.fuse(graph, [f"{domains[-1]}::RotaryEmbedding"])
    result = [node for node in fused.nodes if node.op_type == "RotaryEmbedding"]
    assert len(result) == count
    assert len(fused.nodes) < len(graph.nodes) or not count
    for name, value in attributes.items():
        assert all(node.attributes.get(name, 0) == value for node in result)
    feeds = {"x": np.random.default_rng(0).normal(size=[3 if isinstance(d, str) else d for d in shape])}
    given = {name: value.astype(np.float32) for name, value in feeds.items()}
    np.testing.assert_allclose(fused.run(given)["y"], graph.run(given)["y"], rtol=1e-5, atol=1e-6)
    return result


DOMAINS = [["ai.onnx"], ["ai.onnx", "com.microsoft"]]


@pytest.mark.parametrize("domains", DOMAINS, ids=["standard", "microsoft"])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form, domains):
    function, attributes = FORMS[form]
    check(function, (*HEADS[:3], 12) if "rotary_embedding_dim" in attributes else HEADS, domains, **attributes)


@pytest.mark.parametrize("domains", DOMAINS, ids=["standard", "microsoft"])
@pytest.mark.parametrize("wide", [lambda t: np.concatenate([t, t], -1), lambda t: np.repeat(t, 2, -1)])
def test_rows_of_a_table_that_positions_choose(wide, domains):
    turns = wide(np.float32([[1, 2]]))[0, 1] == 1
    graph = made_for(domains)
    x, places = graph.input("x", "float32", HEADS), graph.input("places", "int64", ("batch", "length"))
    tables = [graph.variable(name, wide(f(ANGLES))) for name, f in (("cosines", np.cos), ("sines", np.sin))]
    cosine, sine = (ops.unsqueeze(ops.gather(table, places), [1]) for table in tables)
    graph.output("y", x * cosine + (swapped_pairs if turns else swapped_halves)(x) * sine)
    fused = tx.fuse(graph, [f"{domains[-1]}::RotaryEmbedding"])
    assert [node.op_type for node in fused.nodes] == ["RotaryEmbedding"]
    assert fused.nodes[0].attributes.get("interleaved", 0) == turns
    given = {"x": np.random.default_rng(0).normal(size=(2, 2, 3, 8)).astype(np.float32)}
    given["places"] = np.int64([[4, 5, 6], [0, 9, 3]])
    np.testing.assert_allclose(fused.run(given)["y"], graph.run(given)["y"], rtol=1e-5, atol=1e-6)


def test_numbers_that_are_held():
    def held(x):
        cosine, sine = (f(np.concatenate([ANGLES[:3]] * 2, -1))[None, None] for f in (np.cos, np.sin))
        return x * cosine + swapped_halves(x) * sine

    check(held, ("batch", 2, 3, 8), ["ai.onnx"])


@pytest.mark.parametrize("domains", DOMAINS, ids=["standard", "microsoft"])
@pytest.mark.parametrize("swapped", [swapped_halves, swapped_pairs])
def test_heads_after_positions(domains, swapped):
    if swapped is swapped_pairs:
        check(lambda x: before_few_heads(x, swapped), ("batch", "length", 16), domains, count=0)
        return
    check(before_its_heads, ("batch", "length", 2, 8), domains, num_heads=2)
    (result,) = check(before_few_heads, ("batch", "length", 16), domains, num_heads=2)
    assert result.inputs[0].name == "x"


def test_tables_indexed_by_positions_with_heads_after_them():
    graph = made_for(DOMAINS[1])
    x, places = graph.input("x", "float32", ("batch", "length", 2, 8)), graph.input("at", "int64", ("batch", "length"))
    tables = [graph.variable(name, np.concatenate([f(ANGLES)] * 2, -1)) for name, f in (("c", np.cos), ("s", np.sin))]
    cosine, sine = (ops.unsqueeze(ops.gather(table, places), [2]) for table in tables)
    graph.output("y", x * cosine + swapped_halves(x) * sine)
    fused = tx.fuse(graph, ["com.microsoft::RotaryEmbedding"])
    assert [node.op_type for node in fused.nodes] == ["Reshape", "RotaryEmbedding", "Reshape"]
    tx.verify(
        graph, fused, feeds={"x": np.ones((2, 3, 2, 8), "f4"), "at": np.int64([[4, 5, 6], [0, 9, 3]])}
    ).raise_if_failed()


WRONG = {
    "the other way round": lambda x: by_halves(x, swapped=lambda x: -swapped_halves(x)),
    "halves by angles in turns": lambda x: by_halves(x, wide=each_twice),
    "no part changes its sign": lambda x: by_halves(
        x, swapped=lambda x: ops.concat(x[:, :, :, 4:], x[:, :, :, :4], axis=-1)
    ),
    "parts of other lengths": lambda x: by_halves(
        x, swapped=lambda x: ops.concat(-x[:, :, :, 5:], x[:, :, :, :5], axis=-1)
    ),
    "other angles for the second half": lambda x: by_halves(x, wide=lambda t: ops.concat(t, t * 2.0, axis=-1)),
}


@pytest.mark.parametrize("form", WRONG.values(), ids=WRONG)
def test_near_misses_are_not_fused(form):
    check(form, HEADS, ["ai.onnx"], count=0)


def test_values_with_other_consumers_stay():
    graph = tx.Graph(opsets={"ai.onnx": 23})
    x = graph.input("x", "float32", HEADS)
    spread = twice(computed(x))
    cosine, sine = (ops.unsqueeze(part, [1]) for part in (ops.cos(spread), ops.sin(spread)))
    swapped = swapped_halves(x)
    graph.output("swapped", swapped)
    graph.output("cosine", cosine)
    graph.output("y", x * cosine + swapped * sine)
    fused = tx.fuse(graph, ["RotaryEmbedding"])
    assert [value.name for value in fused.outputs] == ["swapped", "cosine", "y"]
    tx.verify(graph, fused).raise_if_failed()

"""Shape-specialized programs."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tiny

import tenonnx as tx
from tenonnx_run import shape_specialized
from tenonnx_run.shape_specialized import KINDS, ShapeSpecializedProgram


def graph(rows="n"):
    """``2 * x + w`` and ``w + 1``; ``w`` has a default."""
    made = tx.Graph(opsets={"tiny": 5})
    made.registry = tiny.registry()
    w = made.input("w", "float32", (1,))
    w.data = tx.Graph().variable("w", np.array([10], np.float32)).data
    made.output("y", tiny.affine(made.input("x", "float32", (rows,)), w))
    made.output("next", tiny.add(w, 1.0))
    return made


@pytest.fixture
def made():
    """The shapes of ``x`` for which programs were compiled."""
    return []


@pytest.fixture
def shaped(made):
    def build(source, state=None):
        def make(each, names):
            made.append(each["x"].shape)
            return each.compile("numpy", state=names)

        return ShapeSpecializedProgram(source, make, state)

    return build


def rows(count):
    return {"x": np.arange(count, dtype=np.float32)}


def test_the_first_kinds_of_feeds_have_programs_and_the_others_share_one(shaped, made):
    program = shaped(graph())
    assert (made, program.is_made) == ([], False)
    for count in (2, 3, 2, 4, 5, 3, 4):
        assert program(rows(count))["y"].tolist() == [2 * k + 10 for k in range(count)]
    assert [str(shape[0]) for shape in made] == ["2", "3", "n"]
    assert len(made) == KINDS + 1
    assert program.backend == "numpy"


def test_static_shapes_need_only_one_program(shaped, made):
    program = shaped(graph(2))
    assert (made, program.is_made) == ([(2,)], True)
    assert program(rows(2))["next"].tolist() == [11]


def test_state_is_passed_from_one_program_to_the_next(shaped):
    program = shaped(graph(), {"w": "next"})
    state = program.state
    assert state["w"].tolist() == [10]
    for position, count in enumerate((2, 3, 2, 4, 3, 2)):
        assert program(rows(count))["y"][0] == 10 + position
        assert state["w"].tolist() == [11 + position]
    state["w"] = [5]
    assert program(rows(3))["y"].tolist() == [5, 7, 9]
    with pytest.raises(tx.InvalidCall):
        del state["w"]
    assert (list(state), len(state)) == (["w"], 1)


def test_a_default_that_is_fed_counts(shaped):
    program = shaped(graph())
    assert program(rows(1))["y"].tolist() == [10]
    assert program({**rows(1), "w": np.float32([3])})["y"].tolist() == [3]
    assert program(rows(1))["y"].tolist() == [10]


@pytest.mark.parametrize("feeds", [{}, {"x": np.zeros((1, 1), np.float32)}, {"x": np.array(["a"])}])
def test_wrong_feeds_are_refused_without_a_new_program(shaped, made, feeds):
    program = shaped(graph())
    with pytest.raises(tx.InvalidFeed, match='"x"'):
        program(feeds)
    assert made == []


def test_shapes_without_a_specialized_program_use_the_general_one(made):
    def make(each, names):
        made.append(each["x"].shape)
        if isinstance(each["x"].shape[0], int):
            raise tx.UnsupportedOp("no such length")
        return each.compile("numpy", state=names)

    program = ShapeSpecializedProgram(graph(), make)
    assert program(rows(2))["y"].tolist() == [10, 12]
    assert [str(shape[0]) for shape in made] == ["2", "n"]


def test_several_threads_may_call_it(shaped, made):
    program = shaped(graph())

    def work(thread):
        for k in range(25):
            count = 1 + (thread + k) % 5
            assert program(rows(count))["y"].tolist() == [2 * each + 10 for each in range(count)]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(made) == shape_specialized.KINDS + 1

"""A sample of the planted mistakes; ``mistakes.py`` runs all."""

from __future__ import annotations

import pytest
from authored_kit import OPS, failures
from mistakes import planted

MISTAKES = {f"{each.kind}: {each.op}: {each.what}": each for each in planted()}

#: Mistakes by title, with a part of the message that reports each.
SAMPLE = {
    "body: dequantize: the difference in 8 bits": "integers of the whole range",
    "body and rule: quantize: both truncate": "the reference of its case",
    "body: gain: a name read for a mode": "reads .name",
    "gradient: swish: an epsilon that half floats lose": "differs from the gradient of its body",
    "gradient: swish: float32 for half floats": "float16",
    "gradient: moments: wrong where the mean alone is asked": "the gradient of",
    "gradient: swish: a whole matrix for its diagonal": "the vjp of",
    "numpy: swish: a Python loop over elements": "times as long as its body",
    "numpy: swish: wrong for two special values at once": "special values",
    "integer: halfway: the sum overflows": "integers of the whole range",
    "integer: quantize: halves up": "exact halves",
    "cases: swish: no gradient beside a vjp": 'say why: gradient="the reason"',
    "cases: swish: an attribute that is never drawn": "no call of its cases has another alpha",
    "cases: gain: one mode alone": "mode='relu'",
    "cases: swish: the reference evaluates the rule": "evaluates the op itself",
    "claim: rms_norm: elementwise, and not": "said to be elementwise",
    "claim: swish: weights where the input is none": "the trait weights names W",
    "body and rule: best: both the first of equal ones": "where an input holds",
    "gradient: cosine: of near rows as of others": "where all is small",
    "numpy: moments: the square of the mean taken away": "numbers far from zero alone",
    "numpy: pick_rows: the first row for no place": "np.empty((0,)",
    "cases: dequantize: always a zero point": "each call of its cases has zero_point, which is optional",
    "claim: glu: any gate is taken": "declare one_of(gate=('relu', 'sigmoid'))",
    "claim: joined: pure, and random": "its body draws nothing at random",
    "claim: requantize: all integers are zero points": "ends in KeyError",
    "integer: shift_bits: by exactly the width": "integers of the whole range",
    "gradient: cosine: small rows cut off": "where one input is small",
    "claim: halfway: elementwise by the first alone": "has integers that no input has",
    "numpy: glu: sigmoid by tanh": "loses digits that its body keeps",
    "numpy: fill_masked: elements that are equal stay": "zeros alone",
    "numpy: pick_rows: places in 8 bits": "places beyond 255",
    "versions: gain: a sum with itself for the factor two": "what its rule rewrite says",
    "gradient: rms_norm: the root in float32": "in float64",
    "body: requantize: float32 in between": "integers that float32 rounds to exact halves",
    "cases: huber: operands never broadcast": "by broadcastable(...)",
    "cases: swish: positive numbers alone": "the op computes negative numbers",
    "cases: fill_masked: all are masked": "has mask of True alone",
    "cases: best: float32 alone": "has X of floats, and it takes int32",
    "cases: spread: one axis alone": "has one element in axes, and it takes several",
    "claim: peaks: a pad as large as the window": "gives NaN or infinity for finite inputs",
}


@pytest.mark.parametrize("title", SAMPLE)
def test_a_mistake_is_found_and_named(title):
    output = "\n".join(failures(MISTAKES[title].op, MISTAKES[title]).values())
    assert SAMPLE[title] in output


def test_every_mistake_can_be_planted():
    from authored_kit import FOLDER

    assert len(MISTAKES) >= 150
    for mistake in MISTAKES.values():
        compile(mistake.plant((FOLDER / f"{mistake.op}.py").read_text("utf-8")), mistake.op, "exec")


@pytest.mark.parametrize("name", OPS)
def test_an_op_without_a_mistake_passes(name):
    assert failures(name) == {}


def test_a_failure_is_reproduced_by_its_line(monkeypatch):
    mistake = MISTAKES["gradient: huber: the sign of the target"]
    output = next(output for label, output in failures("huber", mistake).items() if label.endswith("-gradient"))
    line = next(line for line in output.splitlines() if line.startswith("reproduce: "))
    assert 'replay("gradient", huber, np.array(' in line

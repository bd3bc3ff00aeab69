"""Match verification: the body of a proposed call in normal form must equal the subgraph."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenonnx.extend import TenonnxError, TensorType, Value, interpreting
from tenonnx.extend.symbolic import symbols_of
from tenonnx.extend.transforms import Call, infer_call
from tenonnx_optimize.matching import Match, Matcher
from tenonnx_optimize.normal_form import Normalizer
from tenonnx_optimize.templates import Proposal, Templates

#: A length that occurs in no graph, divisible by usual numbers of heads and block sizes.
ANY_LENGTH = math.lcm(*range(1, 17)) * 2**10


class Prover:
    """Verifies calls on values of one graph in normal form."""

    def __init__(self, normal: Normalizer, templates: Templates) -> None:
        self.normal, self.templates = normal, templates
        self.matcher = Matcher(normal.associative)

    def results(self, proposal: Proposal, root: Value, *, alone: bool) -> Sequence[Value | None] | None:
        """Results of the call in normal form, if the first one equals ``root``; else None.

        ``alone`` requires only the first one, if inner values have no other consumers.
        """
        try:
            result = self._traced(proposal, root, alone=alone)
        except TenonnxError:
            return None
        same = result[0] is not None and any(self.matcher.match(result[0], root, Match(), frozenset()))
        return result if same else None

    def _traced(self, proposal: Proposal, root: Value, *, alone: bool) -> Sequence[Value | None]:
        op, inputs, attributes, after = proposal.op, proposal.inputs, proposal.attributes, proposal.after
        count = None if op.signature.counts_outputs else 1
        op.requirements.check([_of_any_length(v) for v in inputs], attributes)
        if not self.templates.admits(op, inputs, infer_call(op, inputs, attributes, count)):
            return [None]
        if alone and after is None and self.templates.prove(proposal, root, self.matcher):
            return [root]
        with interpreting(self.normal):
            # an op of the normal form itself
            if after is None and root.producer is not None and root.producer.op is op:
                return self.normal.call(op, inputs, attributes, count)
            first, *others = self.normal.expand(Call(op, inputs, attributes, count))
            return [first if first is None or after is None else after(first), *others]


def _of_any_length(value: Value | None) -> Value | None:
    """A value with symbolic lengths replaced by ``ANY_LENGTH``, so that bodies do not depend on actual sizes."""
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None or value.data is not None:
        return value
    lengths = [ANY_LENGTH if symbols_of(d) == {str(d)} else d if isinstance(d, int) else None for d in value.type.shape]
    return Value(value.name, value.type.with_shape(tuple(lengths)))

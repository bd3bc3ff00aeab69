"""Communication between devices, estimated from the sharding of a traced function.

Layouts of arrays are propagated from operation to operation, as in compilers. A sum along a split axis results in
partial sums, which are *reduced*; an array that is needed in another layout is *gathered*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Literal

#: For each axis of an array, the axes of the mesh that split it.
Cut = tuple[tuple[str, ...], ...]

REDUCED, GATHERED = "reduced", "gathered"


@dataclass(frozen=True)
class Exchange:
    """A collective: its ``kind``, the mesh ``axes`` that take part, and the bytes on each device."""

    name_stack: str
    kind: str
    axes: tuple[str, ...]
    bytes: int


class Follower:
    """Propagates layouts through a traced function; ``collectives`` are the collectives, in order."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        self.collectives: list[Exchange] = []
        self.name_stack = ""
        self._fixed: set[Any] = set()

    def __call__(self, jaxpr: Any, cuts: Sequence[Cut], fixed: Sequence[bool] | None = None) -> list[Cut]:
        """The layouts of the outputs of a ``Jaxpr`` with input layouts ``cuts``.

        Inputs that are ``fixed``, by default all, and elementwise functions of them determine the layout of other
        operands: gradients take that of moments.
        """
        cut_of: dict[Any, Cut] = dict(zip(jaxpr.invars, cuts, strict=True))
        self._fixed |= {v for v, is_fixed in zip(jaxpr.invars, fixed or [True] * len(cuts), strict=True) if is_fixed}
        for equation in jaxpr.eqns:
            self.name_stack = str(equation.source_info.name_stack) or self.name_stack
            given = [cut_of.get(v, whole(v.aval)) if not _is_literal(v) else whole(v.aval) for v in equation.invars]
            for variable, cut in zip(equation.outvars, self._followed(equation, given), strict=True):
                cut_of[variable] = cut
        return [whole(v.aval) if _is_literal(v) else cut_of.get(v, whole(v.aval)) for v in jaxpr.outvars]

    def laid(self, aval: Any, cut: Cut, wanted: Cut) -> None:
        """Convert an array to the layout ``wanted``: mesh axes that no longer split it are gathered."""
        missing = [axis for have, want in zip(cut, wanted, strict=True) for axis in have if axis not in want]
        if missing:
            self._note(GATHERED, missing, aval, wanted)

    def _followed(self, equation: Any, given: list[Cut]) -> list[Cut]:
        inner = _inner(equation)
        if inner is not None:
            return self(inner, given, [v in self._fixed for v in _variables(equation)])
        rule = _RULES.get(equation.primitive.name)
        if rule is None and _is_elementwise(equation):
            rule = _elementwise
        if rule is None:
            for variable, cut in zip(equation.invars, given, strict=True):
                self.laid(variable.aval, cut, whole(variable.aval))
            return [whole(v.aval) for v in equation.outvars]
        result = rule(self, equation, given)
        return result if isinstance(result, list) else [result for _ in equation.outvars]

    def merged(self, avals: Sequence[Any], cuts: Sequence[Cut]) -> Cut:
        """The layout of an elementwise result of arrays of one shape; operands in another layout are gathered."""
        result: list[tuple[str, ...]] = [()] * max(map(len, cuts), default=0)
        for aval, cut in sorted(zip(avals, cuts, strict=True), key=lambda each: -math.prod(each[0].shape)):
            taken = {axis for each in result for axis in each}
            for place, axes in enumerate(cut):
                if axes and not result[place] and taken.isdisjoint(axes):
                    result[place] = axes
                elif axes and axes != result[place]:
                    self._note(GATHERED, axes, aval, (*cut[:place], (), *cut[place + 1 :]))
        return tuple(result)

    def summed(self, aval: Any, cut: Cut, axes: Sequence[str]) -> Cut:
        """The layout of a sum over ``axes`` of the mesh, which reduces partial sums."""
        taken = {axis for each in cut for axis in each}
        over = [axis for axis in dict.fromkeys(axes) if axis not in taken]
        if over:
            self._note(REDUCED, over, aval, cut)
        return cut

    def _note(self, kind: str, axes: Sequence[str], aval: Any, cut: Cut) -> None:
        if math.prod(self._sizes[axis] for axis in axes) == 1:
            return
        parts = math.prod(self._sizes[axis] for each in cut for axis in each)
        self.collectives.append(
            Exchange(self.name_stack, kind, tuple(axes), math.prod(aval.shape) * aval.dtype.itemsize // parts)
        )


def whole(aval: Any) -> Cut:
    """The layout of a replicated array."""
    return ((),) * len(getattr(aval, "shape", ()))


def _is_literal(variable: Any) -> bool:
    return isinstance(variable, Literal)


def _variables(equation: Any) -> list[Any]:
    """The arguments of an operation, with None for literals."""
    return [None if _is_literal(v) else v for v in equation.invars]


def _inner(equation: Any) -> Any:
    """The jaxpr that a call executes once; None for loops, branches and other equations."""
    if equation.primitive.name in ("while", "scan", "cond"):
        return None
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    result: Any = next((equation.params[name] for name in names if name in equation.params), None)
    result = getattr(result, "jaxpr", result)
    return result if hasattr(result, "eqns") and len(result.invars) == len(equation.invars) else None


def _is_elementwise(equation: Any) -> bool:
    shape = equation.outvars[0].aval.shape
    given = [v.aval.shape for v in (*equation.invars, *equation.outvars) if v.aval.shape]
    return all(len(each) == len(shape) and all(a in (b, 1) for a, b in zip(each, shape, strict=True)) for each in given)


def _elementwise(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    out = equation.outvars[0].aval
    wide = [(v, v.aval, cut) for v, cut in zip(_variables(equation), given, strict=True) if v is not None and cut]
    fixed = [(aval, cut) for v, aval, cut in wide if v in follower._fixed and aval.shape == out.shape]
    if not fixed:
        return follower.merged([a for _, a, _ in wide], [c for _, _, c in wide]) if wide else whole(out)
    follower._fixed |= set(equation.outvars)
    result = follower.merged([a for a, _ in fixed], [c for _, c in fixed])
    for v, aval, cut in wide:
        if v not in follower._fixed:
            follower.laid(aval, cut, result)
    return result


def _transpose(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    return tuple(given[0][axis] for axis in equation.params["permutation"])


def _broadcast(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    shape, result = equation.outvars[0].aval.shape, list(whole(equation.outvars[0].aval))
    for axis, place in enumerate(equation.params["broadcast_dimensions"]):
        if equation.invars[0].aval.shape[axis] == shape[place]:
            result[place] = given[0][axis]
    return tuple(result)


def _squeeze(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    return tuple(cut for axis, cut in enumerate(given[0]) if axis not in equation.params["dimensions"])


def _expand(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    left, new = iter(given[0]), set(equation.params["dimensions"])
    return tuple(() if axis in new else next(left) for axis in range(len(equation.outvars[0].aval.shape)))


def _reshape(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    """The first axis of a reshaped group keeps its split if the new axis is divisible by it."""
    (cut, before, after) = given[0], equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    result, kept = list(whole(equation.outvars[0].aval)), list(whole(equation.invars[0].aval))
    for old, new in _groups(before, after):
        if not old or not new:
            continue
        axes = cut[old[0]]
        if axes and after[new[0]] % math.prod(follower._sizes[axis] for axis in axes) == 0:
            result[new[0]] = kept[old[0]] = axes
    follower.laid(equation.invars[0].aval, cut, tuple(kept))
    return tuple(result)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Groups of axes of both shapes with the same elements, in order; axes of size 1 are left out."""
    old = [axis for axis, size in enumerate(before) if size != 1]
    new = [axis for axis, size in enumerate(after) if size != 1]
    result: list[tuple[list[int], list[int]]] = []
    while old and new:
        left, right = [old.pop(0)], [new.pop(0)]
        while (a := math.prod(before[k] for k in left)) != (b := math.prod(after[k] for k in right)):
            (left if a < b else right).append((old if a < b else new).pop(0))
        result.append((left, right))
    return result


def _reduced(follower: Follower, equation: Any, given: list[Cut]) -> list[Cut]:
    removed_axes = set(equation.params["axes"])
    left = tuple(cut for axis, cut in enumerate(given[0]) if axis not in removed_axes)
    over = [axis for place in removed_axes for axis in given[0][place]]
    return [follower.summed(v.aval, left, over) for v in equation.outvars]


def _product(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    avals = [v.aval for v in equation.invars]
    names = [[""] * len(aval.shape) for aval in avals]
    for side, (batch, total) in enumerate(((left_batch, left_sum), (right_batch, right_sum))):
        for k, axis in enumerate(batch):
            names[side][axis] = f"b{k}"
        for k, axis in enumerate(total):
            names[side][axis] = f"s{k}"
        free = [axis for axis, name in enumerate(names[side]) if not name]
        for k, axis in enumerate(free):
            names[side][axis] = f"{side}{k}"
    order = [f"b{k}" for k in range(len(left_batch))]
    order += [name for side in names for name in side if name[0] in "01"]
    return _contracted(follower, equation, given, names, order)


def _convolution(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    """Images are split by batch, kernels by output channels, and both by input channels in an ungrouped convolution."""
    numbers, params = equation.params["dimension_numbers"], equation.params
    names = [[""] * len(v.aval.shape) for v in equation.invars]
    grouped = params["feature_group_count"] * params["batch_group_count"] != 1
    names[0][numbers.lhs_spec[0]], names[1][numbers.rhs_spec[0]] = ("", "") if grouped else ("n", "o")
    names[0][numbers.lhs_spec[1]] = names[1][numbers.rhs_spec[1]] = "" if grouped else "s"
    order = [""] * len(equation.outvars[0].aval.shape)
    order[numbers.out_spec[0]], order[numbers.out_spec[1]] = ("", "") if grouped else ("n", "o")
    return _contracted(follower, equation, given, names, order)


def _contracted(follower: Follower, equation: Any, given: list[Cut], names: list[list[str]], order: list[str]) -> Cut:
    """The layout of a tensor contraction with named axes, where names that begin with ``s`` are summed."""
    by_name: dict[str, tuple[str, ...]] = {}
    avals = [v.aval for v in equation.invars]
    places = [(side, place) for side in (0, 1) for place in range(len(names[side]))]
    # Summed axes give way to kept ones, and the smaller array to the larger.
    places.sort(key=lambda each: (names[each[0]][each[1]].startswith("s"), -math.prod(avals[each[0]].shape)))
    for side, place in places:
        (cut, name), taken = (given[side], names[side][place]), {axis for axes in by_name.values() for axis in axes}
        if not cut[place] or by_name.get(name) == cut[place]:
            continue
        if name and name not in by_name and taken.isdisjoint(cut[place]):
            by_name[name] = cut[place]
        else:
            follower._note(GATHERED, cut[place], avals[side], (*cut[:place], (), *cut[place + 1 :]))
    over = [axis for name, axes in by_name.items() if name.startswith("s") for axis in axes]
    return follower.summed(equation.outvars[0].aval, tuple(by_name.get(name, ()) for name in order), over)


def _kept_where_whole(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    """Axes of unchanged size keep their split, others are gathered (slices, paddings, scans)."""
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    along = equation.params.get("axis", equation.params.get("dimension"))
    kept = tuple(cut if before[axis] == after[axis] and axis != along else () for axis, cut in enumerate(given[0]))
    follower.laid(equation.invars[0].aval, given[0], kept)
    return kept


def _concatenated(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    along = equation.params["dimension"]
    kept = [tuple(() if axis == along else axes for axis, axes in enumerate(cut)) for cut in given]
    for variable, cut, left in zip(equation.invars, given, kept, strict=True):
        follower.laid(variable.aval, cut, left)
    return follower.merged([v.aval for v in equation.invars], kept)


def _gathered_rows(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    """Rows of a table by index: each device contributes its rows, and split indices give split results."""
    numbers, table, out = equation.params["dimension_numbers"], given[0], equation.outvars[0].aval
    result, shape = list(whole(out)), equation.invars[0].aval.shape
    sizes = equation.params["slice_sizes"]
    inside = [axis for axis in range(len(shape)) if axis not in numbers.collapsed_slice_dims]
    for place, axis in zip(numbers.offset_dims, inside, strict=False):
        result[place] = table[axis] if sizes[axis] == shape[axis] else ()
    batch = [place for place in range(len(out.shape)) if place not in numbers.offset_dims]
    for place, axes in zip(batch, given[1], strict=False):
        result[place] = axes
    return follower.summed(out, tuple(result), [a for axis in numbers.collapsed_slice_dims for a in table[axis]])


def _added_at(follower: Follower, equation: Any, given: list[Cut]) -> Cut:
    """Rows added to a table: each device computes a partial sum."""
    kept = given[0]
    return follower.summed(equation.outvars[0].aval, kept, [axis for axes in given[1] for axis in axes])


_RULES: dict[str, Callable[[Follower, Any, list[Cut]], Cut | list[Cut]]] = {
    "transpose": _transpose,
    "broadcast_in_dim": _broadcast,
    "squeeze": _squeeze,
    "expand_dims": _expand,
    "reshape": _reshape,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "concatenate": _concatenated,
    "gather": _gathered_rows,
    "scatter-add": _added_at,
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"),
        _reduced,
    ),
    **dict.fromkeys(
        ("slice", "pad", "rev", "cumsum", "cumprod", "cummax", "reduce_window_max", "reduce_window_sum"),
        _kept_where_whole,
    ),
}

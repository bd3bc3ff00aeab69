"""Orthogonal polynomials of any order by three-term recurrences, with as many steps as the highest order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop

_Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _family(first: Callable[[Tensor], Tensor], step: _Step, shifted: bool = False) -> Callable[..., Tensor]:
    """Polynomials from the one of order 1 and ``step``, which maps ``k``, ``x`` and the last two to order ``k + 1``."""

    def polynomial(x: Any, n: Any) -> Tensor:
        x, n = (each if isinstance(each, Tensor) else torch.tensor(each) for each in (x, n))
        floats = [each.dtype for each in (x, n) if each.is_floating_point()]
        dtype = torch.float64 if torch.float64 in floats else floats[0] if floats else torch.get_default_dtype()
        x, order = torch.broadcast_tensors(x.to(torch.float64), n.to(torch.int64))
        x = 2 * x - 1 if shifted else x + 0
        now, before = first(x), torch.ones_like(x)
        found = torch.where(order == 0, 1.0, torch.where(order < 0, 0.0, now))
        highest = torch.cat([order.flatten(), order.new_ones(1)]).amax()  # the tensor may be empty

        def going(k: Tensor, *_: Tensor) -> Tensor:
            return k < highest

        def body(k: Tensor, now: Tensor, before: Tensor, found: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            after = step(k.to(torch.float64), x, now, before)
            return k + 1, after, now.clone(), torch.where(order == k + 1, after, found)

        *_, found = while_loop(going, body, (torch.ones_like(highest), now, before, found))
        return found.to(dtype)

    return polynomial


def _chebyshev(first: Callable[[Tensor], Tensor], shifted: bool = False) -> Callable[..., Tensor]:
    return _family(first, lambda k, x, now, before: 2 * x * now - before, shifted)


_KINDS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "t": lambda x: x + 0,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}

#: Replacements of PyTorch's functions.
POLYNOMIALS: Mapping[Any, Callable[..., Tensor]] = {
    **{getattr(torch.special, f"chebyshev_polynomial_{kind}"): _chebyshev(f) for kind, f in _KINDS.items()},
    **{
        getattr(torch.special, f"shifted_chebyshev_polynomial_{kind}"): _chebyshev(f, True)
        for kind, f in _KINDS.items()
    },
    torch.special.hermite_polynomial_h: _family(
        lambda x: 2 * x, lambda k, x, now, before: 2 * x * now - 2 * k * before
    ),
    torch.special.hermite_polynomial_he: _family(lambda x: x + 0, lambda k, x, now, before: x * now - k * before),
    torch.special.laguerre_polynomial_l: _family(
        lambda x: 1 - x, lambda k, x, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1)
    ),
    torch.special.legendre_polynomial_p: _family(
        lambda x: x + 0, lambda k, x, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1)
    ),
}

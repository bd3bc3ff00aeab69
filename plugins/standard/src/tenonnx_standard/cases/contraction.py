"""Cases of Einsum."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_standard.contraction import einsum
from tenonnx_testing import call, cases, tensors

EQUATIONS = [
    "ij->ji",
    "ij->i",
    "ij->",
    "ij",
    "ba",
    "ii->i",
    "ii",
    "iji->j",
    "...i->...",
    "...ij->...ji",
    "i...->...",
    "ij,jk->ik",
    "ij,jk",
    "ij,kj->ik",
    "i,j->ij",
    "i,i->",
    "i,i",
    "ij,ij->ij",
    "bij,bjk->bik",
    "bhqd,bhkd->bhqk",
    "bij,jk->bik",
    "ij,bjk->bik",
    "...ij,...jk->...ik",
    "...ij,jk",
    "bij, bij -> b",
    "abc,cd->abd",
    "ab,cd->acbd",
    "ij,jk,kl->il",
    "i,ij,j->",
    "bi,oij,bj->bo",
    "Aa,aB->AB",
    "iij,jk->ik",
    "abcd,abce->abde",
    "ab,bc->c",
    "ij,i->ij",
    "bij,b->bij",
    "bij,ji->bij",
    "i,ij->ij",
    "ij,kj,k->ik",
    "bhq,bh,b->hq",
    "...i,...->...i",
]


@cases(einsum)
def einsum_cases(draw):
    equation = draw(st.sampled_from(EQUATIONS))
    sides = {letter: draw(st.integers(1, 3)) for letter in "ABabcdehijklnoqk"}
    covered = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "int32", "int64"]))
    arrays = []
    for term in equation.replace(" ", "").partition("->")[0].split(","):
        before, dots, after = term.partition("...")
        shape = (*(sides[x] for x in before), *(covered if dots else ()), *(sides[x] for x in after))
        arrays.append(draw(tensors(dtype, shape=shape)))
    return call(*arrays, equation=equation)

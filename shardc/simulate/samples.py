"""Inputs to try a program on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from shardc.ir.dtypes import Kind
from shardc.ir.program import Call, Expr, Product, Program, operands
from shardc.simulate.arguments import in_precision, input_shape
from shardc.simulate.blocks import Values

_POSITIVE = frozenset({"log", "sqrt", "rsqrt"})  # not defined below 0
_EDGES = {"bool": (0, 1), "f8_e8m0fnu": (1, 2)}  # which has the powers of 2 alone
_FEW_TERMS = 8
_STEEP = frozenset({"exp", "softmax"})  # overflow on the sums of larger values


def sample_inputs(program: Program, seed: int = 0) -> list[Values]:
    """Small whole numbers for every input, so that sums of products are exact in f32.

    From −4 to 4 (−1 to 1 under an exponential, 1 to 4 under a root or logarithm, from 0 for unsigned
    types); never one value throughout, where there is room for two. Narrow floats are sparse, so that a
    sum has few terms: then it is nearly exact, and what it may be off by is less than one wrong block.
    """
    functions = {name for statement in program.statements for name in _functions(statement.expr)}
    generator = np.random.default_rng(seed)
    samples = []
    longest = max((_terms(program, statement.expr) for statement in program.statements), default=1)
    for array in program.inputs:
        lowest, highest = _EDGES.get(array.dtype.name) or _range(functions, array.dtype.name.startswith("u"))
        drawn = generator.integers(lowest, highest + 1, size=input_shape(program, array.dims))
        sparse = array.dtype.kind is Kind.FLOAT and array.dtype.is_narrow and not array.dtype.moves
        if sparse and not functions & _POSITIVE:
            drawn *= generator.random(drawn.shape) < math.sqrt(_FEW_TERMS / max(longest, _FEW_TERMS))
        if drawn.size > 1 and (drawn == drawn.flat[0]).all():
            drawn.flat[-1] = lowest if drawn.flat[0] != lowest else highest
        sample = in_precision(drawn, array.name, drawn.shape, array.dtype)
        if array.dtype.kind is Kind.COMPLEX:
            sample += 1j * generator.permutation(drawn.ravel()).reshape(drawn.shape)
        samples.append(sample)
    return samples


def _range(functions: set[str], unsigned: bool) -> tuple[int, int]:
    if functions & _POSITIVE:
        return 1, 4
    highest = 1 if functions & _STEEP else 4
    return (0 if unsigned else -highest), highest


def _terms(program: Program, expr: Expr) -> int:
    """The most terms that a sum in the expression has."""
    below = operands(expr)
    summed = {dim for operand in below for dim in operand.dims} - set(expr.dims) if isinstance(expr, Product) else ()
    own = math.prod(size for dim, size in program.sizes if dim in summed)
    return max([own, *(_terms(program, operand) for operand in below)])


def _functions(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Call):
        yield expr.function
    for operand in operands(expr):
        yield from _functions(operand)

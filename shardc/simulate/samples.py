"""Inputs to try a program on."""

from __future__ import annotations

import math

import numpy as np

from shardc.ir.dtypes import DType, Kind
from shardc.ir.program import Program
from shardc.simulate.arguments import in_precision, input_shape
from shardc.simulate.blocks import Values
from shardc.simulate.scales import dims_of_extremes, input_exponents, to_be_positive, to_be_told_apart

_GRID = 15  # values are from −15 to 15 quarters: few bits, so that single products are exact in f32
_FINE_GRID = 2047  # of what is compared: so many that few are alike, and single products are exact still
_EDGES = {"bool": (0, 1), "f8_e8m0fnu": (1, 2)}  # which has the powers of 2 alone


def sample_inputs(program: Program, seed: int = 0) -> list[Values]:
    """Values for every input of which every result can be told from a wrong one.

    Integers, and what only moves, are whole numbers from −4 to 4 (from 0 for unsigned types). Other floats are whole
    numbers of quarters, about 1 in size, that their type holds exactly, times a power of two such that products are
    about 1 as well, whatever they sum over; positive where a root or logarithm is taken of them, and in parts finer
    than quarters where what is made of them is compared. Never one value throughout, where there is room for two, and
    where there is not, never 0.
    """
    shapes = [input_shape(program, array.dims) for array in program.inputs]
    generator = np.random.default_rng(seed)
    exponents, positive = input_exponents(program), to_be_positive(program)
    compared, along = to_be_told_apart(program), dims_of_extremes(program)
    samples: list[Values] = []
    for array, shape in zip(program.inputs, shapes, strict=True):
        if array.dtype.kind is not Kind.FLOAT or array.dtype.moves:
            samples.append(_whole(array.dtype, shape, generator))
            continue
        limit = largest_of(array.dtype, _FINE_GRID if array.name in compared else _GRID)
        drawn = np.clip(np.rint(generator.standard_normal(shape) * max(1.0, limit / 4)), -limit, limit)
        if array.name in positive:
            drawn = np.clip(np.abs(drawn) + limit // 4 + 1, 1, limit)
        for axis in [axis for axis, dim in enumerate(array.dims) if array.name in compared and dim in along]:
            drawn = _without_ties(drawn, limit, axis)
        samples.append(_varied(drawn, limit, limit // 4 + 1) * 2.0 ** (exponents[array.name] - grid_bits(limit)))
    return samples


def _whole(dtype: DType, shape: tuple[int, ...], generator: np.random.Generator) -> Values:
    lowest, highest = _EDGES.get(dtype.name, (0 if dtype.name.startswith("u") else -4, 4))
    drawn = _varied(generator.integers(lowest, highest + 1, size=shape), lowest, 1)
    values = in_precision(drawn, "sample", shape, dtype)
    if dtype.kind is Kind.COMPLEX:
        values += 1j * generator.permutation(drawn.ravel()).reshape(shape)
    return values


def largest_of(dtype: DType, most: int = _GRID) -> int:
    """How many units of its grid a sample is at most: two of them add up exactly in the type."""
    return min(most, (1 << (round(-math.log2(dtype.unit)) - 1)) - 1)


def grid_bits(limit: int) -> int:
    """−log2 of the unit of a grid on which typical values are about 1."""
    return max(0, round(math.log2(limit / 4)))


def _without_ties(drawn: Values, limit: int, axis: int) -> Values:
    """In the same order along an axis, with equal whole numbers moved apart; as they are where there is no room."""
    count = drawn.shape[axis]
    if count > limit:
        return drawn
    order, lines = np.argsort(drawn, axis=axis, kind="stable"), np.moveaxis(np.sort(drawn, axis=axis), axis, -1)
    place = np.arange(count)
    apart = np.maximum.accumulate(lines - place, axis=-1).clip(-limit, limit - count + 1) + place
    found = np.empty_like(drawn)
    np.put_along_axis(found, order, np.moveaxis(apart, -1, axis), axis=axis)
    return found


def _varied(drawn: Values, other: float, alone: float) -> Values:
    """With another value in the last place where all are one; `alone` where one is all there is and 0, which hides
    whatever it is multiplied by."""
    if drawn.size == 1 and not drawn.any():
        return np.full_like(drawn, alone)
    if drawn.size > 1 and (drawn == drawn.flat[0]).all():
        drawn.flat[-1] = other if drawn.flat[0] != other else other + (1 if other <= 0 else -1)
    return drawn

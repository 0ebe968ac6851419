"""Where mesh axes lie on a slice: as good as the best of all placements, tried one by one."""

from fractions import Fraction
from itertools import product
from math import prod

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shardc.cost.placing import best_shares
from shardc.ir.mesh import Mesh


def shares_of(size, left):
    """Each way to cut an axis into parts of what is left of the physical axes."""
    ways = product(*([part for part in range(1, have + 1) if have % part == 0] for have in left))
    return [way for way in ways if prod(way) == size]


def placements(sizes, left):
    if not sizes:
        yield from [[]] if prod(left) == 1 else []
        return
    for way in shares_of(sizes[0], left):
        rest = tuple(have // part for have, part in zip(left, way, strict=True))
        yield from ([way, *others] for others in placements(sizes[1:], rest))


def score(placement, shape, wraps):
    """Pieces of cut physical axes; then the links per device of the slowest axis; then of all.

    A part is inside what earlier axes have. Neighbours on it are as many chips apart as later axes have of the same
    physical axis: so many share a link. The outermost part of a ring goes all the way round: a chip has two neighbours.
    """
    pieces, rates, outside = 0, [], [1] * len(shape)
    for way in placement:
        rate = Fraction(0)
        for axis, part in enumerate(way):
            if part == 1:
                continue
            pieces += part < shape[axis]
            apart = shape[axis] // (outside[axis] * part)
            rate += Fraction(2 if wraps[axis] and outside[axis] == 1 else 1, apart)
            outside[axis] *= part
        rates += [rate] if prod(way) > 1 else []
    return pieces, -min(rates, default=0), -sum(rates)


@st.composite
def slices(draw):
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4, 8)), min_size=1, max_size=3)))
    wraps = tuple(draw(st.booleans()) for _ in shape)
    sizes, left = [], prod(shape)
    for _ in range(draw(st.integers(0, 2))):
        sizes.append(draw(st.sampled_from([size for size in range(1, left + 1) if left % size == 0])))
        left //= sizes[-1]
    return shape, wraps, [*sizes, left]


@pytest.mark.instant
@example(((3, 8, 8), (False, False, False), [2, 16, 6]))  # where a whole axis is no piece
@example(((3, 4, 8), (False, False, True), [2, 48]))  # a ring has twice the links of a line
@given(slices())
def test_no_placement_is_better(case):
    shape, wraps, sizes = case
    every = [score(placement, shape, wraps) for placement in placements(sizes, shape)]
    assume(every)
    found = best_shares(Mesh.of(dict(zip("XYZ", sizes, strict=False))), shape, wraps, {})
    assert score(found.values(), shape, wraps) == min(every)

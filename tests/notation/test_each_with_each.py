"""What the help of SHC210 says to write for two arrays met each with each is, followed, just that."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shardc
from shardc.simulate.reference import reference

SIZES = {"B": 2, "D": 3, "N": 4, "M": 5}
SIGNS = {"⊙": np.multiply, "+": np.add, "-": np.subtract, "/": np.divide}
SIDES = [("d[B_X, D]", "A[D, N]"), ("d[B_X, D]", "A[N, M]"), ("d[B_X, D]", "A[N, D, M]"), ("d[B_X]", "A[N]")]
AROUND = [  # the statement that the two stand in, without and with the dims of its result
    "a = exp({})",
    "a[{dims}] = exp({})",
    "a = -({}) ⊙ 2",
    "a[{dims}] = {} - 1",
    "a = exp({}); y[B] = sum_{{{rest}}}(a)",
    "y[B] = sum_{{{rest}}}(square({}))",
]


def spread(array: np.ndarray, dims: list[str], wanted: list[str]) -> np.ndarray:
    """The array with the wanted dims in their order, those that it lacks of size 1."""
    ordered = array.transpose([dims.index(dim) for dim in wanted if dim in dims])
    return ordered.reshape([SIZES[dim] if dim in dims else 1 for dim in wanted])


def dims_of(side: str) -> list[str]:
    return [dim.removesuffix("_X") for dim in side.partition("[")[2].rstrip("]").split(", ")]


def named(text: str) -> str:
    """What the help says instead of what is refused."""
    with pytest.raises(shardc.ShardcError) as refused:
        shardc.plan(text, mesh={"X": 2}, dims=SIZES, dtype="f64")
    assert refused.value.code == "SHC210"
    (instead,) = re.findall("of each with each it is `(.*)`", refused.value.help or "")
    return instead


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("sides", SIDES, ids=" ".join)
@pytest.mark.parametrize("sign", SIGNS)
def test_the_help_followed_is_each_with_each(sign: str, sides: tuple[str, str], around: str) -> None:
    left, right = (dims_of(side) for side in sides)
    union = [*left, *(dim for dim in right if dim not in left)]
    frame = {"dims": ", ".join(union), "rest": ",".join(union[1:])}
    instead = named(around.format(f"{sides[0]} {sign} {sides[1]}", **frame))
    found = shardc.plan(around.format(instead, **frame), mesh={"X": 2}, dims=SIZES, dtype="f64").program
    draw = np.random.default_rng(0)
    values = {name: draw.uniform(1, 2, [SIZES[dim] for dim in dims]) for name, dims in (("d", left), ("A", right))}
    met = SIGNS[sign](spread(values["d"], left, union), spread(values["A"], right, union))
    (result,) = reference(found, [values[array.name] for array in found.inputs])
    wanted = meaning(around, met)
    made = list(found.results[found.outputs[0]].dims)
    order = [dim for dim in union if dim in made]
    np.testing.assert_allclose(result.transpose([made.index(dim) for dim in order]), wanted)


def meaning(around: str, met: np.ndarray) -> np.ndarray:
    """What the statements around make of it, of [B, …]."""
    rest = tuple(range(1, met.ndim))
    return {
        AROUND[0]: lambda: np.exp(met),
        AROUND[1]: lambda: np.exp(met),
        AROUND[2]: lambda: -met * 2,
        AROUND[3]: lambda: met - 1,
        AROUND[4]: lambda: np.exp(met).sum(rest),
        AROUND[5]: lambda: np.square(met).sum(rest),
    }[around]()

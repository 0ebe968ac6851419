"""Every reason for which a sharding does not allow a move, or its digits, is given to some move."""

import ast
import itertools
from pathlib import Path

import pytest

from shardc.ir import collectives
from shardc.ir.collectives import (
    AllReduce,
    AllToAll,
    DirectExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    apply,
    uneven_exchange,
)
from shardc.ir.digits import Reshape, reshaped
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.sharding import Sharding
from shardc.rules.moves import masks, moves
from shardc.rules.products import placements

MESH = Mesh.of({"X": 2, "Y": 2, "Z": 3})
SHARDINGS = [
    Sharding(dims, frozenset(axes))
    for dims, axes in itertools.product(placements(MESH.names, 2), ("", "X", "XY"))
    if not {*axes} & {axis for own in dims for axis in own}
]
WHOLE = [sharding for sharding in SHARDINGS if not sharding.unreduced]
LARGEST = Sharding(((), ()), frozenset("X"), "max")
BY_HAND = {
    "one dim is an AllGather's": (JointGather(((0, ("X",)),)), Sharding.of(["X", ""])),
    "one dim is a ReduceScatter's": (JointScatter(((0, ("X",)),)), Sharding.of(["", ""], "X")),
    "an AllToAll needs two dims": (AllToAll(("X",), 0, 0), Sharding.of(["X", ""])),
    "where devices keep some, an AllToAll moves less": (
        DirectExchange(("X",), ((), ("X",)), 2),
        Sharding.of(["X", ""]),
    ),
    "the value is no partial sum": (Mask(("Y",)), LARGEST),
}


def reasons_of(pairs):
    """Why these moves are refused, of those that are."""
    found = set()
    for sharding, move in pairs:
        try:
            apply(move, sharding, MESH)
        except IllegalMove as error:
            found.add(str(error))
    return found


def reasons_written(*names):
    for name in names:
        tree = ast.parse((Path(collectives.__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            match node:
                case ast.Call(func=ast.Name("require"), args=[_, ast.Constant(str(reason))]):
                    yield reason


@pytest.mark.parametrize("reason", BY_HAND)
def test_what_no_rule_makes_is_refused(reason):
    move, sharding = BY_HAND[reason]
    with pytest.raises(IllegalMove, match=reason):
        apply(move, sharding, MESH)


def test_a_maximum_is_summed_by_nothing():
    for move in (ReduceScatter(("X",), 0), AllReduce(("X",))):
        with pytest.raises(IllegalMove, match="the value is no partial sum"):
            apply(move, LARGEST, MESH)
    assert apply(AllReduce(("X",), "max"), LARGEST, MESH) == Sharding.replicated(2)


def test_every_reason_is_given():
    """To moves that are made for one sharding and given another, or by hand."""
    every = {move for sharding in SHARDINGS for move in (*moves(sharding, MESH, MESH.names), *masks(sharding, "XY"))}
    every |= {found for dims in WHOLE if (found := uneven_exchange(WHOLE[1], dims.dims, MESH)) is not None}
    found = reasons_of(itertools.product(SHARDINGS, every)) | BY_HAND.keys()
    written = set(reasons_written("collectives", "operations", "masks"))
    assert len(written) > 12 and written <= found, written - found


@pytest.mark.parametrize(
    ("reshape", "sharding", "reason"),
    [
        (Reshape(((2,),), True), Sharding.of(["", "X"]), "a digit above a sharded one is not cut into single elements"),
        (Reshape(((3,),), False), Sharding.of(["X"]), "the axes do not fill the digits from the first on"),
    ],
)
def test_digits_that_would_not_stay_blocks_are_refused(reshape, sharding, reason):
    with pytest.raises(IllegalMove, match=reason):
        reshaped(reshape, sharding, MESH)

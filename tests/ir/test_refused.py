"""Every reason for which a sharding does not allow a move, or its digits, is given to some move."""

import ast
import itertools
from pathlib import Path

import pytest

from shardc.ir import collectives
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    UnevenExchange,
    apply,
    uneven_exchange,
)
from shardc.ir.digits import Reshape, reshaped
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.sharding import Sharding
from shardc.rules.moves import masks, moves
from shardc.rules.placements import placements

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


@pytest.mark.instant
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


def test_no_partial_sum_is_exchanged():
    for kind in (JointExchange, DirectExchange, UnevenExchange):
        made = [move for sharding in WHOLE for move in moves(sharding, MESH, MESH.names) if type(move) is kind]
        made = made or [uneven_exchange(WHOLE[1], WHOLE[-1].dims, MESH)]
        assert reasons_of((Sharding(WHOLE[0].dims, frozenset("Z")), move) for move in made) == {
            "partial sums are not exchanged"
        }


def test_what_leaves_a_dim_are_its_minor_axes():
    """In their order: of I_XYZ, Z or YZ or XYZ, and of two dims each the dim's own."""
    parts = [part for count in (1, 2, 3) for part in itertools.permutations(MESH.names, count)]
    for sharding, axes in itertools.product(WHOLE, parts):
        may = sharding.dims[0][-len(axes) :] == axes
        both = may and sharding.dims[1][-1:] == ("Z",)
        for move, allowed in (
            (AllGather(axes, 0), may),
            (AllToAll(axes, 0, 1), may),
            (JointGather(((0, axes), (1, ("Z",)))), both),
        ):
            assert reasons_of([(sharding, move)]) == (
                set() if allowed else {"the axes are not the minor axes of the dim"}
            )


@pytest.mark.instant
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

"""Values are told apart by what they are: not by where a text has them, nor by what is worked out of the rest."""

import inspect
import itertools
from dataclasses import replace
from typing import get_args

import jax.numpy as jnp
import pytest

import shardc
from shardc.ir.collectives import COLLECTIVE_NAMES, DirectExchange, JointExchange, Move, Slice, UnevenExchange
from shardc.ir.dtypes import DTYPES, Kind
from shardc.ir.laws import product_law
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Facts
from shardc.ir.plan import How, StepCost, Together, operands_of
from shardc.ir.program import nested, same_array
from shardc.ir.sharding import Sharding
from shardc.ir.sizes import not_divisible
from shardc.rules.placements import placements

TEXT = """mesh X=2
dims I=4, J=4, K=4, L=3
T[I, K] = relu(A[I_X, J] · B[J, K]) + |J|
G[I, K] = AllGather_X(T[I_X, K])
for L { x = relu(x[I_X]) ⊙ V[L]; S[L, I_X] = neg(x) }"""


def test_where_something_is_written_is_no_part_of_it():
    one, other = shardc.parse(TEXT), shardc.parse("\n\n   " + TEXT.replace("\n", "\n \n    "))
    assert one == other and one.statements[0].span != other.statements[0].span


def test_two_plans_of_a_program_cost_the_same():
    """Though each has its own functions by which formulas are spelled and memory is counted, if anybody asks."""
    one, other = (shardc.plan(text) for text in (TEXT, "\n" + TEXT))
    assert one.cost == other.cost
    assert [step.cost for step in one.schedule.steps] == [step.cost for step in other.schedule.steps]


@pytest.mark.instant
@pytest.mark.parametrize("value", [Mesh.of({"X": 2, "Y": 4}), Sharding.of(["XY", ""], "Z")], ids=["mesh", "sharding"])
def test_a_value_is_made_of_what_it_shows(value):
    """What is worked out of it is not given, and two that are made apart are one key."""
    names = inspect.signature(type(value)).parameters
    again = type(value)(**{name: getattr(value, name) for name in names})
    assert not any(name.startswith("_") for name in names)
    assert again == value and {again: 1}[value] == 1 and repr(again) == repr(value)


# What one collective is under a name of the notation's, and what is done under that name in other ways.
UNNAMED = {
    JointExchange: "an AllToAll of pieces of several dims",
    DirectExchange: "permutes of pieces of a block",
    UnevenExchange: "permutes of cells, by tables",
    Mask: "what is kept of copies: no collective",
}
CUTS = {DirectExchange, UnevenExchange, Slice}  # of whose calls what goes, or stays, is a part that is taken first


@pytest.mark.instant
@pytest.mark.parametrize("kind", get_args(Move), ids=lambda kind: kind.__name__)
def test_a_move_is_called_as_the_notation_calls_it(kind):
    facts = kind.facts
    assert facts.is_named == (kind not in UNNAMED) and facts.cuts == (kind in CUTS)
    assert (facts.name in COLLECTIVE_NAMES) == (kind is not Mask) and facts.is_move
    if facts.name in COLLECTIVE_NAMES:
        assert COLLECTIVE_NAMES[facts.name].facts.kind is facts.kind
    assert facts == Facts(facts.kind, facts.name, kind not in UNNAMED, kind in CUTS)


@pytest.mark.instant
@pytest.mark.parametrize("row", DTYPES.values(), ids=str)
def test_there_is_arithmetic_of_real_numbers_of_whole_bytes_and_of_the_two_f8_that_chips_multiply(row):
    match row.kind:
        case Kind.INT:
            computes = jnp.iinfo(row.jax).bits >= 8
        case Kind.FLOAT:
            computes = jnp.finfo(row.jax).bits >= 16 or row.name in ("f8_e4m3fn", "f8_e5m2")
        case _:
            computes = False
    assert row.moves == (not computes)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("A[I] ⊙ max_T(index_T) → C[I]", "I T"),
        ("A[I] / |J| → C[I]", "I J"),
        ("A[K, J] · B[J, I] → C[I, K]", "K J I"),
        ("for L { x = relu(x[I]); S[L, I] = neg(x) }", "I L"),
        ("C[I] = A[I] + |K|; D[J] = max_T(index_T) ⊙ B[J]", "I J K T"),
    ],
)
def test_the_dims_of_a_program_are_those_of_inputs_then_those_that_statements_name(text, dims):
    assert shardc.parse(text, dims=dict.fromkeys(dims.split(), 2)).dims == tuple(dims.split())


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("A[I, J] = A[I_X, J]", True),
        ("A[I, J] = AllGather_X(A[I_X, J])", True),
        ("B[I, J] = A[I_X, J]", False),
        ("B[J, I] = A[I_X, J]", False),
        ("for L { x = neg(x[I]) }", False),
    ],
)
def test_a_name_is_bound_to_what_it_names_already_or_to_another_array(text, is_same):
    *_, last = nested(shardc.parse(text, mesh={"X": 2}, dims={"L": 2}).statements)
    assert same_array(last) == is_same


def test_a_local_product_is_of_operands_that_lie_alike_with_each_axis_on_one_dim():
    """Of all ways that A[I, J] and B[J, K] lie over two axes."""
    for one, other in itertools.product(placements(("X", "Y"), 2), repeat=2):
        every = dict.fromkeys([("I", one[0]), ("J", one[1]), ("J", other[0]), ("K", other[1])])
        axes = [axis for _, some in every for axis in some]
        found = product_law(("IJ", "JK"), (Sharding(one), Sharding(other)), "IK")
        assert isinstance(found, str) == (one[1] != other[0] or len(set(axes)) < len(axes)), (one, other)
        assert isinstance(found, str) or found == Sharding((one[0], other[1]), frozenset(one[1]))


def test_a_step_that_costs_nothing_says_so_and_products_alone_wait_for_memory():
    none = StepCost()
    assert (none.wire_bytes, none.flops, none.time_s, none.formula, none.as_written) == (0, 0, 0.0, "0", None)
    # How it is spelled, and what it was by the text alone, are no part of what it is.
    assert replace(none, spelled=lambda: "J/C", as_written=StepCost(wire_bytes=1)) == none != StepCost(wire_bytes=1)
    plan = shardc.plan("S[I, K] = relu(A[I_X, J] · B[J, K])", mesh="X=2", dims={"I": 8, "J": 8, "K": 8}, chip="v5e")
    waits = {step.name for step in plan.schedule.steps if step.cost.by_memory}
    assert waits == {"Einsum"} and len(plan.schedule.steps) == 3


def test_a_step_reads_an_array_by_the_dims_that_its_use_names():
    """Operand by operand: of `x[T, D] · x[R, D]` the second by R and D."""
    schedule = shardc.plan("S[T, R] = x[T, D] · x[R, D]", mesh="X=2", dims={"T": 8, "R": 8, "D": 4}).schedule
    (product,) = (step for step in schedule.steps if step.name == "Einsum")
    assert [array.dims for array in operands_of(product, schedule.values)] == [("T", "D"), ("R", "D")]
    assert [schedule.values[value].dims for value in product.operands] == [("T", "D"), ("T", "D")]


def test_the_same_steps_each_by_itself_are_neither_done_as_one_nor_left_to_xla():
    schedule = shardc.plan("A[I, J_X] · B[J, K] → C[I, K]", mesh="X=2", dims={"I": 8, "J": 8, "K": 8}).schedule
    groups = (Together(0, 1, How.PARTITIONER),)
    for changed in ({"together": groups}, {"by_xla": True}, {"together": groups, "by_xla": True}):
        assert replace(schedule, **changed).blocking == schedule
    assert schedule.blocking is schedule


@pytest.mark.instant
@pytest.mark.parametrize(
    ("axes", "said", "parts", "next_"),
    [
        (("X",), "mesh axis `X` = 2", 2, 26),
        (("X", "Y"), "mesh axes `X` = 2, `Y` = 3 (6 together)", 6, 30),
        (("X", "Y", "Z"), "mesh axes `X` = 2, `Y` = 3, `Z` = 4 (24 together)", 24, 48),
    ],
)
def test_what_does_not_divide_a_dim_is_told_axis_by_axis_and_together(axes, said, parts, next_):
    found = not_divisible("I", 25, axes, Mesh.of({"X": 2, "Y": 3, "Z": 4}), None)
    assert str(found).splitlines()[0] == f"error[SHC204]: dim `I` = 25 is not divisible by {said}"
    assert f"25 mod {parts} = 1" in str(found) and f"make I {next_}," in str(found)

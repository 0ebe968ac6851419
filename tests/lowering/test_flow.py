"""Along which axes a value must be equal, followed from outputs back; and where products may be done as one at all."""

from dataclasses import replace

import pytest

import shardc
from shardc.ir.collectives import UnevenExchange, uneven_exchange
from shardc.ir.plan import Loop, every_block
from shardc.ir.sharding import Sharding
from shardc.lowering.as_one import may_be_grouped
from shardc.lowering.flow import equal_along, equal_within, untyped_along
from shardc.lowering.together import candidates

SIZES = dict.fromkeys(("I", "J", "J2", "K", "L", "M"), 12)
LOOPS = [
    "for L { x = relu(x[I_X]) + A[L, I_X] }; return x",
    "for L { x[I_X] = x[I_X] ⊙ w[I_X]; S[L, I_X] = neg(x) }; return S",
    "for L { x = x[I_X, J] · W[J, J2_Y] }",
    "y[I] = x[I_X]; for L { y = y + B[L, I]; S[L, I_X] = y }; return S",
    "for L { s[I] = s[I] + sum_J(A[L, I, J_X]) }",
    "for L { for M { x = x[I_X, J] · W[M, J, J2_Y] }; T[L, I_X, J] = x }; return T",
]


def schedule_of(text, mesh="X=2,Y=3"):
    return shardc.plan(text, mesh=mesh, dims=SIZES, idle="keep", objective="bytes").schedule


@pytest.mark.instant
@pytest.mark.parametrize("text", LOOPS)
def test_what_a_loop_carries_is_equal_wherever_it_can_be(text):
    """Before it, and at the end of each trip: it has one type from trip to trip."""
    schedule = schedule_of(text)
    mesh, every = schedule.mesh, frozenset(schedule.mesh.names)
    waiting, loops = [(schedule.block, equal_along(schedule.block, schedule.mesh))], 0
    while waiting:
        block, equal = waiting.pop()
        for step in block.steps:
            if not isinstance(step.op, Loop):
                continue
            loop, within = step.op, equal_within(step, step.op, equal, block, mesh)
            waiting.append((loop.body, within))
            carried = slice(loop.fixed, loop.fixed + loop.carried)
            for value in step.operands[carried]:
                assert equal[value] == every - block.values[value].sharding.used
            for value in loop.body.outputs[: loop.carried]:
                assert within[value] == every - loop.body.values[value].sharding.used
            loops += 1
    assert loops == len([*every_block(schedule.block)]) - 1 > 0


EQUAL = {  # a value of the program that is gathered, and along which axes it must be equal
    "A[I_X, J] → A[I, J]": ("A[I, J]", "XY"),
    "A[I_XY, J] → A[I_X, J]": ("A[I_X, J]", "Y"),
    "T[I, J] = A[I_X, J]; C[I, K_X] = T · B[J, K_X]": ("T[I, J]", "Y"),
    "T[I, J] = A[I_X, J]; C[I, K] = T · B[J, K]": ("T[I, J]", "XY"),
    "T[I_X, J] = AllGather_Y(A[I_X, J_Y]); C[I_X, J] = relu(T); return C": ("T[I_X, J]", "Y"),
    "T[I_X, J] = AllGather_Y(A[I_X, J_Y]); S[I_X, K_Y] = T · B[J, K_Y]; return S": ("T[I_X, J]", ""),
}


@pytest.mark.instant
@pytest.mark.parametrize("text", EQUAL)
def test_a_gather_has_to_leave_equal_values_where_something_that_is_equal_is_made_of_it(text):
    schedule, (name, axes) = schedule_of(text), EQUAL[text]
    equal = equal_along(schedule.block, schedule.mesh)
    (gathered,) = (step.result for step in schedule.steps if step.name == "AllGather")
    assert (str(schedule.values[gathered]), "".join(sorted(equal[gathered]))) == (name, axes)


GROUPED = {  # a program, its mesh, and whether its products may be done as one with collectives
    "A[I, J_X] · B[J, K] → C[I, K]": True,
    "A[I, J_X] · B[J_X, K] → C[I, K]": True,
    "A[I, J_X] · B[J_X, K] → C[I, K]{U_X}": False,  # partial sums go out
    "A[I, J]{U_X} · B[J, K] → C[I, K]": False,  # or come in
}


@pytest.mark.instant
@pytest.mark.parametrize("text", GROUPED)
def test_products_are_done_as_one_where_no_partial_sums_come_or_go_and_all_has_a_type(text):
    schedule = schedule_of(text)
    assert may_be_grouped(schedule) == bool([*candidates(schedule)]) == GROUPED[text]


def test_what_jax_cannot_type_is_held_across_no_cut():
    """An exchange that leaves a value equal along an axis which sharded it, beside a product that could be a group."""
    text = "D[I_Y, J_X] = B[I_X, J_Y]; C[I, K] = AllGather_Y(A[I, J_Y]) · E[J, K]; return C, D"
    schedule = shardc.plan(text, mesh="X=4,Y=6", dims=dict.fromkeys("IJK", 96), objective="bytes").schedule
    (place,) = (n for n, step in enumerate(schedule.steps) if isinstance(step.op, UnevenExchange))
    step, values, steps = schedule.steps[place], [*schedule.values], [*schedule.steps]
    before, after = values[step.operands[0]].sharding, Sharding.of(["Y", ""])
    values[step.result] = replace(values[step.result], sharding=after)
    steps[place] = replace(step, op=uneven_exchange(before, after.dims, schedule.mesh))
    block = replace(schedule.block, values=tuple(values), steps=tuple(steps))
    assert untyped_along(block)[step.result] == {"X"}
    assert may_be_grouped(schedule) and [*candidates(schedule)]
    other = replace(schedule, block=block)
    assert not may_be_grouped(other) and not [*candidates(other)]


def test_on_one_device_there_is_nothing_to_be_done_as_one():
    assert not may_be_grouped(schedule_of("A[I, J] · B[J, K] → C[I, K]", mesh=None))

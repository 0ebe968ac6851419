"""One array moved from one sharding to another, and every device asked for its block."""

from shardc.cost import LinkModel, chip
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern, Use
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import spell
from shardc.planner import Objective, plan_with_subaxes
from shardc.simulate import run, sample_inputs
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal

INT = DTYPES["int32"]


def planned(mesh, shape, source, target, objective=Objective.BYTES, memory=None):
    dims = ("I", "J", "K")[: len(shape)]
    before, after = Pattern.exactly(source), Pattern.exactly(target)
    text = f"A{spell(dims, source)} → A{spell(dims, target)}"
    statement = Statement("A", dims, after, Use("A", dims, before, INT), INT, text)
    inputs = (Input("A", dims, before, INT),)
    program = Program(mesh, tuple(zip(dims, shape, strict=True)), INT, inputs, (statement,))
    return plan_with_subaxes(program, LinkModel.of(mesh, chip("v5p")), objective, memory)


def assert_means_the_array(found):
    assert_schedule_legal(found.schedule)
    (whole,) = sample_inputs(found.schedule.program)
    (blocks,) = run(found.schedule, [whole])
    assert_equal_on_every_device(blocks, whole, found.schedule.values[found.schedule.outputs[0]], found.schedule.mesh)

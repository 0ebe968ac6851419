"""All 1,331 sharding triples of a rank-2 matmul on a 2×4 mesh, planned and run on virtual devices in NumPy."""

import itertools

import numpy as np
import pytest

from shardc import simulate
from shardc.cost import LinkModel, chip
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern, Product, Use
from shardc.ir.mesh import Mesh
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Sharding, spell
from shardc.planner import Objective, plan_program
from shardc.rules.placements import placements

MESH = Mesh.of({"X": 2, "Y": 4})
SIZES = {"I": 16, "J": 24, "K": 32}
INT32 = DTYPES["int32"]


def matmul(a, b, c):
    def use(name, dims, sharding):
        return Use(name, dims, Pattern.exactly(sharding), INT32)

    product = Product((use("A", ("I", "J"), a), use("B", ("J", "K"), b)), ("I", "K"), INT32)
    text = f"A{spell('IJ', a)} · B{spell('JK', b)} → C{spell('IK', c)}"
    statement = Statement("C", ("I", "K"), Pattern.exactly(c), product, INT32, text)
    inputs = tuple(Input(u.name, u.dims, u.pattern, INT32) for u in product.operands)
    return Program(MESH, tuple(SIZES.items()), INT32, inputs, (statement,))


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_every_triple_of_shardings(step):
    """Or every seventh: of 11 shardings each, so that all of A, of B and of C come up."""
    shardings = [Sharding(dims) for dims in placements(MESH.names, 2)]
    assert len(shardings) == 11
    model = LinkModel.of(MESH, chip("v5p"))
    triples = list(itertools.product(shardings, repeat=3))
    assert len(triples) == 1331
    for count, (a, b, c) in list(enumerate(triples))[::step]:
        program = matmul(a, b, c)
        found = plan_program(program, model, Objective.BYTES if count % 2 else Objective.TIME)
        wholes = simulate.sample_inputs(program, seed=count)
        (blocks,) = simulate.run(found.schedule, wholes)
        output = found.schedule.values[found.schedule.outputs[0]]
        assert output.sharding == c
        expected = simulate.expected_blocks(wholes[0] @ wholes[1], output, MESH)
        np.testing.assert_array_equal(blocks, expected, err_msg=program.statements[0].text)

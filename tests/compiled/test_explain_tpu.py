"""Functions compiled for a TPU slice, with no TPU, and explained: the planted waste that the compiler does not mend."""

import random
import sys
from dataclasses import replace
from importlib import util
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from jax import P

import shardc
from shardc.compiled import collectives
from shardc.compiled.explain.explain import explanation_of
from shardc.compiled.explain.findings import GATHERED, PLANNED, REMATERIALIZED, SUMMED
from shardc.cost.topology import lay, topology
from shardc.interface.hardware import Hardware
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.machines import tpu
from shardc.machines.jitted import lower, mesh_of

pytestmark = [pytest.mark.tpu, pytest.mark.skipif(not tpu.is_installed(), reason="no libtpu")]

SLICES = {"v5p:2x2x2": (2, 4), "v5e:4x4": (4, 4)}


def load(name):
    spec = util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


models, steps = load("models"), load("steps")


def slice_mesh(mesh, name):
    found = topology(name)
    return tpu.slice_mesh(mesh, found.chip.name, found.shape, lay(mesh, found, {}).place)


def explained(function, *args, on):
    """The arguments lie on a mesh of no devices; the slice's are put in their place."""
    mesh = mesh_of(args)
    return explanation_of(lower(function, args, slice_mesh(mesh, on)), link_model(mesh, on))


def link_model(mesh, on):
    """As `shardc.explain` makes it: with all that is known of what the compiler makes of collectives there."""
    return Hardware.of().model(Program(mesh, (), DTYPES["bf16"], (), (), topology=on))


def abstract(on):
    return jax.sharding.AbstractMesh(SLICES[on], ("X", "Y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def model(name, wasteful, on, **sizes):
    return explained(*getattr(models, name)(abstract(on), wasteful, **sizes), on=on)


everywhere = pytest.mark.parametrize("on", SLICES)


@everywhere
@pytest.mark.parametrize("name", ["mlp", "reshard", "attention", "attention_by_tokens", "layers"])
def test_nothing_is_found_where_nothing_is_planted(name, on):
    found = model(name, False, on)
    assert found.findings == () and found.platform == "tpu"


def test_a_sum_on_every_device_is_found_in_an_mlp():
    on = "v5e:4x4"
    found = model("mlp", True, on, model=512, hidden=2048)
    (finding, *others) = found.findings
    assert (finding.kind, finding.statement) == (SUMMED, "C[I, J]{U_Y} → C[I, J_Y]")
    assert [other.kind for other in others] == [PLANNED]
    assert others[0].statement == "Y[I_X, J_Y] = tanh(relu(x[I_X, L] ·_L w1[L, K_Y]) ·_K w2[K_Y, J])"
    again = shardc.plan(
        others[0].statement,
        mesh=found.mesh,
        dims={"I": 1024, "J": 512, "K": 2048, "L": 512},
        dtype="bf16",
        topology=on,
        objective=objective_named(others[0]),
    )
    assert again.cost.wire_bytes == others[0].better_bytes == finding.better_bytes


@pytest.mark.parametrize("wasteful", [True, False])
def test_a_sum_is_no_waste_where_a_scatter_takes_longer(wasteful):
    """A share of 128 lanes is turned on v5p's links before it is sent: half the bytes in 1.15 of the time."""
    found = model("mlp", wasteful, "v5p:2x2x2", model=512, hidden=2048)
    (row,) = found.collectives
    assert (row.kind, found.findings) == ("AllReduce", ())
    assert row.arrays[0].why == "a part of it is kept, and nothing moves less in no more time"
    text, dims = "A[I_X, J]{U_Y} → A[I_X, J_Y]", {"I": 1024, "J": 512}
    plan = shardc.plan(text, mesh=found.mesh, dims=dims, dtype="bf16", topology="v5p:2x2x2", objective="bytes")
    assert plan.cost.wire_bytes == row.wire_bytes // 2 and plan.cost.time_s > row.time_s


@pytest.mark.exhaustive
@everywhere
def test_what_the_compiler_mends_is_no_waste(on):
    """A larger sum comes out as a ReduceScatter although the program asks for it on every device."""
    found = model("mlp", True, on, model=2048, hidden=4096)
    assert [row.kind for row in found.collectives] == ["ReduceScatter"] and found.findings == ()


def test_a_scatter_that_the_compiler_does_as_a_sum_and_a_slice_is_a_note():
    found = model("mlp", False, "v5e:4x4", model=512, hidden=2048)
    assert [row.kind for row in found.collectives] == ["AllReduce"] and found.findings == ()
    assert "the compiler does a ReduceScatter as an AllReduce and a slice" in found.notes[0]


@everywhere
def test_a_full_rematerialization_is_found_and_mended(on):
    (finding,) = model("reshard", True, on).findings
    assert (finding.kind, finding.statement) == (REMATERIALIZED, "A[I_Y, J, K_X] → A[I, J_XY, K]")
    assert finding.bound_bytes <= finding.better_bytes < finding.wire_bytes / 2
    x = models.argument(abstract(on), (64, 256, 256), "Y", None, "X")
    mended = explained(jax.jit(lambda x: shardc.einsum(finding.statement.replace("A[", "x["), x)), x, on=on)
    assert mended.wire_bytes == finding.better_bytes and mended.findings == ()


@everywhere
def test_weights_that_are_gathered_for_heads_that_are_thrown_away(on):
    """On v5e the gathers are asynchronous, in parts that the compiler fuses with the products beside them."""
    (finding,) = model("attention", True, on).findings
    assert (finding.kind, finding.count) == (GATHERED, 2)
    assert set(finding.statement.splitlines()) == {"keep wk[I, J_Y, K]", "keep wv[I, J_Y, K]"}


@pytest.mark.exhaustive
@everywhere
def test_tokens_that_are_gathered_where_heads_are_wanted(on):
    findings = model("attention_by_tokens", True, on).findings
    assert [(finding.kind, finding.count) for finding in findings] == [(GATHERED, 2), (PLANNED, 1)]
    assert set(findings[0].statement.splitlines()) == {
        "k[I_X, J_Y, K, L] → k[I_X, J, K_Y, L]",
        "v[I_X, J_Y, K, L] → v[I_X, J, K_Y, L]",
    }
    mended = model("attention_by_tokens", False, on)
    assert findings[1].wire_bytes - findings[0].saved_bytes == mended.wire_bytes


def test_in_a_loop_it_is_counted_as_often_as_it_runs():
    found = model("layers", True, "v5e:4x4")
    assert [(finding.kind, finding.wire_bytes) for finding in found.findings] == [
        (SUMMED, sum(row.wire_bytes for row in found.collectives if row.kind == "AllReduce"))
    ]


def test_nothing_is_found_in_what_shardc_plans():
    text = "In[B_X, D] · Win[D, F_Y] → T[B_X, F_Y]; Out[B_X, D_Y] = relu(T) ·_F Wout[F_Y, D]"
    dims = {"B": 2048, "D": 2048, "F": 4096}
    plan = shardc.plan(text, mesh={"X": 2, "Y": 4}, dims=dims, dtype="bf16", topology="v5p:2x2x2")
    mesh = slice_mesh(Mesh.of({"X": 2, "Y": 4}), "v5p:2x2x2")
    specs = (("X", None), (None, "Y"), ("Y", None))
    shapes = ((2048, 2048), (2048, 4096), (4096, 2048))
    args = [models.argument(mesh, shape, *spec) for shape, spec in zip(shapes, specs, strict=True)]
    found = explained(plan.compile(), *args, on="v5p:2x2x2")
    assert found.findings == () and found.wire_bytes == plan.cost.wire_bytes


@pytest.mark.exhaustive
def test_what_a_cheaper_plan_is_said_to_take_is_what_plan_says_of_it():
    """Bytes and time, on the slice, by the objective that the remedy names."""
    draw, found = random.Random(1), 0
    while found < 4:
        on = draw.choice(list(SLICES))
        sizes = {"mesh": dict(zip("XY", SLICES[on], strict=True)), "dtype": "bf16", "topology": on}
        a, b, c = (random_axes(draw) for _ in range(3))
        args = [models.argument(abstract(on), shape, *axes) for shape, axes in (((2048, 4096), a), ((4096, 1024), b))]
        result = jax.NamedSharding(abstract(on), P(*c))
        compiled = jax.jit(lambda a, b, result=result: jax.lax.with_sharding_constraint(a @ b, result))
        for finding in explained(compiled, *args, on=on).findings:
            if finding.kind == PLANNED:
                found += 1
                dims = {"I": 2048, "J": 1024, "K": 4096}  # named in order of first use: the result's, then the sum's
                again = shardc.plan(finding.statement, dims=dims, **sizes, objective=objective_named(finding))
                said = (finding.better_bytes, finding.better_s)
                assert said == (again.cost.wire_bytes, again.cost.communication_s), (on, a, b, c)


def objective_named(finding):
    """Of `shardc.plan with objective="bytes" shows the steps`: bytes."""
    return finding.remedy.split('"')[1]


def random_axes(draw):
    """Of two dims: each axis on one of them, or on none."""
    axes = ((), ())
    for axis in "XY":
        at = draw.randrange(4)
        axes = tuple((*on, axis) if at == dim else on for dim, on in enumerate(axes))
    return axes


# --- drawn steps


def laws_hold(step, on):
    """Every byte is judged or said not to be; what is planted is found, unless the compiler has mended it."""
    function, *args = step.made(abstract(on))
    mesh = mesh_of(args)
    lowered = lower(function, args, slice_mesh(mesh, on))
    said = explanation_of(lowered, link_model(mesh, on))
    total = sum(one.total_bytes for one in collectives(lowered.text, mesh))
    assert said.judged_bytes + sum(left.wire_bytes for left in said.not_judged) == total == said.wire_bytes
    assert said.not_judged == (), str(said)
    is_mended = step.wasteful and {row.kind for row in said.collectives} <= {"ReduceScatter", "AllToAll"}
    assert sum(finding.count for finding in said.findings) == (0 if is_mended else step.planted), str(said)
    assert len(said.findings) == (step.wasteful and not is_mended)


@pytest.mark.parametrize("kind", sorted(steps.KINDS))
def test_all_bytes_of_every_kind_are_judged(kind):
    laws_hold(steps.Step(kind, (8, 16, 24), ("X", "Y"), 3, False), "v5p:2x2x2")


@pytest.mark.parametrize("kind", sorted(steps.PLANTED))
def test_waste_of_every_kind_is_found(kind):
    laws_hold(steps.Step(kind, (8, 16, 24), ("X", "Y"), 3, True), "v5p:2x2x2")


def test_of_larger_arrays_of_one_cause_there_is_one_finding():
    """The compiler gathers some of them as [1, 12, 16], of which it is not seen that they are arguments."""
    laws_hold(steps.Step("gathered_trees", (16, 32, 48), ("X",), 3, True), "v5p:2x2x2")


@pytest.mark.exhaustive
@everywhere
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(step=steps.steps(True) | steps.steps(False))
def test_every_byte_is_judged_or_said_not_to_be(on, step):
    too_many = on == "v5e:4x4" and step.axes == steps.ALL  # sixteen chips do not divide the widths
    laws_hold(replace(step, axes=("X",)) if too_many else step, on)


def test_a_step_s_gradients_travel_together():
    """The compiler sums them in one AllReduce, of which each array is told of, with its own line."""
    function, *args = steps.Step("data_parallel", (8, 16, 24), ("X",), 1, False).made(abstract("v5p:2x2x2"))
    (row,) = explained(function, *args, on="v5p:2x2x2").collectives
    assert row.kind == "AllReduce" and len(row.arrays) == 4
    assert sorted(array.shape for array in row.arrays) == ["f32[16,24]", "f32[16]", "f32[24]", "f32[8,16]"]
    assert {Path(array.source).name.partition(":")[0] for array in row.arrays} == {"steps.py"}


def test_shardings_inside_that_name_other_devices_are_a_coded_error():
    inside = jax.NamedSharding(jax.make_mesh((1, 1), ("X", "Y")), P("X", None))
    x = models.argument(abstract("v5p:2x2x2"), (8, 8), "X", None, dtype=jnp.float32)
    with pytest.raises(shardc.ShardcError) as error:
        explained(lambda x: jax.lax.with_sharding_constraint(x, inside), x, on="v5p:2x2x2")
    assert error.value.code == "SHC308"

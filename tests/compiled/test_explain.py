"""Existing jitted functions, explained: the waste planted in models is found, and nothing else."""

import json
import os
import random
import subprocess
import sys
import textwrap
from dataclasses import replace
from importlib import util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P

import shardc
from shardc.compiled.explain.explain import explanation_of
from shardc.compiled.explain.findings import GATHERED, PLANNED, REMATERIALIZED, SUMMED, TWICE
from shardc.compiled.explain.notated import Unsaid
from shardc.compiled.explain.wish import program_of
from shardc.cost import CHIPS, LinkModel
from shardc.emit.call.placing import make_mesh, spec_of
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding, spell
from shardc.machines.jitted import lower, mesh_of
from shardc.machines.named import load_target

sys.path.insert(0, str(Path(__file__).parent))
from combined import Combined, Moved

pytestmark = pytest.mark.devices

TWO = Mesh.of({"X": 2, "Y": 4})
THREE = Mesh.of({"X": 2, "Y": 2, "Z": 2})


def load_models():
    spec = util.spec_from_file_location("models", Path(__file__).with_name("models.py"))
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


models = load_models()


def mesh_of_kind(mesh=TWO, explicit=False):
    kind = jax.sharding.AxisType.Explicit if explicit else jax.sharding.AxisType.Auto
    return jax.make_mesh(mesh.sizes, mesh.names, axis_types=(kind,) * len(mesh.names))


def explained(function, *args):
    return explanation_of(lower(function, args), LinkModel.of(mesh_of(args), CHIPS["v5p"]))


def model(name, wasteful):
    return explained(*getattr(models, name)(mesh_of_kind(), wasteful))


def line(text):
    """Where a line of the models stands."""
    lines = Path(__file__).with_name("models.py").read_text().splitlines()
    return f"models.py:{next(number for number, found in enumerate(lines, start=1) if text in found)}"


def places(finding):
    return {Path(where).name for where in finding.where}


# --- models


@pytest.mark.parametrize("name", ["mlp", "reshard", "attention", "attention_by_tokens", "layers"])
def test_nothing_is_found_where_nothing_is_planted(name):
    found = model(name, wasteful=False)
    assert found.findings == ()
    assert "nothing wasteful found" in str(found)
    assert sum("compiled for the CPU" in note for note in found.notes) == bool(found.collectives)


def test_a_sum_on_every_device_is_found_in_an_mlp():
    (finding,) = model("mlp", wasteful=True).findings
    assert (finding.kind, finding.statement) == (SUMMED, "C[I, J]{U_Y} → C[I, J_Y]")
    assert finding.better_bytes * 2 == finding.wire_bytes
    assert line("relu(x @ w1) @ w2") in places(finding)


def test_a_full_rematerialization_is_found():
    found = model("reshard", wasteful=True)
    (finding,) = found.findings
    assert (finding.kind, finding.statement) == (REMATERIALIZED, "A[I_Y, J, K_X] → A[I, J_XY, K]")
    assert finding.bound_bytes == 64 * 256 * 256 * 4 * 7 // 64  # f32 on the CPU
    assert line("return jnp.tanh(constrain(h, target))") in places(finding)
    assert not any("rematerialization" in note for note in found.notes), "the warning says the same"


def test_weights_that_are_gathered_for_heads_that_are_thrown_away():
    """One line asks for both, so they are one finding, which names the change of each."""
    (finding,) = model("attention", wasteful=True).findings
    assert (finding.kind, finding.count) == (GATHERED, 2)
    assert set(finding.statement.splitlines()) == {"keep wk[I, J_Y, K]", "keep wv[I, J_Y, K]"}
    assert finding.better_bytes == finding.bound_bytes == 0 < finding.wire_bytes
    assert line('q, k, v = (constrain(array, P("X", None, "Y", None))') in places(finding)


def test_tokens_that_are_gathered_where_heads_are_wanted():
    (finding,) = (f for f in model("attention_by_tokens", wasteful=True).findings if f.kind != PLANNED)
    assert finding.count == 2 and set(finding.statement.splitlines()) == {
        "k[I_X, J_Y, K, L] → k[I_X, J, K_Y, L]",
        "v[I_X, J_Y, K, L] → v[I_X, J, K_Y, L]",
    }
    assert finding.better_bytes == finding.bound_bytes == finding.wire_bytes // 4


def test_in_a_loop_it_is_counted_as_often_as_it_runs():
    found = model("layers", wasteful=True)
    assert [(finding.kind, finding.wire_bytes) for finding in found.findings] == [
        (SUMMED, sum(row.wire_bytes for row in found.collectives if row.kind == "AllReduce"))
    ]
    assert all(row.count == 5 for row in found.collectives)


def test_weights_that_are_gathered_again_on_purpose():
    """With jax.checkpoint the backward pass gathers again what it does not keep: asked for, so no finding."""
    mesh = mesh_of_kind()

    @jax.checkpoint
    def layer(x, w):
        return jnp.sin(x @ constrain(w, P(None, None)))

    def loss(w, x):
        return (layer(layer(x, w), w) ** 2).sum()

    constrain = jax.lax.with_sharding_constraint
    w = models.argument(mesh, (512, 512), "Y", None, dtype=jnp.float32)
    x = models.argument(mesh, (4096, 512), ("X", "Y"), None, dtype=jnp.float32)
    assert TWICE not in {finding.kind for finding in explained(jax.jit(jax.grad(loss)), w, x).findings}


# --- what is judged


def test_what_is_lost_sight_of_is_judged_with_the_whole_function():
    """The notation says the function, whose plan moves as much: so no byte of it is too many."""
    mesh = mesh_of_kind()
    x = models.argument(mesh, (64, 8), "Y", None, dtype=jnp.float32)
    lies = jax.NamedSharding(mesh, P(None, None))
    lost = Combined("all-gather", "plain", (Moved(16, 8, "lost"),)).text()
    model = LinkModel.of(mesh_of((x,)), CHIPS["v5p"])
    for function, judged in ((jnp.tanh, 3 * 16 * 8 * 4), (jnp.sin, 0)):  # of which the notation has one
        lowered = replace(lower(jax.jit(function, out_shardings=lies), (x,)), text=lost)
        found = explanation_of(lowered, model)
        assert (found.judged_bytes, found.wire_bytes, found.findings) == (judged, 3 * 16 * 8 * 4, ())
        assert [left.why for left in found.not_judged] == ["goes into custom-call `odd`"] * (not judged)


# --- laws


def sharding(draw, mesh, rank):
    dims = [[] for _ in range(rank)]
    for axis in draw.sample(mesh.names, len(mesh.names)):
        place = draw.randrange(-1, rank)
        if place >= 0:
            dims[place].append(axis)
    return Sharding.of(dims)


def resharding(before, after, mesh, shape):
    lies = jax.NamedSharding(mesh, spec_of(after))
    argument = models.argument(mesh, shape, *spec_of(before), dtype=jnp.float32)
    return jax.jit(lambda x: x + 1, out_shardings=lies), argument


def wasteful_reshards(count):
    """Random reshards of which XLA makes a waste, with what is said of it."""
    draw, mesh, shape = random.Random(7), mesh_of_kind(THREE), (1024, 512, 256)
    while count:
        function, argument = resharding(sharding(draw, THREE, 3), sharding(draw, THREE, 3), mesh, shape)
        found = explained(function, argument)
        if found.findings:
            count -= 1
            yield mesh, argument, found


@pytest.mark.exhaustive
def test_the_remedy_of_a_reshard_does_what_is_promised():
    seen = set()
    for mesh, argument, found in wasteful_reshards(3):
        finding = found.findings[0]
        seen.add(finding.kind)
        text = finding.statement
        if finding.kind == PLANNED:
            result, _, operand = text.partition(" = ")
            text = f"{operand} → {result}"
        with jax.set_mesh(mesh):
            mended = explained(jax.jit(lambda x, text=text: shardc.einsum(text, x)), argument)
        assert mended.wire_bytes == finding.better_bytes < finding.wire_bytes, text
        assert mended.findings == (), text
        assert finding.bound_bytes <= finding.better_bytes
    assert REMATERIALIZED in seen


def random_product(draw):
    dims = {"A": "IJ", "B": "JK", "C": "IK"}
    parts = {name: name + spell(tuple(both), sharding(draw, THREE, 2)) for name, both in dims.items()}
    return "{A} · {B} → {C}".format(**parts)


def test_nothing_is_found_in_what_shardc_plans():
    draw, mesh = random.Random(11), make_mesh(THREE)
    for _ in range(10):
        text = random_product(draw)
        plan = shardc.plan(text, mesh=mesh, dims={"I": 1024, "J": 2048, "K": 512}, dtype="f32", chip="v5p")
        arrays = [plan.schedule.values[number] for number in plan.schedule.inputs]
        args = [models.argument(mesh, a.shape, *spec_of(a.sharding), dtype=jnp.float32) for a in arrays]
        assert explained(plan.compile(), *args).findings == (), text


def test_the_statement_of_a_cheaper_plan_can_be_planned():
    draw, mesh, found = random.Random(3), mesh_of_kind(THREE), 0
    while found < 5:
        text = random_product(draw)
        plan = shardc.plan(text, mesh=mesh, dims={"I": 1024, "J": 2048, "K": 512}, dtype="f32", chip="v5p")
        a, b = (plan.schedule.values[number] for number in plan.schedule.inputs)
        args = [models.argument(mesh, x.shape, *spec_of(x.sharding), dtype=jnp.float32) for x in (a, b)]
        lies = jax.NamedSharding(mesh, spec_of(plan.schedule.values[plan.schedule.outputs[0]].sharding))
        for finding in explained(jax.jit(jnp.matmul, out_shardings=lies), *args).findings:
            if finding.kind == PLANNED:
                found += 1
                dims = {"I": 1024, "J": 512, "K": 2048}  # named in order of first use: the result's, then the sum's
                named = finding.remedy.split('"')[1]  # shardc.plan with objective="bytes" …
                again = shardc.plan(finding.statement, mesh=mesh, dims=dims, dtype="f32", chip="v5p", objective=named)
                assert again.cost.wire_bytes == finding.better_bytes <= plan.cost.wire_bytes


# --- the function as a program of the notation


def program(function, *args):
    lowered = lower(jax.jit(function), args)
    found = program_of(lowered.jaxpr.jaxpr, lowered.inputs, lowered.outputs, LinkModel.of(lowered.mesh, CHIPS["v5p"]))
    return [statement.text for statement in found.statements]


def test_a_function_is_read_as_statements():
    mesh = mesh_of_kind()
    x, w = (models.argument(mesh, shape, "X", "Y", dtype=jnp.float32) for shape in ((8, 16), (16, 32)))
    assert program(lambda x, w: jax.nn.relu(jnp.tanh(x) @ w).T, x, w)[0].endswith(
        "relu(tanh(x[J_X, K_Y]) ·_K w[K_X, I_Y])"
    )
    assert program(lambda x: jax.nn.softmax(x / 3, axis=1), x)[0].endswith("= softmax_{J}(x[I_X, J_Y])")
    assert program(lambda x: jnp.sum(x * x, axis=0), x)[0].endswith("= sum_{J}(square(x[J_X, I_Y]))")


def test_what_is_used_twice_has_a_name():
    mesh = mesh_of_kind()
    x, w = (models.argument(mesh, (16, 16), "X", "Y", dtype=jnp.float32) for _ in range(2))

    def function(x, w):
        y = x @ w
        return jnp.tanh(y) - jnp.exp(y)

    texts = program(function, x, w)
    assert texts[0] == "T0[I_?, J_?] = x[I_X, K_Y] ·_K w[K_X, J_Y]" and texts[1].endswith("= tanh(T0) - exp(T0)")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.cumsum(x, axis=0),
        lambda x: x.reshape(-1),
        lambda x: x @ x.T @ x,  # a dim twice in one array
        lambda x: jnp.sin(x),
        lambda x: x**3,
        lambda x: x + 1.5,
        lambda x: jnp.maximum(x, 2),
        lambda x: jnp.zeros_like(x),
    ],
)
def test_what_the_notation_has_no_word_for(function):
    mesh = mesh_of_kind()
    with pytest.raises(Unsaid):
        program(function, models.argument(mesh, (16, 16), "X", None, dtype=jnp.float32))


# --- what is lowered


def test_collectives_memory_and_places_of_a_function():
    mesh = mesh_of_kind()
    x = models.argument(mesh, (64, 32), None, "Y", dtype=jnp.float32)
    function = jax.jit(lambda x: x * 2, out_shardings=jax.NamedSharding(mesh, P()))
    found = explained(function, x)
    (row,) = found.collectives
    assert (row.label, row.count, row.wire_bytes, row.is_async) == ("AllGather_Y", 1, 3 * 64 * 8 * 4, False)
    assert Path(row.source.rpartition(":")[0]).name == "test_explain.py"
    memory = function.lower(x).compile().memory_analysis()
    assert found.memory.argument_bytes == memory.argument_size_in_bytes == 64 * 8 * 4
    assert found.to_json()["totals"][0]["axes"] == ("Y",)


def test_arrays_and_plain_functions_will_do_and_arguments_may_be_a_tree():
    mesh = mesh_of_kind()
    w = jax.device_put(jnp.ones((16, 16)), jax.NamedSharding(mesh, P("Y", None)))
    found = explained(lambda params, unused, n: params["layer"]["w"].sum() * n, {"layer": {"w": w}}, w, 3.0)
    assert [row.label for row in found.collectives] == ["AllReduce_Y"]


def test_unused_arguments_do_not_shift_the_others():
    mesh = mesh_of_kind()
    x = models.argument(mesh, (512, 512), "X", None, dtype=jnp.float32)
    y = models.argument(mesh, (512, 512), ("Y", "X"), None, dtype=jnp.float32)
    lies = jax.NamedSharding(mesh, P(None, "Y"))
    finding = explained(jax.jit(lambda x, y: y + 1, out_shardings=lies), x, y).findings[0]
    assert finding.statement.startswith("y[I_YX, J]")


def test_with_explicit_axes_the_remedy_is_a_reshard():
    mesh = mesh_of_kind(explicit=True)
    x = models.argument(mesh, (64, 256, 256), "Y", None, "X", dtype=jnp.float32)
    (finding,) = explained(jax.jit(lambda x: jax.reshard(x, P(None, ("X", "Y"), None))), x).findings
    assert finding.remedy == 'x = shardc.reshard(x, jax.P(None, ("X", "Y"), None))'
    mended = explained(jax.jit(lambda x: shardc.reshard(x, P(None, ("X", "Y"), None))), x)
    assert mended.wire_bytes == finding.better_bytes and mended.findings == ()


def test_an_abstract_mesh_takes_the_devices_that_there_are():
    mesh = jax.sharding.AbstractMesh((2, 4), ("X", "Y"))
    found = explained(lambda x: x.sum(), models.argument(mesh, (8, 8), "X", None, dtype=jnp.float32))
    assert [row.label for row in found.collectives] == ["AllReduce_X"]
    large = jax.sharding.AbstractMesh((64,), ("X",))
    with pytest.raises(shardc.ShardcError) as error:
        lower(lambda x: x, (models.argument(large, (64,), "X"),))
    assert error.value.code == "SHC301"


def raises(code, words, function, *args, onto=None):
    with pytest.raises(shardc.ShardcError) as error:
        lower(function, args, onto)
    assert error.value.code == code and words in error.value.message, error.value
    return error.value


def test_what_cannot_be_lowered_is_a_coded_error():
    mesh, other = mesh_of_kind(), mesh_of_kind(THREE)
    x = models.argument(mesh, (8, 8), "X", None)
    raises("SHC306", "no argument has a NamedSharding", lambda x: x, np.ones(3))
    raises("SHC306", "different meshes", lambda x, y: x, x, models.argument(other, (8, 8), "X", None))
    error = raises("SHC308", "ZeroDivisionError", lambda x: 1 // 0, x)
    assert "test_explain.py:" in error.message and isinstance(error.__cause__, ZeroDivisionError)
    raises("SHC308", "TypeError", lambda x, y: x, x)
    raises("SHC308", "", jax.jit(lambda x: x, out_shardings=jax.NamedSharding(mesh, P(None, None, "X"))), x)


def test_shardings_inside_that_name_other_devices():
    mesh = mesh_of_kind()
    turned = jax.sharding.Mesh(mesh.devices[::-1, ::-1], mesh.axis_names)
    x = models.argument(mesh, (8, 8), "X", None)
    inside = jax.NamedSharding(mesh, P("Y", None))
    error = raises("SHC308", "", lambda x: jax.lax.with_sharding_constraint(x, inside), x, onto=turned)
    assert "jax.P" in error.help
    free = lower(lambda x: jax.lax.with_sharding_constraint(x, P("Y", None)), (x,), turned)
    assert free.mesh == TWO


def added(x, y):
    return x.sum(0) + y


def calling(x, y):
    return jax.jit(added)(x, y) * 2


def jitted_with(lies, other):
    """Functions of two arrays that are jitted with named shardings: the rows' and the columns'."""
    options = {"xla_cpu_enable_fast_math": True}
    return {
        "out": jax.jit(added, out_shardings=lies),
        "out, some free": jax.jit(lambda x, y: {"a": x * 2, "b": (y, x)}, out_shardings={"a": other, "b": None}),
        "in": jax.jit(added, in_shardings=(other, lies)),
        "in and out": jax.jit(added, in_shardings=(other, lies), out_shardings=lies, donate_argnums=1),
        "out, of what it calls": jax.jit(calling, out_shardings=lies),
        "out, and a constant": jax.jit(lambda x, y, times: x.sum(0) * times, out_shardings=lies, static_argnums=2),
        "out, with options": jax.jit(added, out_shardings=lies, keep_unused=True, compiler_options=options),
    }


@pytest.mark.instant
@pytest.mark.parametrize("name", jitted_with(None, None))
@pytest.mark.parametrize("explicit", [False, True])
def test_what_jit_was_given_lies_on_the_devices_that_are_asked_for(name, explicit):
    """`jax.jit(…, out_shardings=NamedSharding(mesh, …))` names devices that are not those of a slice."""
    mesh = mesh_of_kind(explicit=explicit)
    turned = jax.sharding.Mesh(mesh.devices[::-1, ::-1], mesh.axis_names)
    lies, other = jax.NamedSharding(mesh, P("X")), jax.NamedSharding(mesh, P("Y", None))
    function = jitted_with(lies, other)[name]
    args = tuple(
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
        for shape, sharding in (((8, 8), other), ((8,), lies))
    )
    args = (*args, 3) if "constant" in name else args
    here, there = lower(function, args), lower(function, args, turned)
    assert there.outputs == here.outputs and there.inputs == here.inputs and there.mesh == here.mesh
    assert there.text == here.text


def test_what_jit_was_given_on_a_mesh_of_other_axes_is_a_coded_error_that_says_what_to_write():
    mesh = mesh_of_kind()
    turned = jax.sharding.Mesh(mesh.devices[::-1, ::-1], mesh.axis_names)
    flat = jax.NamedSharding(jax.sharding.Mesh(mesh.devices.reshape(8), ("Z",)), P("Z"))
    x = models.argument(mesh, (8, 8), "X", None)
    error = raises("SHC308", "", jax.jit(lambda x: x, out_shardings=flat), x, onto=turned)
    assert "jax.P" in error.help and "out_shardings" in error.help


def test_what_a_function_prints_on_the_way_is_passed_on(capfd):
    def chatty(x):
        print("hello", file=sys.stderr)
        return x

    explained(chatty, models.argument(mesh_of_kind(), (8, 8), "X", None))
    assert "hello" in capfd.readouterr().err
    model("reshard", wasteful=True)
    assert "rematerialization" not in capfd.readouterr().err


# --- module:function

TARGETS = """
import jax, jax.numpy as jnp
from jax import P

mesh = jax.make_mesh((2, 4), ("X", "Y"))
x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=jax.NamedSharding(mesh, P("X", None)))

def made():
    return jax.jit(lambda x: x.sum()), x

@jax.jit
def step(x):
    return x.sum()

step.args = (x,)

@jax.jit
def late(x):
    return x.sum()

late.args = lambda: [x]

@jax.jit
def bare(x):
    return x

def takes(x, y=1):
    return step, x

def fails():
    return made.missing

def leaves():
    raise SystemExit(3)

number = 3
class Inside:
    @staticmethod
    def made():
        return made()
def wrong():
    return 3
def empty():
    return ()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "targets_of_test.py").write_text(TARGETS)
    (tmp_path / "broken_of_test.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "unreadable_of_test.py").write_text("def f(:\n")
    (tmp_path / "leaving_of_test.py").write_text("raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.endswith("_of_test")]:
        del sys.modules[name]


@pytest.mark.parametrize("place", ["targets_of_test", "targets_of_test.py", "./targets_of_test.py"])
@pytest.mark.parametrize("name", ["made", "step", "late", "Inside.made"])
def test_a_named_function_is_loaded(folder, name, place):
    function, args = load_target(f"{place}:{name}")
    assert [row.label for row in explained(function, *args).collectives] == ["AllReduce_X"]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("targets_of_test", "SHC001", "malformed target"),
        ("targets_of_test:made()", "SHC001", "malformed target"),
        ("a/b.py:made", "SHC507", "no file `a/b.py`"),
        (".py:made", "SHC001", "malformed target"),
        ("broken_of_test.py:made", "SHC507", "raised ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("targets_of_test.py:mode", "SHC507", "has no `mode`"),
        ("", "SHC001", "malformed target"),
        ("no_such_module:made", "SHC507", "no module `no_such_module`"),
        ("targets_of_test.inner:made", "SHC507", "no module"),
        ("broken_of_test:made", "SHC507", "raised ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("unreadable_of_test:made", "SHC507", "raised SyntaxError"),
        ("leaving_of_test:made", "SHC507", "raised SystemExit"),
        ("targets_of_test:mode", "SHC507", "has no `mode`"),
        ("targets_of_test:bare", "SHC507", "no arguments to explain it for"),
        ("targets_of_test:takes", "SHC507", "takes arguments: x"),
        ("targets_of_test:fails", "SHC507", "raised AttributeError"),
        ("targets_of_test:leaves", "SHC507", "raised SystemExit"),
        ("targets_of_test:number", "SHC507", "is a int, not a function"),
        ("targets_of_test:wrong", "SHC507", "returned a int"),
        ("targets_of_test:empty", "SHC507", "returned a tuple"),
    ],
)
def test_what_cannot_be_loaded_is_a_coded_error(folder, text, code, words):
    with pytest.raises(shardc.ShardcError) as error:
        load_target(text)
    assert error.value.code == code and words in error.value.message, error.value
    assert error.value.help and "Traceback" not in error.value.render()


def test_a_file_in_a_package_finds_its_neighbours(tmp_path, monkeypatch):
    inner = tmp_path / "package_of_test" / "inner"
    inner.mkdir(parents=True)
    for each in (inner, inner.parent):
        (each / "__init__.py").touch()
    (inner.parent / "near.py").write_text(TARGETS)
    (inner / "far.py").write_text("from ..near import made\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    function, args = load_target(f"{inner}/far.py:made")
    assert [row.label for row in explained(function, *args).collectives] == ["AllReduce_X"]
    for name in [name for name in sys.modules if name.startswith("package_of_test")]:
        del sys.modules[name]


MESHES = {
    'jax.make_mesh((4, 4), ("X", "Y"))': 16,
    'jax.sharding.Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("X", "Y"))': 6,
    'jax.sharding.AbstractMesh((5, 2), ("X", "Y"))': 10,
    'jax.make_mesh((jax.device_count(),), ("X",))': 8,
    'jax.make_mesh((jax.device_count() // 2, 2), ("X", "Y"))': 8,
}
STEP = """
import jax, numpy as np, jax.numpy as jnp
mesh = {mesh}
x = jax.ShapeDtypeStruct((240, 8), jnp.float32, sharding=jax.NamedSharding(mesh, jax.P("X")))

def step():
    return jax.jit(lambda x: x.sum(0)), x
"""


def command(*arguments, folder, platforms="cpu"):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": platforms}
    environment.pop("XLA_FLAGS", None)
    words = [sys.executable, "-m", "shardc", "explain", *arguments]
    return subprocess.run(words, capture_output=True, text=True, env=environment, cwd=folder, timeout=300)


@pytest.mark.parametrize(
    "mesh", [next(iter(MESHES)), *(pytest.param(m, marks=pytest.mark.exhaustive) for m in list(MESHES)[1:])]
)
def test_the_command_starts_the_devices_that_the_mesh_needs(mesh, tmp_path):
    (tmp_path / "model.py").write_text(STEP.format(mesh=mesh))
    found = command("model.py:step", "--json", folder=tmp_path, platforms="")
    assert found.returncode == 0, found.stderr
    assert "libtpu" not in found.stderr, "where the TPU's compiler is installed and no TPU is there"
    fields = json.loads(found.stdout)
    assert np.prod(list(fields["mesh"].values())) == MESHES[mesh]
    assert fields["judged"]["wire_bytes"] == fields["cost"]["wire_bytes"] > 0


@pytest.mark.exhaustive
def test_the_command_starts_as_many_devices_as_it_is_told(tmp_path):
    (tmp_path / "model.py").write_text(STEP.format(mesh='jax.make_mesh((jax.device_count(),), ("X",))'))
    assert json.loads(command("model.py:step", "--json", "--devices", "6", folder=tmp_path).stdout)["mesh"] == {"X": 6}
    (tmp_path / "model.py").write_text(STEP.format(mesh='jax.make_mesh((4, 4), ("X", "Y"))'))
    found = command("model.py:step", "--devices", "4", folder=tmp_path)
    assert found.returncode == 7 and "SHC507" in found.stderr and "(4, 4)" in found.stderr


@pytest.mark.exhaustive
def test_errors_are_those_of_the_function(tmp_path):
    """Not those of trying it on other devices."""
    (tmp_path / "model.py").write_text(STEP.format(mesh='jax.make_mesh((4, 4), ("X", "Y"))') + "\n1 // 0\n")
    found = command("model.py:step", folder=tmp_path)
    assert found.returncode == 7 and "ZeroDivisionError" in found.stderr and "Traceback" not in found.stderr
    (tmp_path / "model.py").write_text(STEP.format(mesh='jax.make_mesh((64, 64), ("X", "Y"))'))
    found = command("model.py:step", folder=tmp_path)
    assert found.returncode == 6 and "SHC409" in found.stderr


def test_an_error_in_a_named_function_tells_the_line(folder):
    with pytest.raises(shardc.ShardcError) as error:
        load_target("targets_of_test:fails")
    number = next(n for n, text in enumerate(TARGETS.splitlines(), start=1) if "made.missing" in text)
    assert f"(targets_of_test.py:{number})" in error.value.message
    assert textwrap.dedent(error.value.help)


def test_the_line_is_the_user_s_and_not_a_library_s(tmp_path, monkeypatch):
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "layers_of_test.py").write_text("def dense(x, w):\n    return x @ w\n")
    monkeypatch.syspath_prepend(str(library))
    from layers_of_test import dense

    def function(x, w):
        return dense(x, w)

    mesh = mesh_of_kind()
    x, w = (models.argument(mesh, (64, 64), *spec, dtype=jnp.float32) for spec in ((None, "Y"), ("Y", None)))
    (row,) = explained(function, x, w).collectives
    assert row.label == "AllReduce_Y"
    assert row.source == f"{__file__}:{function.__code__.co_firstlineno + 1}"
    del sys.modules["layers_of_test"]

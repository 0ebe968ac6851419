"""What is planned is proved; and what is planted in plans, forms and texts is refused, by values alone."""

from __future__ import annotations

import ast
import copy
import io
import json
import math
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings

import shardc
from shardc.cli import _status
from shardc.emit import source
from shardc.emit.steps import calls
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES
from shardc.ir.functions import FUNCTIONS, Function
from shardc.ir.plan import How
from shardc.lowering.forms import Gathered, Scattered
from shardc.lowering.lower import lower
from shardc.lowering.together import candidates
from shardc.proving import UNASKED, Verdict, prove
from shardc.proving.functions import applied
from shardc.proving.meaning import drawn as symbols
from shardc.proving.reduced import reduced
from shardc.proving.tensors import Tensor
from shardc.testing import backward_programs, loops, matmuls, mixed_programs, partial_programs, programs, reshards

SETTINGS = settings(
    max_examples=8, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
ROOT = Path(__file__).parents[2]
DRAWN = [matmuls(), programs(), reshards(), partial_programs(), loops(), backward_programs(), mixed_programs()]


def planned(text, mesh, **options):
    return shardc.plan(text, mesh=mesh, **{"dtype": "bf16", "objective": "bytes"} | options)


def drawn(case):
    found = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="f32", objective="bytes").prove()
    assert found.holds, found


@pytest.mark.parametrize("strategy", DRAWN, ids=str)
def test_what_is_drawn_is_proved(strategy):
    SETTINGS(given(strategy)(drawn))()


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", DRAWN, ids=str)
def test_much_that_is_drawn_is_proved(strategy):
    settings(SETTINGS, max_examples=40)(given(strategy)(drawn))()


def test_helpers_of_a_module_are_on_the_mesh_that_calls_them():
    """`largest` is called where X is seen as X0·X1."""
    text = "T[I_?, K_?] = A[I, J_X] · B[J, K_X]; Out[I] = max_K(T)"
    found = planned(text, "X=4", dims={"I": 2, "J": 8, "K": 4}, dtype="f32")
    assert "X0" in found.source() and "largest(Out" in found.source() and found.prove().holds


def examples():
    """Each example; that of thirty-two layers takes long to plan."""
    for path in sorted(ROOT.glob("examples/*.shard")):
        yield pytest.param(path, id=path.name, marks=pytest.mark.exhaustive if path.name == "llama.shard" else ())


@pytest.mark.parametrize("path", list(examples()))
def test_every_example_is_proved(path, plan_of):
    assert plan_of(path).prove().holds


def test_a_backward_program_is_proved():
    forward = shardc.parse("T[B_X, F_Y] = In[B_X, D] · W[D, F_Y]; Out[B_X, D] = relu(T) · V[F_Y, D]", mesh="X=2,Y=2")
    for whole in (False, True):
        assert shardc.plan(shardc.grad(forward, whole=whole)).prove().holds


# --- what is small keeps every pattern

FORMS = {  # of each form a program that has it, on a mesh
    "a slice and a sum": ("A[I, J_X] · B[J_X, K] → C[I_X, K]", {"X": 2, "Y": 2}),
    "two exchanges": ("A[I, J_X] · B[J, K] → C[I, K_X]", {"X": 4}),
    "a permute": ("A[I_XY, J] → A[I_YX, J]", {"X": 2, "Y": 4}),
    "pieces in turns": ("A[I_X, J_Y] → A[I_YX, J]", {"X": 2, "Y": 2}),
    "a gather of two dims": ("A[I_X, J_Y] → A[I, J]", {"X": 2, "Y": 4}),
    "pieces to the front": ("A[I_YX, J] → A[I, J_XY]", {"X": 2, "Y": 4}),
    "other axes": ("A[I_X] → A[I_Y]", {"X": 2, "Y": 3}),
    "pieces of unequal sizes": ("A[I_X, J_Y] → A[I_Y, J_X]", {"X": 2, "Y": 3}),
    "partial sums": ("A[I, J]{U_X} → A[I, J_X]", {"X": 4}),
    "partial sums that stay": ("A[I, J]{U_XY} → A[I, J]{U_Y}", {"X": 2, "Y": 2}),
    "a softmax across devices": ("S[B_X, T_Y] = softmax_T(A[B_X, T_Y])", {"X": 2, "Y": 2}),
    "a minimum across devices": ("S[B] = min_T(A[B, T_Y])", {"Y": 4}),
    "positions": ("A[I] = index_I >= 3; C[I_X] = A", {"X": 2}),
    "a loop the other way round": ("dims L=3\nfor -L { x[B] = exp(x[B] ⊙ W[L, B_X]); S[L, B] = x }", {"X": 2}),
    "a number": ("h[I_X, J] = 0.5; C[I_X, J] = A[I_X, J] ⊙ h", {"X": 2}),
    "partial sums of zeros": ("G[I_?, K_?] = 0; for L { G = G + A[L, I, J_X] · V[J_X, K] }; C[I_X, K] = G", {"X": 2}),
    "a loop": ("for L { x[B_X, D] = relu(x[B_X, D] · W[L, D, E_X] ·_E V[L, E_X, D]) }; return x", {"X": 2}),
}  # fmt: skip


def plan_of(name):
    text, mesh = FORMS[name]
    return planned(text, mesh, dims={"L": 5} if "for L" in text else None)


@pytest.mark.instant
@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_proved_in_small(name):
    plan = plan_of(name)
    small = reduced(plan.schedule, lower(plan.schedule))
    assert plan.prove().holds
    assert max(small.sizes.values()) <= 32 and small.work < UNASKED / 10


@pytest.mark.parametrize("name", ["two products", "a softmax", "a loop"])
def test_products_with_their_collectives_as_one_are_proved(name):
    """Rings, and what is left to the partitioner, whole programs too; a bug in an einsum is seen there."""
    text = {
        "two products": "H[B_Y, F_X] = In[B_Y, D_X] · V[D_Y, F_X]; G = gelu(H); Out[B_Y, D_X] = G · W[F_X, D_Y]",
        "a softmax": "S[B_Y, T] = softmax_T(In[B_Y, D_X] · W[D_X, T])",
        "a loop": FORMS["a loop"][0],
    }[name]
    plan = planned(text, {"X": 4, "Y": 2}, idle="keep", dims={"L": 3} if "for L" in text else None)
    forms = [replace(ordered, together=(group,)) for ordered, group in candidates(plan.schedule)]
    uncut = plan._found.whole or plan.schedule
    for schedule in (*forms, replace(uncut, by_xla=True)):
        right = source(schedule, "v5e")
        wrong = re.sub(r'"(\w)(\w)(\w*),', r'"\2\1\3,', right, count=1)
        assert wrong != right and prove(schedule, right).holds
        assert prove(schedule, wrong).verdict is Verdict.WRONG


def test_what_is_done_as_one_along_a_digit_is_proved():
    """The small size of B has room for the chunks of its lower digit."""
    plan = shardc.plan(
        "H[B_Y, F_X] = In[B_Y, D_X] · W[D_Y, F_X]",
        mesh="X=2,Y=2,Z=2",
        dims={"B": 4096, "D": 8192, "F": 32768},
        dtype="bf16",
        topology="v5p:2x2x2",
    )
    forms = [replace(ordered, together=(group,)) for ordered, group in candidates(plan.schedule)]
    texts = [source(schedule, "v5p") for schedule in forms]
    assert any("joined" in text and "B1_Z" in text for text in texts)
    assert all(prove(schedule, text).holds for schedule, text in zip(forms, texts, strict=True))


def test_dims_of_one_array_stay_apart_and_renamed_ones_together():
    plan = planned("S[T, R] = x[T, D] · x[R, D]", {"X": 2}, dims={"T": 512, "D": 256})
    sizes = reduced(plan.schedule, lower(plan.schedule)).sizes
    assert sizes["T"] == sizes["R"] != sizes["D"]


def test_a_proof_that_takes_too_long_says_so():
    plan = planned("A[I_X, J] → A[I, J_X]", {"X": 4096}, dims={"I": 8192, "J": 8192})
    found = plan.prove()
    assert found.verdict is Verdict.NOT_PROVED and "134,299,648 steps of work" in str(found)


# --- bugs in the text

SLICED = "A[I, J_X] · B[J_X, K] → C[I_X, K]"
BUGS = {
    "specs swapped": ("A[I_X, J] · B[J, K_X] → C[I_X, K]", 'P("X", None), P(None, "X")', 'P(None, "X"), P("X", None)'),
    "the result's spec": ("A[I_X, J] → A[I, J_X]", 'out_specs=P(None, "X")', 'out_specs=P("X", None)'),
    "types not checked": ("A[I_X, J] → A[I, J_X]", ", out_specs", ", check_vma=False, out_specs"),
    "tiled dropped": ("A[I_X, J] → A[I, J]", "tiled=True", "tiled=False"),
    "the type of a sum dropped": (SLICED, ", preferred_element_type=jnp.float32", ""),
    "the result's type": (SLICED, "jnp.bfloat16", "jnp.float16"),
    "operands swapped": (SLICED, '"ij,jk->ik", A, B', '"ij,jk->ik", B, A'),
    "a stale shape": ("A[I, J] → A[I_X, J]", "A.shape[0] // 2, axis", "2048, axis"),
    "a sum left out": ("A[I, J]{U_X} → A[I, J]", 'jax.lax.psum(A, "X")', "A"),
    "a sum twice": ("A[I, J]{U_X} → A[I, J]", 'jax.lax.psum(A, "X")', 'jax.lax.psum(jax.lax.psum(A, "X"), "X")'),
    "positions of another dim": ("A[I] = index_I >= 3", "arange(4096", "arange(4095"),
    "the other way round": ("dims L=5\nfor -L { x[B] = exp(x[B] ⊙ W[L, B]) }; return x", ", reverse=True", ""),
    "trips left out": ("for L { x[B] = exp(x[B] ⊙ W[L, B]) }; return x", "length=5", "length=4"),
    "a function left out": ("B[I_X] = relu(A[I_X])", "jax.nn.relu(A)", "A"),
    "another function": ("B[I_X] = relu(A[I_X])", "jax.nn.relu(A)", "jax.nn.gelu(A)"),
    "a scale left out": ("B[I_X] = A[I_X] / |I|", "jnp.divide(A, 4096)", "A"),
    "another number": ("B[I_X] = 0; C[I_X] = A[I_X] + B", "2,), 0,", "2,), 1,"),
    "fewer of a number": ("B[I_X] = 0; C[I_X] = A[I_X] + B", "full((4096 // 2,)", "full((4096 // 4,)"),
    "a number over more devices": ("B[I] = 0; C[I] = A[I] + B", "full((4096,)", "full((4096 // 2,)"),
    "another scale": ("B[I_X] = A[I_X] / |I|", "4096", "4095"),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_in_the_text_is_seen(name):
    text, right, wrong = BUGS[name]
    plan = planned(text, {"X": 2}, dims={"L": 5} if "for L" in text else None)
    source = plan.source()
    assert right in source and prove(plan.schedule, source).holds
    assert prove(plan.schedule, source.replace(right, wrong)).verdict is Verdict.WRONG


def reversed_axes(form):
    if not isinstance(form, Gathered):
        return form
    return replace(form, rounds=tuple(replace(each, axes=each.axes[::-1]) for each in form.rounds))


def other_part(form):
    if not isinstance(form, Scattered):
        return form
    return replace(form, stages=tuple(replace(stage, rounds=stage.rounds[::-1]) for stage in form.stages))


def other_dim(form):
    if not isinstance(form, Scattered):
        return form
    return replace(form, stages=tuple(replace(stage, dims=((1, stage.axes),)) for stage in form.stages))


def one_round(form):
    if not isinstance(form, Scattered):
        return form
    return replace(form, stages=tuple(replace(stage, rounds=stage.rounds[:1]) for stage in form.stages))


WHOLE = {"topology": "v5e:4x4", "dims": {"I": 4096, "J": 4096}}
FORMED = {
    "axes of a gather": ("A[I_XY, J] → A[I, J]", {"X": 2, "Y": 4}, {}, reversed_axes),
    "parts of an axis": ("A[I, J]{U_X} → A[I_X, J]", {"X": 16}, WHOLE, other_part),
    "the dim of a scatter": (SLICED, {"X": 2}, {}, other_dim),
    "a round of two": ("A[I, J]{U_XY} → A[I_XY, J]", {"X": 4, "Y": 4}, WHOLE, one_round),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", FORMED)
def test_a_bug_in_a_form_is_seen(name, monkeypatch):
    text, mesh, options, change = FORMED[name]
    plan = planned(text, mesh, **options)
    assert plan.prove().holds

    def changed(schedule):
        right = lower(schedule)
        return replace(right, forms=tuple(map(change, right.forms)))

    monkeypatch.setattr(calls, "lower", changed)
    assert plan.prove().verdict is Verdict.WRONG


def test_a_bug_in_a_plan_is_seen():
    """One step too few, though the text is the plan's."""
    plan = planned("A[I_X, J] → A[I, J]", {"X": 2})
    block = replace(plan.schedule.block, steps=(), outputs=(0,))
    found = prove(replace(plan.schedule, block=block), plan.source())
    assert found.verdict is Verdict.WRONG and "the plan is not legal" in found.why


def test_a_failure_names_device_and_element():
    plan = planned("A[I_X, J] → A[I, J_X]", {"X": 2})
    turned = plan.source().replace(
        "    return A", '    A = jax.lax.ppermute(A, "X", perm=[(0, 1), (1, 0)])\n    return A'
    )
    assert re.search(r"device \(X=0\) at \(0, 0\) of `A\[I, J_X\]` is not what", prove(plan.schedule, turned).why)


def test_a_permute_counts_its_devices_in_the_order_of_the_mesh():
    """As JAX does, in whatever order the axes are named."""
    text = "G[I, J] = AllGather_{XY}(A[I, J_XY]); C[I, K_XY] = G[I, J] · B[J, K_XY]"
    plan = planned(text, {"X": 2, "Y": 2})
    ordered, group = next(found for found in candidates(plan.schedule) if found[1].how is How.RING)
    schedule = replace(ordered, together=(group,))
    text = source(schedule, "v5p")
    named = text.replace('("X", "Y"), perm', '("Y", "X"), perm')
    assert named != text and prove(schedule, named).holds


# --- every mutation of a text is refused, or changes nothing


def mutants(text, axes):
    """Of a module: each number one more and one less, axes exchanged, arguments and items in another order or left
    out, operators exchanged, lines and calls left out; with what was changed."""
    tree = ast.parse(text)
    for place, node in enumerate(ast.walk(tree)):
        for what, change in changes(node, axes):
            mutated = copy.deepcopy(tree)
            change(next(other for number, other in enumerate(ast.walk(mutated)) if number == place))
            found = ast.unparse(ast.fix_missing_locations(mutated))
            if found != ast.unparse(tree):
                yield f"{what}: {ast.unparse(node)}", found


def changes(node, axes):
    def to(field, value):
        return lambda other: setattr(other, field, value(getattr(other, field)))

    match node:
        case ast.Constant(int(value)) if type(value) is int:
            yield from (
                (f"{value + by}", to("value", lambda old, by=by: old + by)) for by in (1, -1) if value + by >= 0
            )
        case ast.Constant(str(value)) if value in axes:
            yield from ((other, to("value", lambda _, other=other: other)) for other in axes if other != value)
        case ast.Constant(str(value)) if "->" in value:
            yield "turned", to("value", lambda old: old.partition("->")[0] + "->" + old.partition("->")[2][::-1])
        case ast.Tuple(items, ast.Load()) | ast.List(items, ast.Load()) if len(items) > 1:
            yield "reversed", to("elts", lambda old: old[::-1])
            yield "one fewer", to("elts", lambda old: old[:-1])
        case ast.Call():
            yield "arguments swapped", to("args", lambda old: [*old[1:2], *old[:1], *old[2:]])
            for k, keyword in enumerate(node.keywords):
                yield f"no {keyword.arg}", to("keywords", lambda old, k=k: old[:k] + old[k + 1 :])
        case ast.BinOp():
            others = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
            yield from ((kind.__name__, to("op", lambda _, kind=kind: kind())) for kind in others)
        case ast.FunctionDef(body=lines) | ast.For(body=lines) if len(lines) > 1:
            for k, line in enumerate(lines):
                if isinstance(line, ast.Assign):
                    yield f"no line {k}", to("body", lambda old, k=k: old[:k] + old[k + 1 :])


# What survives, and means the same. Types and gradients are for JAX to check, the order of a start that JAX moves back
# into the array is one, and device numbers turned round twice are the same.
TYPES = r"no (to|dtype|check_vma|reduced|preferred_element_type)|together|P\(.*\): |P\('X', None, None\)"
SAME = {
    "a slice and a sum": r"Mult: B\.shape|1: 2$|reversed|Add: |" + TYPES,
    "a permute": r"reversed: (\('X', 'Y'\)|\[)",
    "partial sums": TYPES + r"|no axis|1: 0|reversed|one fewer",
    "a loop": TYPES + r"|no length",  # there are as many rows
}


@pytest.mark.instant
@pytest.mark.parametrize("name", ["two exchanges", "a permute", "pieces to the front", "partial sums", "a loop"])
def test_a_mutated_text_is_refused_or_means_the_same(name):
    plan = plan_of(name)
    axes, source = tuple(plan.schedule.mesh.names), plan.source()
    verdicts = {what: prove(plan.schedule, text, UNASKED).verdict for what, text in mutants(source, axes)}
    alive = [what for what, verdict in verdicts.items() if verdict is not Verdict.WRONG]
    assert len(verdicts) >= 10
    assert [what for what in alive if not re.search(SAME.get(name, TYPES), what)] == []
    assert len(alive) <= len(verdicts) / 3


# --- the command line

PRODUCT = ("A[I, J_X] · B[J_X, K] → C[I_X, K]", "--mesh", "X=2")
PROVED = "proved for every value: program, plan and emitted text agree on every device (I=4, J=6, K=2)"


def said(*arguments):
    """The status, and what is printed on standard output and on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = _status(list(arguments))
    return status, out.getvalue(), err.getvalue()


def test_a_command_proves_what_it_is_asked_to():
    status, table, _ = said("plan", *PRODUCT, "--prove")
    assert status == 0 and table.splitlines()[-1] == PROVED
    status, fields, _ = said("plan", *PRODUCT, "--prove", "--json")
    assert json.loads(fields)["proof"] == {"verdict": "proved", "sizes": {"I": 4, "J": 6, "K": 2}}
    status, code, notes = said("emit", *PRODUCT, "--prove")
    assert status == 0 and PROVED in notes and "prove" not in code


def test_what_cannot_be_proved_is_refused_where_it_is_asked_for_and_said_where_not():
    large = ("A[I_X, J] → A[I, J_X]", "--mesh", "X=4096", "--dims", "I=8192,J=8192")
    status, _, told = said("plan", *large, "--prove")
    assert (status, told.splitlines()[0][:14]) == (6, "error[SHC412]:")
    status, code, told = said("emit", *large)
    assert status == 0 and "def program" in code and "not proved" in told
    assert said("plan", *PRODUCT, "--prove", "--passes")[0] == 2


@pytest.mark.instant
@pytest.mark.parametrize("command", ["emit", "run", "plan"])
def test_a_wrong_text_never_leaves(command, monkeypatch):
    monkeypatch.setattr(calls.local, "letters", lambda dims: dict(zip(dims, "iji", strict=False)))
    status, out, told = said(command, *PRODUCT, *(["--prove"] if command == "plan" else []))
    assert status == 70 and out == "" and "the program emitted is wrong" in told


def test_what_is_wrong_is_not_compiled_either(monkeypatch):
    plan = planned(PRODUCT[0], {"X": 2})
    assert callable(plan.compile())
    monkeypatch.setattr(calls.local, "letters", lambda dims: dict(zip(dims, "iji", strict=False)))
    with pytest.raises(ShardcError, match="the program emitted is wrong") as caught:
        plan.compile()
    assert caught.value.code == "SHC900"


REDUCED = [
    ("L[I] = ", "(A[I, J_X])"),
    ("L[I] = ", "(A[I, J_X] + B[I, J_X])"),
    ("L[I_X] = ", "(sum_K(A[I_X, J_Y, K]))"),
    ("L[K_X, I] = ", "(A[I_X, J_Y, K])"),
]


@pytest.mark.parametrize("mesh", ["X=2,Y=2", "X=4,Y=2", "X=2,Y=3", "X=4,Y=3"])
@pytest.mark.parametrize("name", ["max", "min", "mean", "logsumexp", "sum"])
def test_every_reduction_over_a_sharded_dim_is_proved(name, mesh):
    """The lowest number, which keeps the shift of a logsumexp finite, is no symbol like others. By the order that is
    drawn it stood above most of them, and whether a plan was called wrong hung on the draws."""
    for left, right in REDUCED:
        found = planned(f"{left}{name}_J{right}", mesh, dims={"I": 24, "J": 24, "K": 24}, dtype="f32").prove()
        assert found.holds, (left, right, str(found))


@pytest.mark.instant
@pytest.mark.parametrize("name", ["bf16", "f16", "f32", "f64", "f8_e4m3fn", "f8_e5m2"])
def test_the_lowest_number_of_a_type_is_below_every_symbol_and_no_other_is(name):
    lowest, items = DTYPES[name].lowest, symbols(0, (32,))
    assert lowest == float(jnp.finfo(DTYPES[name].jax).min)
    for number in (lowest, -math.inf):
        assert applied("maximum", [items], (None, number), lowest=lowest).items == items.items
    for number in (lowest / 2, -32.0, 0.0):
        assert applied("maximum", [items], (None, number), lowest=lowest).items != items.items


def test_a_new_reduction_is_a_symbol_of_all_that_it_runs_over(monkeypatch):
    """`var_J`: of equal rows the same, of others another; nothing but its row in the table is needed."""
    row = Function("var", "jnp.var", lambda np, x, axis: np.var(x, axis=axis), over_dims=True, keeps_dims=False)
    monkeypatch.setitem(FUNCTIONS, "var", row)
    found = applied("var", [Tensor((3, 2), (5, 7, 5, 7, 7, 5))], axis=(1,))
    assert found.shape == (3,) and found.items[0] == found.items[1] != found.items[2]
    assert len(set(applied("var", [Tensor((2, 2), (5, 7, 6, 8))], axis=(0,)).items)) == 2

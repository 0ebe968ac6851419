"""Backward programs: each gradient against differences of the forward program in float64, along drawn directions."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import cli, simulate, testing
from shardc.backward.derivatives import DERIVATIVES
from shardc.backward.shares import Shares
from shardc.ir.dtypes import Kind
from shardc.ir.functions import FUNCTIONS, UNNAMED
from shardc.ir.mesh import Mesh
from shardc.ir.program import bindings_of, read_by
from shardc.planner.program import sizes
from shardc.testing import Case, partial_programs

STEP = 1e-5
# Central differences of float64 at steps of 1e-5 are off by some 1e-10 of the third derivative, and by 1e-11 of the
# values for rounding; a sum left out, doubled, or of the wrong sign is off by as much as it is large.
CLOSE = 1e-5


def differs(program, backward, seed=0):
    """By how much the gradients and the differences disagree along a direction, over their size."""
    rng = np.random.default_rng(seed)
    inputs = {array.name: rng.normal(size=program.shape(array.dims)) for array in program.inputs}
    floats = [array.name for array in program.inputs if array.dtype.kind is Kind.FLOAT]
    along = {name: rng.normal(size=inputs[name].shape) for name in floats}
    outputs = [program.results[number].name for number in program.outputs]

    def forward(step):
        moved = [inputs[name] + step * along.get(name, 0.0) for name in inputs]
        return simulate.reference(program, moved)

    ahead, behind, here = forward(STEP), forward(-STEP), kept(program, inputs)
    given = {f"d{name}": rng.normal(size=whole.shape) for name, whole in zip(outputs, ahead, strict=True)}
    differences = sum(
        float((given[f"d{name}"] * (one - other)).sum()) / (2 * STEP)
        for name, one, other in zip(outputs, ahead, behind, strict=True)
    )
    known = here | inputs | given
    found = simulate.reference(backward, [known[array.name] for array in backward.inputs])
    of = dict(zip(floats, found[-len(floats) :], strict=True))
    gradients = sum(float((of[name] * along[name]).sum()) for name in floats)
    size = max(abs(differences), *(float(np.abs(of[name]).sum()) / of[name].size for name in floats), 1e-3)
    return abs(differences - gradients) / size


def names(program):
    return {program.results[number].name for number in program.outputs}


def kept(program, inputs):
    """Every array that the forward part names, and what the backward part has of its loops."""
    whole = shardc.grad(program, whole=True)
    known, forward = {array.name for array in program.inputs}, []
    for statement in whole.statements:
        if known.issuperset(read_by(statement)):
            forward.append(statement)
            known |= {bound.name for bound in bindings_of(statement)}
    bound = tuple(dict.fromkeys(one.name for statement in forward for one in bindings_of(statement)))
    forward = replace(whole, statements=tuple(forward), returns=bound, inputs=program.inputs)
    found = dict(zip(bound, simulate.reference(forward, list(inputs.values())), strict=True))
    return found | {f"{name}_after": whole for name, whole in found.items()} | inputs


def parsed(text, mesh=None, dims=None):
    trips = {dim: size for dim, size in (("L", 3), ("M", 2)) if f"for {dim}" in text or f"for -{dim}" in text}
    return sizes.small(shardc.parse(text, mesh=mesh or {"X": 2, "Y": 2}, dims=dims or trips, dtype="f32"))


MLP = "Tmp[B_X, F_Y] = In[B_X, D_Y] ·_D Win[D_X, F_Y]\nOut[B_X, D_Y] = {f}(Tmp) ·_F Wout[F_Y, D_X]"
PROGRAMS = {
    "matmul": "A[I_X, J] · B[J, K_Y] → C[I_X, K_Y]",
    "chain": "A[I_X, J] · B[J, K_Y] · C[K_Y, L] → D[I_X, L]",
    "twice": "B[I_X] = A[I_X, J] · A[I_X, J]",
    "reshard": "A[I_X, J] → A[I, J_X]",
    "gather": "W[D, F] = AllGather_X(W[D_X, F])\nOut[B_X, F] = In[B_X, D] · W[D, F]",
    "bias": "Out[B_X, D] = In[B_X, D] + b[D]",
    "scale": "Out[B_X, D] = s[D] ⊙ In[B_X, D] - In / 3",
    "sum": "S[B_X] = sum_D(In[B_X, D] ⊙ In)",
    "sum alone": "S[B_X] = sum_D(In[B_X, D])",
    "mean": "S[B_X] = mean_D(square(In[B_X, D]))",
    "max": "M[B_X] = max_D(In[B_X, D])",
    "min": "M[B_X] = min_D(In[B_X, D]) + max_D(In)",
    "logsumexp": "L[B] = logsumexp_V(Z[B, V_Y])",
    "cross-entropy": "L[B] = logsumexp_V(Z[B, V_Y]) - sum_V(where(index_V == 1, Z, 0))",
    "norm": "y[B_X, D] = x[B_X, D] ⊙ rsqrt(mean_D(x ⊙ x) + 1e-6) ⊙ g[D]",
    "divided": "y[B_X, D] = x[B_X, D] / (1 + square(z[B_X, D])) / (1 + square(b[D]))",
    "softmax": "P[B_X, T] = softmax_T(Z[B_X, T])",
    "maximum": "P[B_X, T] = maximum(Z[B_X, T], Y[T]) - minimum(Z, 0.5)",
    "unnamed": "Out[B_X, D] = gelu(In[B_X, D] ·_D Win[D, F]) ·_F Wout[F, D]",
    "gated": "Out[B_X, D] = (silu(x[B_X, D] ·_D W[D, F]) ⊙ (x ·_D V[D, F])) ·_F U[F, D]",
    "two outputs": "P[I_X, K] = A[I_X, J] · B[J, K]\nQ[I_X, L] = P ·_K C[K, L]\nreturn P, Q",
    "attention": (
        "Q[B_X,T,E] = x[B_X,T,D] ·_D Wq[D,E]\nK[B_X,S,E] = x[B_X,S,D] ·_D Wk[D,E]\n"
        "V[B_X,S,H] = x[B_X,S,D] ·_D Wv[D,H]\n"
        "P[B_X,T,S] = softmax_S(where(index_T >= index_S, Q ·_E K / sqrt(|E|), -inf))\nO[B_X,T,H] = P ·_S V"
    ),
    "squared": "B[I_X, K] = A[I_?, M_?] ·_M A[M_?, K_?]",
    "squared, of which nothing is left": "S = A[I_?, M_?] ·_M A[M_?, K_?] ⊙ 2\nOut[I_X] = sum_K(square(S))",
    **{f"mlp {f}": MLP.format(f=f) for f in ("relu", "gelu", "silu", "tanh", "sigmoid", "square")},
}

LOOPS = {
    "layers": """for L {
        Tmp[B_X, F_Y] = x[B_X, D] ·_D Win[L, D, F_Y]
        x = x + tanh(Tmp) ·_F Wout[L, F_Y, D]
        Norm[L, B_X] = sum_D(x ⊙ x)
    }""",
    "micro-batches": "for M { dW[D, F_Y] = A[M, B_X, D] ·_B dH[M, B_X, F_Y]; G[D, F_Y] = G[D, F_Y] + dW }",
    "fixed": "for L { x[B_X, D] = tanh(x[B_X, D] ⊙ s[D] + square(b[D]) ⊙ W[L, D]) }",
    "fixed, used around": "y = b[D] ⊙ 2\nfor L { x[B_X, D] = tanh(x[B_X, D] ⊙ b + y) }\nz[B_X, D] = x ⊙ b ⊙ y",
    "down": "for -L { x[B_X, D] = tanh(x[B_X, D] ⊙ W[L, D]); S[L, B_X] = sum_D(x) }\nOut[B_X, L] = S ⊙ S",
    "nested": """for L {
        h = x[B_Y, D] ⊙ V[L, D]
        for M { x = x + tanh(W[L, M, D] ⊙ h); S[L, M, B] = sum_D(x ⊙ h) }
        x = square(x) + h
    }""",
    "an h in two loops": """for L { h = tanh(x[B_X, D] ⊙ W[L, D]); x = x ⊙ h }
    for M { h = sin(x ⊙ V[M, D]); x = x + h }""",
    "two that change places": "for L { z = x[B_X, D] ⊙ W[L, D]; x = sin(y[B_X, D]); y = z + x }",
    "before and after": "y = square(x[B_X, D])\nfor L { x = tanh(x ⊙ W[L, D]) }\nOut[B_X, D] = exp(x) ⊙ y",
    "forgotten": """x = relu(c[B_X, D])
    for L { x = tanh(W[L, D] ⊙ a[B_X, D]); S[L, B_X] = sum_D(x) }
    Out[B_X, D] = square(x)""",
    "not carried over": "for L { S[L, B_X] = sum_D(x[B_X, D] ⊙ W[L, D]); x = relu(x) - W }\nreturn S",
    "by rows": "for L { W[L, D] = sin(W[L, D] ⊙ b[D]) }\nOut[L] = sum_D(W ⊙ W)",
    "the dim last": "for L { x[B_X, D] = x[B_X, D] + square(A[B, D_Y, L]); S[B_X, L] = sum_D(x) }",
    "gathered in each trip": """for L {
        W[L, D, F] = AllGather_X(W[L, D_X, F])
        x[B_X, D] = tanh(x[B_X, D] ·_D W ·_F V[F, D])
    }""",
    "attention": """for L {
        Q[B_X, T, E] = x[B_X, T, D] ·_D Wq[L, D, E]
        K[B_X, S, E] = x[B, S, D] ·_D Wk[L, D, E]
        P[B_X, T, S] = softmax_S(where(index_T >= index_S, Q ·_E K / sqrt(|E|), -inf))
        x[B_X, T, D] = x + P ·_S x[B, S, D]
    }""",
    "a square": """for L {
        A = x[D_X, F_Y] ·_F x[K_?, F_?]
        S = A[D_?, M_?] ·_M A[M_?, J_?]
        x[D_X, F_Y] = tanh(0.1 ⊙ x + S[D_?, K_?] ·_K x[K_?, F_?])
    }""",
    "carried by another name": "for L { t = tanh(h[N_X, D] ·_D W[L, D, E]); h[N_X, D] = t[N_?, D_?] }",
    "rows by another name": "for L { S[L, B_X] = tanh(x[B_X] ⊙ W[L, B]) }\nT[K, B_X] = sin(S[K_?, B_?])",
    "again with another": "for L { h = x[B_X, D] ⊙ W[L, D]; x = tanh(h); x = x ⊙ h + V[L, D]; x = sin(x) }",
}
PROGRAMS |= {f"loop {name}": text for name, text in LOOPS.items()}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("remat", [False, True])
def test_gradients_are_differences(name, remat):
    program = parsed(PROGRAMS[name])
    backward = shardc.grad(program, remat=remat)
    assert differs(program, backward) < CLOSE
    if remat:
        assert {array.name for array in backward.inputs} <= {array.name for array in program.inputs} | {
            f"d{one}" for one in names(program)
        }


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {f"loop {name}" for name in LOOPS}))
def test_each_gradient_is_named_after_its_array(name):
    program = parsed(PROGRAMS[name])
    assert {f"d{array.name}" for array in program.inputs} == names(shardc.grad(program))


@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_and_backward_as_one_leave_the_same(name):
    program = parsed(PROGRAMS[name])
    whole = shardc.grad(program, whole=True)
    assert names(program) <= names(whole)
    assert differs(program, whole) < CLOSE


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_backward_program_parses_from_its_text_and_is_planned(name):
    backward = shardc.grad(parsed(PROGRAMS[name]))
    again = shardc.parse(str(backward))
    assert again == backward
    plan = shardc.plan(backward, chip="v5e")
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=backward.shape(array.dims)) for array in backward.inputs]
    found, wanted = plan.simulate(*arrays), plan.reference(*arrays)
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


DEEP = """for L {
    Tmp[B_X, F_Y] = x[B_X, D] ·_D Win[L, D, F_Y]
    H[B_X, F_Y] = sin(Tmp)
    x = x + H ·_F Wout[L, F_Y, D]
}"""


def test_what_a_loop_keeps_is_less_the_more_is_made_again():
    program = parsed(DEEP, dims={"L": 8, "B": 64, "D": 4, "F": 64})
    made = {remat: shardc.grad(program, whole=True, remat=remat) for remat in (False, "selective", True)}
    rows = {remat: {array.name for array in one.statements[0].stacked} for remat, one in made.items()}
    assert rows == {False: {"x_before", "Tmp", "H"}, "selective": {"x_before", "Tmp"}, True: {"x_before"}}
    small = parsed(DEEP)
    assert all(differs(small, shardc.grad(small, whole=True, remat=remat)) < CLOSE for remat in made)
    plans = [shardc.plan(one, chip="v5e").cost for one in made.values()]
    assert plans[0].peak_bytes > plans[1].peak_bytes > plans[2].peak_bytes
    assert plans[0].flops == plans[1].flops < plans[2].flops


def test_where_the_derivative_is_one_of_the_value_what_it_is_made_of_is_not_kept():
    """tanh' = 1 - tanh²: Tmp is read by nothing."""
    whole = shardc.grad(parsed(DEEP.replace("sin", "tanh")), whole=True)
    assert {array.name for array in whole.statements[0].stacked} == {"x_before", "H"}


def test_under_a_limit_of_memory_the_command_makes_again_what_it_must(capsys):
    sizes = ["--mesh", "X=2,Y=2", "--dims", "L=8,B=64,D=4,F=64", "--dtype", "f32", "--chip", "v5e"]
    program = parsed(DEEP, dims={"L": 8, "B": 64, "D": 4, "F": 64})
    limit = shardc.plan(shardc.grad(program, whole=True, remat="selective"), chip="v5e").cost.peak_bytes
    assert cli._status(["grad", DEEP, *sizes, "--memory", str(limit)]) == 0
    printed = capsys.readouterr().out
    assert "Tmp[L" in printed and "H[L" not in printed and "H'" in printed


@pytest.mark.parametrize(
    ("text", "comes", "leaves"),
    [
        ("A[I_X, J_Y] → A[I, J_X]", "dA[I, J_X]", "dA[I_X, J_Y]"),
        ("B = relu(A[I_X, J_Y]); B → B[I, J_X]", "dB[I, J_X]", "dA[I_X, J_Y]"),
        ("A[I_X, J] = AllGather_Y(A[I_X, J_Y])", "dA[I_X, J]", "dA[I_X, J_Y]"),
        ("A[I_X, J_Y] → A[I, J_X]; B[I_X] = sum_J(A); return A, B", "dA[I, J_X]", "dA'[I_X, J_Y]"),
        ("B = relu(A[I_X, J_Y])", "dB[I_?, J_?]", "dA[I_X, J_Y]"),
    ],
)
def test_what_comes_in_lies_as_the_output_does(text, comes, leaves):
    """Also where a statement has brought it elsewhere under the name that it had."""
    found = shardc.grad(shardc.parse(text, mesh="X=4,Y=2"))
    assert comes in [each.name + each.pattern.spell(each.dims) for each in found.inputs]
    assert [each.name + each.pattern.spell(each.dims) for each in found.results][-1] == leaves


def test_each_gradient_lies_as_its_array():
    backward = shardc.grad(parsed(MLP.format(f="relu")))
    lies = {s.name: s.pattern.spell(s.dims) for s in backward.statements}
    assert lies == {
        "dTmp": "[B_X, F_Y]",
        "dIn": "[B_X, D_Y]",
        "dWin": "[D_X, F_Y]",
        "dWout": "[F_Y, D_X]",
    }


@settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=40)
@given(partial_programs(max_axes=2, max_devices=4, max_statements=2))
@example(Case("A[I, J]{U_X} → B[I_X, J]", Mesh.of({"X": 2}), {"I": 2, "J": 3}))
@example(Case("A[I, J]{U_X} · C[J, K] → B[I, K]{U_X}", Mesh.of({"X": 2}), {"I": 2, "J": 3, "K": 4}))
def test_gradients_of_partial_sums_are_whole_on_each_device(case):
    """Every device's part of a sum has the sum's gradient, and none can be made a partial sum again: as written, each
    was asked to be one, and no plan led there."""
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32")
    backward = shardc.grad(program, whole=True)
    assert shardc.plan(backward).prove().holds
    own = {array.name for array in program.inputs}
    assert not [array.name for array in backward.inputs if array.name not in own and array.pattern.unreduced]


ROWS_CUT = Case("T[L_X, B] = tanh(V[L, B]); for L { x[B] = x[B] ⊙ T }; return x", Mesh.of({"X": 2}), {"L": 4, "B": 3})


@pytest.mark.parametrize("remat", [False, True, "selective"])
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(testing.loops(), st.booleans())
@example(ROWS_CUT, False)
@example(ROWS_CUT, True)
def test_of_whatever_lies_over_axes_along_a_loop_the_gradient_is_a_program(remat, case, whole):
    """What the backward loop takes rows of is brought there before it, as the forward part does by itself."""
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f64")
    assert differs(program, shardc.grad(program, whole=whole, remat=remat)) < CLOSE


def test_only_what_is_asked_for_is_made():
    backward = shardc.grad(parsed(MLP.format(f="relu")), wrt=["Wout"])
    assert [statement.name for statement in backward.statements] == ["dWout"]
    assert {array.name for array in backward.inputs} == {"dOut", "Tmp"}


# --- every function

DOMAIN = {"log": "square(A) + 0.5", "log1p": "square(A)", "sqrt": "square(A) + 0.5", "rsqrt": "square(A) + 0.5"}
OTHERWISE = UNNAMED | {"where", "not", "and", "or"}  # in the programs above, or without a gradient
UNSIGNED = [name for name in FUNCTIONS if name not in OTHERWISE]


def test_every_function_has_its_derivative():
    assert set(DERIVATIVES) == set(FUNCTIONS)


@pytest.mark.parametrize("name", UNSIGNED)
def test_a_function_s_gradient_is_its_differences(name):
    row = FUNCTIONS[name]
    inside = DOMAIN.get(name, "A")
    over = "_J" if row.over_dims else ""
    result = "C[I_X, J]" if row.keeps_dims else "C[I_X]"
    given = ", ".join([inside, "B[I_X, J]"][: row.arity])
    program = parsed(f"D[I_X, J] = A[I_X, J] ⊙ 1\n{result} = {name}{over}({given.replace('A', 'D', 1)})")
    assert differs(program, shardc.grad(program)) < CLOSE


# --- drawn programs

LEAVES = ("A", "B", "(A ⊙ s[J_Y])", "(B - 2)", "(A + index_J)")
ONE = ("relu", "gelu", "silu", "tanh", "sigmoid", "exp", "sin", "cos", "abs", "square", "neg")


def expressions(depth):
    leaf = st.sampled_from(LEAVES)
    if not depth:
        return leaf
    below = expressions(depth - 1)
    return st.one_of(
        leaf,
        st.builds(lambda f, x: f"{f}({x})", st.sampled_from(ONE), below),
        st.builds(lambda x, sign, y: f"({x} {sign} {y})", below, st.sampled_from(["+", "-", "⊙"]), below),
        st.builds(lambda x, y: f"({x} / (1 + square({y})))", below, below),
        st.builds(lambda f, x: f"({x} - {f}_J({x} + A))", st.sampled_from(["max", "logsumexp", "sum", "mean"]), below),
        st.builds(lambda x: f"softmax_J(A + {x})", below),
        st.builds(lambda x, y: f"where(A > B, {x}, {y} + A)", below, below),
        st.builds(lambda x: f"((A + {x}) ·_J W[J, K] ·_K V[K, J])", below),
    )


@settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=60)
@given(expressions(3), st.integers(0, 3))
def test_gradients_of_drawn_expressions_are_differences(text, seed):
    program = parsed(f"C[I_X, J_Y] = A[I_X, J_Y] + B[I_X, J_Y] + tanh({text})", dims={"I": 2, "J": 4, "K": 6})
    assert differs(program, shardc.grad(program), seed) < CLOSE


RIGHT = ("tanh({0} ⊙ {2})", "sin({0} ⊙ {2} + {1})", "{0} - {1}", "sin({0}) ⊙ {1}", "tanh({2} ⊙ {0})")


@st.composite
def bodies(draw, dims, known, inner):
    """Statements of a trip, over arrays of one shape: x and y are carried, t is not; rows are taken and left."""
    names, lines, at = list(known), [], ", ".join(dims)
    for name in draw(st.lists(st.sampled_from(["x", "y", f"t{len(dims)}"]), min_size=1, max_size=3)):
        if name in names and name.startswith("t"):
            continue
        row = draw(st.sampled_from([f"W{len(dims)}[{at}, B, D_Y]", f"s{len(dims)}[{at}, D]", "b[B_X, D]", "2"]))
        one, other = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        names += [name] if name not in names else []
        lines.append(f"{name}[B_X, D] = {draw(st.sampled_from(RIGHT)).format(one, other, row)}")
    if inner and draw(st.booleans()):
        lines.append(draw(loops([*dims, "M"], names)))
    lines.append(f"S{len(dims)}[{at}, B_X] = sum_D({draw(st.sampled_from(names))})")
    return [*lines, f"x = 0.5 ⊙ ({' + '.join(names)})"]


@st.composite
def loops(draw, dims=("L",), known=("x", "y")):
    down = draw(st.sampled_from(["", "-"]))
    body = draw(bodies(list(dims), list(known), inner=len(dims) == 1))
    return f"for {down}{dims[-1]} {{\n" + "\n".join(body) + "\n}"


@settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=15)
@given(loops(), st.sampled_from(["keep", "remat", "whole"]), st.integers(0, 3))
def test_gradients_of_drawn_loops_are_differences(text, how, seed):
    around = f"x = a[B_X, D] ⊙ 1\ny = sin(a)\n{text}\nOut[B_X, D] = x ⊙ y + a"
    program = parsed(around, dims={"L": 3, "M": 2, "B": 2, "D": 4})
    assert (
        differs(program, shardc.grad(program, remat=how == "remat", whole=how == "whole"), seed) < 100 * CLOSE
    )  # the third derivatives of loops are large


PRIMED = ["J{}", "J{}'", "J{}''", "J{}'''"]


@st.composite
def squares(draw):
    """Products of square matrices with themselves and others, each use by names of its own; in a loop or not. A dim may
    have the name of another and primes, as those have that a gradient needs: `A[J, J'] · A[J', J'']`."""
    known, lines, letters = ["A", "B"], [], draw(st.sampled_from([["J{}", "K{}", "M{}", "N{}"], PRIMED]))
    for number in range(draw(st.integers(1, 2))):
        factors = draw(st.lists(st.sampled_from(known), min_size=2, max_size=3))
        dims = [letter.format(number) for letter in draw(st.permutations(letters))]
        uses = [
            f"{name}[{one}_?, {other}_?]" for name, one, other in zip(factors, dims, dims[1:], strict=False)
        ]  # A[J0, K0] · A[K0, M0]
        lines.append(f"P{number} = {' · '.join(uses)}")
        known.append(f"P{number}")
    lines.append(f"A = tanh(0.3 ⊙ ({' + '.join(f'{name}[I_?, H_?]' for name in known)}))")
    return lines


@settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=20)
@example(["P0 = A[J0_?, J0'_?] · A[J0'_?, J0''_?]", "A = tanh(0.3 ⊙ (P0[I_?, H_?] + B[I_?, H_?]))"], False, "keep", 0)
@given(squares(), st.booleans(), st.sampled_from(["keep", "remat", "whole"]), st.integers(0, 3))
def test_gradients_of_matrices_times_themselves_are_differences(lines, in_loop, how, seed):
    inside = "\n".join(lines)
    steps = f"for L {{\n{inside}\n}}" if in_loop else inside.replace("A = ", "C = ")
    end = "A" if in_loop else "C"
    text = f"A[I_X, H_Y] = sin(a[I_X, H_Y])\nB[I, H] = cos(b[I, H])\n{steps}\nOut[I_X, H] = {end} + A"
    program = parsed(text, dims={"L": 2, "I": 4})
    assert differs(program, shardc.grad(program, remat=how == "remat", whole=how == "whole"), seed) < 100 * CLOSE


# --- the strategies of the chapter on training

STRATEGIES = json.loads((Path(__file__).parents[1] / "data" / "strategies.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("strategy", STRATEGIES["strategies"], ids=lambda one: one["strategy"])
def test_a_strategy_needs_the_collectives_of_its_listing(strategy):
    program = shardc.parse(strategy["program"], **STRATEGIES["common"])
    listed = {"forward": strategy["forward"], "backward": strategy["backward"]}
    for half, made in (("forward", program), ("backward", shardc.grad(program))):
        plan = shardc.plan(made, formula="book")
        found = Counter(f"{step.op}_{''.join(step.axes)}" for step in plan.steps if step.wire_bytes)
        assert found == Counter(text.partition(" ")[0] for text in listed[half])


OF_WEIGHTS = {"AllGather Win", "AllGather Wout", "ReduceScatter dWin", "ReduceScatter dWout"}
OF_TOKENS = {"AllGather In", "ReduceScatter Out", "AllGather dOut", "ReduceScatter dIn"}
MARKED = {  # as the listings have it, on the critical path and off it; a second gather of In is shared here
    "DP": (set(), {"AllReduce dWout", "AllReduce dWin"}),
    "FSDP": (set(), OF_WEIGHTS),
    "TP": (OF_TOKENS, set()),
    "FSDP+TP": (OF_TOKENS, OF_WEIGHTS),
}


@pytest.mark.parametrize("strategy", STRATEGIES["strategies"], ids=lambda one: one["strategy"])
def test_a_collective_of_a_strategy_is_on_or_off_the_critical_path_as_its_listing_says(strategy):
    program = shardc.parse(strategy["program"], **STRATEGIES["common"])
    plan = shardc.plan(shardc.grad(program, whole=True), formula="book")
    moved = [step for step in plan.steps if step.wire_bytes]
    marked: tuple[set[str], set[str]] = (set(), set())
    for step in moved:
        marked[step.off_critical_path].add(f"{step.op} {step.result.partition('[')[0]}")
    assert marked == MARKED[strategy["strategy"]]
    assert str(plan).count("off the critical path") == sum(step.off_critical_path for step in moved)
    told = [step.get("off_critical_path", False) for step in json.loads(plan.to_json(1))["steps"]]
    assert sum(told) == sum(step.off_critical_path for step in plan.steps)


# --- in another sharding than the array's


def left_by(program):
    """How each output lies when it leaves; primes of its name left out."""
    found = [program.results[number] for number in program.outputs]
    return {each.name.rstrip("'"): each.pattern.spell(each.dims) for each in found}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("unreduced", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_a_gradient_lies_as_it_is_told(name, whole, unreduced):
    """Of each input the last dim over all axes, where they divide it, and the others whole; or a partial sum."""
    program = parsed(PROGRAMS[name])
    axes = "".join(program.mesh.names)
    told = {}
    for array in program.inputs:
        *before, (last, size) = [*zip(array.dims, program.shape(array.dims), strict=True)] or [("", 1)]
        split = f"{last}_{axes}" if last and size % program.mesh.devices == 0 and not unreduced else last
        brackets = f"[{', '.join([*(dim for dim, _ in before), split])}]"
        told[f"d{array.name}"] = brackets + f"{{U_{axes}}}" * unreduced
    backward = shardc.grad(program, wrt=[f"{of[1:]}{brackets}" for of, brackets in told.items()], whole=whole)
    assert differs(program, backward) < CLOSE and shardc.parse(str(backward)) == backward
    assert {name: spelled for name, spelled in left_by(backward).items() if name in told} == told


def test_data_parallelism_with_sharded_gradients_is_zero_2():
    """The sum and the slice of it are one ReduceScatter; left unreduced nothing moves; left open neither does."""
    program = shardc.parse(STRATEGIES["strategies"][0]["program"], **STRATEGIES["common"])

    def moved(wrt):
        plan = shardc.plan(shardc.grad(program, wrt), formula="book")
        return Counter(f"{step.op}_{''.join(step.axes)}" for step in plan.steps if step.wire_bytes)

    assert moved("Win,Wout") == {"AllReduce_X": 2}
    assert moved("Win[D_X, F], Wout[F_X, D]") == moved(["Win[D_X, F]", "Wout[F_X, D]"]) == {"ReduceScatter_X": 2}
    assert moved("Win[D, F]{U_X}, Wout[F, D]{U_X}") == {}
    assert moved("Win[D_?, F_?], Wout") == {"ReduceScatter_X": 1, "AllReduce_X": 1}


def test_the_command_takes_shardings_too(capsys):
    words = ["grad", "A[I_X, J] · B[J, K] → C[I_X, K]", "--mesh", "X=4", "--wrt", "B[J, K_X], A"]
    assert cli._status(words) == 0
    printed = capsys.readouterr().out
    assert "\ndB[J, K_X] = " in printed and "\ndA[I_X, J] = " in printed and printed.endswith("return dB, dA\n")


@pytest.mark.parametrize(
    ("wrt", "code", "said"),
    [
        ("B[J, K_Y]", "SHC201", "unknown mesh axis `Y`"),
        ("B[K, J]", "SHC210", "`B` is [J, K], and not [K, J]"),
        ("B[J]", "SHC210", "`B` is [J, K], and not [J]"),
        ("B[J, K_X", "SHC103", "is not closed"),
        ("B[J_X, K_X]", "SHC202", "mesh axis `X` shards both"),
        ("B[J, K], B[J, K_X]", "SHC217", "`B` is asked for in two shardings"),
        ("B[J, K] + B", "SHC001", "`B[J, K] + B` is no array"),
        ("B[J, K]; C[J] = D[J]", "SHC001", "is no array"),
        ("Q[J, K_X]", "SHC217", "`Q` is no input"),
    ],
)
def test_a_sharding_that_cannot_be_is_a_coded_error(wrt, code, said):
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.grad(shardc.parse("A[I_X, J] · B[J, K] → C[I_X, K]", mesh={"X": 4}), wrt)
    assert caught.value.code == code and said in caught.value.message and caught.value.help


# --- what cannot be


@pytest.mark.parametrize(("wrt", "said"), [(["Q"], "no input"), (["n"], "an input of int32"), (["Win "], "no input")])
def test_a_name_without_a_gradient_is_a_coded_error(wrt, said):
    program = parsed("C[I] = A[I] ⊙ f32(n: int32[I])")
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.grad(program, wrt=wrt)
    assert caught.value.code == "SHC217" and said in caught.value.message and caught.value.help


@pytest.mark.parametrize(
    "text", ["C[I] = not(A: bool[I])", "C[I] = A: int8[I] + 1", "A: f8_e4m3[I_X] → A[I]", "C = index_I"]
)
def test_where_no_input_has_a_gradient_that_is_told(text):
    with pytest.raises(shardc.ShardcError, match="no input has a gradient"):
        shardc.grad(parsed(text))


def test_an_input_that_nothing_depends_on_has_a_gradient_of_zeros():
    program = parsed("C[I] = A[I]\nD[I] = where(B[I] > 0, 1, 2)")
    backward = shardc.grad(program)
    _, of_b = simulate.reference(backward, [np.ones(2)] * len(backward.inputs))
    assert not np.any(of_b)


def test_the_command_prints_a_program_that_can_be_planned():
    command = [sys.executable, "-m", "shardc", "grad", PROGRAMS["mlp relu"], "--mesh", "X=2,Y=2"]
    printed = subprocess.run([*command, "--wrt", "Win,Wout"], capture_output=True, text=True, check=True).stdout
    assert "return dWin, dWout" in printed
    again = [sys.executable, "-m", "shardc", "plan", "-"]
    planned = subprocess.run(again, input=printed, capture_output=True, text=True)
    assert planned.returncode == 0 and "ReduceScatter" in planned.stdout
    fields = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    assert shardc.parse(json.loads(fields)["program"])


def test_a_mask_of_positions_stands_in_the_gradient_as_it_was_written():
    """Both sides of a comparison are met each with each; once one was multiplied by ones along the other's dim."""
    text = "S[T_X, U] = where(and(index_T >= index_U, index_T - index_U < 8), q[T_X, E] ·_E k[U, E] + b[T_X, U], -inf)"
    found = str(shardc.grad(shardc.parse(text, mesh="X=2", dims="T=16,U=16,E=4")))
    assert (
        "where(and(index_T >= index_U, index_T - index_U < 8), dS" in found.replace("[T_X, U]", "")
        and "0 ⊙" not in found
    )


# --- a softmax that a product reads (`shardc.backward.shares`)

SHARES = {"B": 2, "T": 4, "H": 2, "S": 8, "E": 4, "F": 6, "R": 2, "L": 3, "N": 16}
SCORES = "s[B_X, T, H, S] = q[B_X, T, H, E] · k[B_X, S, H, E]"
OUT = "o[B_X, T, H, E] = p · v[B_X, S, H, E]"


def gradient_of(text, **dims):
    program = shardc.parse(text, mesh={"X": 2}, dims=SHARES | dims, dtype="f32")
    return program, shardc.grad(program)


def sums(backward):
    """How often it sums along the dim of shares."""
    return str(backward).count("sum_S(") + str(backward).count("sum_{S,R}(")


BY_PRODUCT = {
    "named": f"{SCORES}; p = softmax_S(s); {OUT}",
    "as one": "o[B_X, T, H, E] = softmax_S(q[B_X, T, H, E] ·_E k[B_X, S, H, E]) · v[B_X, S, H, E]",
    "before another product": (
        f"{SCORES}; y[B_X, T, F] = softmax_S(s) · v[B_X, S, H, E] ·_{{H,E}} W[H, E, F]; z = tanh(y)"
    ),
    "from the right": "o[T, E] = v[S, E] · softmax_S(a[T_X, S])",
    "of two dims": "o[T, E] = softmax_{S,R}(a[T_X, S, R]) · v[S, R, E]",
    "rows alone": "o[T] = softmax_S(a[T_X, S]) · v[S]",
    "one row": "o[E] = softmax_S(a[S]) · v[S, E]",
    "read twice": f"{SCORES}; p = softmax_S(s); {OUT}; w[B_X, T, H, E] = p · u[B_X, S, H, E]; z = o ⊙ w",
    "bound again": f"{SCORES}; p = softmax_S(s); p[B, T, H_X, S] = p; {OUT}",
    "with a dim of v that stays": "o[T, S, E] = softmax_S(a[T_X, S]) · v[T, S, E]",
    "in a loop": "for L { p = softmax_S(x[T_X, E] · k[L, S, E]); x[T_X, E] = x + p · v[L, S, E] }; return x",
    "as one in a loop": "for L { x[T_X, E] = x[T_X, E] + softmax_S(x ·_E k[L, S, E]) · v[L, S, E] }; return x",
}
OTHERWISE = {
    "more numbers": ("o[T, N] = softmax_S(a[T_X, S]) · v[S, N]", 1),
    "as many": ("o[T, C] = softmax_S(a[T_X, S]) · v[S, C]", 1),
    "rows are summed too": (f"{SCORES}; p = softmax_S(s); o[B_X, T, E] = p · v[B_X, S, H, E]", 1),
    "read by another": (f"{SCORES}; p = softmax_S(s); {OUT}; z = p ⊙ p", 1),
    "an output": (f"{SCORES}; p = softmax_S(s); {OUT}; return o, p", 1),
    "of elements": ("o[T, S] = softmax_S(a[T_X, S]) ⊙ v[T, S]", 1),
    "scaled": (f"{SCORES}; p = 2 ⊙ softmax_S(s); {OUT}", 1),
    "by another name": ("p[T, S] = softmax_S(a[T_X, S]); o[C, E] = p[C, S] · v[S, E]", 1),
}


@pytest.mark.parametrize("name", BY_PRODUCT)
@pytest.mark.parametrize("remat", [False, True])
def test_the_mean_is_known_of_what_a_product_left(name, remat):
    program, backward = gradient_of(BY_PRODUCT[name])
    assert sums(backward) == (name == "with a dim of v that stays")
    assert differs(program, shardc.grad(program, remat=remat)) < CLOSE


@pytest.mark.parametrize("name", OTHERWISE)
def test_else_it_is_summed(name):
    text, count = OTHERWISE[name]
    program, backward = gradient_of(text, C=8, T=8)
    assert sums(backward) == count
    assert differs(program, backward) < CLOSE


def test_the_gradient_of_a_product_that_is_no_array_is_made_once():
    """The mean and what goes on to the shares both read it; or two operands, where both are asked for."""
    program, _ = gradient_of(BY_PRODUCT["before another product"])
    assert str(shardc.grad(program, wrt=["q"])).count("·_F W") == 1
    program, both = gradient_of("z[T, F] = a[T_X, S] · v[S, E] ·_E W[E, F]")
    assert str(both).count("·_F W") == 1
    assert [each.name for each in shardc.grad(program, wrt=["a"]).statements] == ["da"]


def test_without_sizes_it_is_summed():
    program = shardc.parse("o[T, E] = softmax_S(a[T_X, S]) · v[S, E]", mesh={"X": 2})
    assert sums(shardc.grad(program)) == 1


def test_where_keys_are_sharded_it_is_a_sum_less_over_devices(monkeypatch):
    text = "o[T, E] = softmax_S(q[T, F] ·_F k[S_X, F]) · v[S_X, E]"

    def reductions():
        plan = shardc.plan(gradient_of(text, T=4096, S=4096, E=64, F=64)[1], chip="v5e", idle="keep")
        return sum(step.op == "AllReduce" for step in plan.steps)

    by_product = reductions()
    monkeypatch.setattr(Shares, "along", lambda *given: ())
    assert by_product < reductions()


@st.composite
def attentions(draw):
    """Softmaxes of any dims, read by one or two products that leave some of their rows, and now and then by others."""
    rows = draw(st.sampled_from(["T", "T, H", "H, T"]))
    along = draw(st.sampled_from(["S", "S,R"]))
    dims = ", ".join([*rows.split(", "), *along.split(",")])
    over = f"_{{{along}}}" if "," in along else "_S"
    lines = [f"p[{dims}] = softmax{over}(tanh(a[{dims}]))"]
    for place in range(draw(st.integers(1, 2))):
        left = ", ".join([*draw(st.sampled_from([rows.split(", "), ["T"]])), "E"])
        lines.append(f"o{place}[{left}] = p · sin(v{place}[{along}, E])")
    if draw(st.booleans()):
        lines.append("z = square(p)")
    return "; ".join(lines)


@settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=40)
@given(attentions(), st.integers(1, 9), st.integers(0, 3))
def test_gradients_of_drawn_attentions_are_differences(text, size, seed):
    program, backward = gradient_of(text, E=size)
    assert differs(program, backward, seed) < CLOSE


@pytest.mark.parametrize(
    ("trip", "size"),
    [
        ("for L { x[T_X, E] = x[T_X, E] + v[L, T, E] }", 1),
        ("for L { for N { x[T_X, E] = x[T_X, E] + v[L, N, T, E] } }", 1),
        ("for L { x[T_X, E] = sign(x[T_X, E]) + v[L, T, E] }", 0),
    ],
)
def test_the_gradient_alone_of_what_a_loop_only_adds_to_is_that_which_comes_in(trip, size):
    """Nothing else is asked for that a trip would read: what comes in goes out, and is not bound to zeros before."""
    program, _ = gradient_of(f"{trip}; return x", N=2)
    alone, given = shardc.grad(program, wrt=["x"]), np.random.default_rng(0).normal(size=(4, 4))
    (found,) = simulate.reference(alone, [given for _ in alone.inputs])
    np.testing.assert_array_equal(found, size * given)


NEWTON = """
A[D, E] = X[D_X, F_Y] ·_F X[E, F]
A2[D, K] = A ·_E A[E, K]
Z[D_X, F_Y] = X + (A2[D, E] - A) ·_E X[E, F]
for N { Z = 2 ⊙ Z + A ·_E Z[E, F] }
"""


@pytest.mark.instant
@pytest.mark.parametrize("whole", [False, True])
def test_a_size_is_written_once_and_so_may_be_another(whole):
    """`--dims D=16` on such a text was refused: E, which names D's place too, had been written with D's old size."""
    sizes = {"D": 64, "F": 128, "N": 3}
    program = shardc.grad(shardc.parse(NEWTON, mesh="X=2,Y=4", dims=sizes), whole=whole)
    assert dict(program.sizes).keys() > sizes.keys()
    text = str(program)
    (line,) = (line for line in text.splitlines() if line.startswith("dims "))
    assert line == "dims D=64, F=128, N=3"
    assert shardc.parse(text) == program
    other = shardc.parse(text, dims={"D": 16})
    assert {size for dim, size in other.sizes if dim not in "FN"} == {16}

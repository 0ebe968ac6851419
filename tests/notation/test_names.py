"""Names: of dims anew at a use, of arrays that have none, and any that Python or JAX has, too."""

from __future__ import annotations

import ast
import builtins
import keyword
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.emit.allowed import TAKEN
from shardc.errors import ShardcError
from shardc.ir.legal import faults_of
from shardc.ir.names import GREEK
from shardc.notation import parse, print_program
from shardc.simulate import reference, sample_inputs

LAWS = settings(max_examples=25, deadline=None)
MESH = {"X": 2, "Y": 2}
SIZES = {"B": 4, "T": 8, "S": 8, "D": 16, "E": 12}

# --- a use that names the dims of its array anew


def every(results: object) -> tuple[object, ...]:
    """The results of a plan, of which a single one is bare."""
    return results if isinstance(results, tuple) else (results,)


@st.composite
def scores(draw: st.DrawFn) -> str:
    """`x · x` with itself under other names, and what is done with it, over drawn shardings."""

    def brackets(*dims: str) -> str:
        free = ["X", "Y"]
        found = []
        for dim in dims:
            axis = draw(st.sampled_from(["", *free]))
            free = [one for one in free if one != axis]
            found.append(f"{dim}_{axis}" if axis else dim)
        return "[" + ", ".join(found) + "]"

    first, anew = brackets("B", "T", "D"), draw(st.sampled_from([None, brackets("B", "S", "D")]))
    again = anew or brackets("B", "S", "D")
    return draw(
        st.sampled_from(
            [
                f"x{first} · x{again} → A{brackets('B', 'T', 'S')}",
                f"x{first} · W[D, E] → Q[B, T, E]; x{again} · V[D, E] → K[B, S, E]; Q · K → A{brackets('B', 'T', 'S')}",
                f"Y{brackets('B', 'T', 'D')} = relu(x{first}); Y · x{again} → A{brackets('B', 'T', 'S')}",
                f"A{brackets('B', 'S')} = sum_D(x{again}); x{first} ·_D neg(x[B, S_?, D]) → C{brackets('B', 'T', 'S')}",
                f"y{brackets('B', 'T', 'D')} = x{first}; A{brackets('B', 'S', 'D')} = y{again} + y[B, S, D]",
            ]
        )
    )


@LAWS
@given(scores())
def test_what_is_named_anew_is_the_same_array(text: str) -> None:
    """Every device's blocks against NumPy on whole arrays; each pass leaves what is legal; the text is read back."""
    program = parse(text, dims={dim: SIZES[dim] for dim in "BTDE"}, mesh=shardc.Mesh.of(MESH), dtype="int32")
    sized = {dim for dim, _ in program.sizes}
    assert "S" in sized and dict(program.sizes)["S"] == SIZES["T"]
    assert parse(print_program(program)) == program
    plan = shardc.plan(text, mesh=MESH, dims={dim: SIZES[dim] for dim in "BTDE"}, dtype="int32")
    assert [*faults_of(plan.schedule.program)] == [*faults_of(plan.schedule)] == []
    wholes = sample_inputs(plan.schedule.program)
    assert [len(plan.inputs), plan.inputs[0].name] == [len(wholes), "x"]
    for found, wanted in zip(every(plan.simulate(*wholes)), reference(plan.schedule.program, wholes), strict=True):
        assert np.array_equal(found, wanted)


def test_self_attention_from_one_x_against_einsum() -> None:
    """Not by our own reference: the letters here are np.einsum's."""
    text = """Q[B_X, T, E] = x[B_X, T, D] · Wq[D, E]
              K[B_X, S, E] = x[B_X, S, D] · Wk[D, E]
              Q · K → A[B_X, T, S]"""
    plan = shardc.plan(text, mesh={"X": 2}, dims={"B": 4, "T": 6, "D": 3, "E": 5}, dtype="int32")
    rng = np.random.default_rng(0)
    x, wq, wk = (rng.integers(-4, 5, size=shape) for shape in ((4, 6, 3), (3, 5), (3, 5)))
    wanted = np.einsum("btd,de,bsf,fe->bts", x, wq, x, wk)
    assert np.array_equal(plan.simulate(x, wq, wk), wanted)
    assert np.array_equal(plan.reference(x, wq, wk), wanted)
    assert [array.name for array in plan.inputs] == ["x", "Wq", "Wk"]


@pytest.mark.parametrize(
    ("text", "letters", "shape"),
    [
        ("A[I_X, J_Y] · A[J, K] → C[I_Y, K]", "ij,jk->ik", (4, 4)),
        ("A[B, I_X, J_Y] · A[B, J, K] → C[B, I, K_X]", "bij,bjk->bik", (3, 4, 4)),
        ("A[I_X, J] · A[J, K] · A[K, M] → C[I, M_XY]", "ij,jk,km->im", (4, 4)),
        ("T = relu(A[I_X, J_Y]); T · T[J_?, K_?] → C[I, K_Y]", "ij,jk->ik", (4, 4)),
    ],
)
def test_an_array_times_itself_against_einsum(text: str, letters: str, shape: tuple[int, ...]) -> None:
    plan = shardc.plan(
        text, mesh={"X": 2, "Y": 2}, dims=dict(zip("IJ", shape[-2:], strict=True)) | {"B": 3}, dtype="int32"
    )
    A = np.random.default_rng(0).integers(0, 5, size=shape)
    wanted = np.einsum(letters, *[A] * (letters.count(",") + 1))
    assert np.array_equal(plan.simulate(A), wanted) and np.array_equal(plan.reference(A), wanted)
    assert plan.prove().holds


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "code", "message", "place"),
    [
        ("x[B, T, D] → y[B, T, D]; x[T, B, D] → z[T, B, D]", "SHC210", "in this order, not [T, B, D]", "x[T, B, D]"),
        ("x[B, T, D] → y[B, T, D]; x[B, D, S] → z[B, D, S]", "SHC210", "in this order, not [B, D, S]", "x[B, D, S]"),
        ("x[B, T, D] → y[B, T, D]; x[B, S] → z[B, S]", "SHC210", "not [B, S]", "x[B, S]"),
        ("A[I, J] · A[J, I] → c[I]", "SHC210", "in this order, not [J, I]", "A[J, I]"),
        ("A[I, J] → B[I, J]; A[J, K] · B[I, J] → C[I, K]", "SHC210", "in this order, not [J, K]", "A[J, K]"),
        ("dims I=8, J=4; A[I, J] · A[J, K] → C[I, K]", "SHC206", "dim `I` of `A` is 8, and `J` is 4", "J"),
        ("dims T=8, S=4; x[B, T] → y[B, T]; x[B, S] → z[B, S]", "SHC206", "dim `T` of `x` is 8, and `S` is 4", "S"),
        ("dims T=8, S=4; x[T] → y[T]; x[R] → z[R]; z[S] → v[S]", "SHC206", "`S` names the same dim of an array", ""),
    ],
)
def test_what_cannot_be_named_anew(text: str, code: str, message: str, place: str) -> None:
    with pytest.raises(ShardcError) as caught:
        parse(text)
    assert caught.value.code == code and message in caught.value.message
    assert not place or (caught.value.span is not None and caught.value.span.text == place)


def test_a_new_name_that_looks_like_a_slip_is_told() -> None:
    program = parse("x[B, T, d_model] → y[B, T, d_model]; x[B, t, d_model] · y[B, T, d_modle] → z[B, t]")
    assert "`t` names dim `T` of `x` anew; did you mean `T`?" in program.warnings
    assert any("`d_modle` names dim `d_model`" in warning for warning in program.warnings)
    assert any(w.startswith("dim `S` is on `x` alone") for w in parse("x[T] → y[T]; x[S] · y[T] → z[T]").warnings)
    assert parse("dims t=4; x[B, T] → y[B, T]; x[B, t] → z[B, t]").warnings == ()


def test_sizes_that_nobody_gave_are_the_same_and_divide_both() -> None:
    """T is cut into 3 and S into 4: one size that both divide, and a size of the one is that of the other."""
    from shardc.planner.program.sizes import large, small

    program = parse("mesh X=3, Y=4; x[T_X, D] → y[T_X, D]; x[S_Y, D] → z[S_Y, D]")
    for sized in (large(program), small(program)):
        sizes = dict(sized.sizes)
        assert sizes["S"] == sizes["T"] and sizes["T"] % 12 == 0
    assert dict(program.with_sizes({"S": 24}).sizes)["T"] == 24
    with pytest.raises(ShardcError, match="names the same dim"):
        program.with_sizes({"S": 24, "T": 12})


PRICED = [
    "x[B_X, T, D] · Wq[D, E_Y] → Q[B_X, T, E_Y]; x[B_X, S, D] · Wk[D, E_Y] → K[B_X, S, E_Y]; Q · K → A[B_X, T, S]",
    "A[B, D_X] · W[D_X, E] → C[B, E_Y]; softmax_E(C[B, E_X]) → S[B_X, E]",
]


@pytest.mark.parametrize("text", PRICED)
def test_renaming_dims_changes_no_price(text: str) -> None:
    """All bijections onto names of other lengths and scripts; a rename that is none (two dims made one) must differ."""
    import re

    names = ["B", "T", "D", "E", "S"]
    others = ["σ", "T'", "d_model", "k", "lambda"]

    def priced(table: dict[str, str]) -> tuple[object, ...]:
        found = re.sub(r"(?<![A-Za-z])[BTDES](?=[_,\]])", lambda m: table[m.group()], text)
        found = re.sub(r"softmax_E", "softmax_" + table["E"], found)
        sizes = {table[dim]: size for dim, size in {"B": 64, "T": 128, "D": 256, "E": 512}.items() if dim in text}
        plan = shardc.plan(found, mesh=MESH, dims=sizes, chip="v5e")
        return plan.cost, [(step.op, step.wire_bytes, step.time_s) for step in plan.steps]

    own = priced(dict(zip(names, names, strict=True)))
    for order in list(permutations(others))[::17]:
        assert priced(dict(zip(names, order, strict=True))) == own


# --- names that Python and JAX have

GIVEN = ["P", "jax", "jnp", "np", "program", "refined", "steps", "results", "mesh_1", "turn", "x'", "x''", "x_prime"]
words = st.one_of(
    st.sampled_from([*GIVEN, *keyword.kwlist, *keyword.softkwlist, *(n for n in dir(builtins) if n[0] != "_")]),
    st.text(st.sampled_from([*GREEK.values(), "A", "b"]), min_size=1, max_size=4),
    st.builds(lambda name, primes: name + "'" * primes, st.sampled_from("xyσ"), st.integers(0, 3)),
).filter(lambda word: word not in ("return", "for", "lambda_") and "_" not in word[:1])


@LAWS
@given(st.lists(words, min_size=5, max_size=5, unique=True), st.booleans())
def test_no_name_of_a_user_clashes_with_the_emitters(names: list[str], cut: bool) -> None:
    """The source is Python; no parameter or variable hides what the module itself names; the values are right."""
    a, b, c, d, e = names
    text = f"{a}[I, J_X] · {b}[J_X, K] → {c}[I, K_X]; relu({c}) → {d}[I, K]; {d} + {c} → {e}[I_X, K]; return {e}, {d}"
    plan = shardc.plan(text, mesh={"X": 4}, dims={"I": 8, "J": 16, "K": 8}, dtype="int32")
    assert parse(print_program(plan.schedule.program)) == plan.schedule.program
    tree = ast.parse(plan.source())
    function = tree.body[-1]
    assert isinstance(function, ast.FunctionDef) and function.name == "program"
    parameters = [argument.arg for argument in function.args.args]
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert len(parameters) == 2 and len(set(parameters)) == 2
    assert stored.union(parameters).isdisjoint(TAKEN)
    assert [array.name for array in plan.inputs] == [a, b]
    assert [array.name for array in plan.outputs] == [e, d]
    wholes = sample_inputs(plan.schedule.program)
    for found, wanted in zip(every(plan.simulate(*wholes)), reference(plan.schedule.program, wholes), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.devices
@pytest.mark.parametrize(
    "names",
    [
        ("P", "jax", "program", "x'"),
        ("lambda", "σ", "range", "zip"),
        ("x'", "x_prime", "x''", "ΔW'"),
        ("np", "jnp", "list", "int"),
    ],
)
def test_such_names_run_as_source_and_as_callable(names: tuple[str, ...]) -> None:
    import jax

    a, b, c, d = names
    text = f"{a}[I_X, J_Y] · {b}[J_Y, K] → {c}[I, K_X]; {c}[I, K_X] → {d}[I_X, K]"
    plan = shardc.plan(text, mesh={"X": 4, "Y": 2}, dims={"I": 8, "J": 16, "K": 8}, dtype="int32")
    scope: dict[str, object] = {}
    exec(compile(plan.source(), "emitted", "exec"), scope)
    x, w = np.arange(8 * 16, dtype=np.int32).reshape(8, 16) % 7, np.arange(16 * 8, dtype=np.int32).reshape(16, 8) % 5
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        placed = jax.device_put(x, jax.P("X", "Y")), jax.device_put(w, jax.P("Y", None))
        for made in (scope["program"], plan.compile()):
            assert np.array_equal(np.asarray(made(*placed)), x @ w)  # type: ignore[operator]


# --- arrays without a name, and return


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "inputs", "outputs"),
    [
        ("[A_X, B] → [A, B]", ["Array[A_X, B]"], ["Result[A, B]"]),
        ("[I, J_X] · [J_X, K] → [I, K]", ["Array[I, J_X]", "Array_2[J_X, K]"], ["Result[I, K]"]),
        (
            "Array[I] + [I_X] → [I]; [I]{U_X} → Result[I]",
            ["Array[I]", "Array_2[I_X]", "Array_3[I]{U_X}"],
            ["Result_2[I]", "Result[I]"],
        ),
        ("AllGather_X([I_X]) → [I]", ["Array[I_X]"], ["Result[I]"]),
    ],
)
def test_arrays_without_a_name(text: str, inputs: list[str], outputs: list[str]) -> None:
    plan = shardc.plan(text, mesh={"X": 2}, dims={dim: 8 for dim in "IJKAB" if dim in text}, dtype="int32")
    assert [array.sharding for array in plan.inputs] == inputs
    assert [array.sharding for array in plan.outputs] == outputs
    assert "Array" not in str(parse("[A_X, B] → [A, B]", mesh=shardc.Mesh.of({"X": 2})))
    assert parse(print_program(plan.schedule.program)) == plan.schedule.program
    wholes = sample_inputs(plan.schedule.program)
    for found, wanted in zip(every(plan.simulate(*wholes)), every(plan.reference(*wholes)), strict=True):
        assert np.array_equal(found, wanted)


def test_return_names_the_outputs_in_its_order() -> None:
    text = "A[I] → B[I]; relu(B) → C[I]; -C → D[I]"
    whole = np.array([-2.0, 3.0])
    assert parse(text).outputs == (2,)
    plan = shardc.plan(text + "; return D, B", mesh={}, dims={"I": 2}, dtype="f32")
    assert [list(value) for value in plan.simulate(whole)] == [[0, -3], [-2, 3]]
    assert [array.name for array in plan.outputs] == ["D", "B"]
    assert parse(print_program(plan.schedule.program)) == plan.schedule.program


def test_return_leaves_out_what_it_does_not_name() -> None:
    program = parse("mesh X=2; A[I_X] → B[I]; A → C[I_X]; return C")
    assert program.outputs == (1,) and "`B` is neither returned nor used, and is not computed" in program.warnings
    assert shardc.plan("A[I_X] → B[I]; A → C[I_X]; return C", mesh={"X": 2}).steps == ()


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "code", "place", "help"),
    [
        ("A[I] → Bb[I]; return B", "SHC217", "B", "did you mean `Bb`?"),
        ("A[I] → B[I]; return Q_1", "SHC217", "Q_1", "the statements make `B`"),
        ("A[I] → B[I]; return A", "SHC217", "A", "give the result a name of its own: `Out = A`"),
        ("A[I] → B[I]; return B, B", "SHC205", "B", "name each output once"),
        ("A[I] → B[I]; return B; B → C", "SHC101", "B → C", "move it before the `return`"),
        ("A[I] → B[I]; return B\nreturn B", "SHC101", "return B", "move it before the `return`"),
    ],
)
def test_what_return_refuses(text: str, code: str, place: str, help: str) -> None:
    with pytest.raises(ShardcError) as caught:
        parse(text)
    assert (caught.value.code, caught.value.help) == (code, help)
    assert caught.value.span is not None and caught.value.span.text == place


@pytest.mark.devices
def test_names_in_einsum_and_beside_xla() -> None:
    """`shardc.einsum` of arrays without a name, of one array under two names, and with a return; and the same program
    left to XLA, which the comparison runs."""
    import jax

    whole = np.arange(32, dtype=np.float32).reshape(8, 4)
    with jax.set_mesh(jax.make_mesh((4,), ("X",))):
        x, w = jax.device_put(whole, jax.P("X", None)), jax.device_put(np.ones((4, 8), np.float32), jax.P(None, None))
        assert np.array_equal(shardc.einsum("[I_X, J] · [J, K] → [I_X, K]", x, w), whole @ np.ones((4, 8)))
        scores = jax.jit(lambda x: shardc.einsum("x[T_X, D] · x[S_X, D] → A[T_X, S]", x))(x)
        assert np.array_equal(scores, whole @ whole.T)
        twice, turned = shardc.einsum("x'[T_X, D] → y[D, T]; y + y → z; return z, y", x)
        assert np.array_equal(turned, whole.T) and np.array_equal(twice, 2 * whole.T)
    plan = shardc.plan("x[T_X, D] · x[S_X, D] → A[T_X, S]", mesh={"X": 4}, dims={"T": 8, "D": 4}, dtype="f32")
    assert [tally.wire_bytes for tally in plan.compare(rounds=1).ours.collectives] == [3 * 2 * 4 * 4]

"""`for L { … }`: what is fixed, carried, scanned and stacked; its text read back; what it must not say."""

import numpy as np
import pytest

from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.program import For
from shardc.notation import parse, parse_tree, print_program, print_tree
from shardc.simulate import reference

MESH = Mesh.of({"X": 4, "Y": 2})
LAYER = "x[B_X, D] = relu(x[B_X, D] ·_D W[L, D, F_Y] ·_F V[F, D])"


def program(body, before="", after="", dims="L=4, M=2, B=16, D=16, F=32"):
    return parse(f"dims {dims}\n{before}\nfor L {{\n{body}\n}}\n{after}", mesh=MESH)


def loop_of(*text, **options):
    (loop,) = (each for each in program(*text, **options).statements if isinstance(each, For))
    return loop


def refused(*text, **options):
    with pytest.raises(ShardcError) as caught:
        program(*text, **options)
    return caught.value


def test_what_a_loop_takes_and_leaves():
    loop = loop_of(f"{LAYER}\ny[B_X] = sum_D(x)\nS[L, B_X] = relu(y)")
    assert (loop.fixed, loop.carried) == (("V",), ("x",))
    assert [(array.name, array.dims) for array in loop.scanned] == [("W", ("L", "D", "F"))]
    assert [(array.name, array.dims) for array in loop.stacked] == [("S", ("L", "B"))]
    assert [(array.name, array.dims) for array in loop.takes] == [
        ("V", ("F", "D")),
        ("x", ("B", "D")),
        ("W", ("D", "F")),
    ]


def test_the_outputs_are_what_is_carried_on_and_stacked():
    made = program(f"{LAYER}\nS[L, B_X] = sum_D(x)")
    assert [made.results[number].name for number in made.outputs] == ["x", "S"]
    made = program(f"{LAYER}\nS[L, B_X] = sum_D(x)", after="Out = exp(x)")
    assert [made.results[number].name for number in made.outputs] == ["S", "Out"]


def test_what_is_used_afterwards_with_the_dim_is_stacked():
    loop = loop_of(f"{LAYER}\ny = sum_D(x)", after="Out[B] = sum_L(y[B, L])")
    assert [(array.name, array.dims) for array in loop.stacked] == [("y", ("B", "L"))]


def test_an_array_with_the_dim_that_is_bound_again_leaves_its_rows():
    loop = loop_of("W[L, D, F] = W[L, D, F] - G[L, D, F]")
    assert loop.carried == () and [array.name for array in loop.stacked] == ["W"] == [loop.scanned[0].name]


def test_an_array_gathered_in_a_loop_is_not_carried():
    loop = loop_of("V[F, D] = AllGather_X(V[F, D_X])\n" + LAYER.replace("V[F, D]", "V"))
    assert (loop.fixed, loop.carried) == (("V",), ("x",))
    loop = loop_of("W[L, D, F] = AllGather_X(W[L, D_X, F])\n" + LAYER.replace("W[L, D, F_Y]", "W"))
    assert loop.stacked == () and loop.carried == ("x",)


def test_a_name_may_be_bound_several_times_in_a_trip():
    assert loop_of("x = x[B_X, D] + relu(x)\nx = x + exp(x)").carried == ("x",)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        f"for L {{ {LAYER} }}",
        f"for L {{\n{LAYER}; S[L, B] = sum_D(x)\n}}",
        f"for L {{\n# a comment\n\n  {LAYER}\n\n}}\nOut = x",
        "for M {\nG[D, F] = G[D, F] + A[M, B, D] ·_B H[M, B, F]\n}",
        "for L { for M { x[B, D] = x[B, D] + sum_F(W[L, M, D, F]) } }",
        "A[B, D]{U_X} → P[B_X, D]\nfor L { P = P + Q[L, B_X, D] }\nreturn P",
    ],
)
def test_what_is_printed_is_read_back(text):
    text = f"mesh X=4, Y=2\ndims L=4, M=2, B=16, D=16, F=32\n{text}"
    written = print_tree(parse_tree(text))
    assert parse_tree(written) == parse_tree(text) and print_tree(parse_tree(written)) == written
    made = parse(text)
    assert parse(print_program(made)) == made and print_program(parse(print_program(made))) == print_program(made)


def test_a_carried_array_keeps_its_dims_and_its_type():
    error = refused("x[B, F] = x[B, D] · W[L, D, F]")
    assert error.code == "SHC218" and "[B, D] before the loop, and [B, F] in it" in str(error)
    error = refused(
        "x: f32[B, D] = x ·_E W[E, D, F] · V[F, D, E]", before="x[B, E] = relu(y[B, E])", dims="L=2,B=4,D=4,E=4,F=4"
    )
    assert error.code == "SHC218" and "carried from trip to trip" in str(error)
    error = refused("n: f32[B] = sum_D(x[B, D])", before="n[B] = sum_D(x[B, D])")
    assert error.code == "SHC218" and "bf16 before the loop, and f32 in it" in str(error)


def test_a_loop_runs_along_no_sharded_dim():
    error = refused(LAYER.replace("W[L,", "W[L_X,").replace("F_Y", "F"))
    assert error.code == "SHC226" and "`L_X` of `W` is sharded" in str(error) and "reshard `W` before" in str(error)
    assert program(LAYER.replace("F_Y", "F"), before="W[L, D, F] = W[L_X, D, F]").statements
    with pytest.raises(ShardcError) as caught:
        parse("dims L=4, B=8\nfor L_X { x[B] = relu(x[B]) }", mesh=MESH)
    assert caught.value.code == "SHC226" and "write `for L {" in str(caught.value)


def test_a_loop_needs_the_size_of_its_dim():
    error = refused(LAYER, dims="B=16, D=16, F=32")
    assert error.code == "SHC208" and "--dims L=4" in str(error)


def test_what_a_loop_binds_for_nothing_is_refused():
    error = refused(f"{LAYER}\ny[B] = sum_D(x)")
    assert error.code == "SHC226" and "stack what the trips leave, `y[L, B]`" in str(error)


@pytest.mark.instant
@pytest.mark.parametrize(
    "after",
    [
        "return y",
        "Out[B] = relu(y)",
        "Out[B] = relu(y[B])",
        "Out[B] = relu(y[B_X])",
        "for M { Out[M, B] = Z[M, B] + y[B] }",
    ],
)
def test_what_a_loop_binds_for_itself_is_not_known_after_it(after):
    error = refused(f"{LAYER}\ny[B] = sum_D(x)\nS[L, B] = y", after=after)
    assert error.code == "SHC226" and "`y` is bound in the loop along `L` alone" in str(error)
    assert "bind `y` before the loop" in str(error) and "`y[L, B]`" in str(error)


def test_what_an_inner_loop_binds_for_itself_is_not_known_after_it():
    error = refused("for M { h = x[B] ⊙ a[L, M, B]; x = x + h }\nx = x + h[B]")
    assert error.code == "SHC226" and "`h` is bound in the loop along `M` alone" in str(error)


def test_a_name_of_a_loop_may_be_bound_again_after_it():
    after = "y[B] = sum_D(x)\nOut[B] = relu(y[B])\nfor M { y = y[B] + a[M, B] }"
    assert [array.name for array in program(f"{LAYER}\ny[B] = sum_D(x)\nS[L, B] = y", after=after).inputs] == list(
        "xWVa"
    )


def test_an_array_without_the_dim_is_not_taken_at_an_index():
    error = refused("x[B, D] = x[L, B, D] + y[B, D]", before="x[B, D] = relu(z[B, D])")
    assert error.code == "SHC210"


def test_loops_of_one_dim_do_not_nest():
    assert refused("for L { x[B] = relu(x[B]) }").code == "SHC226"


@pytest.mark.instant
@pytest.mark.parametrize(
    "text", ["for L {", "for L x = y", "for { x[B] = y[B] }", "for L { mesh X=4 }", "for L { x[B] = y[B]"]
)
def test_what_is_no_loop_has_a_code(text):
    with pytest.raises(ShardcError) as caught:
        parse(f"dims L=2, B=4\n{text}", mesh=MESH)
    assert caught.value.code.startswith("SHC1")


def test_loops_are_not_nested_without_end():
    text = "".join(f"for L{n} {{ " for n in range(12)) + "x[B] = relu(x[B])" + " }" * 12
    with pytest.raises(ShardcError) as caught:
        parse("dims B=4, " + ", ".join(f"L{n}=2" for n in range(12)) + f"\n{text}", mesh=MESH)
    assert caught.value.code == "SHC403"


def test_a_loop_may_begin_at_the_last_index():
    text = "dims L=4, M=2\nfor -L { for -M { x[B] = x[B] ⊙ a[L, M, B] } }\nOut[B] = x"
    loop = parse(text).statements[0]
    assert (loop.down, loop.body[0].down) == (True, True)
    assert parse(str(parse(text))) == parse(text) != parse(text.replace("-", ""))
    trips = parse("dims L=3, B=2\nfor -L { x[B] = 2 ⊙ x[B] + W[L, B]; S[L, B] = x }")
    rows = np.array([[1, 2], [3, 4], [5, 6]])
    left, stacked = reference(trips, [np.zeros(2), rows])
    assert np.array_equal(left, 4 * rows[2] + 2 * rows[1] + rows[0])
    assert np.array_equal(stacked, [left, 2 * rows[2] + rows[1], rows[2]])


def test_what_an_inner_loop_makes_is_stacked_where_it_is_used_after_both():
    made = program("for M { h = x[B] ⊙ a[L, M, B]; x = x + h }", after="Out[B, M] = sum_L(h[L, M, B])")
    assert [rows.dims for rows in made.statements[0].stacked] == [("L", "M", "B")]


RUNNING = "s[B] = a[L, B]\nfor M {{ {} }}"


@pytest.mark.instant
@pytest.mark.parametrize(
    "inner",
    ["s = s + b[M, B]; H[L, M, B] = relu(s)", "x[B] = x ⊙ s; s = s + b[M, B]", "t = s ⊙ x[B]; x = t; s = s + b[M, B]"],
)
def test_what_an_inner_loop_alone_reads_from_trip_to_trip_is_used(inner):
    """Begun anew in each trip of the outer loop, and read by nothing after the inner one."""
    before = "x[B] = relu(x0[B])"
    made = program(RUNNING.format(inner), before=before, dims="L=3, M=2, B=4")
    (loop,) = (each for each in made.statements if isinstance(each, For))
    assert "s" in loop.body[-1].carried and "s" not in loop.carried
    drawn = {array.name: np.random.default_rng(0).normal(size=made.shape(array.dims)) for array in made.inputs}
    x, rows = np.maximum(drawn.get("x0", 0), 0), []
    for a in drawn["a"]:
        for b in drawn["b"]:
            x, a, rows = x * a, a + b, [*rows, np.maximum(a + b, 0)]
    found = dict(zip((made.results[n].name for n in made.outputs), reference(made, list(drawn.values())), strict=True))
    np.testing.assert_allclose(found["H"].reshape(6, 4) if "H" in found else found["x"], rows if "H" in found else x)


def test_what_an_inner_loop_only_carries_on_is_used_by_nothing():
    error = refused(RUNNING.format("s = s + b[M, B]"), dims="L=3, M=2, B=4")
    assert error.code == "SHC226" and "`s` is bound in the loop alone, and nothing uses it" in str(error)


@pytest.mark.parametrize(("after", "rows"), [("\nz[L, B] = h", "`h[M, B]`"), ("", "`h[L, M, B]`")])
def test_the_rows_that_are_advised_are_those_of_every_loop_that_is_over(after, rows):
    error = refused(f"for M {{ h = x[B] ⊙ a[L, M, B]; x = x + h }}{after}", after="return h" if not after else "")
    assert error.code == "SHC226" and f"stack what the trips leave, {rows}" in str(error)


def test_what_a_loop_binds_for_itself_is_stacked_under_its_own_name():
    """`y = …` within, `y[L, M, B] = y` its rows: read after the loops by that name, with their dims."""
    inside = "for M { y = x[B] ⊙ a[L, M, B]; y[L, M, B] = y; x = x + y }"
    made = program(inside, after="Z[L, M, B] = 2 · y\nreturn Z, x", dims="L=3, M=2, B=4")
    rng = np.random.default_rng(1)
    x, a = rng.standard_normal(4), rng.standard_normal((3, 2, 4))
    rows, at = np.zeros((3, 2, 4)), x
    for one in range(3):
        for other in range(2):
            rows[one, other] = at * a[one, other]
            at = at + rows[one, other]
    found = dict(zip(("Z", "x"), reference(made, [x, a]), strict=True))
    np.testing.assert_allclose(found["Z"], 2 * rows)
    np.testing.assert_allclose(found["x"], at)


@pytest.mark.parametrize("body", ["x = a[L, B] ⊙ x[B]; x[L, B] = x", "y = a[L, B] ⊙ x[B]; x[L, B] = relu(y)"])
def test_what_is_carried_is_not_stacked_under_its_own_name(body):
    error = refused(body, dims="L=3, B=4")
    assert error.code == "SHC218" and "`x_rows[L, B] = x`" in str(error)


@pytest.mark.parametrize("down", ["", "-"])
def test_positions_along_a_loops_own_dim_are_the_number_of_the_trip(down):
    """In loops within it too, and under the dim's name in small letters, primed where that is taken."""
    body = (
        f"x = where(index_L < 2, x[B] ⊙ l[L, B], 0.5 ⊙ x); for {down}M {{ x = x + (index_L + 2 · index_M) ⊙ b[M, B] }}"
    )
    made = program(body, after="return x", dims="L=3, M=2, B=4")
    text = print_program(made)
    assert "l'[L] = index_L" in text and "m[M] = index_M" in text and parse(text, mesh=MESH) == made
    rng = np.random.default_rng(2)
    drawn = {"x": rng.standard_normal(4), "l": rng.standard_normal((3, 4)), "b": rng.standard_normal((2, 4))}
    at = drawn["x"]
    for one in range(3):
        at = at * drawn["l"][one] if one < 2 else 0.5 * at
        for other in reversed(range(2)) if down else range(2):
            at = at + (one + 2 * other) * drawn["b"][other]
    (found,) = reference(made, [drawn[each.name] for each in made.inputs])
    np.testing.assert_allclose(found, at)

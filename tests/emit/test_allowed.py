"""What emitted text may say: programs pass, and loops of any other form than ours are refused."""

import pytest

import shardc
from shardc.emit.allowed import check_source

MESH, SIZES = {"X": 2, "Y": 2, "Z": 2}, {"I": 16, "J": 16, "K": 16}
LOOP = "    for turn in range(2):\n        piece = jax.lax.dynamic_slice_in_dim(A, turn * 8, 8, axis=0)\n"


def module(body):
    return f'"""A[I]."""\n\nimport jax\n\n\n@jax.jit\ndef program(A):\n{body}    return A\n'


def test_the_loop_that_we_write_is_allowed():
    assert check_source(module(LOOP)) == module(LOOP)


@pytest.mark.instant
@pytest.mark.parametrize(
    "body",
    [
        LOOP.replace("turn in", "other in"),
        LOOP.replace("turn in", "turn, piece in"),
        LOOP.replace("range(2)", "range(A)"),
        LOOP.replace("range(2)", "range(-2)"),
        LOOP.replace("range(2)", "range(0, 2)"),
        LOOP.replace("range(2)", "[1, 2]"),
        LOOP + "    else:\n        A = A\n",
        LOOP + "        jax.lax.axis_index(A)\n",
        LOOP + "        return A\n",
        LOOP + "        for turn in range(2):\n            A = A\n",
        "    while A:\n        A = A\n",
        "    A = [turn for turn in range(2)]\n",
    ],
)
def test_other_loops_are_refused(body):
    with pytest.raises(shardc.ShardcError) as error:
        check_source(module(body))
    assert error.value.code == "SHC900"


@pytest.mark.instant
@pytest.mark.parametrize("name", ["turn", "place", "piece", "joined"])
@pytest.mark.parametrize("text", ["A[I_X, J_Y] → A[I_YX, J]", "A[I_X, J_Y] → A[I, J]"])
def test_an_array_does_not_take_the_names_of_a_loop(text, name):
    source = shardc.plan(text.replace("A[", f"{name}["), mesh=MESH, dims=SIZES, objective="bytes").source()
    assert f"def program({name}_1):" in source and f"{name}_1 = joined  # {name}[" in source


def test_places_in_several_dims_are_of_one_type():
    """Where 64 bits are the rule, a bare 0 has them, and axis_index has 32."""
    text = "A[I_Y, J_X, K_Z] → A[I_XYZ, J, K]"
    source = shardc.plan(text, mesh=MESH, dims=SIZES, objective="bytes").source()
    assert "jax.lax.dynamic_update_slice(" in source and "jnp.int32(0)" in source


@pytest.mark.instant
@pytest.mark.parametrize(
    ("names", "is_ours"),
    [
        ("program", True),
        ("run program", True),
        ("run run2 program", True),
        ("helper program", False),
        ("program run", False),
        ("run", False),
        ("run helper program", False),
        ("run program helper", False),
    ],
)
def test_a_module_has_functions_of_our_names_in_our_order(names, is_ours):
    every = "\n\n".join(f"@jax.jit\ndef {name}(A):\n    return A\n" for name in names.split())
    text = f'"""A[I]."""\n\nimport jax\n\n\n{every}'
    if is_ours:
        assert check_source(text) == text
        return
    with pytest.raises(shardc.ShardcError, match="a module of another shape"):
        check_source(text)

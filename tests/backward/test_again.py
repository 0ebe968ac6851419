"""Recomputation without loops: what is kept, that it is the same gradient, and that the compiler does it."""

import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import cli, simulate
from shardc.ir.plan import every_step

sys.path.insert(0, str(Path(__file__).parent))
from test_grad import CLOSE, differs, parsed

SIZES = {"B": 16384, "D": 1024, "F": 4096}


def deep(count, function="relu"):
    """Blocks with a residual, one after another, as text."""
    lines = []
    for n in range(count):
        x = f"x{n}" if n else "x0[B_X, D]"
        lines.append(f"z{n}[B_X, F_Y] = {x} ·_D W{n}[D, F_Y]; h{n}[B_X, F_Y] = {function}(z{n})")
        lines.append(f"x{n + 1}[B_X, D] = x{n} + h{n} ·_F V{n}[F_Y, D]")
    return "\n".join(lines)


ATTENTION = """h[B_X, T, D] = x[B_X, T, D] ⊙ rsqrt(mean_D(square(x)) + 1e-6)
q[B_X, T, E_Y] = h ·_D Wq[D, E_Y]; k[B_X, S, E_Y] = h[B, S, D] ·_D Wk[D, E_Y]
A = softmax_S(q ·_E k); o = A ·_S k; y[B_X, T, D] = x + o ·_E Wo[E_Y, D]"""


WITHIN = re.sub(r"z\d\[B_X, F_Y\] = (.*?); (.*)\(z\d\)", r"\2(\1)", deep(2, "sin"))  # the product has no name


@pytest.mark.parametrize("text", [deep(2, "sin"), ATTENTION], ids=["deep", "attention"])
@pytest.mark.parametrize("remat", ["selective", True])
def test_what_is_made_again_gives_the_same_gradients(text, remat):
    """A name that stands for the wrong array, or one that is made too late, shows."""
    program = parsed(text)
    again = shardc.grad(program, whole=True, remat=remat)
    assert differs(program, again) < CLOSE
    assert "again(" in str(again)
    assert shardc.plan(again).prove().holds


def test_from_layer_to_layer_one_array_is_kept():
    """Of twelve statements the array after every fourth or more that alone leads on."""
    again = str(shardc.grad(parsed(deep(4)), whole=True, remat=True))
    assert set(re.findall(r"again\((\w+)\)", again)) == {"x0", "x2"}
    assert not re.findall(r"\b[hz]\d\b(?!')", again[again.index("again") :])


def test_what_forward_gave_no_name_is_made_again_too():
    """sin(x · W): backward needs the product, and finds it equal to forward's if it reads the same x."""
    program = parsed(WITHIN)
    assert "sin(x0[B_X, D] ·_D W0[D, F_Y])" in WITHIN
    again = shardc.grad(program, whole=True, remat=True)
    assert differs(program, again) < CLOSE
    assert not re.findall(r"(?<!again\()\bx\d ·_D", str(again)[str(again).index("again") :])


def test_selectively_what_contracts_nothing_with_a_weight_is_made_again():
    again = str(shardc.grad(parsed(ATTENTION), whole=True, remat="selective"))
    assert set(re.findall(r"again\((\w+)\)", again)) == {"x", "q", "k"}
    assert len(re.findall(r"·_D Wq", again)) == 1


def test_each_is_behind_a_barrier_that_waits_for_the_gradient():
    """In the emitted text: `optimization_barrier((x, g))[0]`, where g was made just before."""
    plan = shardc.plan(shardc.grad(parsed(deep(4)), whole=True, remat=True))
    barriers = re.findall(r"jax\.lax\.optimization_barrier\((.*)\)", plan.source())
    assert len(barriers) == 2 and barriers[-1].startswith("(x0, ")
    made = [done.step for done in every_step(plan.schedule.block) if done.step.name == "again"]
    assert len(made) == 2


@pytest.mark.exhaustive
def test_the_more_is_made_again_the_less_is_kept_and_the_more_is_computed():
    program = parsed(deep(4), dims=SIZES)
    plans = [shardc.plan(shardc.grad(program, whole=True, remat=remat)) for remat in (False, True)]
    kept = [sum(one.bytes for one in plan.memory.kept) for plan in plans]
    assert kept[1] < 0.4 * kept[0]
    assert plans[0].cost.flops < plans[1].cost.flops


def test_where_it_changes_nothing_the_command_says_why(capsys):
    assert cli._status(["grad", "y[I_X, K] = x[I_X, J] · W[J, K]", "--mesh", "X=2", "--whole", "--remat"]) == 0
    told = capsys.readouterr().err
    assert "note: --remat changes nothing: backward reads no array that forward makes between" in told


@pytest.mark.tpu
@pytest.mark.long
def test_recomputation_survives_the_compiler():
    """The compiled program's own memory: eight layers' hidden arrays without, two layers' with."""
    pytest.importorskip("libtpu")
    program = shardc.parse(deep(4), mesh={"X": 8, "Y": 1}, dims=SIZES, dtype="bf16", topology="v5p:2x2x2")
    found = [shardc.plan(shardc.grad(program, whole=True, remat=remat)).verify() for remat in (False, True)]
    sizes = [each.compiled_memory.temporary_bytes for each in found]
    assert sizes[1] < 0.8 * sizes[0]
    assert found[1].replayed.compute_s > 1.1 * found[0].replayed.compute_s
    assert all(each.agrees for each in found)


def layers_under_a_mask(x, M):
    for _ in range(4):
        x = jnp.where(M, jnp.sin(x), 0.5 * x)
    return x


def attention_under_masks(both):
    def attended(x, W, M):
        q = jnp.einsum("bte,ed->btd", x, W)
        seen = both(jnp.tril(jnp.ones((4, 4), bool)), M[:, None, :])
        return jnp.einsum("bts,bsd->btd", jax.nn.softmax(jnp.where(seen, q @ q.mT, -1e9)), q)

    return attended


LAYERS = "\n".join(f"x{n + 1}[B_X, D] = where(M: bool[B_X, D], sin(x{n}[B_X, D]), 0.5 ⊙ x{n})" for n in range(4))
MASKED = """q[B_X, T, D] = x[B_X, T, E] ·_E W[E, D]; k[B_X, S, D] = q[B, S, D]; s[B_X, T, S] = q ·_D k
p[B_X, T, S] = softmax_S(where({both}(index_T >= index_S, M: bool[B_X, S]), s, -1e9)); y[B_X, T, D] = p ·_S k"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "text, by_hand",
    [
        (LAYERS, layers_under_a_mask),
        (MASKED.format(both="and"), attention_under_masks(jnp.logical_and)),
        (MASKED.format(both="or"), attention_under_masks(jnp.logical_or)),
    ],
    ids=["layers", "and", "or"],
)
@pytest.mark.parametrize("remat", ["selective", True])
def test_masks_are_made_again_too(text, by_hand, remat):
    """What is true or false is read under another name, and met each with each; the gradients are JAX's."""
    program = shardc.parse(text, mesh={"X": 2}, dims={"B": 4, "D": 3, "E": 3, "T": 4, "S": 4}, dtype="f32")
    again = shardc.grad(program, whole=True, remat=remat)
    assert "again(" in str(again) and (remat == "selective" or "again(M)" in str(again))
    rng = np.random.default_rng(0)
    drawn = {each.name: rng.normal(size=program.shape(each.dims)) for each in program.inputs}
    drawn["M"] = drawn["M"] > 0
    arrays = [drawn[name] for name in ("x", "W", "M") if name in drawn] if "x" in drawn else [drawn["x0"], drawn["M"]]
    left, pull = jax.vjp(lambda *floats: by_hand(*floats, arrays[-1]), *(jnp.float32(each) for each in arrays[:-1]))
    last = rng.normal(size=left.shape)
    found = simulate.reference(again, [drawn.get(each.name, last) for each in again.inputs])
    for ours, theirs in zip(found[1:], pull(jnp.float32(last)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert shardc.plan(again).prove().holds

"""What a statement writes several times costs no more than the same with a name: prices do not depend on where
statements end."""

import random
import sys
from functools import lru_cache
from pathlib import Path

import pytest

import shardc
from shardc.planner.whole.repeated import with_arrays_shared
from shardc.proving import Verdict, prove
from shardc.testing import assert_schedule_legal

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

MESHES = ("X=2", "X=4", "X=2,Y=2", "X=2,Y=4", "X=2,Y=2,Z=2")
SLICES = {"X=4": "v5e:2x2", "X=2,Y=2": "v5e:2x2", "X=2,Y=4": "v5e:2x4", "X=2,Y=2,Z=2": "v5p:2x2x2"}
SIZES = (64, 256, 512, 1024, 2048)
CHAINS = (("IJ", "JK"), ("IJ", "JK", "KL"), ("IJL", "JK"), ("IJ", "JKL", "LM"), ("IJ", "KJ"), ("JI", "KBJ"))
AROUND = ("{}", "{}", "{}", "relu({})", "gelu({})")
READERS = (
    "{0} ⊙ rsqrt(mean_{r}({0} ⊙ {0}) + 1e-2)",
    "{0} ⊙ rsqrt(mean_{r}(square({0})) + 1e-2)",
    "{0} / (1 + sum_{r}({0}))",
    "softmax_{r}({0}) ⊙ {0}",
    "({0} - mean_{r}({0})) ⊙ rsqrt(mean_{r}(square({0})) + 1e-2)",
    "sum_{r}({0}) ⊙ sum_{r}(square({0}))",
    "sum_{r}({0}) + max_{r}({0})",
    "relu({0}) ⊙ square({0})",
    "exp({0} - max_{r}({0}))",
    "relu({0}) ·_{r} W[{r}, N]",
)
REDUCED = ("sum_{r}({0}) ⊙ sum_{r}(square({0}))", "sum_{r}({0}) + max_{r}({0})")


def laid(random, dims, axes):
    """Dims in brackets, some of the axes on them."""
    lies = {dim: [] for dim in dims}
    for axis in axes:
        if random.random() < 0.6:
            lies[random.choice(dims)].append(axis)
    spelled = [dim + ("_{" + ",".join(own) + "}" if own else "") for dim, own in lies.items()]
    return "[" + ", ".join(spelled) + "]"


def drawn(seed):
    """A statement with an expression in it twice or more, the same with that named, and what is asked."""
    draw = random.Random(seed)
    mesh = draw.choice(MESHES)
    axes = [each.split("=")[0] for each in mesh.split(",")]
    chain = draw.choice(CHAINS)
    dims = list(dict.fromkeys("".join(chain)))
    ended = [dim for dim in dims if sum(dim in each for each in chain) > 1]
    kept = [dim for dim in dims if dim not in ended]
    arrays = [f"{name}{laid(draw, each, axes)}" for name, each in zip("ABC", chain, strict=False)]
    product = arrays[0]
    for before, array, each in zip(chain, arrays[1:], chain[1:], strict=False):
        product = f"{product} ·_{next(dim for dim in each if dim in before)} {array}"
    one, reader, over = draw.choice(AROUND).format(f"({product})"), draw.choice(READERS), draw.choice(kept)
    if reader.endswith("N]"):
        left = [*(dim for dim in kept if dim != over), "N"]
    else:
        left = [dim for dim in kept if dim != over] if reader in REDUCED else kept
    result = f"y{laid(draw, draw.sample(left, len(left)), axes)}"
    written = f"{result} = {reader.replace('{r}', over).replace('{0}', one)}"
    named = f"p = {one}; {result} = {reader.replace('{r}', over).replace('{0}', 'p')}; return y"
    objective = draw.choice(("time", "time", "bytes"))
    hardware = {"topology": SLICES[mesh]} if mesh in SLICES and draw.random() < 0.4 else {"chip": draw.choice(CHIPS)}
    sizes = {dim: draw.choice(SIZES) for dim in [*dims, "N"] if dim in dims or reader.endswith("N]")}
    asked = {"mesh": mesh, "dims": sizes, "dtype": draw.choice(("bf16", "f32")), "objective": objective, **hardware}
    return written, named, asked


CHIPS = ("v5e", "v5p")


def price(text, asked):
    cost = shardc.plan(text, **asked).cost
    return cost.time_s if asked["objective"] == "time" else cost.wire_bytes


@lru_cache(maxsize=2)
def prices(seed):
    """Of a drawn statement, as written and with its expression named."""
    written, named, asked = drawn(seed)
    return price(written, asked), price(named, asked)


IN_ANOTHER_ORDER = pytest.mark.xfail(
    reason="the array has its dims in the result's order, [K, M, I]; named, in the product's, [I, K, M], and is turned",
    strict=True,
)
LEFT = {82, 192}  # 1.12 and 1.02 times as dear


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=IN_ANOTHER_ORDER if seed in LEFT else ()) for seed in range(200)]
)
def test_what_is_written_several_times_costs_no_more_than_with_a_name(seed):
    """Of 200, 55 took up to 2.93 times as much."""
    written, named = prices(seed)
    assert written <= 1.02 * named, drawn(seed)


ON_THE_CHIP = pytest.mark.xfail(
    reason="of small arrays no table knows what the compiler brings to the chip, or the product is better made twice",
    strict=True,
)
DEARER_NAMED = {11, 56, 64, 65, 80, 81, 135}  # 1.04 to 1.40 times as dear


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=ON_THE_CHIP if seed in DEARER_NAMED else ()) for seed in range(200)]
)
def test_a_name_costs_no_more_than_what_it_stands_for(seed):
    """Of 200, 21 took up to 1.46 times as much: sums of a product that has a name, functions of it that are turned, and
    steps that were one and had two names where they were priced."""
    written, named = prices(seed)
    assert named <= 1.02 * written, drawn(seed)


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_what_is_shared_means_the_statement(seed):
    written, _, asked = drawn(seed)
    sizes = dict.fromkeys(asked["dims"], 16)
    found = shardc.plan(written, **asked | {"dims": sizes})
    assert prove(found.schedule, found.source()).verdict is not Verdict.WRONG
    assert_means_the_program(found.schedule)


HEADS = "(c[J, S_X, F] ·_S l[S, K_{Z,Y}] ·_K h[S_Y, B, K])"
HEAD_SIZES = {"J": 64, "S": 1024, "F": 256, "K": 1024, "B": 256}
NORMS = ("{0} ⊙ rsqrt(mean_F({0} ⊙ {0}) + 1e-2)", "{0} ⊙ rsqrt(mean_F(square({0})) + 1e-2)")


@pytest.mark.parametrize("norm", NORMS)
def test_the_norm_of_a_chain_of_products(norm):
    asked = {"mesh": "X=2,Y=2,Z=2", "dims": HEAD_SIZES, "dtype": "bf16", "chip": "v5p", "objective": "time"}
    result = "y[B, S_Z, F_X, J_Y]"
    written, named = f"{result} = {norm.format(HEADS)}", f"p = {HEADS}; {result} = {norm.format('p')}"
    assert price(written, asked) <= 1.001 * price(named, asked)


ON_A_SLICE = {"mesh": "X=2", "topology": "v5e:2x1", "dims": {"I": 256, "J": 64, "L": 512, "K": 256}, "dtype": "bf16"}


@pytest.mark.parametrize("norm", [each.replace("F", "L") for each in NORMS])
@pytest.mark.parametrize("order", ["I_X, L, K", "K, L, I_X"])
def test_the_same_steps_are_priced_alike(norm, order):
    """What a norm reads and writes was nothing where the order `A · (B ⊙ r)` was planned: 122 µs, of 320 replayed."""
    product, asked = "(A[I_X, J, L] ·_J B[J, K])", ON_A_SLICE | {"objective": "time"}
    written, named = f"y[{order}] = {norm.format(product)}", f"p = {product}; y[{order}] = {norm.format('p')}; return y"
    assert price(written, asked) == pytest.approx(price(named, asked), rel=0.001)


SMALL = {"mesh": "X=2", "dims": {"E": 6, "F": 2048, "K": 2048}, "dtype": "f32", "chip": "v5e", "objective": "time"}


@pytest.mark.parametrize("again", ["W ·_F V", "W[E, F] ·_F V[F, K_X]"])
def test_a_sum_of_a_product_that_is_made_anyway_reads_it(again):
    """`sum_K(W · V)` is read as `W · sum_K(V)`, which reads all of V once more."""
    written = f"y[E] = sum_K(W[E, F] ·_F V[F, K_X]) ⊙ sum_K(square({again}))"
    named = "p = W[E, F] ·_F V[F, K_X]; y[E] = sum_K(p) ⊙ sum_K(square(p))"
    assert price(written, SMALL) <= 1.001 * price(named, SMALL)
    (statement,) = shardc.plan(written, **SMALL).statements
    assert statement.text.startswith("y[E] = sum_K(W[E, F]")


@pytest.mark.parametrize("readers", ["a[E, K] = relu({0}); b[E, K_X] = exp({0})", "a[K, E_X] = {0}; b[E] = sum_K({0})"])
def test_statements_that_write_the_same_share_it(readers):
    once = readers.format("p")
    written, named = readers.format("(W[E, F] ·_F V[F, K_X])"), f"p = W[E, F] ·_F V[F, K_X]; {once}; return a, b"
    assert price(written, SMALL) <= 1.001 * price(named, SMALL)


LOOP = """
h[I, K] = relu(x[I_X, J] ·_J V[J, K]) ⊙ tanh(x ·_J V)
for L {
    h[I, K] = relu(h ·_K W[L, K, M]) ·_M U[M, K] + tanh(h ·_K W) ·_M U
}
y[I_X, K] = tanh(x ·_J V) ⊙ (tanh(h ·_K T[K, M]) ·_M U) ⊙ max_M(h ·_K T)
return y
"""


def test_a_loop_and_a_name_that_is_bound_anew():
    """`x ·_J V`, its tanh, `h ·_K W` of each trip, `h ·_K T`; of h before the loop nothing after it."""
    sizes = dict.fromkeys("IJKML", 8)
    program = shardc.parse(LOOP, mesh="X=2", dims=sizes, dtype="f32")
    shared, *_ = with_arrays_shared(program)
    assert len(shared.program.statements) == len(program.statements) + 3
    assert [told.number for told in shared.told] == [0, 0, 0, 1, 2, 2]
    for found in (shardc.plan(program, chip="v5e"), shardc.plan(shared.program, chip="v5e")):
        assert_means_the_program(found.schedule)


@pytest.mark.parametrize("seed", range(0, 200, 25))
def test_a_limit_is_kept_and_is_no_lower_than_what_is_refused(seed):
    written, _, asked = drawn(seed)
    peak = shardc.plan(written, **asked).cost.peak_bytes
    try:
        found = shardc.plan(written, memory=peak - 1, **asked)
    except shardc.ShardcError as error:
        assert error.code == "SHC410"
    else:
        assert found.cost.peak_bytes < peak
        assert_schedule_legal(found.schedule)


def test_what_else_is_known_of_a_statement_is_on_the_mesh_of_its_plan():
    """The sum of a product, and of its squares: the plan of an array that both read is on X, of the statement on X0
    and X1. Strategies of the one were priced on the mesh of the other: a KeyError."""
    product = "(A[I, J] ·_J B[J, K] ·_K C[K, L_X])"
    sizes = {"I": 2048, "J": 1024, "K": 256, "L": 512}
    plan = shardc.plan(
        f"y[L] = sum_I({product}) ⊙ sum_I(square({product}))", mesh="X=4", dims=sizes, dtype="f32", topology="v5e:2x2"
    )
    assert plan.schedule.by is None

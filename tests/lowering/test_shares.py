"""Which softmaxes add up by a product, that lowering and price agree on it, and that it is proved."""

import re

import pytest

import shardc
from shardc.emit import source
from shardc.ir.expressions import Call, parts_of
from shardc.ir.functions import FUNCTIONS
from shardc.ir.plan import Apply, Einsum, Loop
from shardc.ir.program import For, Statement
from shardc.lowering.loops import account_of
from shardc.lowering.lower import lower
from shardc.proving import prove

ONES = "jnp.broadcast_to(jnp.bfloat16(1), "
SIZES = {"B": 8, "T": 512, "S": 2048, "H": 8, "E": 128, "L": 3, "M": 16384}
SCORES, READ = "s[B_X, T, H_Y, S] = q[B_X, T, H_Y, E] · k[B_X, S, H_Y, E]", "o[B_X, T, H_Y, E] = p · v[B_X, S, H_Y, E]"


def planned(text, dims=(), **options):
    options = {
        "mesh": "X=2,Y=4",
        "dims": SIZES | dict(dims),
        "dtype": "bf16",
        "topology": "v5e:2x4",
        "idle": "keep",
    } | options
    return shardc.plan(text, **options)


def lowered(plan):
    """Of each softmax whether it adds up by a product, those of loops too."""

    def of(block, lowering):
        for step, form in zip(block.steps, lowering.forms, strict=True):
            if isinstance(step.op, Loop):
                yield from of(step.op.body, form.body)
            elif goes_through(step) or is_sum(step, block):
                yield form.by_product

    return [*of(plan.schedule.block, lower(plan.schedule))]


def is_through(call):
    return FUNCTIONS[call.function].across > 1


def goes_through(step):
    return isinstance(step.op, Apply) and FUNCTIONS[step.op.function].across > 1


def is_sum(step, block):
    """Of exponentials, as over a sharded dim."""
    made = [each.op for each in block.steps if each.results[0] in step.operands]
    return isinstance(step.op, Einsum) and made == [Apply("exp")]


def priced(program):
    """The same, as prices have it."""

    def of(program):
        account = account_of(program)
        for each in program.statements:
            if isinstance(each, For):
                yield from of(program.inside(each))
            elif isinstance(each, Statement):
                calls = [part for part in parts_of(each.expr) if isinstance(part, Call) and is_through(part)]
                yield from (bool(account.passes(call).multiplied) for call in calls)

    return [*of(program)]


TEXTS = {
    f"{SCORES}; p = softmax_S(s); {READ}": True,
    f"{SCORES}; p = softmax_S(where(index_T >= index_S, s / 3, -inf)); {READ}": True,
    f"{SCORES}; p = softmax_S(s); {READ}; return o, p": True,
    f"{SCORES}; p = 2 · softmax_S(s) ⊙ m[B_X, T, H_Y, S]; {READ}": True,
    f"{SCORES}; p = softmax_S(s) + softmax_S(2 · s); {READ}": True,
    "s[B_X, H_Y, S, T] = q[B_X, T, H_Y, E] · k[B_X, S, H_Y, E]; p[H_Y, T, S, B_X] = softmax_S(s); " + READ: True,
    "s[T_X, S] = q[T_X, E] · k[S, E]; p = softmax_S(s); o = p · v[S, E]": True,
    "for L { s[T_X, S] = x[T_X, E] · k[L, S, E]; x[T_X, E] = softmax_S(s) · v[L, S, E] }; return x": True,
    f"{SCORES}; p = softmax_S(s); o = relu(p)": False,  # no product reads it
    f"{SCORES}; p = softmax_S(s); return p": False,
    f"p = softmax_S(s[B_X, T, H_Y, S]); {READ}": False,  # scores are given
    f"p = softmax_S(relu(s[B_X, T, H_Y, S])); {READ}": False,
    "s[T_X, S] = q[T_X, E] · k[S, E]; z[T_X] = logsumexp_S(s)": True,
    "s[T_X, S] = q[T_X, E] · k[S, E]; z[T_X] = logsumexp_S(s) - sum_S(where(index_S == y: int32[T_X], s, 0))": True,
    f"{SCORES}; z[H_Y, B_X, T] = logsumexp_S(s / 3)": True,
    "s[M_X, S_Y] = q[M_X, E] · k[S_Y, E]; z[M_X] = logsumexp_S(s)": True,
    "s[T_X, S_Y] = q[T_X, E] · k[S_Y, E]; p[T_X, S_Y] = softmax_S(s); o = p · v[S_Y, E]": True,
    "s[T_X, S_Y] = q[T_X, E] · k[S_Y, E]; p[T_X, S_Y] = softmax_S(s); return p": False,
    "z[T_X] = logsumexp_S(s[T_X, S])": False,
    "z[T_X] = logsumexp_S(s[T_X, S_Y])": False,
    f"{SCORES}; p = softmax_{{T,S}}(s); {READ}": False,  # of two dims
    "s[B_X, T, H_Y] = q[B_X, T, H_Y, E] ·_E w[E]; p = softmax_T(s); o = p · v[B_X, T, H_Y, E]": False,  # no tiles
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_softmax_between_products_adds_up_by_one(text):
    plan = planned(text)
    found = lowered(plan)
    assert set(found) == {TEXTS[text]}
    assert priced(plan.schedule.program) == found


@pytest.mark.parametrize(
    ("dims", "options", "is_so"),
    [
        ({"S": 256}, {}, True),
        ({"S": 255}, {}, False),
        ({}, {"topology": "v5p:2x2x2"}, True),
        ({}, {"topology": None}, False),  # no compiler is named
        ({}, {"topology": None, "chip": "h100"}, False),
        ({}, {"dtype": "f32"}, False),  # it would be rounded
    ],
)
def test_of_long_rows_of_bf16_for_a_tpu(dims, options, is_so):
    assert lowered(planned(f"{SCORES}; p = softmax_S(s); {READ}", dims, **options)) == [is_so]


@pytest.mark.instant
@pytest.mark.parametrize(("dims", "is_so"), [({"T": 8, "S": 256}, True), ({"T": 2048, "S": 255}, False)])
def test_of_a_sum_of_exponentials_it_is_the_row_that_is_long(dims, is_so):
    """Where no function over dims is beside it, and whatever is left."""
    assert lowered(planned("s[T_X, S] = q[T_X, E] · k[S, E]; z[T_X] = sum_S(exp(s))", dims)) == [is_so]


def test_scores_that_are_summed_over_devices_are_no_tiles():
    text = "s[T, S] = q[T, E_X] · k[S, E_X]; p = softmax_S(s); o = p · v[S, E]"
    plan = planned(text, {"E": 65536})
    assert "AllReduce" in str(plan) and lowered(plan) == [False]


def test_it_takes_as_long_as_scores_are_read():
    text = f"{SCORES}; p = softmax_S(s); {READ}"
    plan = planned(text)
    (step,) = [step for step in plan.steps if "W_write" not in step.formula]  # of scores on the chip
    one, two = (planned(text, {"S": size}) for size in (255, 256))
    assert step.formula.startswith("(2·B·T·H·S/X/Y / W_read + T_function)·0.3") and two.cost.time_s < one.cost.time_s


@pytest.mark.parametrize("text", [text for text, is_so in TEXTS.items() if is_so])
def test_it_is_proved_and_a_bug_in_it_is_seen(text):
    plan = planned(text)
    emitted = source(plan.schedule, "v5e")
    assert ONES in emitted and prove(plan.schedule, emitted).holds
    sums = re.findall(r'"([^"]*)",?\s+\w+,\s+' + re.escape(ONES), emitted)[0]
    letters, _, left = sums.partition("->")
    wrong = [
        emitted.replace("jnp.bfloat16(1)", "jnp.bfloat16(2)"),
        emitted.replace("jnp.divide(", "jnp.multiply("),
        emitted.replace("stop_gradient(jnp.max(", "stop_gradient(jnp.min("),
        emitted.replace("jnp.add(jnp.log(", "jnp.subtract(jnp.log("),
        emitted.replace(sums, f"{letters}->a{left[:0:-1]}") if len(left) > 2 else emitted,
    ]
    assert [each for each in wrong if each != emitted and prove(plan.schedule, each).holds] == []
    assert sum(each != emitted for each in wrong) >= 2


@pytest.mark.tpu
@pytest.mark.exhaustive
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
def test_attention_takes_what_is_priced(topology):
    """The loop over elements takes 1.2 to 1.8 times as long."""
    text = f"{SCORES}; p = softmax_S(s); {READ}"
    plan = planned(text, {"B": 16, "T": 2048, "S": 2048, "H": 16}, topology=topology)
    assert plan.verify().replayed.step_s == pytest.approx(plan.cost.time_s, rel=0.3)

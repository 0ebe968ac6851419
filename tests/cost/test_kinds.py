"""The memory of a training step by kind: told by what is computed of what, and adding up to the one figure."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import cli
from shardc.cost.formulas import evaluate
from shardc.cost.kinds.alive import at_peak
from shardc.cost.kinds.critical import off_path
from shardc.cost.kinds.flow import Flow
from shardc.cost.kinds.playbook import SCORES_UNDROPPED, UNDROPPED
from shardc.cost.kinds.told import told as kinds_told
from shardc.cost.memory import peak_bytes
from shardc.ir.plan import single_steps
from shardc.report.kinds import kinds_table
from shardc.simulate import reference, sample_inputs
from shardc.testing import backward_programs, loops, programs

EXAMPLES = Path(__file__).parents[2] / "examples"
FORWARD = "h[B_X, F] = relu(x[B_X, D] ·_D W[D, F]); y[B_X, D] = h ·_F V[F, D]"
SIZES = {"mesh": {"X": 2}, "dims": {"B": 8, "D": 8, "F": 16}}
BACKWARD = "dh[B_X, F] = where(h > 0, dy[B_X, D] ·_D V, 0); gW[D, F] = x ·_B dh; gV[F, D] = h ·_B dy"
KINDS = ("weights", "gradients", "optimizer", "activations", "temporaries")


def example(name):
    program = shardc.parse((EXAMPLES / f"{name}.shard").read_text(encoding="utf-8"))
    return program if name.startswith("zero") else shardc.grad(program, whole=True)


@cache
def planned(name, topology=None):
    return shardc.plan(shardc.parse(str(example(name)), topology=topology))


def told(plan):
    """The inputs and outputs of each kind, by name."""
    found = plan.memory
    assert found is not None
    return {kind: " ".join(names) for kind, names in ends(plan).items() if names}


def ends(plan):
    found = kinds_told(plan.schedule.block)
    flow = found.flow
    names = [array.name for array in (*plan.inputs, *plan.outputs)]
    kinds = [found.kinds[number].value for number in (*flow.inputs, *flow.outputs)]
    return {kind: [name for name, of in zip(names, kinds, strict=True) if of == kind] for kind in KINDS}


def per_parameter(plan):
    return {held.kind.value: held.parameter for held in plan.memory.held[:3]}


# --- one figure


@settings(max_examples=20, deadline=None)
@given(st.one_of(programs(), loops(), backward_programs()))
def test_what_is_alive_at_the_peak_is_what_memory_counts(case):
    """A value that counts twice, is forgotten, or dies a step early or late is off by its bytes."""
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    schedule = plan.schedule
    flow = Flow.of(schedule.block)

    def size(value):
        return flow.values[value].local_bytes(schedule.mesh)

    alive = at_peak(schedule.block, flow, size)
    assert sum(count * size(value) for value, count in alive.items()) == peak_bytes(schedule.block, schedule.mesh)


@pytest.mark.parametrize(
    ("name", "topology"),
    [("fsdp", None), ("layers", None), ("zero_1", None), ("fsdp", "v5p:2x2x2"), ("zero_1", "v5p:2x2x2")],
)
def test_the_kinds_add_up_to_the_one_figure(name, topology):
    plan = planned(name, topology)
    assert sum(held.peak for held in plan.memory.held) == plan.cost.peak_bytes
    assert sum(held.given for held in plan.memory.held) <= plan.cost.peak_bytes
    if topology is None:
        assert sum(held.given for held in plan.memory.held) == sum(array.bytes for array in plan.inputs)
        for held in plan.memory.held[:3]:
            assert evaluate(held.formula, plan.symbols) == max(held.given, held.left)
        for kept in plan.memory.kept:
            assert evaluate(kept.formula, plan.symbols) == kept.bytes


LOOPS = [
    "for L { S[L, I] = neg(g[I]); g = g + W[L, I] }; return S, g",
    "for L { S[L, I] = g[I] ⊙ V[I]; g = S ⊙ W[I]; T[L, I] = W + U[L, I] }; return S, g, T",
    "for L { for M { x = x[I] + W[I]; S[M, I] = neg(x) }; T[L, M, I] = S }; y[I] = x + Y[I]; return T, y",
    "a[I] = exp(A[I]); for L { b = b[I] ⊙ a; c = c[I] + b }; return c",
]


@pytest.mark.instant
@pytest.mark.parametrize("text", LOOPS)
def test_a_value_is_made_of_the_inputs_that_change_it(text):
    """Of a loop's, also by way of the trips before, as NumPy has it when one input after another is changed."""
    plan = shardc.plan(text, mesh={"X": 2}, dims={"I": 4, "L": 3, "M": 2})
    flow, wholes = Flow.of(plan.schedule.block), [whole**2 + 1 for whole in sample_inputs(plan.program)]
    outputs, changed = reference(plan.program, wholes), dict.fromkeys(range(len(plan.outputs)), 0)
    for place in range(len(wholes)):
        others = reference(plan.program, [whole + (n == place) for n, whole in enumerate(wholes)])
        for number, (one, other) in enumerate(zip(outputs, others, strict=True)):
            changed[number] |= int(not np.allclose(one, other)) << place
    reached = flow.reached()
    assert [reached[number] for number in flow.outputs] == [*changed.values()]


def test_rows_are_the_trips_that_made_them():
    plan = shardc.plan(LOOPS[2], mesh={"X": 2}, dims={"I": 4, "L": 3, "M": 2})
    flow = Flow.of(plan.schedule.block)
    assert sorted((flow.values[number].name, rows) for number, rows in flow.rows.items()) == [("S", 2), ("T", 6)]


# --- the books' formulas


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("zero_1", ("2", "2", "12/X")),
        ("zero_2", ("2", "2/X", "12/X")),
        ("zero_3", ("2/X", "2/X", "12/X")),
        ("data_parallel", ("2", "2", "")),
        ("fsdp", ("2/X", "2/X", "")),
        ("tensor_parallel", ("2/Y", "2/Y", "")),
        ("mlp", ("2/X/Y", "2/X/Y", "")),
        ("hybrid_sharding", ("2/X", "2/X", "")),
        ("sequence_parallel", ("0.003899 + 1.996/Y", "0.003899 + 1.996/Y", "")),
        ("layers", ("2/data/model", "2/data/model", "")),
    ],
)
def test_what_a_parameter_takes_is_what_the_books_say(name, wanted):
    """Of sequence parallelism the gain of the norm, 64 of 32,832 parameters, is whole on each device."""
    assert tuple(per_parameter(planned(name)).values()) == wanted


def test_data_parallelism_is_two_and_two_and_twelve():
    text = (EXAMPLES / "zero_1.shard").read_text(encoding="utf-8").replace("D_X", "D")
    assert tuple(per_parameter(shardc.plan(text)).values()) == ("2", "2", "12")


GPT = """mesh data=2
dims {dims}
dtype bf16
n[B_data, T, D] = x[B_data, T, D] ⊙ g[D]
q = n · Wq[D, H, E]
k = n[B, S, D] · Wk[D, H, E]
v = n[B, S, D] · Wv[D, H, E]
o = softmax_S(q ·_E k) ·_S v
y = x + o ·_{{H,E}} Wo[H, E, D]
m = y ⊙ g2[D]
Out[B_data, T, D] = y + gelu(m ·_D Win[D, F]) ·_F Wout[F, D]
"""


@pytest.mark.parametrize(
    ("dims", "layers"),
    [
        ("B=8, T=8, S=8, D=32, H=8, E=4, F=128", (1, 8, 8, 32, 8)),  # rows, tokens and heads alike
        ("B=2, T=32, S=32, D=16, H=4, E=16, F=32", (1, 2, 32, 16, 4)),
    ],
)
def test_what_a_layer_keeps_is_what_the_playbook_counts_for_it(dims, layers):
    """Norms keep their input; gelu its input, which what it leaves is made of again, and 8 s·b·h are not kept."""
    plan = shardc.plan(shardc.grad(shardc.parse(GPT.format(dims=dims)), whole=True), idle="keep")
    found = plan.memory.layers
    assert (found.layers, found.rows, found.tokens, found.hidden, found.heads) == layers
    _, b, s, h, a = layers
    assert found.bytes_of() == s * b * h * 34 + 5 * a * s * s * b
    sizes = plan.dims
    inner, middle = 2 * sizes["H"] * sizes["E"], 2 * sizes["F"]
    of_a_layer = b * s * (2 * 4 * h + 4 * inner + middle) + 2 * a * s * s * b
    assert sum(one.whole for one in plan.memory.kept) == of_a_layer
    said = [line.split() for line in kinds_table(plan.memory).splitlines()]
    [kept], [beside] = ([row for row in said if row[:2] == words] for words in (["what", "is"], ["L·s·b·h·(34", "+"]))
    assert float(kept[-1]) == pytest.approx(of_a_layer / (b * s * h), abs=0.005)
    assert float(beside[-1]) == pytest.approx(34 + 5 * a * s / h, abs=0.005)
    assert sum(float(row[-1]) for row in said if "2·B·" in "".join(row)) == pytest.approx(float(kept[-1]), abs=0.05)
    undropped = found.bytes_of(UNDROPPED, SCORES_UNDROPPED)
    assert (middle, inner) != (8 * h, 2 * h) or of_a_layer + b * s * middle == undropped


def test_the_playbook_is_silent_of_what_is_no_transformer_layer():
    attention = GPT.format(dims="B=4, T=8, S=8, D=8, H=2, E=4, F=8").split("m = ")[0]  # without its MLP
    plan = shardc.plan(shardc.grad(shardc.parse(attention), whole=True), idle="keep")
    assert plan.memory.kept and plan.memory.layers is None
    assert planned("layers").memory.layers is None


# --- how they are told apart


@pytest.mark.instant
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "fsdp",
            {"weights": "Win Wout", "gradients": "dWin dWout", "activations": "In", "temporaries": "dOut Out dIn"},
        ),
        (
            "cross_entropy",
            {"weights": "W", "gradients": "dW", "activations": "x Token", "temporaries": "dLoss Loss dx"},
        ),
        (
            "mixture_of_experts",
            {
                "weights": "Wi Wo",
                "gradients": "dWi dWo",
                "activations": "Dispatch x Combine",
                "temporaries": "dy y dDispatch dx dCombine",
            },
        ),
        (
            "zero_1",
            {
                "weights": "W W_new",
                "gradients": "g",
                "optimizer": "m v p m_new v_new p_new",
                "activations": "In",
                "temporaries": "dOut Out",
            },
        ),
    ],
)
def test_the_arrays_of_an_example(name, wanted):
    assert told(planned(name)) == wanted


STEPS = {
    "plain descent": (
        "W_new[D, F] = W - 0.1 ⊙ gW; V_new[F, D] = V - 0.1 ⊙ gV; return y, W_new, V_new",
        {"weights": "W V W_new V_new", "activations": "x", "temporaries": "dy y"},
    ),
    "momentum": (
        "m_new = 0.9 ⊙ m[D, F] + gW; W_new[D, F] = W - 0.1 ⊙ m_new; return y, m_new, W_new",
        {"weights": "W W_new", "optimizer": "m m_new", "activations": "x V", "temporaries": "dy y"},
    ),
    "Adam, all of one type": (
        "m_new = 0.9 ⊙ m[D, F] + 0.1 ⊙ gW; v_new = 0.9 ⊙ v[D, F] + 0.1 ⊙ square(gW)\n"
        "W_new[D, F] = W - m_new / sqrt(v_new); return y, W_new, v_new, m_new",
        {"weights": "W W_new", "optimizer": "m v v_new m_new", "activations": "x V", "temporaries": "dy y"},
    ),
    "a sum over calls": (
        "S_new = S[D, F] + gW; return y, S_new, gV",
        {"weights": "W V", "gradients": "S S_new gV", "activations": "x", "temporaries": "dy y"},
    ),
    "one gradient": (
        "return y, gW",
        {"weights": "W", "gradients": "gW", "activations": "x V", "temporaries": "dy y"},
    ),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", STEPS)
def test_the_arrays_of_a_step(name):
    after, wanted = STEPS[name]
    plan = shardc.plan(f"{FORWARD}\n{BACKWARD}\n{after}", **SIZES)
    assert {kind: set(names.split()) for kind, names in told(plan).items()} == {
        kind: set(names.split()) for kind, names in wanted.items()
    }


MOMENTUM = "m_new = 0.9 ⊙ m[D_X, F] + 0.1 ⊙ g[D_X, F]"
UPDATES = {  # a program of an optimizer alone: its text, and its weights, gradients and state
    "plain descent": ("W_new = W[D_X, F] - 0.01 ⊙ g[D_X, F]", "W W_new", "g", ""),
    "momentum": (
        f"{MOMENTUM}; W_new = W[D_X, F] - 0.01 ⊙ m_new; return W_new, m_new",
        "W W_new",
        "g",
        "m m_new",
    ),
    "AdamW": (
        f"{MOMENTUM}; v_new = 0.99 ⊙ v[D_X, F] + 0.01 ⊙ square(g)\n"
        "W_new = W[D_X, F] - 0.01 ⊙ (m_new / (sqrt(v_new) + 1e-8) + 0.1 ⊙ W); return W_new, m_new, v_new",
        "W W_new",
        "g",
        "m v m_new v_new",
    ),
    "Lion": (
        "u = sign(0.9 ⊙ m[D_X, F] + 0.1 ⊙ g[D_X, F]); m_new = 0.99 ⊙ m + 0.01 ⊙ g\n"
        "W_new = W[D_X, F] - 0.01 ⊙ u; return W_new, m_new",
        "W W_new",
        "g",
        "m m_new",
    ),
    "momentum of a gradient in another type": (
        "m_new = 0.1 ⊙ f32(g: bf16[D_X, F]) + 0.9 ⊙ m[D_X, F]; W_new = W[D_X, F] - m_new; return m_new, W_new",
        "W W_new",
        "g",
        "m m_new",
    ),
    "two weights, and gradients cut to one length": (
        "n[] = sqrt(sum_{D,F}(square(g[D_X, F])) + sum_F(square(c[F_X])))\n"
        "m_new = 0.9 ⊙ m[D_X, F] + g / n; k_new = 0.9 ⊙ k[F_X] + c / n\n"
        "W_new = W[D_X, F] - m_new; b_new = b[F_X] - k_new; return W_new, m_new, b_new, k_new",
        "W W_new b b_new",
        "g c",
        "m m_new k k_new",
    ),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", UPDATES)
def test_the_arrays_of_an_update(name):
    """Without forward and backward; and as they are called otherwise, and where they are said in another order."""
    text, weights, gradients, state = UPDATES[name]
    wanted = {"weights": weights, "gradients": gradients, "optimizer": state}
    for other in (text, re.sub(r"\b[WmvgckbWu](?=\b|_new)", lambda word: "T" + word[0], text)):
        plan = shardc.plan(other, mesh={"X": 4}, dims={"D": 64, "F": 128}, dtype="f32")
        renamed = other.count("TW") > 0
        found = {kind: {each.removeprefix("T" * renamed) for each in of} for kind, of in ends(plan).items() if of}
        assert found == {kind: set(names.split()) for kind, names in wanted.items() if names}
        parameters = 64 * 128 + 128 * ("b_new" in text)
        assert kinds_told(plan.schedule.block).parameters == parameters


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "C = A[I_X] + B[I_X]",
        "y[B_X, D] = x[B_X, D] + b[D]; z = relu(y); return y, z",
    ],
)
def test_a_plan_of_a_sum_is_no_update(text):
    assert shardc.plan(text, mesh={"X": 4}, dims={"I": 8, "B": 8, "D": 8}).memory is None


@pytest.mark.instant
@pytest.mark.parametrize("updated", ["W - s ⊙ g", "W - 0.01 ⊙ (g + s)", "W - 0.01 ⊙ g ⊙ s"])
def test_a_program_with_a_product_that_sums_is_no_update(updated):
    text = f"s[D, F] = a[D, E] · b[E, F]; W_new = {updated.replace('W', 'W[D, F]').replace('g', 'g[D, F]')}"
    plan = shardc.plan(text, mesh={"X": 4}, dims={"D": 8, "E": 8, "F": 8}, dtype="f32")
    assert kinds_told(plan.schedule.block) is None


RECURRENT = """
h[B_X, H] = 0; c[B_X, H] = 0
for T {
  i = sigmoid(x[T, B_X, D] ·_D Wi[D, H] + h[B_X, G] ·_G Ui[G, H])
  c = c ⊙ (1 - i) + i ⊙ tanh(x ·_D Wc[D, H] + h[B_X, G] ·_G Uc[G, H])
  h = i ⊙ tanh(c)
}
return h
"""


@pytest.mark.parametrize("wrt", [None, "Wi"])
def test_what_a_loop_over_time_reads_in_each_trip_are_weights(wrt):
    """Each array has a dim of all products; the weights are not taken row by row."""
    sizes = {"T": 3, "B": 8, "D": 4, "H": 4, "G": 4}
    program = shardc.parse(RECURRENT, mesh={"X": 4}, dims=sizes, dtype="f32")
    plan = shardc.plan(shardc.grad(program, wrt, whole=True))
    found = ends(plan)
    assert set(found["weights"]) >= {"Wi"} and "x" not in found["weights"]
    assert wrt is not None or set(found["weights"]) == {"Wi", "Ui", "Wc", "Uc"}
    assert "dWi" in found["gradients"]


def test_what_a_state_is_moved_to_is_of_its_kind():
    """Nesterov's momentum, gathered for the weights, m[D, F] of m[D_X, F]; and what is gathered to go out."""
    after = "n[D_X, F] = 0.9 ⊙ m[D_X, F] + gW; m_new[D, F] = AllGather_X(n); W_new = W - 0.1 ⊙ (gW + 0.9 ⊙ m[D, F])"
    plan = shardc.plan(f"{FORWARD}\n{BACKWARD}\n{after}; return y, m_new, W_new", **SIZES)
    found = kinds_told(plan.schedule.block)
    named = [(str(array), kind.value) for array, kind in zip(found.flow.values, found.kinds, strict=True)]
    assert {array for array, kind in named if kind == "optimizer"} == {
        "m[D_X, F]", "m[D, F]", "n[D, F]", "n[D_X, F]", "m_new[D, F]"
    }  # fmt: skip


def test_what_is_kept_is_called_by_what_it_is_made_of():
    text = "h[B_X, F] = square(relu(x[B_X, D] ·_D W[D, F]) + c[B_X, F]); y[B_X, D] = h ·_F V[F, D]"
    plan = shardc.plan(shardc.grad(shardc.parse(text, **SIZES), whole=True))
    assert [kept.made for kept in plan.memory.kept] == ["x", "x · W", "add(relu(x · W), c)", "h"]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("name", "wanted"), [("fsdp", "Win Wout dWin dWout"), ("tensor_parallel", ""), ("data_parallel", "dWin dWout")]
)
def test_what_is_off_the_critical_path(name, wanted):
    plan = planned(name)
    off = off_path(kinds_told(plan.schedule.block), plan.schedule.block)
    steps = [done.step for done in single_steps(plan.schedule.block) if done.path in off]
    assert sorted(plan.schedule.values[step.result].name for step in steps) == wanted.split()
    assert all(step.is_collective for step in steps)


@pytest.mark.instant
@pytest.mark.parametrize("name", ["zero_1", "fsdp"])
def test_no_name_tells_them_apart(name):
    """The same program with other names of its arrays, in which each has that of another."""
    text = str(example(name))
    names = sorted({array.name for array in example(name).inputs} | {each.name for each in shardc.plan(text).outputs})
    other = dict(zip(names, names[3:] + names[:3], strict=True))
    renamed = re.sub(r"\w+(?=\[|\b)", lambda word: other.get(word[0], word[0]), text)
    given, found = ends(shardc.plan(text)), ends(shardc.plan(renamed))
    assert found == {kind: [other[name] for name in of] for kind, of in given.items()}


@pytest.mark.parametrize(
    "name", ["attention", "fsdp", "gradient", "layers", "micro_batches", "mixture_of_experts", "mlp", "reshard"]
)
def test_what_is_no_training_step_has_no_kinds(name):
    found = shardc.plan((EXAMPLES / f"{name}.shard").read_text(encoding="utf-8"))
    assert found.memory is None
    assert "memory by kind" not in str(found) and "memory" not in json.loads(found.to_json(1))


def test_the_table_and_the_json_show_them():
    found = planned("zero_1")
    assert "  optimizer    12.3 kB  12.3 kB  12.3 kB        12/X B = 1.5 B" in str(found).splitlines()
    fields = json.loads(found.to_json(1))["memory"]
    assert fields["parameters"] == 64 * 128 and list(fields["kinds"]) == list(KINDS)
    assert fields["kinds"]["optimizer"]["bytes_per_parameter"] == 1.5
    assert [(one["made"], one["trips"]) for one in fields["activations"]] == [("In", 2)]


def test_the_command_shows_a_step_and_what_making_again_saves(capsys):
    """In is read again, so that relu(Tmp), four times as large, is kept no more."""
    assert cli._status(["memory", str(EXAMPLES / "fsdp.shard"), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert [one["made"] for one in fields["memory"]["activations"]][:2] == ["In", "relu(Tmp)"]
    assert list(fields["made_again"]) == ["nothing", "selectively", "all"]
    assert cli._status(["memory", str(EXAMPLES / "fsdp.shard"), "--remat", "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert [one["made"] for one in fields["memory"]["activations"]] == ["In"]
    assert cli._status(["memory", str(EXAMPLES / "attention.shard")]) == 4
    assert "no input is a weight" in capsys.readouterr().err


def test_memory_by_kind_is_a_line_where_python_shows_it():
    line = repr(planned("mlp").memory)
    assert line.startswith("<ByKind: at the peak weights ") and all(kind in line for kind in KINDS)


@pytest.mark.parametrize("remat", [False, "selective", True])
@pytest.mark.parametrize("returns", ["loss", "loss, y", "y, loss"])
def test_targets_of_an_output_that_goes_out_are_no_incoming_gradient(returns, remat):
    """z has the dims of y and is read after it, as dy would be; the loss is made of both."""
    text = f"{FORWARD}; loss[] = sum_{{B,D}}(square(y - z[B_X, D])); return {returns}"
    step = shardc.grad(shardc.parse(text, **SIZES), "W,V", whole=True, remat=remat)
    found = told(shardc.plan(step))
    assert found["weights"] == "W V" and found["gradients"] == "dW dV"
    assert {*found["temporaries"].split()} >= {"dloss", *(["dy"] if "y" in returns else [])}

"""What the module's text does at the width that the formatter keeps."""

import ast
from dataclasses import replace

import pytest
from hypothesis import given, settings

import shardc
from shardc.emit import source
from shardc.emit.allowed import ALIKE, MAPPED, PARTED, TABLES, TAKEN
from shardc.emit.call.gradient import _part
from shardc.emit.steps import calls
from shardc.emit.steps.local import letters
from shardc.emit.steps.variables import taken_names, variables
from shardc.emit.text.source import lay_out_return
from shardc.ir.plan import How
from shardc.lowering.together import candidates
from shardc.proving.prove import prove
from shardc.testing import partial_programs


@pytest.mark.instant
@pytest.mark.parametrize(("width", "lines"), [(87, 1), (88, 1), (89, 4)])
def test_a_return_is_split_where_the_formatter_splits_it(width, lines):
    names = ("A" * 30, "B" * (width - len("    return , ") - 30))
    found = lay_out_return(names)
    assert len(found) == lines and "".join(line.strip() for line in found).count("A") == 30
    assert max(map(len, found)) <= 88 and (lines > 1 or len(found[0]) == width)


@pytest.mark.instant
@settings(max_examples=8)
@given(partial_programs())
def test_every_level_is_four_spaces_in(case):
    text = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, objective="bytes").source()
    for body in (node.body for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.For)):
        assert all(line.col_offset % 4 == 0 and line.col_offset == body[0].col_offset for line in body), text


NAMED = [  # a program, and what its module names beside its variables and what every module does
    ("A[I_X, J] → A[I, J]", {"mesh": "X=2"}, set()),
    ("A[I_X, J_Y] → A[I_Y, J_X]", {"mesh": "X=4,Y=6"}, {*TABLES, ALIKE, MAPPED}),
    ("A[I, J]{U_X} → A[I_X, J]", {"mesh": "X=2"}, set(PARTED)),
    ("A[I_X, J] · B[J, K] → C[I, K]{U_X}", {"mesh": "X=2"}, set(PARTED)),
]


@pytest.mark.instant
@pytest.mark.parametrize(("text", "asked", "beside"), NAMED, ids=[text for text, *_ in NAMED])
def test_only_what_a_module_has_is_taken(text, asked, beside):
    schedule = shardc.plan(text, dims=dict.fromkeys("IJK", 96), objective="bytes", **asked).schedule
    assert taken_names(schedule) == TAKEN | beside


def test_a_variable_named_as_a_table_is_called_otherwise_and_a_prime_is_spelled():
    (first, *_), asked = sorted(TABLES), {"dims": {"I": 96, "J": 96}, "objective": "bytes"}
    uneven = shardc.plan(f"{first}[I_X, J_Y] → {first}[I_Y, J_X]", mesh="X=4,Y=6", **asked).source()
    assert f"def program({first}_1)" in uneven
    even = shardc.plan(f"{first}[I_X, J_Y] → {first}[I_Y, J_X]", mesh="X=4,Y=4", **asked).source()
    assert f"def program({first})" in even
    assert "def program(W_prime)" in shardc.plan("W'[I_X, J] → V[I, J]", mesh="X=4", **asked).source()


LONG = "a_name_that_is_cut_where_they_differ"


@pytest.mark.instant
@pytest.mark.parametrize("how", [How.RING, How.CHUNKS])
def test_what_is_left_piece_by_piece_takes_no_name_of_what_is_still_read(how):
    """A result is called as its operand was, where that is read no more: not in a ring, which reads it in each turn."""
    text = f"{LONG}_2[I_Y, J_X] = {LONG}_1[I_Y, K] · E[K_Y, J_X]"
    schedule = shardc.plan(text, mesh="X=2,Y=2", dims=dict.fromkeys("IJK", 64), chip="v5e", idle="keep").schedule
    found = [replace(ordered, together=(group,)) for ordered, group in candidates(schedule) if group.how is how]
    assert found
    for each in found:
        assert prove(each, source(each, "v5e")).holds


@pytest.mark.instant
@pytest.mark.parametrize("returned", ["_1", "_2"])
def test_what_a_loop_leaves_has_variables_of_its_own_though_nobody_reads_it(returned):
    """What is carried and what is stacked are cut to one name."""
    text = f"for L {{ {LONG}_1 = relu({LONG}_1[I_X]); {LONG}_2[L, I_X] = neg({LONG}_1) }}; return {LONG}{returned}"
    schedule = shardc.plan(text, mesh="X=2", dims={"I": 8, "L": 3}).schedule
    names = variables(schedule.block, taken_names(schedule))
    (loop,) = schedule.steps
    assert len({names[value] for value in loop.results}) == len(loop.results) > 0
    assert prove(schedule, source(schedule, "v5e")).holds


FINER = {  # programs that are planned on a finer mesh, with so many arguments and results
    "G[I_X, K] = A[I_X, J] · A[K_X, J]": (1, 1),
    "A[I_X, J] · B[J, K_X] → C[I_X, K]": (2, 1),
    "C[I_X, K] = A[I_X, J] · B[J, K_X]; D[I_X, K] = C ⊙ C + E[K_X]; return C, D": (3, 2),
}


@pytest.mark.parametrize("text", FINER)
def test_a_program_on_a_finer_mesh_takes_one_array_or_several_and_leaves_as_many(text):
    sizes, (given_, left) = {"I": 16, "J": 32, "K": 16}, FINER[text]
    schedule = shardc.plan(text, mesh="X=8", dims=sizes, objective="bytes").schedule
    assert schedule.by is not None
    written = source(schedule, "v5e")
    assert prove(schedule, written).holds
    functions = {node.name: node for node in ast.parse(written).body if isinstance(node, ast.FunctionDef)}
    assert len(functions["program"].args.args) == len(functions["refined"].args.args) == given_
    assert written.count("out_specs=P(") == (left == 1)


def test_what_is_left_to_xla_as_a_whole_names_no_collective():
    """Nor has it steps of its own, whether groups of these were to be done as one or not."""
    text = "C[I_X, K_Y] = A[I_X, J_Y] · B[J_X, K_Y]"
    schedule = shardc.plan(text, mesh="X=2,Y=2", dims=dict.fromkeys("IJK", 64), idle="keep").schedule
    groups = [(group,) for _, group in candidates(schedule) if group.how is How.PARTITIONER]
    for together in ((), groups[0]):
        written = source(replace(schedule, by_xla=True, together=together), "v5e")
        assert "shard_map" not in written and "jax.lax.all" not in written and "auto_axes" in written
        assert prove(replace(schedule, by_xla=True, together=together), written).holds
    assert "shard_map" in source(schedule, "v5e") and "auto_axes" not in source(schedule, "v5e")


@pytest.mark.instant
@pytest.mark.parametrize("count", [1, 26, 27, 52])
def test_as_many_dims_meet_in_a_product_as_there_are_letters(count):
    dims = tuple(f"D{number}" for number in range(count))
    found = letters(dims)
    assert tuple(found) == dims and len({*found.values()}) == count
    assert all(letter.isalpha() and len(letter) == 1 for letter in found.values())


def test_more_dims_than_letters_are_refused():
    with pytest.raises(shardc.ShardcError) as caught:
        letters(tuple(f"D{number}" for number in range(53)))
    assert caught.value.code == "SHC402" and "53 dims" in str(caught.value)


def test_a_product_that_names_no_type_is_proved_where_a_slice_is_named():
    """An exchange alone reads it: of bf16 on a TPU, which adds up in f32 either way."""
    text = "T[I_X, J, L, M] = A[I_X, K] · B[K, J, L, M]; D[I, J_X, L, M] = T"
    asked = {"mesh": "X=4", "dims": {"I": 16, "J": 16, "K": 64, "L": 4, "M": 4}, "overlap": "off", "objective": "bytes"}
    for topology, names_it in (("v5p:2x2x1", False), (None, True)):
        plan = shardc.plan(text, topology=topology, **asked)
        assert ("preferred_element_type" in plan.source()) == names_it
        assert plan.prove().holds


def test_what_is_done_as_one_is_so_in_a_part_that_has_all_its_steps():
    """Cut anywhere, as a gradient's plan is in two."""
    text = "h[B_X, F_Y] = relu(x[B_X, D] · W[D_X, F_Y]); y[B_X, D] = h · V[F_Y, D]"
    program = shardc.parse(text, mesh="X=4,Y=4", dims="B=32768,D=8192,F=16384", dtype="bf16", topology="v5e:4x4")
    whole = shardc.plan(shardc.grad(program, whole=True)).schedule
    groups = [(group.how, made(whole, group)) for group in whole.together]
    assert len(groups) > 1
    for cut in range(len(whole.steps) + 1):
        for steps in (whole.steps[:cut], whole.steps[cut:]):
            part, left = _part(whole, (), (), steps), [step.results for step in steps]
            found = [(group.how, made(part, group)) for group in part.together]
            assert found == [(how, each) for how, each in groups if all(results in left for results in each)]


def made(schedule, group):
    return [schedule.steps[place].results for place in group.places]


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    ["A[I, J_X] · B[J_X, K] → C[I_X, K]; D[I_X, K] = relu(C)", "A[I_X, J] → A[I, J]", "C[I_X, K] = A[I, J] · B[J, K]"],
)
def test_every_line_is_of_its_step_and_they_are_counted_from_the_first(text):
    schedule = shardc.plan(text, mesh="X=4", dims={dim: 8 for dim in "IJK" if dim in text}).schedule
    places = [line.step for line in calls.body(schedule).code if line.step is not None]
    assert places == sorted(places) and {*places} == {*range(len(schedule.steps))}

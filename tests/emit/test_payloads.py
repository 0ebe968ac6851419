"""Whatever is put where a name belongs is refused with a code, or is a name: nothing of it ever runs as code."""

from __future__ import annotations

import ast
import builtins

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc

RUN = "canary()"
PAYLOADS = [
    *(RUN, f"A;{RUN}", f"A\n{RUN}", f"A\r{RUN}", f"A\u2028{RUN}", f"A\x0c{RUN}", f"A # \n{RUN}", f"A\\\n{RUN}"),
    *(f'"""\n{RUN}\n"""', f'A"""; {RUN} """', f"A'''\n{RUN}", f'{{{RUN}}}', f"{{A!r:{RUN}}}", f"\\N{{DASH}}{RUN}"),
    *(f"(lambda: {RUN})()", f"[{RUN}][0]", f"A if {RUN} else B", f"A := {RUN}", f"@{RUN}", f"A.{RUN}", f"A, {RUN}"),
    *("A\n", "A\r\n", " A", "A\0", "canary", "__import__", "__class__", "print", "exec", "import", "None", "True"),
    *("jax", "jnp", "np", "P", "program", "trip", "carried", "A.B", "A[0]", "ﬁ", "ｃanary", "ca\u00adnary", "_", "1A"),
]  # fmt: skip

# Each place where a user names something: a text, and the options beside it.
SLOTS = {
    "array": lambda name: (f"{name}[I_X, J] → C[I, J]", {}),
    "result": lambda name: (f"A[I_X, J] → {name}[I, J]", {}),
    "dim": lambda name: (f"A[{name}_X, J] · B[J, K] → C[{name}_X, K]", {}),
    "contracted dim": lambda name: (f"A[I, {name}_X] · B[{name}_X, K] → C[I, K]", {}),
    "axis": lambda name: (f"A[I_{{{name}}}] → A[I]", {"mesh": {name: 2}}),
    "declared axis": lambda name: (f"mesh {name}=2\nA[I_{{{name}}}] → A[I]", {"mesh": None}),
    "option's axis": lambda name: ("A[I_X] → A[I]", {"mesh": f"X=2,{name}=2"}),
    "option's dim": lambda name: ("A[I_X] → A[I]", {"dims": {"I": 8, name: 8}}),
    "declared dim": lambda name: (f"dims {name}=8\nA[{name}_X] → A[{name}]", {}),
    "type": lambda name: (f"A: {name}[I_X] → A[I]", {}),
    "option's type": lambda name: ("A[I_X] → A[I]", {"dtype": name}),
    "function": lambda name: (f"{name}(A[I_X]) → C[I_X]", {}),
    "dim of a function": lambda name: (f"softmax_{name}(A[I_X, {name}]) → C[I_X, {name}]", {}),
    "loop": lambda name: (f"for {name} {{ x[B_X] = relu(x[B_X] ⊙ W[{name}, B_X]) }}; return x", {"dims": {name: 3}}),
    "returned": lambda name: (f"{name}[I] = A[I_X]; return {name}", {}),
    "chip": lambda name: ("A[I_X] → A[I]", {"chip": name}),
    "topology": lambda name: ("A[I_X] → A[I]", {"topology": name}),
    "remark": lambda name: (f"A[I_X] → A[I]  # {name}", {}),
}


class Ran(Exception):
    """Something of what was given ran."""


def canary(*_):
    raise Ran


def put(slot, name):
    """The source of a plan with that name in that place is a module of definitions, and to load it runs none of it."""
    text, options = SLOTS[slot](name)
    try:
        source = shardc.plan(text, **({"mesh": {"X": 2}} | options)).source()
    except shardc.ShardcError as error:
        assert error.exit_code != 70, error
        return False
    module = ast.parse(source)
    assert all(isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.Expr) for node in module.body)
    called = {ast.unparse(node.func) for node in ast.walk(module) if isinstance(node, ast.Call)}
    assert "canary" not in called and not any(isinstance(node, ast.JoinedStr | ast.Lambda) for node in ast.walk(module))
    exec(compile(module, "emitted", "exec"), {"__name__": "emitted"})
    return True


@pytest.fixture(autouse=True, scope="module")
def planted():
    """Wherever code looks a name up, this one is found."""
    builtins.canary = canary
    yield
    del builtins.canary


@pytest.mark.parametrize("slot", SLOTS)
def test_a_payload_in_the_place_of_a_name_never_runs(slot):
    taken = [name for name in PAYLOADS if put(slot, name)]
    assert len(taken) < len(PAYLOADS) / 2 or slot == "remark"


PIECES = [RUN, "canary", "\n", '"""', "'", ";", "#", "\\", "{", "}", "(", ")", "A", "I", "_", "X", " ", "\u2028", "@"]


@settings(max_examples=120, deadline=None)
@given(slot=st.sampled_from(sorted(SLOTS)), name=st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join))
def test_no_text_in_the_place_of_a_name_runs(slot, name):
    put(slot, name)


def test_what_runs_is_seen():
    """Code with a call in it fails at once, so that a name that became code would be met."""
    with pytest.raises(Ran):
        exec(compile("canary()", "emitted", "exec"), {})

"""What a bound takes arrays on the way for, held against numbers: their rank, and what makes them zero."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.planner.bounds.bound import _given, _values

LONG, SHORT = "IJKLMN", "PQRSTU"  # dims of 6, and of 2: what is summed over a short one has a low rank
SIZES = dict.fromkeys(LONG, 6) | dict.fromkeys(SHORT, 2)
INPUTS = {"A": "IJ", "B": "JK", "C": "IP", "D": "PJ"}
OF_ONE = ("{}", "relu({})", "sigmoid({})", "tanh({})", "sign({})", "where({} > 0, 1.5, 0.5)")
OF_TWO = ("{} ⊙ {}", "{} / sigmoid({})", "{} + {}", "{} - {}", "maximum({}, {})")


def anew(dims, taken):
    """Other names for dims of these sizes."""
    found = ""
    for dim in dims:
        found += next(each for each in (LONG if dim in LONG else SHORT) if each not in taken + found)
    return found


def spelt(name, dims):
    return f"{name}[{', '.join(dims)}]"


@st.composite
def texts(draw):
    """Statements of matrices, long or narrow; each of inputs or what was bound before, often under other dims."""
    arrays, lines = dict(INPUTS), []
    for number in range(draw(st.integers(1, 5))):
        left, right = (draw(st.sampled_from([*arrays])) for _ in range(2))
        own, others = arrays[left], arrays[right]
        one = draw(st.sampled_from((own, anew(own, own + others))))
        ways = [(one, draw(st.sampled_from(OF_ONE)).format(spelt(left, one)))]
        if one == others or ([*map(SIZES.get, one)] == [*map(SIZES.get, others)] and not {*one} & {*others}):
            ways += 2 * [(one, draw(st.sampled_from(OF_TWO)).format(spelt(left, one), spelt(right, one)))]
        if SIZES[others[0]] == SIZES[one[1]] and one[1] not in others[1:]:
            last = anew(others[1], one + others)
            ways += 2 * [(one[0] + last, f"{spelt(left, one)} · {spelt(right, one[1] + last)}")]
        arrays[f"T{number}"], expr = draw(st.sampled_from(ways))
        lines.append(f"{spelt(f'T{number}', arrays[f'T{number}'])} = {expr}")
    named = [f"{spelt(name + '0', dims)} = {spelt(name, dims)}" for name, dims in INPUTS.items()]
    return "; ".join([*named, *lines, f"return {', '.join(f'T{number}' for number in range(len(lines)))}"])


def numbers(program, seed, zero=""):
    """Every output, of generic inputs, one of them zero if it is named."""
    draws = np.random.default_rng(seed)
    given_arrays = [draws.normal(size=program.shape(each.dims)) * (each.name != zero) for each in program.inputs]
    return simulate.reference(program, given_arrays)


def least_rank(value, dims, program):
    """As a matrix of one dim by the other."""
    most = min(program.shape(dims))
    claims = {frozenset(dims[:1]), frozenset(dims[1:])}
    return most if value.rank is None else min(most, max((value.rank.get(each, 0) for each in claims), default=0))


@settings(max_examples=100, deadline=None)
@given(texts())
@example("C0[I, P] = C[I, P]; D0[P, J] = D[P, J]; T0[K, J] = C[K, P] · D[P, J]; T1[I, J] = T0[I, J]; return T0, T1")
@example("A0[I, J] = A[I, J]; T0[I, J] = A / A; T1[I, J] = A ⊙ index_I; return T0, T1")  # all one, and a row of zeros
def test_ranks_are_as_high_and_zeros_are_zero(text):
    dims = {dim: size for dim, size in SIZES.items() if dim in text}
    program = shardc.parse(text, mesh={"X": 2}, dims=dims, dtype="f32")
    known = list(_values(program, {array.name: _given(array) for array in program.inputs}, ()))
    tried = [numbers(program, seed) for seed in range(3)]
    for place, number in enumerate(program.outputs):
        value, bound = known[number], program.results[number]
        found = max(np.linalg.matrix_rank(each[place]) for each in tried)
        assert found >= least_rank(value, bound.dims, program), bound.name
        for name in value.zero_with:
            assert not np.any(numbers(program, 0, zero=name)[place]), (bound.name, name)

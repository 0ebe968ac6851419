"""Every limit of what may be written at its edge: so much is taken, and one more is refused with the limit's code."""

import math
import re

import pytest

import shardc
from shardc.commands.codes import MEANINGS
from shardc.ir.mesh import MAX_AXES, MAX_DEVICES, Mesh
from shardc.ir.names import MAX_NAME
from shardc.ir.uneven import timetable
from shardc.notation.build import MAX_LOOPS, MAX_TERMS
from shardc.notation.scan import MAX_BYTES, MAX_DEPTH


def loops(count):
    sizes = "dims " + ", ".join(f"L{n}=2" for n in range(count)) + "; "
    return sizes + "".join(f"for L{n} {{ " for n in range(count)) + "x[I] = relu(x[I])" + " }" * count + "; return x"


def of_bytes(count):
    return "A[I] → C[I] #".ljust(count - len("→".encode()) + 1, "x")


LIMITS = {  # of each a text and a mesh of so many, how many there may be, and the code
    "axes": (lambda n: ("A[I] → C[I]", {f"X{axis}": 1 for axis in range(n)}), MAX_AXES, "SHC404"),
    "devices": (lambda n: ("A[I] → C[I]", {"X": n}), MAX_DEVICES, "SHC405"),
    "letters": (lambda n: (f"{'A' * n}[I] → C[I]", None), MAX_NAME, "SHC107"),
    "depth": (lambda n: ("relu(" * n + "A[I]" + ")" * n + " → C[I]", None), MAX_DEPTH, "SHC403"),
    "terms": (lambda n: (" + ".join(["A[I]"] * n) + " → C[I]", None), MAX_TERMS, "SHC402"),
    "loops": (lambda n: (loops(n), None), MAX_LOOPS, "SHC403"),
    "bytes": (lambda n: (of_bytes(n), None), MAX_BYTES, "SHC401"),
}


@pytest.mark.instant
@pytest.mark.parametrize(("made", "most", "code"), LIMITS.values(), ids=LIMITS)
def test_as_much_as_there_may_be_is_taken_and_one_more_is_refused(made, most, code):
    text, mesh = made(most)
    assert shardc.parse(text, mesh=mesh).statements
    text, mesh = made(most + 1)
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.parse(text, mesh=mesh)
    assert caught.value.code == code


@pytest.mark.instant
@pytest.mark.parametrize(("_", "most", "code"), LIMITS.values(), ids=LIMITS)
def test_a_limit_is_what_help_says_that_it_is(_, most, code):
    stated = re.findall(r"at most ([\d,]+)(?:\^(\d+))?( KiB)?", MEANINGS[code].why)
    figures = [int(base.replace(",", "")) ** int(power or 1) * (1024 if unit else 1) for base, power, unit in stated]
    assert most in figures


@pytest.mark.parametrize(
    ("sizes", "numbers"),
    [((25, 26), 32500), ((25, 27), 33750), ((4, 1023), 32736), ((4, 1025), 32800), ((128, 4), 2**15)],
)
def test_tables_of_an_exchange_have_at_most_2_to_the_15_numbers(sizes, numbers):
    """`A[I_X] → A[I_Y]`: each of X·Y devices wants lcm/Y cells, has none of them, and sends and lays as many."""
    mesh = Mesh.of(zip("XY", sizes, strict=True))
    assert math.prod(sizes) * 2 * (math.lcm(*sizes) // sizes[1]) == numbers
    assert (timetable((("X",),), (("Y",),), mesh) is not None) == (numbers <= 2**15)


def test_a_program_is_shown_in_a_line_of_160_characters_at_most():
    for length in (159, 160, 161):
        names = "A" * 64, "C" * (64 + length - 161), "I" * 7
        text = "dtype bf16; {0}[{2}] → {1}[{2}]".format(*names)
        assert len(text) == length
        shown = text if length <= 160 else text[:159] + "…"
        assert repr(shardc.parse(text)) == f"<Program: {shown}>"

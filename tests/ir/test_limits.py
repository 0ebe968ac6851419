"""Every limit of what may be written at its edge: so much is taken, and one more is refused with the limit's code."""

import pytest

import shardc
from shardc.ir.mesh import MAX_AXES, MAX_DEVICES
from shardc.ir.names import MAX_NAME
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


@pytest.mark.parametrize(("made", "most", "code"), LIMITS.values(), ids=LIMITS)
def test_as_much_as_there_may_be_is_taken_and_one_more_is_refused(made, most, code):
    text, mesh = made(most)
    assert shardc.parse(text, mesh=mesh).statements
    text, mesh = made(most + 1)
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.parse(text, mesh=mesh)
    assert caught.value.code == code

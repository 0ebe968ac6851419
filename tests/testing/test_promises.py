"""Every line of what is promised of bad input: the same code by Python and by the command line, its family's status."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest

import shardc
from shardc.cli import _status

X4, XY = {"mesh": "X=4"}, {"mesh": "X=4,Y=2"}
FAMILIES = {"1": 3, "2": 4, "4": 6, "0": 2, "5": 7}
BAD = {  # what is wrong: text, options, code
    # Syntax
    "empty": ("", X4, "SHC102"),
    "only a comment": ("# nothing", X4, "SHC102"),
    "an unclosed bracket": ("A[I_X, J → A[I, J]", X4, "SHC103"),
    "a missing comma": ("A[I_X J] → A[I, J]", X4, "SHC101"),
    "a double comma": ("A[I_X,, J] → A[I, J]", X4, "SHC101"),
    "no right side": ("A[I_X, J] →", X4, "SHC104"),
    "no left side": ("→ A[I, J]", X4, "SHC104"),
    "two arrows": ("A[I_X] → A[I] → A[I_X]", X4, "SHC105"),
    "trailing text": ("A[I_X] → A[I] ]", X4, "SHC101"),
    "an empty axis": ("A[I_] → A[I]", X4, "SHC101"),
    "a reserved word": ("for[I_X] → for[I]", X4, "SHC107"),
    "too long a name": (f"{'A' * 65}[I_X] → B[I]", X4, "SHC107"),
    "a full-width letter": ("Ａ[I_X] → A[I]", X4, "SHC106"),
    "a look-alike letter": ("А[I_X] → A[I]", X4, "SHC106"),
    "a bidi control": ("A[I_X]\u202e → A[I]", X4, "SHC106"),
    "a zero-width space": ("A[I_X]\u200b → A[I]", X4, "SHC106"),
    "NUL": ("A[I_X]\0 → A[I]", X4, "SHC106"),
    "a lone surrogate": ("A[I_X]\ud800 → A[I]", X4, "SHC106"),
    "digits of another script": ("dims I=٤\nA[I_X] → A[I]", X4, "SHC108"),
    "leading zeros": ("dims I=04\nA[I_X] → A[I]", X4, "SHC108"),
    # Semantics
    "an unknown axis": ("A[I_Z] → A[I]", X4, "SHC201"),
    "an axis twice in an array": ("A[I_X, J_X] → A[I, J]", X4, "SHC202"),
    "a mesh axis twice": ("A[I_X] → A[I]", {"mesh": "X=4,X=2"}, "SHC203"),
    "a dim twice": ("A[I_X, I] → A[I, I]", X4, "SHC205"),
    "a dim with two sizes": ("dims I=4\ndims I=8\nA[I_X] → A[I]", X4, "SHC206"),
    "an output dim on no input": ("A[I_X] → B[I, J]", X4, "SHC207"),
    "not divisible": ("A[I_X] → A[I]", X4 | {"dims": "I=6"}, "SHC204"),
    "a result not divisible": ("A[I, J] → A[I, J_XY]", XY | {"dims": "I=8,J=12"}, "SHC204"),
    "size 0": ("A[I_X] → A[I]", X4 | {"dims": "I=0"}, "SHC209"),
    "a negative size": ("A[I_X] → A[I]", X4 | {"dims": "I=-4"}, "SHC209"),
    "a float size": ("dims I=4.5\nA[I_X] → A[I]", X4, "SHC209"),
    "a dim that the operand does not have": ("C[I] = sum_K(A[I, J])", X4, "SHC210"),
    "conflicting shardings of a local product": ("A[I, J_X] ·_LOCAL B[J, K] → C[I, K]", X4, "SHC211"),
    "an unreduced output that is not declared": ("A[I, J_X] ·_LOCAL B[J_X, K] → C[I, K]", X4, "SHC212"),
    "unreduced into a function": ("C[I]{U_X} = relu(A[I]{U_X})", X4, "SHC212"),
    "two unreduced otherwise": ("C[I]{U_XY} = A[I]{U_X} + B[I]{U_Y}", XY, "SHC212"),
    "unreduced and sharded on one axis": ("A[I_X]{U_X} → A[I]", X4, "SHC202"),
    "an unknown dtype": ("A[I_X] → A[I]", X4 | {"dtype": "f33"}, "SHC213"),
    "an integer overflow": ("A: int8[I, J] · B: int8[J, K] → C[I, K]", X4 | {"dims": "I=8,J=1000000,K=8"}, "SHC215"),
    "mixed dtypes": ("A: int8[I, J] · B: int8[J, K] → C: int8[I, K]", X4, "SHC214"),
    "an undefined array": ("B[I_X] = A; C[I] = B", X4, "SHC217"),
    "a redefinition": ("B[I] = A[I_X]; B[I] = -A", X4, "SHC218"),
    "a collective that does something else": ("AllGather_X(A[I_X, J]) → A[I_X, J]", X4, "SHC219"),
    "lost subscripts": ("A[IX, J] · B[J, K] → C[IX, K]", X4 | {"dims": "I=8,J=8,K=8"}, "SHC221"),
    "an unknown function": ("B[I] = rleu(A[I_X])", X4, "SHC222"),
    "an unknown chip": ("A[I_X] → A[I]", X4 | {"chip": "v9z"}, "SHC223"),
    # Limits
    "a source too long": ("# " + "x" * 70_000 + "\nA[I_X] → A[I]", X4, "SHC401"),
    "too many terms": ("C[I] = " + " + ".join(["A[I]"] * 1001), X4, "SHC402"),
    "nested too deeply": ("C[I] = " + "relu(" * 60 + "A[I]" + ")" * 60, X4, "SHC403"),
    "too many axes": ("A[I] → A[I]", {"mesh": ",".join(f"{axis}=1" for axis in "XYZWVTSRQ")}, "SHC404"),
    "too many devices": ("A[I_X] → A[I]", {"mesh": f"X={2**21}"}, "SHC405"),
    "an array too large": ("A[I_X, J] → A[I, J]", X4 | {"dims": f"I={2**40},J={2**40}"}, "SHC406"),
    "thousands of digits": ("A[I_X] → A[I]", X4 | {"dims": "I=" + "9" * 5000}, "SHC407"),
    "no plan keeps the memory": ("A[I_X, J] → A[I, J]", X4 | {"memory": "1kB"}, "SHC410"),
    # Usage
    "a malformed mesh": ("A[I_X] → A[I]", {"mesh": "X:4"}, "SHC001"),
    "a malformed memory": ("A[I_X] → A[I]", X4 | {"memory": "much"}, "SHC001"),
}  # fmt: skip


def by_python(text, options):
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.plan(text, **options)
    return caught.value


def by_command(text, options, tmp_path):
    """The fields on standard error, and the status. The text is in a file, as a shell may not say it all."""
    path = tmp_path / "text.shard"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    words = [part for name, value in options.items() for part in (f"--{name}", value)]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = _status(["plan", str(path), "--json", *words])
    assert out.getvalue() == ""
    return json.loads(err.getvalue())["error"], status


@pytest.mark.parametrize("name", BAD)
def test_bad_input_has_its_code_in_python_and_on_the_command_line(name, tmp_path):
    text, options, code = BAD[name]
    found = by_python(text, options)
    assert found.code == code, found
    assert found.help or found.note or found.span
    fields, status = by_command(text, options, tmp_path)
    lone = name == "a lone surrogate"  # a file with one is not UTF-8
    assert (fields["code"], status) == (("SHC109", 3) if lone else (code, FAMILIES[code[3]]))


def test_a_byte_order_mark_and_carriage_returns_are_accepted(tmp_path):
    path = tmp_path / "text.shard"
    path.write_bytes(b"\xef\xbb\xbfmesh X=4\r\ndims I=8\r\nA[I_X] -> A[I]\r\n")
    with redirect_stdout(io.StringIO()):
        assert _status(["plan", str(path)]) == 0


FILES = {
    "no such file": (["plan", "nowhere.shard"], 7),
    "a directory": (["plan", "."], 7),
    "an unknown flag": (["plan", "A[I_X] → A[I]", "--nonsense"], 2),
    "an output that exists": (["emit", "A[I_X] → A[I]", "--mesh", "X=4", "-o", "{here}"], 7),
    "the output is the input": (["emit", "{here}", "-o", "{here}", "--force"], 7),
    "no such folder": (["emit", "A[I_X] → A[I]", "--mesh", "X=4", "-o", "{here}.d/out.py"], 7),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", FILES)
def test_files_and_flags(name, tmp_path):
    words, status = FILES[name]
    here = tmp_path / "here.shard"
    here.write_text("mesh X=4\nA[I_X] → A[I]", "utf-8")
    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err):
        assert _status([word.format(here=here) for word in words]) == status
    assert "error[SHC" in err.getvalue() and "Traceback" not in err.getvalue()
    assert here.read_text("utf-8") == "mesh X=4\nA[I_X] → A[I]"

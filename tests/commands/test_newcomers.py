"""What somebody writes who has not read the pages: the answer names the slip, and what to write instead."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import shardc
from shardc import cli

ROOT = Path(__file__).parents[2]
SLIPS = [
    # Another notation than ours.
    ("A(I_X, J) * B(J, K) -> C(I_X, K)", "--mesh X=4", "SHC101", "square brackets"),
    ("ij,jk->ik", "--mesh X=4", "SHC101", "A[i, j] · B[j, k]"),
    ("C = einsum('ij,jk->ik', A[I, J], B)", "--mesh X=4", "SHC101", "A[i, j] · B[j, k]"),
    ("A: P('X', None) -> P(None, 'X')", "--mesh X=4", "SHC101", "`A[I_X, J]`"),
    ("C = A @ B", "--mesh X=4", "SHC217", "write its dims"),
    ("A[I_X, J] x B[J, K] -> C[I_X, K]", "--mesh X=4", "SHC101", "`·`, `*` or `@`"),
    ("A[I_X, J] B[J, K] -> C[I_X, K]", "--mesh X=4", "SHC101", "`·`, `*` or `@`"),
    ("A[batch/data, J] -> A[batch, J]", "--mesh data=4", "SHC101", "`batch_data`"),
    ("A[batch:data, J] -> A[batch, J]", "--mesh data=4", "SHC101", "`batch_data`"),
    ("A[I@X, J] -> A[I, J]", "--mesh X=4", "SHC101", "`I_X`"),
    ("A[I{X}, J] -> A[I, J]", "--mesh X=4", "SHC101", "`I_X`"),
    ("C[H] = A[H+R] · k[R]", "--mesh X=4", "SHC101", "a dim is one name"),
    ("x[B_X, T*D] -> x[B_X, T, D]", "--mesh X=4", "SHC101", "a dim is one name"),
    ("B[I] = A[I] ** 2", "--mesh X=4", "SHC101", "`A ⊙ A`"),
    # Names that other libraries use.
    ("AG_X(A[I_X, J]) -> A[I, J]", "--mesh X=4", "SHC222", "did you mean `AllGather_X`?"),
    ("all_gather(A[I_X, J]) -> A[I, J]", "--mesh X=4", "SHC222", "did you mean `AllGather`?"),
    ("psum_X(A[I, J]{U_X}) -> A[I, J]", "--mesh X=4", "SHC222", "did you mean `AllReduce_X`?"),
    ("psum_scatter(A[I]{U_X}) -> A[I_X]", "--mesh X=4", "SHC222", "did you mean `ReduceScatter`?"),
    ("ppermute(A[I_X]) -> A[I_X]", "--mesh X=4", "SHC222", "did you mean `CollectivePermute`?"),
    ("reduce_scatter_X(A[I]{U_X}) -> A[I_X]", "--mesh X=4", "SHC222", "did you mean `ReduceScatter_X`?"),
    ("B[I] = swish(A[I])", "--mesh X=4", "SHC222", "did you mean `silu`?"),
    ("B[I] = average_J(A[I, J])", "--mesh X=4", "SHC222", "did you mean `mean_J`?"),
    ("B[I, J] = log_softmax_J(A[I, J])", "--mesh X=4", "SHC222", "`A - logsumexp_J(A)`"),
    ("B[I, D] = log_softmax_D(A[I, D])", "--mesh X=4", "SHC222", "`A - logsumexp_D(A)`"),
    ("B[I] = pow(A[I], 2)", "--mesh X=4", "SHC222", "`A ⊙ A`"),
    ("B[I] = clip(A[I], 0, 1)", "--mesh X=4", "SHC222", "`minimum(maximum(A, 0), 1)`"),
    ("B[I] = argmax_J(A[I, J])", "--mesh X=4", "SHC222", "`max_J(where(A == max_J(A), index_J, 0))`"),
    ("B[I, K] = cumsum_J(A[I, J])", "--mesh X=4", "SHC222", "`A ·_J where(index_J <= index_K, 1, 0)`"),
    ("B[I] = erf(A[I])", "--mesh X=4", "SHC222", "the functions are relu, gelu"),
    # What the notation does otherwise.
    ("B[I] = sum_J A[I, J]", "--mesh X=4", "SHC101", "`sum_J(A…)`"),
    ("B[I] = where(not A[I] > 0, A, 0)", "--mesh X=4", "SHC101", "`not(A…)`"),
    ("B[I] = A[I] - lr ⊙ g[I]", "--mesh X=4", "SHC217", "of a single number `lr[]`"),
    ("A[I_X, J] -> A[J, I_X]", "--mesh X=4", "SHC218", "transposed"),
    ("x[B_X, D] -> x[B_X, H, E]", "--mesh X=4", "SHC210", "no statement splits or joins dims"),
    ("x[B_X, H, E] -> y[B_X, D]", "--mesh X=4", "SHC210", "no statement splits or joins dims"),
    # Options.
    ("A[I_X] -> A[I]", "--mesh X=4 --dims I=1e6", "SHC209", "write I=1000000"),
    ("A[I_X] -> A[I]", "--mesh X=4 --dims I=4K", "SHC001", "write I=4096"),
    ("A[I_X] -> A[I]", "--mesh X=4k --dims I=4k", "SHC001", "write X=4096"),
    ("dims I=4k; A[I_X] -> A[I]", "--mesh X=4", "SHC108", "write I=4096"),
    ("A[I_X] -> A[I]", "--mesh X=4 --chip a100", "SHC223", "FILE.toml"),
    ("A[I_X] -> A[I]", "--mesh X=16 --topology v5litepod-16", "SHC224", "v5e:4x4"),
    ("A[I_X] -> A[I]", "--mesh X=64 --topology v5p-128", "SHC224", "v5p:4x4x4"),
    ("A[I_X] -> A[I]", "--mesh X=4 --topology v5p:2x2x1 --map X=9", "SHC224", "physical axes 0, 1, 2"),
    ("A[I_X] -> A[I]", "--mesh X=64 --topology 4x4x4", "SHC224", "v5p:4x4x4"),
]


@pytest.mark.instant
@pytest.mark.parametrize(("text", "options", "code", "told"), SLIPS, ids=[slip[0] + slip[1] for slip in SLIPS])
def test_a_slip_is_named_once_with_what_to_write(
    text: str, options: str, code: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._status(["check", text, *shlex.split(options)]) > 0
    said = capsys.readouterr().err
    assert said.count("error[") == 1 and f"error[{code}]" in said
    assert told in said, said


def test_a_malformed_option_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """It is no fault of the text, which is not read again without it."""
    cli._status(["check", "A[I_X] -> A[I]; B[I_Q] -> B[I]", "--mesh", "4x2"])
    assert capsys.readouterr().err.count("error[") == 1


def test_sizes_that_nobody_gave_are_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a convolution as a product: six dims of 4096 would be more bytes than are counted."""
    text = "patches[B_X, H, W, R, S, C] · k[R, S, C, O] → out[B_X, H, W, O]"
    assert cli._status(["check", text, "--mesh", "X=4"]) == 0
    assert cli._status(["plan", text, "--mesh", "X=4"]) == 0
    assert "no size given, so B=" in capsys.readouterr().out


def test_an_option_of_another_command_is_found_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._status(["plan", "A[I_X] → A[I]", "--mesh", "X=4", "--remat"]) == 2
    assert "`shardc grad`, `shardc memory` have it" in capsys.readouterr().err
    assert cli._status(["compare", "A[I_X] → A[I]", "--mesh", "X=4", "--trace", "t.json"]) == 2
    assert "`shardc verify`" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "warns"), [("--mesh X=1024 --topology v5e:32x32", True), ("--mesh X=256", False)])
def test_a_slice_that_does_not_exist_is_named(options: str, warns: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._status(["plan", "A[I_X, J] → A[I, J]", "--chip", "v5e", *shlex.split(options)]) == 0
    assert ("its largest is 16×16" in capsys.readouterr().out) == warns


def test_a_dim_that_lost_its_subscript_is_named_where_an_axis_is_unused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._status(["check", "A[IX, J] * B[J, K] -> C[IX, K]", "--mesh", "X=4"]) == 0
    assert "`I_X`" in capsys.readouterr().err


def test_a_page_is_written_to_no_other_kind_of_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plan.pdf", "plan.png", "plan.json"):
        assert cli._status(["report", "A[I_X] → A[I]", "--mesh", "X=4", "-o", str(tmp_path / name)]) == 2
        assert ".html" in capsys.readouterr().err and not (tmp_path / name).exists()
        with pytest.raises(shardc.ShardcError) as refused:
            shardc.plan("A[I_X] → A[I]", mesh={"X": 4}).report(str(tmp_path / name))
        assert refused.value.code == "SHC001" and not (tmp_path / name).exists()


def test_a_file_without_a_function_is_told_those_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "wasteful.py"
    assert cli._status(["explain", str(path)]) == 2
    assert f"{path}:block" in capsys.readouterr().err
    assert cli._status(["explain", f"{path}:zzzz"]) == 7
    assert "it has argument, block, layers" in capsys.readouterr().err


def test_what_is_no_text_or_program_is_refused_with_what_to_give(tmp_path: Path) -> None:
    path = tmp_path / "mlp.shard"
    for wrong, told in (
        (lambda: shardc.plan(path, mesh={"X": 4}), "read_text()"),  # type: ignore[arg-type]
        (lambda: shardc.plan(str(path), mesh={"X": 4}), "read_text()"),
        (lambda: shardc.grad("C[I] = A[I]"), "shardc.parse"),  # type: ignore[arg-type]
        (lambda: shardc.sweep("A[I_X] → A[I]", mesh={"X": 4}), "B=1k..16M"),
    ):
        with pytest.raises(shardc.ShardcError) as refused:
            wrong()
        assert refused.value.code == "SHC001" and told in (refused.value.help or "")
    program = shardc.plan("C[I] = relu(A[I])", mesh={"X": 1}, dims={"I": 8}).compile()
    assert repr(program).startswith("<CompiledProgram of C[I] = relu(A[I])")


def test_the_list_of_commands_says_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    cli._status(["--help"])
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Exit status")[0].splitlines()
    told = [line.split(None, 1)[1] for line in listed if line.strip()]
    assert len(told) == len(cli.shardc.commands) and not [each for each in told if each.endswith("...")]


LISTENING = """
import os, time
from shardc.machines import progress, stderr
from shardc.commands.options import telling
progress.SILENCE = 0.02
with telling("planning") as now, stderr.caught_stderr() as caught:
    now("compiling both programs")
    os.write(2, b"a compiler's")
    time.sleep(0.2)
print(caught.text)
"""


def test_progress_is_said_while_somebody_listens_to_a_compiler() -> None:
    """What is caught from standard error is the compiler's, and the line that says what takes long comes through."""
    done = subprocess.run([sys.executable, "-c", LISTENING], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("a compiler's\n", "… compiling both programs\n")


def test_a_front_tells_how_far_it_is() -> None:
    plan = shardc.plan(
        "A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]", mesh={"X": 4, "Y": 2}, dims={"I": 1024, "J": 1024, "K": 1024}
    )
    told: list[str] = []
    front = plan.pareto(say=told.append)
    assert len(told) >= len(front) > 1 and f"{front[-1].cost.peak_bytes:,} bytes" in told[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["grad", "A[I_X, J] · B[J, K] → C[I_X, K]", "--remat", "--selective"],
        ["memory", "A[I_X, J] · B[J, K] → C[I_X, K]", "--remat", "--selective"],
        ["plan", "A[I_X] → A[I]", "--sweep", "I=1k..2k", "--csv", "--json"],
    ],
)
def test_of_two_options_that_exclude_each_other_none_is_dropped(arguments, capsys):
    assert cli._status([*arguments, "--mesh", "X=4"]) == 2
    assert "give one of" in capsys.readouterr().err

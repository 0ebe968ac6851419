"""A text at a terminal: its tables fit, no word is lost, colour is beside the words; elsewhere it stays as it is."""

import os
import pty
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabulate import tabulate

import shardc
from shardc import cli
from shardc.io.terminal import fitted, painted

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
MATMUL = ["A[I, J_X] · B[J, K] → C[I, K_X]", "--mesh", "X=4"]
words = st.text("abcIJ_X·×", min_size=1, max_size=9)
cells = st.lists(words, max_size=6).map(" ".join)
tables = st.integers(1, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.just("") | words, min_size=n, max_size=n).filter(any),  # some column has a name,
        st.lists(st.lists(cells, min_size=n, max_size=n).filter(any), min_size=1, max_size=4),  # and each row says some
    )
)


def words_of(text):
    """The words of a text, of a table's too, whatever names a folded cell bears."""
    return sorted(word for word in re.split(r"[\s;:]+", text) if word and not set(word) <= {"-"})


@given(tables, st.integers(20, 120))
def test_a_table_fits_and_keeps_its_words(found, columns):
    heads, rows = found
    text = tabulate(rows, headers=heads, tablefmt="simple", disable_numparse=True)
    shown = fitted(text, columns)
    assert all(len(line) <= columns for line in shown.split("\n"))
    left = words_of(shown)
    for word in words_of("\n".join(" ".join(row) for row in rows)):
        left.remove(word)
    assert fitted(text, 1000) == text


def test_a_table_with_an_empty_column_fits():
    text = tabulate([("a word " * 9, "", "b " * 9)], ("what it is", "", "where"), tablefmt="simple")
    shown = fitted(text, 40).split("\n")
    assert max(map(len, shown)) <= 40 and shown[1].count("  ") == 1, "the empty one is left out"


@pytest.mark.parametrize("columns", [60, 80, 100, 132])
def test_a_plan_fits(columns):
    text = str(shardc.plan(MATMUL[0], mesh={"X": 4}))
    shown = fitted(text, columns)
    assert max(map(len, shown.split("\n"))) <= columns
    assert {"Einsum", "2·I·J·K/X", "local"} <= set(words_of(shown))


def test_a_column_that_ends_together_still_does():
    text = tabulate([("a" * 30, "1,000"), ("b", "1")], ("what it is", "n"), colalign=("left", "right"))
    shown = fitted(text + "\n" + "word " * 30, 26).split("\n")
    assert shown[2].endswith("1,000") and [line for line in shown if line.endswith("    1")]


def test_colour_is_beside_the_words(monkeypatch):
    text = f"{shardc.plan(MATMUL[0], mesh={'X': 4})}\nwarning: w\nerror[SHC204]: e\n  = help: h"
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painted(text) != text == ESCAPES.sub("", painted(text))
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted(text) == text


def at_a_terminal(arguments, **environment):
    """What a command writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm", **environment}
    env.pop("NO_COLOR", None) if "NO_COLOR" not in environment else None
    process = subprocess.Popen(
        [sys.executable, "-m", "shardc", *arguments], stdout=theirs, stderr=theirs, env=env, cwd=os.getcwd()
    )
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        found += part
    os.close(ours)
    return process.wait(), found.decode().replace("\r\n", "\n")


@pytest.mark.exhaustive
def test_a_terminal_has_colour_and_its_width():
    status, shown = at_a_terminal(["plan", *MATMUL, "--gantt"])
    assert status == 0 and "\x1b[" in shown
    assert max(len(ESCAPES.sub("", line)) for line in shown.split("\n")) <= 80
    status, plain = at_a_terminal(["plan", *MATMUL, "--gantt"], NO_COLOR="1")
    assert status == 0 and plain == ESCAPES.sub("", shown)


@pytest.mark.parametrize("arguments", [["emit", *MATMUL], ["plan", *MATMUL, "--json"]], ids=["code", "JSON"])
def test_code_and_json_are_never_dressed(arguments, monkeypatch, capsys):
    assert cli._status(arguments) == 0
    plain = capsys.readouterr().out
    monkeypatch.setattr("shardc.io.streams._is_terminal", lambda _: True)
    assert cli._status(arguments) == 0
    assert capsys.readouterr().out == plain


def test_a_slow_plan_says_what_it_does(monkeypatch, capsys):
    """After a second of silence; a quick one never does."""
    made, arguments = cli.shardc, ["plan", "A[I_X] → A[I]", "--mesh", "X=2"]
    assert made is not None and cli._status(arguments) == 0 and "…" not in capsys.readouterr().err
    planned = shardc.api.planned
    monkeypatch.setattr("shardc.machines.progress.SILENCE", 0.05)

    def slowly(*asked):
        from time import sleep

        sleep(0.3)
        return planned(*asked)

    monkeypatch.setattr("shardc.api.planned", slowly)
    assert cli._status(arguments) == 0 and "…" not in capsys.readouterr().err, "nobody watches a pipe"
    monkeypatch.setattr("shardc.io.streams._is_terminal", lambda _: True)
    assert cli._status(arguments) == 0
    assert "… planning" in capsys.readouterr().err.splitlines()[0]

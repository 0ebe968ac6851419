"""`shardc fmt`: the same program, the same comments in their places, and nothing to do the second time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.notation import parse_tree
from shardc.notation.layout import formatted
from shardc.notation.printer import print_item

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.shard"))

ITEMS = [
    "mesh X=4,Y=2", "dims I=8 , J=16", "dtype bf16", "A[I_X,J]->B[I, J]", r"C[I] = \text{relu}(D[I_{X,Y}])",
    "$E[I]{U.X} = A[I,J_X]@B[J_X]$", "F[I] = G[I,\n    J] * H[\nJ]", "1. K[I] := L[I]", "M[I_X] → N[I] (not critical)",
    "for L { x[B] = relu( x[B] ) }", "for L {\n  y[B]=exp(y[B]); z[L,B] = y[B]\n\n}", "return x , y",
    "for  -L { w[L,B] = x[B] }", "for L { v[B]=x[B] (not critical); u[B] = v[B] (not critical) } (not critical)",
]  # fmt: skip
comments = st.sampled_from(["# said", "#said", "#", "#  two  words ", "## { [ ("])
between = st.lists(
    st.one_of(comments.map(lambda text: f"{text}\n"), st.sampled_from(["\n", "  \n", "\r\n"])), max_size=4
)
behind = st.one_of(st.just("\n"), st.just(";\n"), comments.map(lambda text: f"  {text}\n"))
texts = st.lists(st.tuples(between.map("".join), st.sampled_from(ITEMS), behind), min_size=1, max_size=6).map(
    lambda parts: "".join(part for each in parts for part in each)
)


def said(text: str) -> list[str]:
    """Comments and statements in their order, comments as they are read."""
    found = re.findall(r"#[^\n]*", re.sub(r"# \(not critical\)  (?=#)|# \(not critical\)", "", text))
    return [comment.rstrip() for comment in found]


@settings(max_examples=60)
@given(texts)
def test_the_program_and_its_comments_stay(text: str) -> None:
    once = formatted(text)
    assert parse_tree(once) == parse_tree(text)
    assert formatted(once) == once
    assert said(once) == said(text)
    assert "\n\n\n" not in once and once.endswith("\n") and once.strip() == once[:-1]


@pytest.mark.instant
@given(texts, st.data())
def test_a_comment_stays_with_its_statement(text: str, data: st.DataObject) -> None:
    """One that nobody else has, behind a statement, is behind its canonical spelling."""
    item = data.draw(st.sampled_from(["A1[I_X,J]->B1[I,J]", "C1[I]=relu(D1[I])"]))
    lines = formatted(f"{text}{item} # here\n{data.draw(st.sampled_from(ITEMS))}\n").splitlines()
    assert f"{print_item(parse_tree(item).items[0])}  # here" in lines


def test_comments_inside_brackets_and_loops() -> None:
    text = (
        "A[I, # in\n J] -> B[I,J]\nfor L { # loop\n  # own\n  x[B]=relu(x[B]) # tr\n\n\n  # last\n}# end\nLoss[B] = …"
    )
    assert formatted(text) == (
        "# in\nA[I, J] → B[I, J]\nfor L {  # loop\n    # own\n    x[B] = relu(x[B])  # tr\n\n    # last\n}  # end\n"
        "# Loss[B] = …\n"
    )


@pytest.mark.instant
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_formatted(path: Path) -> None:
    assert formatted(path.read_text(encoding="utf-8")) == path.read_text(encoding="utf-8")

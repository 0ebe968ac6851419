"""`--prove`, and what `emit` and `run` prove unasked: program, plan and emitted text agree for every value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardc.errors import ShardcError
from shardc.io import streams
from shardc.io.text import json_text

if TYPE_CHECKING:
    from shardc.proving import Proof
    from shardc.results import Plan

_Command = TypeVar("_Command", bound=Callable[..., Any])


def with_proof(command: _Command) -> _Command:
    return click.option(
        "--prove", is_flag=True, help="Prove that plan and emitted text are the program, for every value."
    )(command)


def proved(found: Plan, text: str, *, asked: bool) -> Proof:
    """The proof of a plan and its text. SHC900 where they are wrong; SHC412 where it is asked for and there is none.

    Unasked it takes a few hundredths of a second at most; what would take longer is said to be not proved.
    """
    from shardc.proving import ASKED, UNASKED, Verdict, prove, refuse_wrong

    proof = prove(found.schedule, text, ASKED if asked else UNASKED)
    refuse_wrong(proof, asked)
    if not proof.holds:
        if asked:
            raise ShardcError("SHC412", proof.why, help="give a smaller --mesh, or leave out --prove")
        streams.say(f"note: {proof}" + ("; --prove takes the time" if proof.verdict is Verdict.NOT_PROVED else ""))
    return proof


def shown(found: Plan, top: int | None, as_json: bool, prove: bool) -> str:
    """The plan as `shardc plan` prints it; with the proof, where it is asked for."""
    text = found.to_json(top) if as_json else found.table(top or 3)
    if not prove:
        return text
    proof = proved(found, found.source(), asked=True)
    return json_text(in_fields(json.loads(text), proof)) if as_json else f"{text}\n\n{proof}"


def in_fields(fields: dict[str, Any], proof: Proof) -> dict[str, Any]:
    """The fields that `--json` prints, with those of the proof."""
    return fields | {"proof": {"verdict": proof.verdict.value, "sizes": proof.sizes}}

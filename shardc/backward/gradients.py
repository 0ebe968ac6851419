"""The backward program of a program: the gradients of its inputs from those of its outputs, written in the notation.

    Tmp[B_X, F] = In[B_X, D] ·_D Win[D, F]
    Out[B_X, D] = relu(Tmp) ·_F Wout[F, D]

becomes, statement by statement from the last to the first,

    dTmp[B_X, F] = where(Tmp[B_X, F] > 0, dOut[B_X, D] ·_D Wout[F, D], 0)
    dWout[F, D] = relu(Tmp) ·_B dOut
    dIn[B_X, D] = dTmp ·_F Win[D, F]
    dWin[D, F] = In[B_X, D] ·_B dTmp

and of a loop a loop the other way round (`backward.loops`). The gradient of a product is a product, that of a use is
added to those of the other uses. What moves an array has the gradient as it is: where it lies is for the brackets to
say, and how it comes there for the planner. So the gradient of an AllGather is a ReduceScatter, without anybody saying
so.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.backward.again import with_made_again
from shardc.backward.asked import Gradients, asked
from shardc.backward.assembled import assembled
from shardc.backward.loops import through
from shardc.backward.walk import REMATS, Remat, Walk
from shardc.errors import ShardcError, flag, in_line
from shardc.ir.program import Program


def grad(
    program: Program, wrt: str | Sequence[str] | None = None, *, whole: bool = False, remat: Remat = False
) -> Program:
    """The program that leaves `dW` of each of `wrt` (every float input), in W's sharding, from each output's `dOut`.

    `wrt` may say another sharding, as `"W[D_X, F], V"`: `{U_X}` leaves a partial sum, `D_?` the planner its choice.
    Of a partial sum `W{U_X}` every device's part has the sum's gradient, so that `dW` is whole over X, and `dOut` too.
    It takes `dOut`, the inputs and the named arrays of the forward program that it needs; with `remat` no array
    between, but makes these again from the inputs, those of a loop in each trip backward; with `remat="selective"` what
    contracts nothing with a weight is made again, and the rest kept. Where forward is there too, and there is no loop,
    `backward.again` says what is kept. `whole` is forward and backward as one: it takes the inputs and `dOut`, and
    leaves the outputs and the gradients. ShardcError SHC217 for a name that is no input.
    """
    if not isinstance(program, Program):
        raise ShardcError(
            "SHC001", f"program is a {type(program).__name__}", help="give what shardc.parse(text) returns"
        )
    flag(whole, "whole")
    if not isinstance(remat, bool | str) or remat not in REMATS:
        raise ShardcError("SHC001", f"remat is {in_line(repr(remat)[:200])}", help='give True, False or "selective"')
    wanted = asked(program, wrt)
    walk = _walked(program, wanted, remat)
    if remat and (whole or remat == "selective"):  # else what is made again begins the program
        walk.lines = with_made_again(walk)
    return assembled(program, walk, wanted.inputs, whole)


def with_backward(program: Program) -> tuple[Program, tuple[str | None, ...]]:
    """Forward and backward as one, and by what name the gradient of each output comes in, if any input depends on it.
    Names may have got primes: of outputs `y`, `y'` these are `dy`, `dy'`, and `dy'`, `dy''` where an array is `dy`."""
    wanted = asked(program, None)
    walk = _walked(program, wanted, remat=False)
    names = (program.results[number].name for number in program.outputs)
    return assembled(program, walk, wanted.inputs, True), tuple(walk.given.get(walk.keys.last[name]) for name in names)


def _walked(program: Program, wanted: Gradients, remat: Remat) -> Walk:
    walk = Walk.of(program, wanted, remat)
    for each in reversed(walk.keys.body):
        through(walk, each)
    walk.finish(wanted)
    return walk

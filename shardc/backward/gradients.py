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
from shardc.backward.assembled import assembled
from shardc.backward.loops import through
from shardc.backward.walk import REMATS, Remat, Walk
from shardc.errors import ShardcError, flag, in_line, nearest
from shardc.ir.dtypes import Kind
from shardc.ir.program import Input, Program


def grad(
    program: Program, wrt: str | Sequence[str] | None = None, *, whole: bool = False, remat: Remat = False
) -> Program:
    """The program that leaves `dW` of each of `wrt` (every float input), in W's sharding, from each output's `dOut`.

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
    wanted = _wanted(program, wrt)
    walk = _walked(program, wanted, remat)
    if remat and (whole or remat == "selective"):  # else what is made again begins the program
        walk.lines = with_made_again(walk)
    return assembled(program, walk, wanted, whole)


def with_backward(program: Program) -> tuple[Program, tuple[str | None, ...]]:
    """Forward and backward as one, and by what name the gradient of each output comes in, if any input depends on it.
    Names may have got primes: of outputs `y`, `y'` these are `dy`, `dy'`, and `dy'`, `dy''` where an array is `dy`."""
    wanted = _wanted(program, None)
    walk = _walked(program, wanted, remat=False)
    names = (program.results[number].name for number in program.outputs)
    return assembled(program, walk, wanted, True), tuple(walk.given.get(walk.keys.last[name]) for name in names)


def _walked(program: Program, wanted: Sequence[Input], remat: Remat) -> Walk:
    walk = Walk.of(program, wanted, remat)
    for each in reversed(walk.keys.body):
        through(walk, each)
    walk.finish(wanted)
    return walk


def _wanted(program: Program, wrt: str | Sequence[str] | None) -> tuple[Input, ...]:
    floats = {each.name: each for each in program.inputs if each.dtype.kind is Kind.FLOAT and not each.dtype.moves}
    names = list(floats) if wrt is None else _names(wrt)
    if not names:
        raise ShardcError("SHC217", "no input has a gradient", help="give one a type of floats to compute in, say bf16")
    for name in names:
        if name not in floats:
            near = nearest(name, floats)
            what = next((f"an input of {each.dtype}" for each in program.inputs if each.name == name), "no input")
            help = (
                f"did you mean `{near}`?"
                if near
                else f"inputs of floats to compute in are {', '.join(floats) or 'none'}"
            )
            raise ShardcError("SHC217", f"`{name}` is {what}, and has no gradient", help=help)
    return tuple(floats[name] for name in dict.fromkeys(names))


def _names(wrt: str | Sequence[str]) -> Sequence[str]:
    """The names of inputs that are asked for, of a text between commas."""
    if isinstance(wrt, str):
        return [name.strip() for name in wrt.split(",")]
    try:
        names = tuple(wrt)
        are_names = all(isinstance(name, str) for name in names)
    except TypeError:  # there is nothing to go through
        are_names = False
    if not are_names:
        raise ShardcError("SHC001", f"wrt is {in_line(repr(wrt)[:200])}", help='give names of inputs, as in ["W", "V"]')
    return names

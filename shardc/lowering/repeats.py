"""Steps that a program does twice, and how the compiler is kept from doing them once.

    Wout[F, D] = AllGather(Wout[F, D_X])      gathered, used, thrown away
    …
    Wout[F, D] = AllGather(Wout[F, D_X])      and gathered again, since the text says so

Two equal calls of one value are one to XLA, and the first result is kept until the last use. So the second reads its
operand through an `optimization_barrier`, together with a value that was made after the first result was last used:
it can then be neither merged nor done early, while both are alive.
To JAX's types what goes through one barrier varies along the axes of all of it. So where the second result has to be
equal along an axis, it waits for a value that is equal there as well (`flow.waited_for`), or for none.

`again(x)` is the same for what is made of x: its barrier waits for what was made last, so that x is not read, and what
is made of it not made, before there is something to make it for.

The TPU's compiler keeps the two apart to the end. XLA for CPUs drops barriers (`cse_barrier_expander`) before it looks
for equal calls the last time, so that simulated devices do them once; what is lowered, and what is priced, is both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from shardc.ir.plan import Apply, Block, Loop, Op, Step, ValueNumber, last_uses
from shardc.ir.sharding import Sharding

_Done: TypeAlias = tuple[Op, tuple[int, ...], tuple[tuple[tuple[str, ...], Sharding], ...]]


def repeats(block: Block) -> dict[int, tuple[ValueNumber, ...]]:
    """The steps that do once more what an earlier one did, by place: each with the values that it could wait for.

    Planners do a step twice only where the text names it twice.
    """
    found: dict[int, tuple[ValueNumber, ...]] = {}
    done: dict[_Done, int] = {}
    last = last_uses(block)
    for place, step in enumerate(block.steps):
        if not _may_be_done_again(step):
            continue
        if is_again(step.op):
            found[place] = tuple(_made_last(block, place, last))
            continue
        key = _done(block, step)
        if key in done:
            found[place] = tuple(_after(block, done[key], place, last))
        done[key] = place
    return found


def any_repeats(block: Block, places: Iterable[int]) -> bool:
    """Whether a step at one of these places does once more what an earlier one did."""
    return any(_is_repeat(block, place) for place in places)


def _is_repeat(block: Block, place: int) -> bool:
    step = block.steps[place]
    if not _may_be_done_again(step):
        return False
    if is_again(step.op):
        return True
    alike = (other for other in block.steps[:place] if other.operands == step.operands)
    return any(_may_be_done_again(other) and _done(block, other) == _done(block, step) for other in alike)


def _may_be_done_again(step: Step) -> bool:
    """Positions come of nothing, and move nothing."""
    return not isinstance(step.op, Loop) and bool(step.operands)


def _done(block: Block, step: Step) -> _Done:
    """What a step does: of two sums of one array, each may be over another dim."""
    made = tuple((block.values[number].dims, block.values[number].sharding) for number in step.results)
    return step.op, step.operands, made


def is_again(op: Op) -> bool:
    """Whether a step leaves its operand as it is, behind a barrier."""
    return isinstance(op, Apply) and op.function == "again"


def _made_last(block: Block, place: int, last: Mapping[ValueNumber, int]) -> Iterator[ValueNumber]:
    """The values made before a step, and held when it is done, the last first."""
    for step in reversed(block.steps[:place]):
        yield from (value for value in step.results if place <= last.get(value, -1) < len(block.steps))


def _after(block: Block, first: int, again: int, last: Mapping[ValueNumber, int]) -> Iterator[ValueNumber]:
    """The values made when the first result has been used, and still held when the step is done again."""
    result = block.steps[first].result
    users = [place for place in range(first + 1, again) if result in block.steps[place].operands]
    for place in range(users[-1], again) if users else ():
        yield from (value for value in block.steps[place].results if last.get(value, -1) >= again)

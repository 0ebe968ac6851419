"""Steps that a program does twice, and how the compiler is kept from doing them once.

    Wout[F, D] = AllGather(Wout[F, D_X])      gathered, used, thrown away
    …
    Wout[F, D] = AllGather(Wout[F, D_X])      and gathered again, since the text says so

Two equal calls of one value are one to XLA, and the first result is kept until the last use. So the second reads its
operand through an `optimization_barrier`, together with a value that was made after the first result was last used:
it can then be neither merged nor done early, while both are alive.
To JAX's types what goes through one barrier varies along the axes of all of it. So where the second result has to be
equal along an axis, it waits for a value that is equal there as well (`flow.waited_for`), or for none.

The TPU's compiler keeps the two apart to the end. XLA for CPUs drops barriers (`cse_barrier_expander`) before it looks
for equal calls the last time, so that simulated devices do them once; what is lowered, and what is priced, is both.
"""

from __future__ import annotations

from collections.abc import Iterator

from shardc.ir.plan import Block, Loop, Op, last_uses


def repeats(block: Block) -> dict[int, tuple[int, ...]]:
    """The steps that do once more what an earlier one did, by place: each with the values that it could wait for.

    Planners do a step twice only where the text names it twice.
    """
    found: dict[int, tuple[int, ...]] = {}
    done: dict[tuple[Op, tuple[int, ...]], int] = {}
    for place, step in enumerate(block.steps):
        if isinstance(step.op, Loop) or not step.operands:  # positions come of nothing, and move nothing
            continue
        key = (step.op, step.operands)
        if key in done:
            found[place] = tuple(_after(block, done[key], place))
        done[key] = place
    return found


def _after(block: Block, first: int, again: int) -> Iterator[int]:
    """The values made when the first result has been used, and still held when the step is done again."""
    result, last = block.steps[first].result, last_uses(block)
    users = [place for place in range(first + 1, again) if result in block.steps[place].operands]
    for place in range(users[-1], again) if users else ():
        yield from (value for value in block.steps[place].results if last.get(value, -1) >= again)

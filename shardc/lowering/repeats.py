"""Steps that a program does twice, and how the compiler is kept from doing them once.

    Wout[F, D] = AllGather(Wout[F, D_X])      gathered, used, thrown away
    …
    Wout[F, D] = AllGather(Wout[F, D_X])      and gathered again, since the text says so

Two equal calls of one value are one to XLA, and the first result is kept until the last use. So the second reads its
operand through an `optimization_barrier`, together with a value that was made after the first result was last used:
it can then be neither merged nor done early, while both are alive.

The TPU's compiler keeps the two apart to the end. XLA for CPUs drops barriers (`cse_barrier_expander`) before it looks
for equal calls the last time, so that simulated devices do them once; what is lowered, and what is priced, is both.
"""

from __future__ import annotations

from shardc.ir.folds import last_uses
from shardc.ir.plan import Block, Loop, Op


def repeats(block: Block) -> dict[int, int | None]:
    """The steps that do once more what an earlier one did, by place: each with the value to wait for, if there is any.

    Planners do a step twice only where the text names it twice.
    """
    found: dict[int, int | None] = {}
    done: dict[tuple[Op, tuple[int, ...]], int] = {}
    for place, step in enumerate(block.steps):
        if isinstance(step.op, Loop):
            continue
        key = (step.op, step.operands)
        if key in done:
            found[place] = _after(block, done[key], place)
        done[key] = place
    return found


def _after(block: Block, first: int, again: int) -> int | None:
    """A value that is made when the first result has been used, and is still held when the step is done again."""
    result, last = block.steps[first].result, last_uses(block)
    users = [place for place in range(first + 1, again) if result in block.steps[place].operands]
    if not users:
        return None
    made = [value for place in range(users[-1], again) for value in block.steps[place].results]
    return next((value for value in made if last.get(value, -1) >= again), None)

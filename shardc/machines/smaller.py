"""Smaller sizes that something has room for: the largest dims are halved in turn, as often as it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from shardc.ir.program import Program
from shardc.ir.sizes import classes


def smaller_sizes(program: Program, fits: Callable[[Mapping[str, int]], bool]) -> dict[str, int]:
    """Sizes of some dims with which it fits, as large as their halves allow; none where the least do not.

    Each is a multiple of what the program cuts its dim into. `fits` is asked some seven times: what fits with some
    sizes is taken to fit with smaller ones, and what is found has been asked for.

    >>> import shardc
    >>> program = shardc.parse("A[I_X, J] → A[I, J]", mesh="X=4", dims="I=4096,J=1000")
    >>> smaller_sizes(program, lambda sizes: sizes.get("I", 4096) * sizes.get("J", 1000) < 500_000)
    {'I': 512, 'J': 500}
    """
    choices = list(_halved(program))
    if not choices or not fits(choices[-1]):
        return {}
    first, last = 0, len(choices) - 1
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if fits(choices[middle]) else (middle + 1, last)
    return choices[last]


def _halved(program: Program) -> Iterator[dict[str, int]]:
    """The dims whose sizes are others than the program's, each time one more half."""
    known = dict(program.sizes)
    joined = {dim: tuple(same) for same in classes(program.renamed) for dim in same}
    together = list(dict.fromkeys(joined.get(dim, (dim,)) for dim in known))
    units = {same: _unit(program, same) for same in together}
    sizes, found = {same: known[same[0]] for same in together}, dict[str, int]()
    while True:
        left = [same for same in together if sizes[same] > units[same]]
        if not left:
            return
        largest = max(left, key=lambda same: sizes[same])
        sizes[largest] = max(1, sizes[largest] // 2 // units[largest]) * units[largest]
        found = found | dict.fromkeys(largest, sizes[largest])
        yield found


def _unit(program: Program, same: tuple[str, ...]) -> int:
    return math.lcm(*(program.mesh.product(axes) for dim, axes, _ in program.subscripts if dim in same))

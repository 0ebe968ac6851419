"""What a text may not ask for as a whole: sizes of dims that nothing has, arrays too large to count."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardc.errors import ShardcError, nearest
from shardc.ir.expressions import uses
from shardc.ir.program import Binding, Input, Program, Statement, every_statement
from shardc.notation import slips, tree
from shardc.notation.unknown import listed

MAX_ARRAY_BYTES = 2**63


def check_sizes_named(parsed: tree.Tree, program: Program, sizes: Mapping[str, int]) -> None:
    """`|Q|` where nothing has a dim Q."""
    known = {dim for array in program.inputs for dim in array.dims}
    known |= {dim for statement in every_statement(program) for dim in statement.dims}
    known |= {dim for statement in every_statement(program) for use in uses(statement.expr) for dim in use.dims}
    known |= sizes.keys()
    for leaf in (leaf for item in slips.statements(parsed) for leaf in tree.leaves(item.expr)):
        if isinstance(leaf, tree.Size) and leaf.dim not in known:
            near = nearest(leaf.dim, known)
            raise ShardcError(
                "SHC210",
                f"no array has a dim `{leaf.dim}`",
                span=leaf.span,
                help=f"did you mean `|{near}|`?" if near else f"the dims are {listed(sorted(known))}",
            )


def check_bytes(program: Program) -> None:
    sizes = dict(program.sizes)
    named: list[Input | Statement | Binding] = [*program.inputs, *every_statement(program), *program.results]
    for array in named:
        if not all(dim in sizes for dim in array.dims):
            continue
        total = math.prod(sizes[dim] for dim in array.dims) * array.dtype.bytes
        if total > MAX_ARRAY_BYTES:
            raise ShardcError(
                "SHC406",
                f"`{array.name}` would take more than 2^63 bytes",
                span=None if isinstance(array, Binding) else array.span,
                help="make some dims smaller",
            )

"""What the grammar allows and hardly anyone means: names that are nearly others, dims that nothing else mentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from shardc.errors import ShardcError, Span, nearest
from shardc.ir.dtypes import Kind
from shardc.ir.expressions import Call, Expr, Pattern, Product, Use, operands, parts_of, uses
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program, every_statement
from shardc.ir.sharding import spell_dim
from shardc.notation import tree


def statements(parsed: tree.Tree) -> Iterator[tree.Statement]:
    return tree.statements(parsed.items)


def written_dims(parsed: tree.Tree) -> Iterator[tree.Dim]:
    """Every dim in brackets."""
    for statement in statements(parsed):
        for array in (*tree.arrays(statement.expr), statement.result):
            yield from array.dims or ()


def labels(expr: tree.Expr) -> Iterator[str]:
    """Every word below an operator or a function, and each dim of `index_J`, `|J|`."""
    yield from subscripts(expr)
    for part in _parts(expr):
        if isinstance(part, tree.Index | tree.Size):
            yield part.dim


def subscripts(expr: tree.Expr) -> Iterator[str]:
    """Every word below an operator or a function: `·_J`, `sum_{J,K}`."""
    for part in _parts(expr):
        match part:
            case tree.Chain(operators=operators):
                for operator in operators:
                    yield from operator.label
            case tree.Call(over=over) | tree.Named(subscript=over):
                yield from over
            case _:
                pass


def _parts(expr: tree.Expr) -> Iterator[tree.Expr]:
    yield expr
    for operand in tree.below(expr):
        yield from _parts(operand)


def run(word: str, mesh: Mesh) -> tuple[str, ...] | None:
    """A subscript as axes: an axis, or a run of one-letter axes; None if it is neither."""
    if word in mesh:
        return (word,)
    return tuple(word) if word and all(letter in mesh for letter in word) else None


def stems(parsed: tree.Tree, mesh: Mesh, sizes: Iterable[str]) -> frozenset[str]:
    """The names that the program gives to dims, whatever subscripts it puts on them.

    Beside one of them a word that adds a subscript to it is that dim with a subscript, and no name of its own: where
    there is an I, `I_data` is I over the axis `data`, and an error if the mesh has no such axis.
    """
    found = set(sizes)
    for dim in written_dims(parsed):
        name, _, part = dim.name.rpartition("_")
        apart = bool(dim.axes) or dim.free or not name or run(part, mesh) is None
        found.add(dim.name if apart else name)
    for statement in statements(parsed):
        found.update(labels(statement.expr))
    return frozenset(found)


def near_axes(part: str, mesh: Mesh) -> str | None:
    """The subscript that a lower-case part of a dim's name nearly is: `x` is nearly `X`, `dta` nearly `data`.

    Nearly is the same in other case, or one letter left out, added, changed or exchanged with its neighbour; names of
    three letters and more may differ further.
    """
    if run(part.upper(), mesh) is not None:
        return part.upper()
    for axis in mesh.names:
        if axis.lower() == part.lower() or (len(axis) > 1 and _one_edit(part.lower(), axis.lower())):
            return axis
    return nearest(part, (axis for axis in mesh.names if len(axis) > 2))


def _one_edit(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if len(long) - len(short) > 1:
        return False
    at = next((k for k, letter in enumerate(short) if letter != long[k]), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[:at] + short[at + 1 : at + 2] + short[at : at + 1] + short[at + 2 :]
    return short[at + 1 :] == long[at + 1 :] or swapped == long


def is_slip(dim: str, other: str) -> bool:
    """Whether a name is nearly another: `t` for `T`, `d_modle` for `d_model`."""
    return dim.lower() == other.lower() or (min(len(dim), len(other)) > 2 and _one_edit(dim.lower(), other.lower()))


def lone_dims(parsed: tree.Tree, program: Program) -> Iterator[str]:
    """A warning for each dim that the text mentions once and no output has: `A[I, J] · B[M, K] → C[I, K]` sums J and M
    apart, where `·_J` or `sum_M(B)` would say that it is meant."""
    mentioned: Counter[str] = Counter()
    for made, statement in zip(every_statement(program), statements(parsed), strict=True):
        for use in uses(made.expr):
            mentioned.update(use.dims)
        mentioned.update(made.dims if statement.result.dims is not None else ())
        for word in labels(statement.expr):
            mentioned.update({word, *word})
    kept = {dim for number in program.outputs for dim in program.results[number].dims}
    kept |= program.trips | {dim for dim, _ in program.renamed}  # what is used by another name
    lone = {dim: name for dim, name in _dims_of_uses(program).items() if mentioned[dim] == 1 and dim not in kept}
    for dim, name in lone.items():
        yield f"dim `{dim}` is on `{name}` alone, and is summed there" + _asked(dim, program.dims)
    yield from _summed_alone(parsed, program, lone)


def _summed_alone(parsed: tree.Tree, program: Program, known: Collection[str]) -> Iterator[str]:
    """A warning for each dim that a `·` sums of one operand alone, though other statements mention it.

    `U[D, F] = G[D, K] · R[F, K2]`, where K and K2 are two dims of one size and one was meant.
    """
    for statement, written in zip(every_statement(program), statements(parsed), strict=True):
        named = {each for word in labels(written.expr) for each in (word, *word)}.union(known)
        for part in parts_of(statement.expr):
            for one, kept in _summed_for(part):
                for dim in sorted({*one.dims}.difference(kept, named)):
                    whose = f"`{one.name}`" if isinstance(one, Use) else "one operand"
                    meant = f"sum_{{{dim}}}(…)" if "_" in dim else f"sum_{dim}(…)"
                    yield f"a `·` of `{statement.name}` sums `{dim}` of {whose} alone; write `{meant}` if that is meant"


def _summed_for(part: Expr) -> Iterator[tuple[Expr, Collection[str]]]:
    """Of a product of two each operand of which dims were summed first, and those it keeps."""
    for each in part.operands if isinstance(part, Product) and len(part.operands) == 2 else ():
        if isinstance(each, Product) and len(each.operands) == 1:
            yield each.operands[0], each.dims


def _dims_of_uses(program: Program) -> dict[str, str]:
    """Of each dim of an input, or that a use names anew, the first array that has it."""
    found: dict[str, str] = {}
    for given in program.inputs:
        for dim in given.dims:
            found.setdefault(dim, given.name)
    anew = {dim for _, dim in program.renamed}
    for statement in every_statement(program):
        for use in uses(statement.expr):
            for dim in anew.intersection(use.dims):
                found.setdefault(dim, use.name)
    return found


def gathered_in_vain(program: Program) -> Iterator[str]:
    """A warning for each use whose brackets ask for a dim whole that lies as the result has it again.

    `K[B_X, S] = h[B, S] · W` of `h[B_X, S]` gathers B over X, and slices it again; `h[B_X, S]` moves nothing.
    """
    lies = {array.name: array.pattern for array in program.inputs}
    for statement in every_statement(program):
        results = dict(zip(statement.dims, statement.pattern.dims, strict=True))
        for use in uses(statement.expr):
            own = lies.get(use.name)
            if use.pattern is None or own is None or len(own.dims) != len(use.dims):  # in a loop, one of a stack
                continue
            lying = zip(use.dims, own.dims, use.pattern.dims, strict=True)
            kept = [axes if axes and whole == () and results.get(dim) == axes else whole for dim, axes, whole in lying]
            better = Pattern(tuple(kept), use.pattern.unreduced)
            if better != use.pattern:
                asked, other = (use.name + pattern.spell(use.dims) for pattern in (use.pattern, better))
                dims = [dim for dim, mine, asks in zip(use.dims, kept, use.pattern.dims, strict=True) if mine != asks]
                parts = ", ".join(f"`{spell_dim(dim, results[dim] or ())}`" for dim in dims)
                yield (
                    f"`{asked}` gathers {', '.join(dims)}, and `{statement.name}` has {parts} again, as `{use.name}` "
                    f"lies; `{other}` moves none of it"
                )
        lies[statement.name] = statement.pattern


def kept_between(program: Program) -> Iterator[str]:
    """A warning for a product of three that reads as two one after another, and sums no dim in the first.

    `In[B, D] · Win[D, F] · Wout[F, D] → Out[B, D]` keeps D, which Wout and Out have: `In ·_D Win` sums it.
    """
    for statement in every_statement(program):
        for left, right, dim in filter(None, map(_kept, parts_of(statement.expr))):
            names = [f"`{each.name}`" if isinstance(each, Use) else "an operand" for each in (left, right)]
            yield (
                f"the first `·` of `{statement.name}` sums nothing: {dim} is on its last operand and its result; "
                f"write `·_{dim}` between {' and '.join(names)} if these are multiplied first"
            )


def kept_below(parsed: tree.Tree, program: Program) -> Iterator[str]:
    """A warning for each matmul below a function that sums nothing, since what it would sum is in the result again.

    `y[B, D] = relu(x[B, D] · W[D, F]) · V[F, D]` keeps D, as y and V have it: the relu is then of [B, D, F]. Where the
    result is said to have all dims of the product, or an array of the statement has them, they are meant.
    """
    bound = {given.name for given in program.inputs}
    for statement, written in zip(every_statement(program), statements(parsed), strict=True):
        said = written.result.dims is not None or statement.name in bound
        whole = [frozenset(use.dims) for use in uses(statement.expr)] + [frozenset(statement.dims)] * said
        for left, right, dim in dict.fromkeys(_unsummed_below(statement.expr)):
            if dim in statement.dims and not any({*left.dims, *right.dims} <= dims for dims in whole):
                names = " and ".join(
                    f"`{each.name}`" if isinstance(each, Use) else "an operand" for each in (left, right)
                )
                yield (
                    f"the `·` of {names} in `{statement.name}` sums nothing, as the result has {dim} too; write "
                    f"`·_{dim}` if it is to be summed there, or a statement of its own, with all its dims, if not"
                )
        bound.add(statement.name)


def _unsummed_below(expr: Expr) -> Iterator[tuple[Expr, Expr, str]]:
    """The operands of each product below a function, or below a product element by element, that keeps what both have
    and what each has alone; with the last dim that both have."""
    waiting = [(expr, False)]
    while waiting:
        part, is_below = waiting.pop()
        match part:
            case Product(operands=(left, right)):
                shared, either = {*left.dims} & {*right.dims}, {*left.dims} | {*right.dims}
                is_nested, keeps = either in ({*left.dims}, {*right.dims}), either == {*part.dims}
                if is_below and shared and keeps and not is_nested:
                    yield left, right, [dim for dim in left.dims if dim in shared][-1]
                is_below |= is_nested and keeps
            case Call():
                is_below = True
        waiting += [(each, is_below) for each in reversed(operands(part))]


def _kept(part: Expr) -> tuple[Expr, Expr, str] | None:
    """Two operands side by side, as of a matmul, and the dim that is kept between them because of a third."""
    match part:
        case Product(operands=(Product(operands=(left, right)) as two, last)) if left.dims and right.dims and last.dims:
            dim = left.dims[-1]
            through = set(right.dims[1:]) & set(last.dims) - set(left.dims) - set(part.dims)
            reads = dim == right.dims[0] == last.dims[-1] and dim in two.dims and dim in part.dims
            return (left, right, dim) if reads and through else None
        case _:
            return None


def rounded_positions(program: Program, sizes: Mapping[str, int]) -> Iterator[str]:
    """A warning for each meeting of positions with a float that does not hold them all.

    `index_V == Token[B]` with Token in bf16: 257 is no bf16, so that position 257 meets token 256.
    """
    for statement in every_statement(program):
        for call in (part for part in parts_of(statement.expr) if isinstance(part, Call) and len(part.operands) > 1):
            floats = [operand for operand in call.operands if operand.dtype.kind is Kind.FLOAT]
            for met in (operand for operand in call.operands if isinstance(operand, Call) and floats):
                (dim, *_), held = (*met.over, ""), round(1 / max(each.dtype.unit for each in floats))
                if met.function == "index" and sizes.get(dim, 0) - 1 > held:
                    names = ", ".join(dict.fromkeys(use.name for each in floats for use in uses(each)))
                    yield (
                        f"`index_{dim}` in `{statement.name}` counts to {sizes[dim] - 1} and meets {names} in "
                        f"{floats[0].dtype}, which holds whole numbers up to {held}; `{names}: int32[…]` holds them all"
                    )


def unused_sizes(sizes: Mapping[str, int], program: Program) -> Iterator[str]:
    """A warning for each size of a dim that no array has."""
    for dim, size in sizes.items():
        if dim not in program.dims:
            others = (other for other in program.dims if other not in sizes)
            yield f"no array has a dim `{dim}`, and its size {size} is not used" + _asked(dim, others)


def unused_axes(parsed: tree.Tree, mesh: Mesh, used: Collection[str]) -> Iterator[str]:
    """A warning for each axis that shards nothing, with the dims whose names end as it does: `IX`."""
    plain = list(dict.fromkeys(dim.name for dim in written_dims(parsed) if not dim.axes))
    for axis in mesh.names:
        if axis not in used:
            lost = [name for name in plain if name.endswith(axis) and name != axis and "_" not in name]
            told = "; if it shards a dim, write " + ", ".join(f"`{name[: -len(axis)]}_{axis}`" for name in lost)
            yield f"the text shards nothing over mesh axis `{axis}`" + (told if lost else "")


def unused_dtypes(dtypes: Mapping[str, object], names: Iterable[str]) -> Iterator[str]:
    """A warning for each type of an array that does not occur."""
    names = set(names)
    for array, dtype in dtypes.items():
        if array not in names:
            yield f"there is no array `{array}`, and its dtype {dtype} is not used" + _asked(array, sorted(names))


def _asked(name: str, others: Iterable[str]) -> str:
    near = nearest(name, (other for other in others if other != name))
    return f"; did you mean `{near}`?" if near else ""


def lost_subscripts(parsed: tree.Tree, mesh: Mesh, sizes: Mapping[str, int]) -> ShardcError | None:
    """`A[IX, J]` where I is a dim and X an axis: pasted from a page that lost its subscripts."""
    written = list(written_dims(parsed))
    known = set(sizes) | {dim.name.partition("_")[0] for dim in written}
    lost: dict[str, str] = {}
    first: Span | None = None
    for dim in written:
        repair = None if dim.name in sizes or dim.axes or dim.free else _repair(dim.name, mesh, known)
        if repair is not None:
            first = first or dim.span
            lost[dim.name] = repair
    if not lost:
        return None
    return ShardcError(
        "SHC221",
        "lost subscripts in " + ", ".join(f"`{name}`" for name in lost),
        span=first,
        help="write " + ", ".join(f"`{repair}`" for repair in lost.values()),
    )


def _repair(word: str, mesh: Mesh, known: set[str]) -> str | None:
    """`IXY` → `I_XY`, at the longest known dim."""
    for cut in range(min(len(word) - 1, 64), 0, -1):
        name, part = word[:cut], word[cut:]
        if name in known and (part in mesh or all(letter in mesh for letter in part)):
            return f"{name}_{part}"
    return None

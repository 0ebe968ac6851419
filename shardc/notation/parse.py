"""Text → tree → program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from shardc.errors import ShardcError, Source, Span
from shardc.ir.dtypes import dtype as dtype_of
from shardc.ir.mesh import Mesh, check_size
from shardc.ir.names import check_name
from shardc.ir.program import Input, Program
from shardc.notation import tree
from shardc.notation.declared import declared
from shardc.notation.paste import taken_off
from shardc.notation.resolve import Options, given, resolve
from shardc.notation.scan import scan, source_of
from shardc.notation.slips import unused_sizes
from shardc.notation.unnamed import with_names

_FIRST = "write a statement: `A[I, J] · B[J, K] → C[I, K]`"
MAX_BITS = 332  # of a size: a hundred digits


def parse(
    text: str,
    *,
    mesh: Mesh | None = None,
    dims: Mapping[str, int] | None = None,
    dtype: str | None = None,
    dtypes: Mapping[str, str] | None = None,
    chip: str | None = None,
    topology: str | None = None,
    name: str = "<expression>",
    exact: bool = False,
) -> Program:
    """A checked program. Arguments override what the text declares; `exact` ones must agree with it.

    >>> parse("A[I, J_X] · B[J_X, K] → C[I, K]", mesh=Mesh.of({"X": 4})).inputs[0].name
    'A'
    """
    options = Options(
        mesh=mesh,
        sizes={dim: _checked(dim, size) for dim, size in (dims or {}).items()},
        dtype=None if dtype is None else dtype_of(dtype),
        dtypes={array: dtype_of(spelled) for array, spelled in (dtypes or {}).items()},
        chip=chip,
        topology=topology,
        exact=exact,
    )
    source = source_of(text, name)
    try:
        return resolve(_tree(source), options, source)
    except ShardcError as error:
        from shardc.notation.mend import with_remedy  # most texts have no fault to mend

        axes = () if options.mesh is None else options.mesh.names
        raise with_remedy(error, source.text, axes, partial(_is_read, options=options)) from None


def _is_read(text: str, options: Options) -> bool:
    source = Source(text, "")
    try:
        resolve(_tree(source), options, source)
    except ShardcError:
        return False
    return True


def inputs_of(text: str, mesh: Mesh, dtypes: Sequence[str] = ()) -> tuple[Input, ...]:
    """The arrays that a text is given, as it writes them: what its sizes are taken from, before it is read with them.
    They are of these types, in their order.

    Nothing else of the text is checked; that of a loop, which says what it takes only when it is read, is parsed.
    """
    parsed = with_names(_tree(source_of(text, "<expression>")))
    if any(isinstance(item, tree.For) for item in parsed.items):
        return by_itself(text, mesh, dtypes).inputs
    return given(parsed, mesh)


def by_itself(text: str, mesh: Mesh, dtypes: Sequence[str] = ()) -> Program:
    """The program before sizes are taken from arrays of these types: a loop along a dim whose size it does not say has
    a trip for each device, so that whatever axes may lie along that dim."""
    parsed = _tree(source_of(text, "<expression>"))
    known = declared(parsed)[1]
    trips = {loop.dim: mesh.devices for loop in tree.loops(parsed.items) if loop.dim not in known}
    kinds = dict(zip(_used_first(with_names(parsed)), dtypes, strict=False))
    return parse(text, mesh=mesh, dims=trips, dtype=dtypes[0] if dtypes else None, dtypes=kinds)


def _used_first(parsed: tree.Tree) -> Iterator[str]:
    """The names that a text uses before it binds them, in order."""
    met = set[str]()
    for statement in tree.statements(parsed.items):
        for array in tree.arrays(statement.expr):
            if array.name not in met:
                met.add(array.name)
                yield array.name
        met.add(statement.result.name)


def declared_in_vain(text: str, program: Program) -> Iterator[str]:
    """A warning for each size that a program's text declares, of a dim that none of its arrays has.

    >>> program = parse("dims I=8, Q=4\\nmesh X=2\\nA[I_X] → A[I]")
    >>> print(*declared_in_vain("dims I=8, Q=4\\nmesh X=2\\nA[I_X] → A[I]", program))
    no array has a dim `Q`, and its size 4 is not used
    """
    return unused_sizes(declared(_tree(source_of(text, "<expression>")))[1], program)


def parse_tree(text: str, name: str = "<expression>") -> tree.Tree:
    """The syntax tree of a text, no name looked up."""
    return _tree(source_of(text, name))


@lru_cache(maxsize=8)  # an einsum asks first for the arrays that it is given, then reads it with their sizes
def _tree(source: Source) -> tree.Tree:
    from shardc.notation.build import build
    from shardc.notation.grammar import syntax

    bare, left_out = taken_off(source.text)
    try:
        scan(Source(bare, source.name))
        parsed: tree.Tree = build(source, syntax(Source(bare, source.name), "start"))
    except ShardcError as error:
        if error.span is not None:
            error.span = Span(source, error.span.start, error.span.end)
        raise
    parsed = replace(parsed, left_out=tuple(left_out))
    if not parsed.items and left_out:
        raise ShardcError("SHC102", f"`{left_out[0]}` is all, and does not say how it is made", help=_FIRST)
    if not parsed.items:
        raise ShardcError("SHC102", "the text is empty", help=_FIRST)
    return parsed


def _checked(dim: str, size: int) -> int:
    check_name(dim, "dim")
    if type(size) is int and size.bit_length() > MAX_BITS:
        raise ShardcError("SHC407", f"dim `{dim}` has more than 100 digits", help="write a smaller size")
    return check_size(size, "dim", dim)

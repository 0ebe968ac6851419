"""Where a text declares what its arrays and their mesh say as well: the two must be one."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.errors import ShardcError, Span
from shardc.ir.dtypes import DType
from shardc.ir.dtypes import dtype as dtype_of
from shardc.ir.mesh import Mesh
from shardc.notation import tree


def check_agreement(
    parsed: tree.Tree, mesh: Mesh | None, sizes: Mapping[str, int], dtypes: Mapping[str, DType]
) -> None:
    """SHC203, SHC206, SHC214 where a declaration is contradicted by the mesh in force, or by the arrays' own sizes and
    dtypes. What they do not speak of is left alone."""
    for item in parsed.items:
        match item:
            case tree.MeshDecl(axes, span):
                _same("SHC203", "mesh axis", axes, {} if mesh is None else dict(mesh.axes), (span,) * len(axes))
            case tree.DimsDecl(declared, _, spans):
                _same("SHC206", "dim", declared, sizes, spans)
            case tree.WordDecl("dtype", value, _, span):
                _same_dtypes(dtype_of(value, span), parsed, dtypes, span)
            case tree.Statement() | tree.For():
                for statement in tree.statements([item]):
                    _same_inputs(statement, dtypes)
            case tree.WordDecl() | tree.Return():
                pass


def _same_inputs(statement: tree.Statement, dtypes: Mapping[str, DType]) -> None:
    for array in tree.arrays(statement.expr):
        if array.dtype is not None and array.name in dtypes:
            _same_dtype(array.name, dtype_of(array.dtype), dtypes[array.name], array.span)


def _same(
    code: str,
    what: str,
    declared: tuple[tuple[str, int], ...],
    given: Mapping[str, int],
    spans: tuple[Span | None, ...],
) -> None:
    for (name, size), span in zip(declared, spans, strict=True):
        if given.get(name, size) != size:
            raise ShardcError(
                code,
                f"{what} `{name}` is declared {size}, and is {given[name]}",
                span=span,
                help="drop the declaration: the arrays and their mesh say it",
            )


def _same_dtypes(declared: DType, parsed: tree.Tree, given: Mapping[str, DType], span: Span | None) -> None:
    """The type of all arrays that name none."""
    typed = {
        array.name
        for item in tree.statements(parsed.items)
        for array in tree.arrays(item.expr)
        if array.dtype is not None
    }
    for name, dtype in given.items():
        if name not in typed:
            _same_dtype(name, declared, dtype, span)


def _same_dtype(name: str, declared: DType, given: DType, span: Span | None) -> None:
    if declared != given:
        raise ShardcError(
            "SHC214",
            f"`{name}` is declared {declared}, and is {given}",
            span=span,
            help="drop the declaration, or cast the array",
        )

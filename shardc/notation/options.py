"""The command line's `--mesh X=4,Y=2` and `--dims I=1024,J=4k`, in the grammar's own words."""

from __future__ import annotations

from typing import Any

from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.notation.scan import scan, source_of


def parse_mesh(text: str) -> Mesh:
    """`X=4,Y=2` or `Mesh({'X': 4, 'Y': 2})`.

    >>> parse_mesh("X=4,Y=2").devices
    8
    """
    return Mesh(_option(text, "mesh_body", "--mesh", "X=4,Y=2").axes)


def parse_dims(text: str) -> dict[str, int]:
    """`I=1024,J=4k`: k, M and G are 1024, 1024² and 1024³, as in a sweep.

    >>> parse_dims("I=1024,J=4k")
    {'I': 1024, 'J': 4096}
    """
    sizes: dict[str, int] = {}
    declared = _option(text, "dims_body", "--dims", "I=1024,J=4k", in_units=True)
    for (name, size), span in zip(declared.sizes, declared.spans, strict=True):
        if sizes.setdefault(name, size) != size:
            raise ShardcError(
                "SHC206", f"dim `{name}` has two sizes, {sizes[name]} and {size}", span=span, help="keep one of them"
            )
    return sizes


def _option(text: str, start: str, flag: str, example: str, in_units: bool = False) -> Any:
    from shardc.notation.build import build
    from shardc.notation.grammar import syntax

    source = source_of(text, f"<{flag}>")
    try:
        scan(source)
        return build(source, syntax(source, start), in_units)
    except ShardcError as error:
        if error.code[3] != "1":
            raise
        raise ShardcError(
            "SHC001",
            f"malformed {flag}: {error.message}",
            span=error.span,
            note=error.note,
            help=error.help if error.code == "SHC108" else f"write {flag} {example}",
        ) from None

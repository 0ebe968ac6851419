"""What a text declares: its mesh, sizes of dims, and words: `dtype`, `chip`, `topology`."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.errors import ShardcError, Span
from shardc.ir.dtypes import DTYPES, DType
from shardc.ir.dtypes import dtype as dtype_of
from shardc.ir.mesh import Mesh
from shardc.notation import tree

DEFAULT_DTYPE = DTYPES["bf16"]


def declared(parsed: tree.Tree) -> tuple[Mesh, dict[str, int], dict[str, tree.WordDecl]]:
    """Its mesh, the sizes that it gives, and each word by its keyword."""
    mesh: Mesh | None = None
    sizes: dict[str, int] = {}
    words: dict[str, tree.WordDecl] = {}
    for item in parsed.items:
        match item:
            case tree.MeshDecl(axes, span):
                if mesh is not None:
                    raise ShardcError("SHC203", "a second mesh", span=span, help="declare one mesh, with all its axes")
                mesh = _mesh(axes, span)
            case tree.DimsDecl(given, _, spans):
                for (name, size), span in zip(given, spans, strict=True):
                    _one_size(sizes, name, size, span)
            case tree.WordDecl(keyword, value, span):
                if keyword in words and words[keyword].value != value:
                    raise ShardcError(
                        "SHC101", f"`{keyword}` is declared twice", span=span, help=f"keep one `{keyword}`"
                    )
                words[keyword] = item
    return mesh or Mesh(()), sizes, words


def _mesh(axes: tuple[tuple[str, int], ...], span: Span | None) -> Mesh:
    try:
        return Mesh(axes)
    except ShardcError as error:
        raise error.at(span) from None


def check_axes(mesh: Mesh) -> None:
    """`I_XY` must not have two readings."""
    for name in mesh.names:
        if len(name) > 1 and all(letter in mesh for letter in name):
            raise ShardcError(
                "SHC203",
                f"mesh axis `{name}` reads as the axes {', '.join(f'`{letter}`' for letter in name)}",
                help=f"rename `{name}`",
            )


def _one_size(sizes: dict[str, int], name: str, size: int, span: Span | None) -> None:
    if sizes.setdefault(name, size) != size:
        raise ShardcError(
            "SHC206",
            f"dim `{name}` has two sizes, {sizes[name]} and {size}",
            span=span,
            help="keep one of them, or give the second dim another name",
        )


def dtype(words: Mapping[str, tree.WordDecl]) -> DType:
    said = words.get("dtype")
    return DEFAULT_DTYPE if said is None else dtype_of(said.value, said.value_span)


def word(words: Mapping[str, tree.WordDecl], keyword: str) -> str | None:
    return words[keyword].value if keyword in words else None

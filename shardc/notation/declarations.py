"""Declarations, from the parse tree: meshes, sizes of dims, words."""

from __future__ import annotations

from dataclasses import replace

from shardc.errors import ShardcError, Span
from shardc.io.units import size_in_units
from shardc.ir.names import check_name
from shardc.notation import tree
from shardc.notation.literals import size_of
from shardc.notation.places import Kids, Places


class Declarations(Places):
    in_units = False  # whether a dim's size may be written `4k`

    def size(self, kids: Kids) -> tuple[str, Span]:
        span = self._around(kids)
        return "".join(kids), span

    def binding(self, kids: Kids) -> tuple[str, Span, str, Span]:
        name, _, (digits, place) = kids
        return self._name(name), self._span(name), digits, place

    def pair(self, kids: Kids) -> tuple[str, Span, str, Span]:
        name, _, (digits, place) = kids
        span = self._span(name)
        return name[1:-1], Span(self.source, span.start + 1, span.end - 1), digits, place

    def mesh_call(self, kids: Kids) -> tree.MeshDecl:
        return self._mesh([kid for kid in kids if isinstance(kid, tuple)], self._around(kids))

    def mesh_body(self, kids: Kids) -> tree.MeshDecl:
        if isinstance(kids[0], tree.MeshDecl):
            return kids[0]
        return self._mesh([kid for kid in kids if isinstance(kid, tuple)], self._around(kids))

    def mesh(self, kids: Kids) -> tree.MeshDecl:
        declared: tree.MeshDecl = kids[-1]
        return replace(declared, span=self._around(kids))

    def dims_body(self, kids: Kids) -> tree.DimsDecl:
        bindings = [kid for kid in kids if isinstance(kid, tuple)]
        sizes = tuple(
            (name, size_of(self._digits(written), "dim", name, "SHC209", place)) for name, _, written, place in bindings
        )
        for name, place, _, _ in bindings:
            check_name(name, "dim", place)
        return tree.DimsDecl(sizes, self._around(kids), tuple(place for _, place, _, _ in bindings))

    def _digits(self, written: str) -> str:
        size = size_in_units(written) if self.in_units and written[-1:].isalpha() else None
        return written if size is None else str(size)

    def dims(self, kids: Kids) -> tree.DimsDecl:
        declared: tree.DimsDecl = kids[-1]
        return replace(declared, span=self._around(kids))

    def word(self, kids: Kids) -> tree.WordDecl:
        keyword, value = kids
        return tree.WordDecl(str(keyword), str(value), self._around(kids), self._span(value))

    def _mesh(self, bindings: list[tuple[str, Span, str, Span]], span: Span) -> tree.MeshDecl:
        axes = []
        seen: set[str] = set()
        for name, place, digits, size_place in bindings:
            check_name(name, "axis", place)
            if name in seen:
                raise ShardcError(
                    "SHC203", f"mesh axis `{name}` is declared twice", span=place, help="name each axis once"
                )
            seen.add(name)
            axes.append((name, size_of(digits, "mesh axis", name, "SHC203", size_place)))
        return tree.MeshDecl(tuple(axes), span)

"""Which word is an axis and which a dim, and which array a name is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from shardc.errors import ShardcError, Span
from shardc.ir.dtypes import DType
from shardc.ir.dtypes import dtype as dtype_of
from shardc.ir.expressions import Expr, Pattern, Product, Use, parts_of, uses
from shardc.ir.mesh import Mesh
from shardc.ir.names import check_name
from shardc.ir.program import Input
from shardc.ir.sharding import Axes, spell_dim
from shardc.notation import slips, tree
from shardc.notation.one_order import Read
from shardc.notation.unknown import bound_in_loop, listed, part, unknown_array, unknown_axis


@dataclass(frozen=True, slots=True)
class Known:
    """An array that the text has named: its dims, and its type. `whole` are its dims with those of loops around, at
    whose indices it is taken. What is `of_numbers` is of the type of the float that it meets (`calls.meeting_as`).
    `summed`: each dim that a product summed on the way, and the statement of that. `array` is the same of names of one
    array, which statements only move; in a loop, where trips may bind one of them anew, each name has its own."""

    dims: tuple[str, ...]
    dtype: DType
    whole: tuple[str, ...] = ()
    of_numbers: bool = False
    summed: tuple[tuple[str, str], ...] = ()
    array: object = field(default_factory=object, compare=False, repr=False)


@dataclass(slots=True)
class Scope:
    """What the text so far has said. One per parse, and one for each loop in it, whose `parent` is what surrounds it.

    `gone` has what loops that have ended bound for themselves: of each name the loops that it was in, from the outside
    in, and its own dims.

    A loop's own: `outside`, what it reads of the parent, as that has it; `anew`, which of these it binds to another
    array; `rows`, what it stacks, by the dims that the parent is to know.
    """

    mesh: Mesh
    sizes: Mapping[str, int]
    dtype: DType
    dtypes: Mapping[str, DType]
    stems: frozenset[str] = frozenset()  # see slips.stems
    bound_again: frozenset[str] = frozenset()  # the names that several statements bind
    by_arrays: frozenset[str] = frozenset()  # the dims that arrays alone give a size, and no declaration
    arrays: dict[str, Known] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    spans: dict[str, Span] = field(default_factory=dict)
    used_axes: set[str] = field(default_factory=set)
    first_uses: dict[int, DType] = field(default_factory=dict)  # of the statement at hand, by id
    warnings: dict[str, None] = field(default_factory=dict)
    read_as: Read = field(default_factory=dict)  # see one_order
    gone: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    parent: Scope | None = None
    loop: str = ""
    outside: dict[str, Known] = field(default_factory=dict)
    anew: set[str] = field(default_factory=set)
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def inside(self, loop: str) -> Scope:
        """The scope of a loop's body."""
        return replace(self, parent=self, loop=loop, arrays={}, outside={}, anew=set(), rows={})

    @property
    def loops(self) -> tuple[str, ...]:
        """The dims of the loops around, from the outside in."""
        return () if self.parent is None else (*self.parent.loops, self.loop)

    def find(self, name: str) -> Known | None:
        """What a name is here; of what stands outside a loop, the part at the index."""
        if name in self.arrays or self.parent is None:
            return self.arrays.get(name)
        known = self.parent.find(name)
        if known is None:
            return None
        self.outside[name] = known
        dims = tuple(dim for dim in known.dims if dim != self.loop)
        self.arrays[name] = Known(dims, known.dtype, known.whole or known.dims, known.of_numbers, known.summed)
        return self.arrays[name]

    def array_of(self, use: Use | None) -> object:
        """What tells the array of a use; of none, a new one."""
        known = None if use is None else self.find(use.name)
        return object() if known is None else known.array

    def summed(self, expr: Expr, name: str) -> tuple[tuple[str, str], ...]:
        """Each dim that a product summed on the way to an expression, with the statement that it stands in: the one of
        this name, or an earlier."""
        earlier = (self.find(use.name) for use in uses(expr))
        found = {dim: by for known in earlier if known is not None for dim, by in known.summed}
        products = [part for part in parts_of(expr) if isinstance(part, Product) and len(part.operands) > 1]
        gone = {dim for part in products for each in part.operands for dim in each.dims if dim not in part.dims}
        return tuple((found | dict.fromkeys(sorted(gone), name)).items())

    def at_index(
        self, array: tree.Array, dims: tuple[str, ...] | None, pattern: Pattern | None
    ) -> tuple[tuple[str, ...] | None, Pattern | None]:
        """Dims and sharding without the dims of the loops around."""
        if dims is None or pattern is None:
            return dims, pattern
        for loop in self.loops:
            if loop in dims:
                place = dims.index(loop)
                if pattern.dims[place]:
                    raise _sharded_loop(loop, array, pattern.dims[place] or ())
                dims, pattern = (*dims[:place], *dims[place + 1 :]), pattern.without(place)
        return dims, pattern

    def read(self, array: tree.Array) -> tuple[tuple[str, ...] | None, Pattern | None]:
        """The dims and the sharding that an array's brackets say; None for a bare name."""
        if array.dims is None:
            return None, None
        dims: dict[str, None] = {}
        placed: list[Axes | None] = []
        taken: dict[str, str] = {}
        for dim in array.dims:
            name, axes = self.dim(dim)
            if name in dims:
                raise ShardcError(
                    "SHC205",
                    f"dim `{name}` occurs twice in `{array.name}`",
                    span=dim.span,
                    help="give the two dims two names",
                )
            dims[name] = None
            placed.append(axes)
            for axis in axes or ():
                self._take(axis, name, array, taken, dim.span)
        unreduced = self.axes(array.unreduced, array.unreduced_span)
        for axis in unreduced:
            self._take(axis, "", array, taken, array.unreduced_span)
        self.used_axes.update(taken)
        return tuple(dims), Pattern(tuple(placed), frozenset(unreduced))

    def _take(self, axis: str, where: str, array: tree.Array, taken: dict[str, str], span: Span | None) -> None:
        if axis not in taken:
            taken[axis] = where
            return
        place = part(span, axis)
        if where == "":
            other = f"shards `{taken[axis]}` and is unreduced" if taken[axis] else "is twice unreduced"
            raise ShardcError(
                "SHC202", f"mesh axis `{axis}` {other} in `{array.name}`", span=place, help=f"drop one `{axis}`"
            )
        twice = f"`{where}` twice" if taken[axis] == where else f"both `{taken[axis]}` and `{where}`"
        raise ShardcError(
            "SHC202",
            f"mesh axis `{axis}` shards {twice} in `{array.name}`",
            span=place,
            help=f"an axis shards one dim; drop one `_{axis}`",
        )

    def dim(self, dim: tree.Dim) -> tuple[str, Axes | None]:
        """A dim's name and its axes, from one word or two: `I_XY` → I over X, Y; `d_model` → d_model."""
        if dim.free or dim.axes:
            name, axes = dim.name, None if dim.free else self.axes(dim.axes, dim.span)
        else:
            name, axes = self.split(dim.name, dim.span)
        if "_" in name and (dim.free or axes):
            self._plain(name, dim.span)
        check_name(name, "dim", dim.span)
        if dim.span is not None:
            self.spans.setdefault(name, dim.span)
            if axes:
                self.spans.setdefault(spell_dim(name, axes), dim.span)
        return name, axes

    def whole_dim(self, word: str, span: Span | None) -> str:
        """A dim that is named without a subscript: `|D|`, `index_T`."""
        name, axes = self.split(word, span)
        if axes:
            raise ShardcError(
                "SHC107", f"a subscript on `{word}`, which is a whole dim here", span=span, help=f"write `{name}`"
            )
        return check_name(name, "dim", span)

    def split(self, word: str, span: Span | None) -> tuple[str, Axes]:
        """`I_XY` → I, (X, Y); `d_model` → d_model, () unless the mesh has an axis `model`."""
        name, _, part = word.rpartition("_")
        if not name:
            return word, ()
        axes = slips.run(part, self.mesh)
        if axes is not None:
            return name, axes
        axis = part.rstrip("'")
        if axis != part and slips.run(axis, self.mesh) is not None:
            raise ShardcError(
                "SHC107",
                f"a prime after the subscript in `{word}`",
                span=span,
                help=f"it belongs to the dim: `{name}{part[len(axis) :]}_{axis}`",
            )
        if part[0].isupper():
            raise unknown_axis(axis, span, self.mesh)
        is_said = word in self.sizes and word not in self.by_arrays
        if part[0].isdigit() or is_said:  # no axis begins with a digit, and what is given a size is a dim
            return word, ()
        near = slips.near_axes(part, self.mesh)
        if name in self.stems or (near is not None and word in self.by_arrays):  # of arrays no plan is read
            raise unknown_axis(part, span, self.mesh, f"if `{word}` is a dim, give its size: `dims {word}=…`")
        if near is not None:
            self.warnings[f"`{word}` is the name of a dim, since the mesh has no axis `{part}`; it has `{near}`"] = None
        return word, ()

    def _plain(self, name: str, span: Span | None) -> None:
        """`I_X_Y`: a name that is left of a subscript must not carry one itself."""
        if self.split(name, span)[1]:
            raise ShardcError(
                "SHC107",
                f"two subscripts on `{span.text if span else name}`",
                span=span,
                help=f"write them as one: `{name.rpartition('_')[0]}_{{…}}`",
            )

    def axes(self, words: Iterable[str], span: Span | None) -> Axes:
        """The axes of a subscript in braces; each word is an axis or a run of one-letter axes."""
        found: list[str] = []
        for word in words:
            run = slips.run(word, self.mesh)
            if run is None:
                raise unknown_axis(word, span, self.mesh)
            found += run
        return tuple(found)

    def uses(self, expr: tree.Expr) -> dict[int, Use]:
        """An expression's arrays, by id. One that occurs twice may be multiplied by itself: `A[I, J] · A[J, K]`."""
        arrays = list(tree.arrays(expr))
        times = Counter(array.name for array in arrays)
        return {id(array): self._use(array, times[array.name] > 1) for array in arrays}

    def _use(self, array: tree.Array, is_met_again: bool) -> Use:
        """An array on the right: one that is known, or a new input."""
        whole, written = self.read(array)
        dims, pattern = self.at_index(array, whole, written)
        known = self.find(array.name)
        if known is None:
            self.give(array, whole, written)
            known = self.find(array.name)
            assert known is not None
        elif whole is not None and dims is not None and whole != dims:
            self._rename(array, whole, known.whole or known.dims, is_met_again)
        elif dims is not None and dims != known.dims:
            self._rename(array, dims, known.dims, is_met_again)
        self.same_dtype(array, known.dtype)
        here = known.dims if dims is None else dims
        return Use(array.name, here, pattern, known.dtype, array.span, known.of_numbers)

    def _rename(self, array: tree.Array, dims: tuple[str, ...], own: tuple[str, ...], is_met_again: bool) -> None:
        """`x[B, S, D]` of `x[B, T, D]`: names anew, place by place, where the sizes agree. A name of its own may be at
        another place where the array is met again, if the others are in order: `A[J, K]` beside `A[I, J]`."""
        moved = [dim for dim, before in zip(dims, own, strict=False) if dim != before and dim in own]
        kept = [own.index(dim) for dim in dims if dim in own]
        if is_met_again and kept == sorted(kept):
            moved = []
        if len(dims) != len(own) or moved:
            order = f", in this order, not {listed(dims)}" if moved else f", not {listed(dims)}"
            anew = listed(f"{dim}2" for dim in own)
            turned = f"; turned, it is `T{listed(dims)}` after `T{anew} = {array.name}{anew}`"
            turned = turned if sorted(dims) == sorted(own) else ""
            raise ShardcError(
                "SHC210",
                f"`{array.name}` has dims {listed(own)}{order}",
                span=array.span,
                help=f"write `{array.name}[{', '.join(own)}]`, with subscripts or other names at will{turned}",
            )
        for dim, before in zip(dims, own, strict=True):
            sizes = [self.sizes.get(name) for name in (before, dim)]
            if dim != before and None not in sizes and sizes[0] != sizes[1]:
                raise ShardcError(
                    "SHC206",
                    f"dim `{before}` of `{array.name}` is {sizes[0]}, and `{dim}` is {sizes[1]}",
                    span=part(array.span, dim),
                    help=f"write `{before}`, or a name of the same size",
                )
            if dim != before and dim not in self.sizes and slips.is_slip(dim, before):
                self.warnings[f"`{dim}` names dim `{before}` of `{array.name}` anew; did you mean `{before}`?"] = None

    def give(self, array: tree.Array, dims: tuple[str, ...] | None, pattern: Pattern | None) -> None:
        """A new input, which the whole text knows."""
        if array.name in self.gone:
            raise self.after_its_loop(array.name, array.span)
        if self.parent is not None:
            return self.parent.give(array, dims, pattern)
        if dims is None or pattern is None:
            raise unknown_array(array.name, array.span, self.arrays, self.stems | self.sizes.keys())
        dtype = self.dtype_of(array) or self.dtype
        if pattern.unreduced and not dtype.adds:
            raise ShardcError(
                "SHC214",
                f"`{array.name}` is {dtype} and unreduced; arrays of that type move, and are not added up",
                span=array.unreduced_span,
                help="declare it as a type to add up in, say int32",
            )
        self.arrays[array.name] = Known(dims, dtype)
        self.first_uses[id(array)] = dtype
        self.inputs.append(Input(array.name, dims, pattern, dtype, array.span))

    def after_its_loop(self, name: str, span: Span | None) -> ShardcError:
        """SHC226 for a name in `gone`, used here: stacked, it has the dims of the loops that are over."""
        loops, dims = self.gone[name]
        return bound_in_loop(name, span, [loop for loop in loops if loop not in self.loops], dims)

    def dtype_of(self, array: tree.Array) -> DType | None:
        """The type given to an array, by an option or in the text."""
        if array.name in self.dtypes:
            return self.dtypes[array.name]
        if array.dtype is None:
            return None
        return dtype_of(array.dtype, part(array.span, array.dtype))

    def same_dtype(self, array: tree.Array, dtype: DType) -> None:
        given = self.dtype_of(array)
        if given is not None and given != dtype:
            raise ShardcError(
                "SHC214",
                f"`{array.name}` is {dtype}, not {given}",
                span=part(array.span, array.dtype or array.name),
                help="write the type once, where the array is first named",
            )


def _sharded_loop(loop: str, array: tree.Array, axes: Axes) -> ShardcError:
    return ShardcError(
        "SHC226",
        f"the loop runs along `{loop}`, and `{spell_dim(loop, axes)}` of `{array.name}` is sharded",
        span=array.span,
        note="each device makes every trip, so that it holds every index of what a loop takes",
        help=f"write `{loop}`, and shard another dim; or reshard `{array.name}` before the loop",
    )

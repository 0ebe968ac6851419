"""The device mesh: named axes with sizes, in order. The last axis varies fastest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shardc.errors import ShardcError, Span
from shardc.ir.names import check_name

MAX_AXES = 8
MAX_DEVICES = 2**20


@dataclass(frozen=True, slots=True)
class Mesh:
    """Axes in order, each a name and a size.

    >>> Mesh.of({"X": 4, "Y": 2}).devices
    8
    """

    axes: tuple[tuple[str, int], ...]
    _sizes: dict[str, int] = field(init=False, repr=False, compare=False)
    _products: dict[tuple[str, ...], int] = field(init=False, repr=False, compare=False)
    devices: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.axes)
        object.__setattr__(self, "_sizes", dict(self.axes))
        object.__setattr__(self, "_products", {})  # searches ask for the same groups over and over
        object.__setattr__(self, "devices", math.prod(size for _, size in self.axes))
        object.__setattr__(self, "_hash", hash(self.axes))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        """Made anew where it is read: another process has other hashes of names."""
        return type(self), (self.axes,)

    @classmethod
    def of(cls, axes: Mapping[str, int] | Iterable[tuple[str, int]]) -> Mesh:
        pairs = axes.items() if isinstance(axes, Mapping) else axes
        return cls(tuple((name, size) for name, size in pairs))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    def __contains__(self, name: object) -> bool:
        return name in self._sizes

    def size(self, name: str) -> int:
        return self._sizes[name]

    def product(self, names: Iterable[str]) -> int:
        """How many devices a group over these axes has."""
        key = tuple(names)
        found = self._products.get(key)
        if found is None:
            found = self._products[key] = math.prod([self._sizes[name] for name in key])
        return found

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """The same names in the order of the mesh."""
        wanted = set(names)
        return tuple([name for name in self._sizes if name in wanted])

    def nontrivial(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the names whose axis has several devices, as they come."""
        return tuple([name for name in names if self._sizes[name] > 1])

    def coordinates(self) -> Iterator[dict[str, int]]:
        """Every device's coordinates, in order of device number."""
        for number in range(self.devices):
            place = {}
            for name, size in reversed(self.axes):
                number, place[name] = divmod(number, size)
            yield {name: place[name] for name in self.names}

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.axes)


def _check(axes: tuple[tuple[str, int], ...]) -> None:
    seen: set[str] = set()
    for name, size in axes:
        check_name(name, "axis")
        if name in seen:
            raise ShardcError("SHC203", f"mesh axis `{name}` is declared twice", help="name each axis once")
        seen.add(name)
        check_size(size, "mesh axis", name, code="SHC203")
    if len(axes) > MAX_AXES:
        raise ShardcError("SHC404", f"{len(axes)} mesh axes; the limit is {MAX_AXES}", help="merge some axes")
    devices = math.prod(size for _, size in axes)
    if devices > MAX_DEVICES:
        raise ShardcError("SHC405", f"{devices} devices; the limit is 2^20 = {MAX_DEVICES}", help="shrink the mesh")


def check_size(size: int, what: str, name: str, *, code: str = "SHC209", span: Span | None = None) -> int:
    """`size` if it is a whole number of at least 1; otherwise a coded error."""
    if type(size) is not int:
        raise ShardcError(
            code,
            f"{what} `{name}` = {size!r} is not a whole number",
            span=span,
            help=f"write {name}=4, say",
        )
    if size.bit_length() > 64:  # Python refuses to print a number of thousands of digits
        raise ShardcError("SHC407", f"{what} `{name}` has {size.bit_length()} bits", span=span, help="64 at most")
    if size < 1:
        raise ShardcError(
            code, f"{what} `{name}` = {size}; sizes begin at 1", span=span, help=f"write {name}=1 or more"
        )
    return size

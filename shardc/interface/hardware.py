"""What a user says of the hardware, from Python or from the command line, made into a cost model."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, TypeVar

from shardc.cost import CHIPS, DEFAULT_CHIP, Layout, LinkModel, chip_of, topology
from shardc.cost.chips import PROFILES
from shardc.cost.layout import LINE, RING, SHAPES
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.lowering.target import Target
from shardc.notation import parse_mesh

_Read = TypeVar("_Read")
_Pairs = tuple[tuple[str, _Read], ...]
_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_BYTES = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?(?:e[0-9]{1,2})?) ?([A-Za-z]*)")
_SHAPES: dict[str | bool, str] = {shape: shape for shape in SHAPES} | {True: RING, False: LINE}


@dataclass(frozen=True, slots=True)
class Hardware:
    """Chip (a name, or a TOML file), formula and profile, how the mesh lies, and the bytes a device has."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("chip", "formula", "profile", "map", "dcn", "wraparound", "memory")

    chip: str | None = None
    book: bool = False
    profile: str = "book"
    map: tuple[tuple[str, tuple[int, ...]], ...] = ()
    dcn: tuple[tuple[str, int | None], ...] = ()
    wraparound: tuple[tuple[str, str], ...] = ()
    memory: int | None = None

    @classmethod
    def of(
        cls,
        *,
        chip: str | None = None,
        formula: str = "exact",
        profile: str = "book",
        map: Mapping[str, Any] | str | None = None,
        dcn: Mapping[str, int] | str | None = None,
        wraparound: Mapping[str, bool | str] | str | None = None,
        memory: int | float | str | None = None,
    ) -> Hardware:
        """Each option as text or as Python; SHC001 if it is malformed."""
        _one_of("formula", formula, ("exact", "book"))
        _one_of("profile", profile, PROFILES)
        return cls(
            chip,
            formula == "book",
            profile,
            _read("map", _map, map, "X=0,Y=1+2"),
            _read("dcn", _dcn, dcn, "P=2"),
            _read("wraparound", _wraparound, wraparound, "X=ring"),
            None if memory is None else parse_bytes(memory),
        )

    def with_dcn(self, mesh: Mesh | None) -> Mesh | None:
        """A mesh given without the axes over DCN gets them in front."""
        if mesh is None:
            return None
        added = [(name, size) for name, size in self.dcn if name not in mesh and size is not None]
        return Mesh.of([*added, *mesh.axes])

    def model(self, program: Program) -> LinkModel:
        """The cost model of a program's mesh; SHC223, SHC224 where hardware and mesh disagree."""
        mesh = program.mesh
        for name, size in self.dcn:
            if name in mesh and size is not None and mesh.size(name) != size:
                raise ShardcError(
                    "SHC224",
                    f"axis `{name}` over DCN has size {size}, in the mesh {mesh.size(name)}",
                    help=f"give --dcn {name}={mesh.size(name)}",
                )
        self._check_dcn()
        used = chip_of(self.chip or program.chip, program.topology) or CHIPS[DEFAULT_CHIP]
        if self.map and program.topology is None:
            raise ShardcError("SHC224", "a map without a topology", help="give --topology v5p:4x4x4, say, as well")
        if not used.is_torus and (self.map or self.wraparound):
            raise ShardcError("SHC224", f"{used.name} has no torus to map or wrap", help="drop --map and --wraparound")
        layout = Layout(
            topology(program.topology) if program.topology else None,
            tuple(name for name, _ in self.dcn),
            self.map,
            self.wraparound,
        )
        return LinkModel.of(mesh, used.in_profile(self.profile), layout, book=self.book, target=Target.of(program))

    def _check_dcn(self) -> None:
        """An axis over the data-centre network lies on no physical axis, and is neither a ring nor a line of links."""
        over = {name for name, _ in self.dcn}
        for option, given in (("map", self.map), ("wraparound", self.wraparound)):
            for name, _ in given:
                if name in over:
                    raise ShardcError(
                        "SHC224", f"axis `{name}` runs over DCN, and has no {option}", help=f"drop it from --{option}"
                    )


def parse_bytes(given: int | float | str) -> int:
    """`16GB`, `1.5 GiB`, 16e9: bytes. SHC001 if it is something else."""
    if isinstance(given, Real) and not isinstance(given, bool) and 0 < given < 2**63:
        return int(given)
    found = _BYTES.fullmatch(given) if isinstance(given, str) else None
    if found is None or found[2] not in _UNITS:
        raise ShardcError("SHC001", f"malformed size of memory `{given}`", help="write 16GB, 512MiB or bytes")
    return int(float(found[1]) * _UNITS[found[2]])


def _read(what: str, reader: Callable[[Any], _Pairs[_Read]], given: Any, example: str) -> _Pairs[_Read]:
    """What the reader makes of an option; SHC001 if it is of a kind that no reader knows."""
    try:
        pairs = reader(given)
    except (TypeError, AttributeError, ValueError):
        raise ShardcError("SHC001", f"malformed {what} {given!r}"[:200], help=f"write {example}, or a dict") from None
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ShardcError("SHC001", f"{what} names axis `{name}` twice", help="say of each axis one thing")
    return pairs


def _map(given: Mapping[str, Any] | str | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if isinstance(given, str):
        pairs = [part.partition("=")[::2] for part in given.replace(" ", "").split(",")]
        if any(not re.fullmatch(r"[0-9](\+[0-9])*", places) for _, places in pairs):
            raise ShardcError("SHC001", f"malformed map `{given}`", help="write X=0,Y=1+2")
        return tuple((name, tuple(int(place) for place in places.split("+"))) for name, places in pairs)
    given = {name: (places,) if isinstance(places, int) else tuple(places) for name, places in (given or {}).items()}
    return tuple((name, tuple(operator.index(place) for place in places)) for name, places in given.items())


def _dcn(given: Mapping[str, int] | str | None) -> tuple[tuple[str, int | None], ...]:
    if not isinstance(given, str):
        sizes = (given or {}).items()
        return tuple((name, None if size is None else operator.index(size)) for name, size in sizes)
    if "=" in given:
        return parse_mesh(given).axes
    return tuple((name.strip(), None) for name in given.split(","))


def _wraparound(given: Mapping[str, bool | str] | str | None) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, Any]] = (
        [(name, kind) for name, _, kind in (part.partition("=") for part in given.replace(" ", "").split(","))]
        if isinstance(given, str)
        else list((given or {}).items())
    )
    for name, kind in pairs:
        if kind not in _SHAPES:
            raise ShardcError(
                "SHC001", f"malformed wraparound `{name}={kind}`", help="write X=ring, X=line or X=one-way"
            )
    return tuple((name, _SHAPES[kind]) for name, kind in pairs)


def _one_of(what: str, given: str, known: tuple[str, ...]) -> None:
    if not isinstance(given, str) or given not in known:
        raise ShardcError("SHC001", f"unknown {what} `{str(given)[:200]}`", help="one of " + ", ".join(known))

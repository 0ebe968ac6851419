"""How a ReduceScatter is written, so that the TPU's compiler scatters.

A plain one it often makes an AllReduce and a slice of, at twice the bytes (libtpu 0.0.42.1; 0.0.51 too):

- of any element type but bf16 and f32;
- of shares that are less than a few tiles, or whose last two dims are not whole pairs of tiles, though some it keeps;
- over all of a slice two of whose sides are equal: 4×4, 2×2×2, not 2×4. Of 2×2 it is not.

What it keeps is the shares stacked along a first dim, if they are large; one group of axes after another, of which
none is the slice; and an AllToAll of the shares, which each device then adds up. That also moves (n-1)/n of the bytes.
Only where a program names its slice is an AllToAll written for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from shardc.ir.dtypes import DTYPES, DType
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Axes

Shape = tuple[int, ...]
Parts = tuple[tuple[int, Axes], ...]  # dims, and the axes that each gets at its end

_SCATTERED = (DTYPES["bf16"], DTYPES["f32"])
_ROWS, _LANES = 16, 256  # two tiles of 8 by 128 either way
FOLD = 128  # the lanes that an array of one dim is folded into
_LARGE = 2**16  # bytes of a share that counts as large
_MANY = 64  # devices of a slice that is not named, from which on it is taken to have equal sides


class Form(Enum):
    """The ways to write it."""

    PLAIN = "along the dim"
    STACKED = "its shares one behind the other"  # always, along several dims
    FOLDED = "of one dim, folded into lanes"
    EXCHANGED = "its shares exchanged, and added up"


@dataclass(frozen=True, slots=True)
class Round:
    """A collective over these axes; or over one axis in two parts, `split` in (major, minor), over one of them."""

    axes: Axes
    split: tuple[int, int] | None = None
    is_major: bool = False

    def parts(self, mesh: Mesh) -> int:
        """Among how many devices each group shares out."""
        return mesh.product(self.axes) if self.split is None else self.split[0 if self.is_major else 1]


@dataclass(frozen=True, slots=True)
class Scattering:
    """In which form a block is shared out among `parts` devices, and in which rounds."""

    form: Form
    parts: int
    rounds: tuple[Round, ...]


def scattering(parts: Parts, local: Shape, dtype: DType, program: Program) -> Scattering:
    """How to share out a local block along these dims."""
    slice_, axes = slice_of(program), tuple(axis for _, some in parts for axis in some)
    form = _form(share_of(parts, local, program.mesh), dtype, may_exchange=slice_ is not None)
    if len(parts) > 1 and form is not Form.EXCHANGED:
        form = Form.STACKED
    count = program.mesh.product(axes)
    at_once = form is Form.EXCHANGED or not _is_whole(axes, program.mesh, slice_)
    return Scattering(form, count, (Round(axes),) if at_once else rounds(axes, program, may_split=True))


def one_after_another(parts: Parts, program: Program) -> tuple[Parts, ...]:
    """Over a whole slice, scattered in rounds, several dims take a round each, with no shares to be stacked.

    Those over most axes first, then over most devices: most of the bytes come in the first round, over its links.
    """
    mesh, axes = program.mesh, tuple(axis for _, some in parts for axis in some)
    if len(parts) < 2 or not _is_whole(axes, mesh, slice_of(program)):
        return (parts,)
    widths = {dim: [mesh.size(axis) for axis in some if mesh.size(axis) > 1] for dim, some in parts}
    in_order = sorted(parts, key=lambda part: (len(widths[part[0]]), math.prod(widths[part[0]])), reverse=True)
    return tuple((part,) for part in in_order)


def share_of(parts: Parts, local: Shape, mesh: Mesh) -> Shape:
    """What of a block each device gets."""
    counts = {dim: mesh.product(axes) for dim, axes in parts}
    return tuple(size // counts.get(dim, 1) for dim, size in enumerate(local))


def slice_of(program: Program) -> Shape | None:
    """The sides of the TPU slice that a program names."""
    if program.topology is None or not program.topology.startswith(("v", "tpu")):
        return None
    return tuple(int(side) for side in program.topology.partition(":")[2].split("x") if side != "1")


def _form(share: Shape, dtype: DType, may_exchange: bool) -> Form:
    otherwise = Form.EXCHANGED if may_exchange else Form.PLAIN
    if dtype not in _SCATTERED:
        return otherwise
    if len(share) == 1:
        return Form.FOLDED if share[0] % (_ROWS * FOLD) == 0 else otherwise
    if share[-2] % _ROWS == 0 and share[-1] % _LANES == 0:
        return Form.PLAIN
    return Form.STACKED if math.prod(share) * dtype.bytes >= _LARGE else otherwise


def _is_whole(axes: Axes, mesh: Mesh, slice_: Shape | None) -> bool:
    """Whether the group is all of a slice over which the compiler does not scatter."""
    if mesh.product(axes) != mesh.devices:
        return False
    if slice_ is None:
        return mesh.devices >= _MANY
    return len(set(slice_)) < len(slice_) and mesh.devices > 4


def rounds(axes: Axes, program: Program, may_split: bool) -> tuple[Round, ...]:
    """Of all of a slice the major axes, then the minor one.

    Of a single axis, if it `may_split` and the slice is named, the major part, then the slice's last side.
    """
    mesh, slice_ = program.mesh, slice_of(program)
    wide = [place for place, axis in enumerate(axes) if mesh.size(axis) > 1]
    if len(wide) > 1:
        return Round(axes[: wide[-1]]), Round(axes[wide[-1] :])
    if not slice_ or not may_split or slice_[-1] == mesh.product(axes):
        return (Round(axes),)
    split = (mesh.product(axes) // slice_[-1], slice_[-1])
    return Round(axes, split, is_major=True), Round(axes, split)

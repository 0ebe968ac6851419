"""What a caller says of a program, in Python's types or as text, made into ours."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from numbers import Integral
from typing import Any, Literal, TypeAlias, TypeVar

from shardc.errors import ShardcError, nearest
from shardc.ir.mesh import Mesh
from shardc.notation import parse_dims, parse_mesh
from shardc.planner import Idle, Objective, Overlap

MeshLike = Mesh | Mapping[str, int] | str
DimsLike = Mapping[str, int] | str
# The words of options, for editors and type checkers; each is held against what is read, by tests/house/test_types.py.
ObjectiveWord: TypeAlias = Literal["time", "bytes"]
IdleWord: TypeAlias = Literal["use", "keep"]
OverlapWord: TypeAlias = Literal["auto", "on", "off"]
FormulaWord: TypeAlias = Literal["exact", "book"]
ProfileWord: TypeAlias = Literal["book", "spec"]
_Word = TypeVar("_Word", bound=Enum)


def mesh_of(mesh: MeshLike | Any | None) -> Mesh | None:
    if mesh is None or isinstance(mesh, Mesh):
        return mesh
    if isinstance(mesh, str):
        return parse_mesh(mesh)
    if isinstance(mesh, Mapping):
        return Mesh.of(_whole(mesh))
    if isinstance(getattr(mesh, "shape", None), Mapping):  # a jax mesh, concrete or abstract
        return Mesh.of(dict(mesh.shape))
    if hasattr(mesh, "mesh"):  # a jax.NamedSharding, or a plan
        return mesh_of(mesh.mesh)
    raise ShardcError("SHC203", f"mesh is a {type(mesh).__name__}", help='give a dict, a jax mesh, or "X=4,Y=2"')


def devices_of(mesh: Any) -> Any:
    """The JAX mesh with devices that was given, or a sharding's; None of any other."""
    mesh = mesh if isinstance(getattr(mesh, "shape", None), Mapping) else getattr(mesh, "mesh", None)
    is_abstract = type(mesh).__name__ == "AbstractMesh"  # it raises where it is asked for its devices
    return None if is_abstract or not hasattr(mesh, "devices") else mesh


def dims_of(dims: DimsLike | None) -> Mapping[str, int] | None:
    if dims is None or isinstance(dims, Mapping):
        return dims and _whole(dims)
    if isinstance(dims, str):
        return parse_dims(dims)
    raise ShardcError("SHC001", f"dims is a {type(dims).__name__}", help='give a dict, or text as in "I=1024,J=4k"')


def _whole(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Whole numbers of NumPy as Python's; what is none is told where it is read."""
    return {
        name: int(size) if isinstance(size, Integral) and not isinstance(size, bool) else size
        for name, size in sizes.items()
    }


def dtype_of(dtype: Any) -> str | None:
    """Text, or a NumPy or JAX type."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or getattr(dtype, "dtype", None)
    if name is None:
        raise ShardcError(
            "SHC001", f"dtype is a {type(dtype).__name__}", help='give text as in "bf16", or a NumPy type'
        )
    return str(name)


def texts(**given: Any) -> None:
    """SHC001 for what is given, and is no text; or a program's file instead of its text."""
    for what, value in given.items():
        if value is not None and not isinstance(value, str):
            told = "give its text: .read_text()" if hasattr(value, "read_text") else "give text"
            raise ShardcError("SHC001", f"{what} is a {type(value).__name__}", help=told)
        if what == "text" and value is not None and value.endswith(".shard") and "[" not in value:
            raise ShardcError("SHC001", "text is the name of a file", help="give its text: Path(…).read_text()")


def count_of(given: Any, what: str, least: int) -> int:
    """A whole number of at least so much; SHC001 if it is none."""
    if type(given) is not int or not least <= given < 2**31:
        raise ShardcError("SHC001", f"{what} is {repr(given)[:200]}", help=f"give a whole number, {least} or more")
    return given


def objective_of(name: str) -> Objective:
    return _word(Objective, "objective", name)


def idle_of(name: str | None, book: bool) -> Idle:
    """What is done with idle axes; if nothing is said, they are used, and kept by the book's formulas."""
    if name is None:
        return Idle.KEEP if book else Idle.USE
    return _word(Idle, "idle", name)


def overlap_of(name: str) -> Overlap:
    return _word(Overlap, "overlap", name)


def _word(kind: type[_Word], what: str, name: str) -> _Word:
    """Of a few words one; SHC001 for any other."""
    known = [word.value for word in kind]
    if isinstance(name, str) and name in known:
        return kind(name)
    near = nearest(str(name), known)
    raise ShardcError(
        "SHC001",
        f"unknown {what} `{str(name)[:200]}`",
        help=f"did you mean `{near}`?" if near else " or ".join(f"`{word}`" for word in known),
    )

"""What each device does: a list of steps over values, in order.

Values are numbered; a value is written once. Inputs come first. `values[i]` is an Array: its name,
dims, global shape, sharding and dtype, from which local shapes and bytes follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from shardc.ir.collectives import DirectExchange, JointExchange, JointGather, JointScatter, Move
from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Array


@dataclass(frozen=True, slots=True)
class Einsum:
    """The local product of one or two operands; dims that the result lacks are summed."""


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of `ir.functions`, on local blocks; `over` as in program.Call."""

    function: str
    over: tuple[str, ...] = ()


Local: TypeAlias = Einsum | Apply | Reshape
Op: TypeAlias = Move | Local


@dataclass(frozen=True, slots=True)
class StepCost:
    """`wire_bytes` received by the busiest device, `flops` per device, seconds, and the formula of the time."""

    wire_bytes: int = 0
    flops: int = 0
    time_s: float = 0.0
    formula: str = "0"


@dataclass(frozen=True, slots=True)
class Step:
    """`values[result] = op(values[operands]…)`, for statement number `statement`."""

    op: Op
    operands: tuple[int, ...]
    result: int
    statement: int
    cost: StepCost
    rule: str = ""

    @property
    def name(self) -> str:
        """A collective's name, `Slice`, `Einsum`, or a function's name."""
        match self.op:
            case Apply(function):
                return function
            case JointGather():
                return "AllGather"
            case JointScatter():
                return "ReduceScatter"
            case JointExchange():
                return "AllToAll"
            case DirectExchange():
                return "CollectivePermute"
            case op:
                return type(op).__name__

    @property
    def is_collective(self) -> bool:
        return not isinstance(self.op, Local)


@dataclass(frozen=True, slots=True)
class Cost:
    """Sums over the steps, per device; `peak_bytes` is what `cost.memory.peak_of` counts."""

    wire_bytes: int
    flops: int
    compute_s: float
    communication_s: float
    time_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """One legal way to do a statement. `steps` name the values of this strategy."""

    values: tuple[Array, ...]
    steps: tuple[Step, ...]
    wire_bytes: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of a whole program. `inputs` and `outputs` are numbers of values.

    Where axes are cut (`by`), program and values are on the fine mesh; inputs and outputs lie by whole axes.
    """

    program: Program
    values: tuple[Array, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[Step, ...]
    by: Refinement | None = None

    @property
    def mesh(self) -> Mesh:
        """The mesh of the steps."""
        return self.program.mesh

    @property
    def given_mesh(self) -> Mesh:
        """The mesh of the arguments and results, as the program was written."""
        return self.mesh if self.by is None else self.by.coarse

    def given(self, value: int) -> Array:
        """An input or an output, by the axes of that mesh."""
        array = self.values[value]
        if self.by is None:
            return array
        sharding = self.by.whole(array.sharding)
        assert sharding is not None, "arguments and results lie by whole axes"
        return replace(array, sharding=sharding)

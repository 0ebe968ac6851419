"""What each device does: blocks of steps over values, in order.

    schedule   = program, block
    block      = values, inputs, outputs, step…
    step       = value… = operation value…
    operation  = a move of `ir.collectives` | Einsum | Apply | Reshape | Loop of a block

The values of a block are numbered; a value is written once. `values[i]` is an Array: its name, dims, global shape,
sharding and dtype, from which local shapes and bytes follow. Folds over all blocks stand at the end of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import ClassVar, NewType, TypeAlias

from shardc.ir.collectives import Move
from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Facts, Kind, local
from shardc.ir.program import Program
from shardc.ir.refine import Refinement
from shardc.ir.scalars import Number
from shardc.ir.sharding import Array, Axes


@dataclass(frozen=True, slots=True)
class Einsum:
    """The local product of one or two operands; dims that the result lacks are summed."""

    facts: ClassVar[Facts] = Facts(Kind.LOCAL, "Einsum")
    axes: ClassVar[Axes] = ()
    on: ClassVar[tuple[int, ...]] = ()


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of `ir.functions`, on local blocks; `over` and `numbers` as in program.Call."""

    axes: ClassVar[Axes] = ()
    on: ClassVar[tuple[int, ...]] = ()

    function: str
    over: tuple[str, ...] = ()
    numbers: tuple[Number | None, ...] = ()

    @property
    def facts(self) -> Facts:
        return local(self.function)


@dataclass(frozen=True, slots=True)
class Loop:
    """A block done once for each index of a dim, as `jax.lax.scan` does it; `down` is from the last to the first.

    operands   fixed…, carried…, scanned…    as they lie before the loop; what is scanned has the dim first
    the body   takes fixed…, carried…, of each that is scanned the part at the index; gives carried…, stacked…
    results    carried…, stacked…            after the last trip; what is stacked has the dim first

    A carried array has one sharding: before, after, and from trip to trip. `is_of_chunks`: the text has no such loop;
    its steps are of the statements around it, and the dim is a digit of one of theirs.
    """

    facts: ClassVar[Facts] = Facts(Kind.LOOP, "Loop")
    axes: ClassVar[Axes] = ()
    on: ClassVar[tuple[int, ...]] = ()

    dim: str
    trips: int
    down: bool
    body: Block
    fixed: int  # how many of the operands
    carried: int
    is_of_chunks: bool = False

    @property
    def counted(self) -> str:
        """The number of trips in a formula: the dim, if the text has it."""
        return str(self.trips) if self.is_of_chunks else self.dim

    def turns(self, trips: int) -> Sequence[int]:
        """The indices, in order."""
        return range(trips)[:: -1 if self.down else 1]


Local: TypeAlias = Einsum | Apply | Reshape
Single: TypeAlias = Move | Local  # leaves one value
Op: TypeAlias = Single | Loop


@dataclass(frozen=True, slots=True)
class StepCost:
    """`wire_bytes` received by the busiest device, `flops` per device, seconds, and how the time is spelled.
    `by_memory` if a product waits for memory, `in_loop` if it is a loop over elements; `as_written`: the cost by the
    text alone, if another (`cost.settled`); `if_sent`: of a function that the text has with a product's tiles, where
    a collective leaves an operand `in_tiles`; `if_cut`: of a share; `to_lie`: besides, where a collective reads it."""

    wire_bytes: int = 0
    flops: int = 0
    time_s: float = 0.0
    spelled: Callable[[], str] | None = field(default=None, repr=False, compare=False)  # when a table asks
    by_memory: bool = False
    in_loop: bool = field(default=False, repr=False, compare=False)
    as_written: StepCost | None = field(default=None, repr=False, compare=False)
    if_sent: StepCost | None = field(default=None, repr=False, compare=False)
    if_cut: StepCost | None = field(default=None, repr=False, compare=False)
    in_tiles: tuple[int, ...] = field(default=(), repr=False, compare=False)
    to_lie: StepCost | None = field(default=None, repr=False, compare=False)

    @property
    def formula(self) -> str:
        """The formula of the time."""
        return "0" if self.spelled is None else self.spelled()


ValueNumber = NewType("ValueNumber", int)  # of a value in its Block
StatementNumber = NewType("StatementNumber", int)  # of a statement in its program, or in its loop


@dataclass(frozen=True, slots=True)
class Rule:
    """Why a step is done, in words; the case of the book that asks for it; the rounds that it takes, if it says so.
    `is_named`: the text names it, so that it is done there, and as often as it is written.
    """

    words: str = ""
    case: int | None = None
    rounds: int | None = None
    is_named: bool = False

    def __str__(self) -> str:
        case = "" if self.case is None else f"case {self.case}: "
        rounds = "" if self.rounds is None else f", {self.rounds} round" + ("s" if self.rounds > 1 else "")
        return f"{case}{self.words}{rounds}"


@dataclass(frozen=True, slots=True)
class Step:
    """`values[results]… = op(values[operands]…)`, for statement number `statement`. The cost is of all trips.

    `seen` are the dims under which a use names its array anew (`x[B, S, D]` of `x[B, T, D]`), of each operand; none
    where each is read under its own.
    """

    op: Op
    operands: tuple[ValueNumber, ...]
    results: tuple[ValueNumber, ...]
    statement: StatementNumber
    cost: StepCost
    rule: Rule = Rule()
    seen: tuple[tuple[str, ...], ...] = ()

    @property
    def result(self) -> ValueNumber:
        """The one result; a Loop may have any number."""
        (only,) = self.results
        return only

    @property
    def name(self) -> str:
        """A collective's name, `Slice`, `Einsum`, or a function's name."""
        return self.op.facts.name

    @property
    def is_collective(self) -> bool:
        return self.op.facts.is_move


def operands_of(step: Step, values: Sequence[Array]) -> tuple[Array, ...]:
    """The arrays that a step reads, under the dims that it knows them by."""
    found = tuple(values[number] for number in step.operands)
    if not step.seen:
        return found
    return tuple(replace(array, dims=dims) for array, dims in zip(found, step.seen, strict=True))


@dataclass(frozen=True)
class Cost:
    """Sums over the steps, per device, less what `cost.prefetch` says; `peak_bytes` is counted when somebody asks."""

    wire_bytes: int
    flops: int
    compute_s: float
    communication_s: float
    time_s: float
    peak: Callable[[], int] = field(repr=False, compare=False)
    prefetched_s: float = 0.0

    @cached_property
    def peak_bytes(self) -> int:
        return self.peak()


@dataclass(frozen=True, slots=True)
class Strategy:
    """One legal way to do a statement. `steps` name the values of this strategy."""

    values: tuple[Array, ...]
    steps: tuple[Step, ...]
    wire_bytes: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Block:
    """Steps over values of their own. `inputs` and `outputs` are numbers of values."""

    values: tuple[Array, ...]
    inputs: tuple[ValueNumber, ...]
    outputs: tuple[ValueNumber, ...]
    steps: tuple[Step, ...]


class How(Enum):
    """How a product and the collectives beside it are done as one."""

    RING = "ring"  # partial products beside permutes
    RINGS = "rings"  # both operands gathered so at once, each round an axis of its own
    CHUNKS = "chunks"  # of a free dim, each gathered beside the product of another
    PARTITIONER = "partitioner"  # an einsum between two shardings, which XLA splits and windows by itself


@dataclass(frozen=True, slots=True)
class Together:
    """Steps `first` to `last` of a schedule, done as one: a product, what gathers for it, and the collective of its
    result.

    `numbered`: a ring over several axes goes through the devices in the order of their numbers, as is best where these
    lie on a walk through the chips; and else from one to its neighbour on the mesh (`lowering.rings`).
    """

    first: int
    last: int
    how: How
    numbered: bool = False

    @property
    def places(self) -> range:
        """Of its steps."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What each device does for a whole program: a block, whose inputs and outputs are the program's.

    Where axes are cut (`by`), program and values are on the fine mesh; inputs and outputs lie by whole axes.
    `together` says which of its steps are done as one; it changes nothing of what they mean. With `by_xla` none of
    them is: the program as it is written is left to XLA, by the shardings alone, and the steps say what is compared.
    """

    program: Program
    block: Block
    by: Refinement | None = None
    together: tuple[Together, ...] = ()
    by_xla: bool = False
    is_trip: bool = False  # of a loop, whose body this is

    @property
    def values(self) -> tuple[Array, ...]:
        return self.block.values

    @property
    def inputs(self) -> tuple[ValueNumber, ...]:
        return self.block.inputs

    @property
    def outputs(self) -> tuple[ValueNumber, ...]:
        return self.block.outputs

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.block.steps

    @property
    def mesh(self) -> Mesh:
        """The mesh of the steps."""
        return self.program.mesh

    @property
    def given_mesh(self) -> Mesh:
        """The mesh of the arguments and results, as the program was written."""
        return self.mesh if self.by is None else self.by.coarse

    def inside(self, loop: Loop) -> Schedule:
        """The body of one of its loops, on the same mesh, for the same chip."""
        return replace(self, block=loop.body, together=(), is_trip=True)

    @property
    def blocking(self) -> Schedule:
        """The same steps, each by itself."""
        return replace(self, together=(), by_xla=False) if self.together or self.by_xla else self

    def given(self, value: int) -> Array:
        """An input or an output, by the axes of that mesh."""
        array = self.values[value]
        if self.by is None:
            return array
        sharding = self.by.whole(array.sharding)
        assert sharding is not None, "arguments and results lie by whole axes"
        return replace(array, sharding=sharding)

    @property
    def results(self) -> tuple[Array, ...]:
        """The outputs by the axes of that mesh, under the program's names: a value may be the result of several."""
        bound = (self.program.results[number] for number in self.program.outputs)
        return tuple(
            replace(self.given(value), name=each.name, dims=each.dims)
            for value, each in zip(self.outputs, bound, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Done:
    """A step of a block, how often it is done, and its place: of its block, before it those of the loops around."""

    step: Step
    block: Block
    times: int
    path: tuple[int, ...]


def every_step(block: Block, times: int = 1, around: tuple[int, ...] = ()) -> Iterator[Done]:
    """Every step in order, after a loop those of its body."""
    for place, step in enumerate(block.steps):
        yield Done(step, block, times, (*around, place))
        if isinstance(step.op, Loop):
            yield from every_step(step.op.body, times * step.op.trips, (*around, place))


def single_steps(block: Block) -> Iterator[Done]:
    """The same without the loops themselves: what is done adds up from these."""
    return (done for done in every_step(block) if not isinstance(done.step.op, Loop))


def last_uses(block: Block) -> dict[ValueNumber, int]:
    """For each value that is used the last step that does; of outputs the number after all steps."""
    last = {value: place for place, step in enumerate(block.steps) for value in step.operands}
    return last | dict.fromkeys(block.outputs, len(block.steps))


def every_block(block: Block, around: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Block]]:
    """The block itself and the bodies of its loops, each with the places of the loops around it."""
    yield around, block
    for place, step in enumerate(block.steps):
        if isinstance(step.op, Loop):
            yield from every_block(step.op.body, (*around, place))

"""The gradient of `shardc.einsum`: forward and backward planned as one.

    Out[B, F_Y] = In[B, D_X] ·_D W[D, F_Y]       In is gathered over X, and multiplied

JAX's own gradient turns each step around, from the last to the first: all of dIn[B, D] is reduced over Y, then cut over
X. Planned, `dIn[B, D_X] = dOut ·_F W` is cut first, and a part of it reduced. So the function is given a gradient of
its own: the plan of both, in two. What its outputs need is done forward, and all else backward. It is planned when
somebody asks for a gradient. JAX's forward mode (jax.jvp) is that of the steps of the function by itself (`linear`).

What takes or leaves partial sums, or integers alone, and what is inside another shard_map keeps JAX's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import jax
from jax.custom_derivatives import SymbolicZero

from shardc.emit.call.callable import function
from shardc.emit.call.entered import again
from shardc.emit.call.linear import Linear
from shardc.emit.call.placing import sharding_of, type_of
from shardc.ir.dtypes import Kind
from shardc.ir.expressions import Pattern
from shardc.ir.plan import Block, Schedule, Step, Together, ValueNumber
from shardc.ir.program import Program, pinned
from shardc.ir.sharding import Array, Sharding

Values: TypeAlias = tuple[ValueNumber, ...]


@dataclass(frozen=True, slots=True)
class Lying:
    """Where a program's arguments and results lie, in order."""

    inputs: tuple[Sharding, ...]
    results: tuple[Sharding, ...]

    @classmethod
    def of(cls, schedule: Schedule) -> Lying:
        inputs = (schedule.given(value) for value in schedule.inputs)
        return cls(tuple(each.sharding for each in inputs), tuple(each.sharding for each in schedule.results))

    def pinned(self, whole: Program, program: Program) -> Program:
        """The program, or it with more around it, with its inputs and outputs where they lie."""
        names = (program.results[number].name for number in program.outputs)
        left = {name: Pattern.exactly(lies) for name, lies in zip(names, self.results, strict=True)}
        given = {each.name: Pattern.exactly(lies) for each, lies in zip(program.inputs, self.inputs, strict=True)}
        inputs = tuple(replace(each, pattern=given.get(each.name, each.pattern)) for each in whole.inputs)
        return replace(whole, inputs=inputs, statements=pinned(whole.statements, left))


@dataclass(frozen=True, slots=True)
class Halves:
    """A schedule in two, each with values of the one. `forward` takes the inputs and leaves the outputs, then what is
    `kept`; `backward` takes the inputs, what is kept, and the gradients that come in, and leaves those of the inputs.

    Inputs are `given` in the schedule's own order, which need not be the program's: of `for L { w = W[L]; x = x ⊙ w }`
    the rows of x are kept first. `incoming` has the outputs of which each gradient that comes in is: of several where
    they are one array.
    """

    forward: Schedule
    backward: Schedule
    outputs: int
    given: tuple[int, ...]
    incoming: tuple[tuple[int, ...], ...]
    moving: tuple[bool, ...]  # for each input whether it has a gradient


def may_be_planned(program: Program) -> bool:
    """Whether a program takes and leaves no partial sums, and floats."""
    outputs = [program.results[number] for number in program.outputs]
    patterns = [each.pattern for each in program.inputs] + [each.pattern for each in outputs]
    return (
        not any(pattern.unreduced for pattern in patterns)
        and all(each.dtype.kind is Kind.FLOAT for each in outputs)
        and any(array.dtype.kind is Kind.FLOAT for array in program.inputs)
    )


def halves(program: Program, whole: Schedule, coming: Sequence[str | None]) -> Halves:
    """The plan of forward and backward as one, in two; `coming` names the gradient of each output."""
    places, left = {array.name: place for place, array in enumerate(program.inputs)}, len(program.outputs)
    names = dict(zip(whole.inputs, (array.name for array in whole.program.inputs), strict=True))
    given = tuple(value for value, name in names.items() if name in places)
    changes = tuple(value for value, name in names.items() if name not in places)
    outputs = whole.outputs[:left]
    ahead = _needed(whole.block, outputs)
    made = {value for step in ahead for value in step.results}
    behind = tuple(step for step in whole.steps if made.isdisjoint(step.results))
    kept = tuple(dict.fromkeys(value for step in behind for value in step.operands if value in made))
    kept += tuple(value for value in whole.outputs[left:] if value in made and value not in kept)
    return Halves(
        _part(whole, given, (*outputs, *kept), ahead),
        _part(whole, (*given, *kept, *changes), whole.outputs[left:], behind),
        left,
        tuple(places[names[value]] for value in given),
        tuple(tuple(n for n, name in enumerate(coming) if name == names[value]) for value in changes),
        tuple(array.dtype.kind is Kind.FLOAT for array in program.inputs),
    )


def _needed(block: Block, values: Sequence[ValueNumber]) -> tuple[Step, ...]:
    """The steps that some values are made by."""
    needed, found = set(values), list[Step]()
    for step in reversed(block.steps):
        if needed.intersection(step.results):
            needed.update(step.operands)
            found.append(step)
    return tuple(reversed(found))


def _part(whole: Schedule, inputs: Values, outputs: Values, steps: tuple[Step, ...]) -> Schedule:
    block = replace(whole.block, inputs=inputs, outputs=outputs, steps=steps)
    return replace(whole, block=block, together=tuple(_together(whole, steps)))


def _together(whole: Schedule, steps: tuple[Step, ...]) -> Iterator[Together]:
    """What is done as one in the whole, where all its steps are in the part: in their order, with none between."""
    places = {step.results: place for place, step in enumerate(steps)}
    for group in whole.together:
        found = [places.get(whole.steps[place].results) for place in group.places]
        if found[0] is not None and found[-1] is not None:
            yield replace(group, first=found[0], last=found[-1])


def with_gradient(
    whole: Callable[..., Any], found: Callable[[], Halves], mesh: jax.sharding.AbstractMesh
) -> Callable[..., Any]:
    """A program on a mesh with the gradient of the halves that are found when somebody asks for one."""

    def changed(arrays: Sequence[Any], changes: Sequence[Any]) -> tuple[Any, Any]:
        parts, count = found(), len(arrays)
        moving = [place for place, change in enumerate(changes) if not isinstance(change, SymbolicZero)]
        with again(mesh):
            left = _tuple(function(parts.forward)(*(arrays[place] for place in parts.given)), parts.forward)
        outputs, kept = left[: parts.outputs], left[parts.outputs :]

        def along(*given: Any) -> tuple[Any, ...]:
            def of_moving(*some: Any) -> tuple[Any, ...]:
                replaced = dict(zip(moving, some, strict=True))
                left = whole(*(replaced.get(place, array) for place, array in enumerate(given[:count])))
                return left if parts.outputs > 1 else (left,)

            with again(mesh):
                _, found = jax.jvp(of_moving, [given[place] for place in moving], list(given[count + len(kept) :]))
            return tuple(found)

        def back(held: Sequence[Any], incoming: Sequence[Any]) -> tuple[Any, ...]:
            gradients = backward(parts, held[:count], held[count:], incoming)
            return tuple(gradients[place] for place in moving)

        types = tuple(jax.typeof(output) for output in outputs)
        change = Linear(along, back, types)((*arrays, *kept), [changes[place] for place in moving])
        return (outputs, tuple(change)) if parts.outputs > 1 else (outputs[0], change[0])

    def backward(parts: Halves, arrays: Sequence[Any], kept: Sequence[Any], changes: Sequence[Any]) -> tuple[Any, ...]:
        given = [arrays[place] for place in parts.given]
        last = len(parts.backward.inputs) - len(parts.incoming)
        lies = [parts.backward.given(number) for number in parts.backward.inputs[last:]]
        sums = [reduce(add, (changes[place] for place in places)) for places in parts.incoming]
        with again(mesh):
            incoming = [_as_left(change, array, mesh) for change, array in zip(sums, lies, strict=True)]
            gradients = iter(_tuple(function(parts.backward)(*given, *kept, *incoming), parts.backward))
        return tuple(next(gradients) if moves else None for moves in parts.moving)  # None: integers do not change

    own: Any = jax.custom_jvp(whole)
    own.defjvp(changed, symbolic_zeros=True)
    result: Callable[..., Any] = own
    return result


def _as_left(change: Any, output: Array, mesh: jax.sharding.AbstractMesh) -> Any:
    """A change that comes in, typed as its output is. Of one that is mapped JAX takes the type as it is."""
    asked, found = type_of(output, mesh).sharding, jax.typeof(change).sharding
    rank = len(output.shape)
    same = sharding_of(found.spec, rank) == sharding_of(asked.spec, rank)
    return change if same else jax.reshard(change, asked.spec)


def _tuple(left: Any, schedule: Schedule) -> tuple[Any, ...]:
    return left if len(schedule.outputs) > 1 else (left,)

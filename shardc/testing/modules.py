"""Two StableHLO modules, before and after a pass, done in symbols on all devices: do they leave the same?

A module is what `jax.jit(f).lower(…).as_text()` gives, or text of one's own. Where it has an `sdy.manual_computation`
its shardings say how inputs and outputs lie; else every device has a block of its own for every input. An operation
that is not in `testing.operations` is refused, and not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.compiled.hlo.stablehlo import Op, blocks_of_text, with_dense_groups
from shardc.compiled.hlo.text import UnreadableHlo
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.proving.devices import Devices, Held, laid_out
from shardc.proving.meaning import drawn
from shardc.proving.tensors import Shape, Tensor
from shardc.testing.operations import KIND, OPERATIONS, shape_of, unread
from shardc.testing.saying import lines

_VALUE = re.compile(r"%[\w.]+(?:#\d+)?")
_SHARDING = re.compile(r"<@\w+, (\[(?:\{[^}]*\}(?:, )?)*\])")
_DIM = re.compile(r"\{([^}]*)\}")
_AXES = re.compile(r'"(\w+)"=(\d+)')
_RETURNS = ("return", "sdy.return", "func.return", "stablehlo.return")
_SHOWN = 200
_A_MODULE = "give its text, as jax.jit(f).lower(…).as_text() gives it"
_DEVICES = re.compile(r"mhlo\.num_(?:partitions|replicas) = (\d+)")


def assert_same_module(before: str, after: str) -> None:
    """A pass over StableHLO changed nothing: every device is left with the same, for every value of the inputs.

    Raises AssertionError with the device, the element and the output; SHC312 for an operation that is not followed, or
    text that is no module; SHC001 where nothing is left to compare.

    >>> from shardc.testing import assert_same_module
    >>> twice = '''module attributes {mhlo.num_partitions = 2 : i32} {
    ...   func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {
    ...     %1 = stablehlo.negate %0 : tensor<4xf32>
    ...     %2 = stablehlo.negate %1 : tensor<4xf32>
    ...     return %2 : tensor<4xf32>
    ...   }
    ... }'''
    >>> assert_same_module(twice, twice.replace("return %2", "return %0"))
    >>> assert_same_module(twice, twice.replace("return %2", "return %1"))
    Traceback (most recent call last):
    AssertionError: output 0 on device (device=0) at (0,): the modules leave different values
      before: %2 = stablehlo.negate %1 : tensor<4xf32>
      after:  %1 = stablehlo.negate %0 : tensor<4xf32>
    """
    one, other = _Module.of(before), _Module.of(after)
    if one.devices != other.devices or one.inputs() != other.inputs():
        raise AssertionError("the modules are for other devices, or take other inputs")
    if one.leaves != other.leaves:
        raise AssertionError(f"the outputs lie as {one.leaves} before, and as {other.leaves} after")
    found, wanted = other.outputs(), one.outputs()
    if len(found) != len(wanted):
        raise AssertionError(f"{len(wanted)} outputs before, {len(found)} after")
    if not wanted:
        raise ShardcError("SHC001", "both modules return nothing", help="return what is to be compared")
    for number, (left, right) in enumerate(zip(wanted, found, strict=True)):
        for device, (was, now) in enumerate(zip(left.blocks, right.blocks, strict=True)):
            if (was.shape, was.items) != (now.shape, now.items):
                by = lines(before=one.returned(number), after=other.returned(number))
                raise AssertionError(f"output {number} on {_named(one.devices, device)} {_place(was, now)}{by}")


def _named(devices: Devices, device: int) -> str:
    return "device (" + ", ".join(f"{axis}={n}" for axis, n in devices.places[device].items()) + ")"


def _place(was: Tensor, now: Tensor) -> str:
    if was.shape != now.shape:
        return f"has the shape {was.shape} before and {now.shape} after"
    number = next(n for n, (one, other) in enumerate(zip(was.items, now.items, strict=True)) if one != other)
    place = list[int]()
    for size in reversed(was.shape):
        number, index = divmod(number, size)
        place.insert(0, index)
    return f"at {tuple(place)}: the modules leave different values"


@dataclass(frozen=True, slots=True)
class _Module:
    """The operations of `main`, or of the manual computation in it, and how its inputs lie."""

    devices: Devices
    arguments: tuple[tuple[str, Shape, str], ...]
    lies: tuple[Sharding | None, ...]
    leaves: str  # how the outputs do
    ops: tuple[Op, ...]

    @classmethod
    def of(cls, text: str) -> _Module:
        module = _read(text)
        inside = [op for region in module.regions for op in region]
        main = next((op for op in inside if op.text.startswith("func.func") and "@main" in op.text), None)
        if main is None:
            raise unread("the module has no function `main`")
        counts = [int(number) for number in _DEVICES.findall(module.text)]
        mesh = next((op.text for op in inside if op.text.startswith("sdy.mesh")), "")
        axes = [(name, int(size)) for name, size in _AXES.findall(mesh)] or [("device", max([1, *counts]))]
        body = next((op for op in main.regions[0] if op.name == "sdy.manual_computation"), main)
        shardings = re.search(r"in_shardings=\[(.*?)\] out_shardings", body.text)
        lies = tuple(map(_sharding, _SHARDING.findall(shardings[1]))) if shardings else ()
        head = body.text.rpartition("manual_axes")[2] if shardings else body.text.partition("->")[0]
        found = tuple((name, *shape_of(kind)) for name, kind in re.findall(r"(%\w+): (tensor<[^>]*>)", head))
        leaves = re.search(r"out_shardings=\[(.*?)\] manual_axes", body.text)
        devices = Devices(Mesh(tuple(axes)))
        return cls(devices, found, lies or (None,) * len(found), leaves[1] if leaves else "", body.regions[0])

    def inputs(self) -> list[tuple[Shape, str, Sharding | None]]:
        return [(shape, kind, lies) for (_, shape, kind), lies in zip(self.arguments, self.lies, strict=True)]

    def returned(self, number: int) -> str:
        """The operation that an output is of, as its text begins; of an input its name."""
        name = _used(next(op for op in self.ops if op.name in _RETURNS))[number]
        return next((op.text for op in self.ops if op.result == name), name)[:_SHOWN]

    def outputs(self) -> list[Held]:
        given = {
            name: self._given(place, shape, lies)
            for place, ((name, shape, _), lies) in enumerate(zip(self.arguments, self.lies, strict=True))
        }
        return _done(self.ops, given, self.devices)

    def _given(self, place: int, shape: Shape, lies: Sharding | None) -> Held:
        mesh = self.devices.mesh
        if lies is None:
            return Held(tuple(drawn(place * len(self.devices) + n, shape) for n in range(len(self.devices))), KIND)
        whole = tuple(size * mesh.product(axes) for size, axes in zip(shape, lies.dims, strict=True))
        return laid_out(drawn(place, whole), lies, KIND, self.devices, str(place))


def _read(text: str) -> Op:
    if not isinstance(text, str):
        raise ShardcError("SHC001", f"a module is no {type(text).__name__}", help=_A_MODULE)
    try:
        (module,) = blocks_of_text(with_dense_groups(text))
    except UnreadableHlo as error:
        raise ShardcError("SHC312", f"this is no module of StableHLO: {error}", help=_A_MODULE) from error
    return module


def _sharding(text: str) -> Sharding:
    return Sharding(tuple(tuple(re.findall(r'"(\w+)"', dim)) for dim in _DIM.findall(text)))


def _used(op: Op) -> list[str]:
    return _VALUE.findall(op.text.partition(" : ")[0].partition(" = ")[2] if op.result else op.text)


def _done(ops: Sequence[Op], given: Mapping[str, Held], devices: Devices) -> list[Held]:
    known = dict(given)
    for op in ops:
        names = _used(op)
        if not known.keys() >= set(names):
            raise unread(op.text)
        operands = [known[name] for name in names]
        if op.name in _RETURNS:
            return operands
        call = OPERATIONS.get(op.name.removeprefix("stablehlo."))
        if call is None:
            raise unread(op.text)
        known[op.result] = call(op, operands, devices)
    raise unread("a function that returns nothing")

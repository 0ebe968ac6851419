"""What the operations of StableHLO do to symbols, on all devices. A new one is a function, and its row below."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shardc.compiled.hlo.stablehlo import Op, dense, replica_groups
from shardc.compiled.hlo.text import UnreadableHlo
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES
from shardc.proving.devices import Devices, Held, alone
from shardc.proving.field import PRIME, element, named, symbol
from shardc.proving.functions import larger, smaller
from shardc.proving.tensors import (
    Shape,
    Tensor,
    broadcast,
    contracted,
    cut,
    joined,
    laid_into,
    parted,
    shaped,
    sum_of,
    transposed,
)

KIND = DTYPES["f32"]  # of every array here: types are not compared
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([a-z]\w*)>")
_LIST = r"(?:array<i64: |\[)([\d, -]*)[\]>]"
_SHOWN = 160
_INTEGERS = re.compile(r"u?i\d+")


def shape_of(text: str) -> tuple[Shape, str]:
    found = _TENSOR.search(text)
    if found is None:
        raise unread(text)
    return tuple(int(size) for size in found[1].split("x") if size), found[2]


def unread(what: str) -> ShardcError:
    return ShardcError("SHC312", f"not followed in a module: {what[:100]}", help="see shardc.testing.modules")


# --- attributes


def _numbers(op: Op, name: str) -> tuple[int, ...]:
    found = re.search(rf"{name} = {_LIST}", op.text)
    return tuple(int(number) for number in found[1].split(",") if number.strip()) if found else ()


def _number(op: Op, name: str) -> int:
    found = re.search(rf"{name} = (\d+)", op.text)
    if found is None:
        raise unread(op.text)
    return int(found[1])


def _result(op: Op) -> tuple[Shape, str]:
    *_, last = _TENSOR.finditer(op.text)
    return shape_of(last[0])


# --- operations


def _constant(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    shape, kind = _result(op)
    written = re.findall(
        r"-?(?:0x[0-9A-Fa-f]+|[\d.]+(?:[eE][+-]?\d+)?)", op.text.partition("dense<")[2].partition(">")[0]
    )
    items = [int(number) if _INTEGERS.fullmatch(kind) else element(_real(number, kind)) for number in written]
    return _everywhere(
        broadcast(Tensor((), (items[0],)), shape) if len(items) == 1 else Tensor(shape, tuple(items)), devices
    )


def _real(written: str, kind: str) -> float:
    """A number as it is, or by its bits: `0xFF800000` of f32 is −inf."""
    if not written.startswith("0x"):
        return float(written)
    bits, real = {"f16": ("H", "e"), "f64": ("Q", "d")}.get(kind, ("I", "f"))
    number = int(written, 16) << (16 if kind == "bf16" else 0)  # which is the upper half of an f32
    return float(struct.unpack(real, struct.pack(bits, number))[0])


def _everywhere(block: Tensor, devices: Devices) -> Held:
    return Held((block,) * len(devices), KIND)


def _own_number(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    return Held(tuple(Tensor((), (n,)) for n in range(len(devices))), KIND)


def _each(whole: Callable[..., int], real: Callable[..., int]) -> Callable[..., Held]:
    """Element by element: of integers as they are, of floats in symbols."""

    def done(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
        function = whole if _INTEGERS.fullmatch(_result(op)[1]) else real
        blocks = [operand.blocks for operand in operands]
        return Held(
            alone(lambda *x: Tensor(x[0].shape, tuple(map(function, *(each.items for each in x)))), blocks), KIND
        )

    return done


def _symbol(name: str) -> Callable[..., int]:
    return lambda *items: symbol(named(name), *items)


def _compare(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    direction = re.search(r"compare (\w+)|comparison_direction (\w+)", op.text)
    how = _COMPARED[(direction[1] or direction[2]) if direction else "EQ"]
    one, other = operands
    return Held(
        alone(
            lambda x, y: Tensor(x.shape, tuple(int(how(a, b)) for a, b in zip(x.items, y.items, strict=True))),
            [one.blocks, other.blocks],
        ),
        KIND,
    )


_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda x, y: x == y, "NE": lambda x, y: x != y, "LT": lambda x, y: x < y,
    "LE": lambda x, y: x <= y, "GT": lambda x, y: x > y, "GE": lambda x, y: x >= y,
}  # fmt: skip


def _select(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    def chosen(which: Tensor, x: Tensor, y: Tensor) -> Tensor:
        every = zip(broadcast(which, x.shape).items, x.items, y.items, strict=True)
        return Tensor(x.shape, tuple(one if is_first else other for is_first, one, other in every))

    return Held(alone(chosen, [operand.blocks for operand in operands]), KIND)


def _dynamic_slice(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    x, *starts = operands
    sizes = _numbers(op, "sizes") or _numbers(op, "slice_sizes")
    return Held(
        alone(lambda b, *at: cut(b, [a.items[0] for a in at], sizes), [x.blocks, *(s.blocks for s in starts)]), KIND
    )


def _dynamic_update_slice(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    x, part, *starts = operands
    blocks = [x.blocks, part.blocks, *(start.blocks for start in starts)]
    return Held(alone(lambda b, p, *at: laid_into(b, p, [a.items[0] for a in at]), blocks), KIND)


def _slice(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    """`stablehlo.slice %0 [0:2, 0:4]`, without steps."""
    ranges = re.search(r"slice %[\w.#]+ \[([\d:, ]+)\]", op.text)
    if ranges is None or any(part.count(":") > 1 for part in ranges[1].split(",")):
        raise unread(op.text)
    ends = [tuple(map(int, part.split(":"))) for part in ranges[1].split(",")]
    sizes = tuple(last - first for first, last in ends)
    return operands[0].each(lambda block: cut(block, [first for first, _ in ends], sizes))


def _dot(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    """`contracting_dims = [1] x [0], batching_dims = [0] x [0]`: dims by labels."""
    pairs = {
        name: re.search(rf"{name} = \[([\d, ]*)\] x \[([\d, ]*)\]", op.text)
        for name in ("batching_dims", "contracting_dims")
    }
    labels = [[f"{side} {place}" for place in range(len(operand.shape))] for side, operand in enumerate(operands)]
    batch = list[str]()
    for name, found in pairs.items():
        for one, other in (
            zip(*(map(int, side.split(",")) for side in found.groups() if side), strict=False) if found else ()
        ):
            labels[1][other] = labels[0][one]
            batch += [labels[0][one]] if name == "batching_dims" else []
    shared = set(labels[0]) & set(labels[1])
    wanted = [*batch, *(label for label in [*labels[0], *labels[1]] if label not in shared)]
    return Held(alone(lambda x, y: contracted([x, y], labels, wanted), [x.blocks for x in operands]), KIND)


def _broadcast_in_dim(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    shape, places = _result(op)[0], _numbers(op, "dims") or _numbers(op, "broadcast_dimensions")

    def copied(block: Tensor) -> Tensor:
        sizes = [block.shape[places.index(dim)] if dim in places else 1 for dim in range(len(shape))]
        return broadcast(shaped(block, sizes), shape)

    return operands[0].each(copied)


def _reshape(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    return operands[0].each(lambda block: shaped(block, _result(op)[0]))


def _transpose(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    order = _numbers(op, "dims") or _numbers(op, "permutation")
    return operands[0].each(lambda block: transposed(block, order))


def _concatenate(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    axis = _number(op, "dim")
    return Held(alone(lambda *blocks: joined(blocks, axis), [x.blocks for x in operands]), KIND)


def _same(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    return operands[0]


def _told_to_lie(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    """What `with_layout_constraint` becomes; no other custom call is read."""
    if "@LayoutConstraint(" not in op.text:
        raise unread(op.text)
    return operands[0]


# --- collectives


def _together(
    op: Op, x: Held, devices: Devices, each: Callable[[list[Tensor]], Sequence[Tensor]], even: bool = True
) -> Held:
    """`even`: all groups are of one size."""
    if "replica_groups = dense" not in op.text:
        raise unread(op.text)
    with _readable(op):
        groups = replica_groups(op.text, len(devices))
    if sorted(device for group in groups for device in group) != [*range(len(devices))]:
        raise _refused(op, f"not each of the {len(devices)} devices is in one group")
    if "use_global_device_ids" in op.text and len(dense("replica_groups", op.text)) == 0:
        raise _refused(op, "of the ids of all devices there are to be groups")
    if even and len({*map(len, groups)}) > 1:
        raise _refused(op, "the groups are of several sizes")
    return devices.gathered(x, groups, each)


@contextmanager
def _readable(op: Op) -> Iterator[None]:
    try:
        yield
    except UnreadableHlo as error:
        raise _refused(op, "no matrix of numbers") from error


def _refused(op: Op, why: str) -> ShardcError:
    return ShardcError("SHC312", f"{why}: {op.text[:_SHOWN]}", help="see its constraints in StableHLO's specification")


def _reduced(op: Op, blocks: list[Tensor]) -> Tensor:
    """By the operation of its region."""
    names = {inside.name for inside in op.regions[0]} if op.regions else set[str]()
    if "stablehlo.add" in names:
        return sum_of(blocks)
    choose = larger if "stablehlo.maximum" in names else smaller if "stablehlo.minimum" in names else None
    if choose is None:
        raise unread(op.text)
    items = blocks[0].items
    for block in blocks[1:]:
        items = tuple(map(choose, items, block.items))
    return Tensor(blocks[0].shape, items)


def _all_gather(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    dim = _number(op, "all_gather_dim")
    return _together(op, operands[0], devices, lambda blocks: [joined(blocks, dim)] * len(blocks))


def _all_reduce(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    return _together(op, operands[0], devices, lambda blocks: [_reduced(op, blocks)] * len(blocks), even=False)


def _reduce_scatter(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    dim = _number(op, "scatter_dimension")
    return _together(op, operands[0], devices, lambda blocks: parted(_reduced(op, blocks), len(blocks), dim))


def _all_to_all(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    source, dim = _number(op, "split_dimension"), _number(op, "concat_dimension")

    def exchanged(blocks: list[Tensor]) -> Sequence[Tensor]:
        pieces = [parted(block, len(blocks), source) for block in blocks]
        return [joined([sent[n] for sent in pieces], dim) for n in range(len(blocks))]

    return _together(op, operands[0], devices, exchanged)


def _permute(op: Op, operands: Sequence[Held], devices: Devices) -> Held:
    """Who is sent nothing has zeros."""
    (x,) = operands
    with _readable(op):
        pairs = dense("source_target_pairs", op.text)
    ends = list(zip(*pairs, strict=True))
    if len(ends) not in (0, 2) or any(len({*each}) < len(pairs) or {*each} - {*range(len(devices))} for each in ends):
        raise _refused(op, f"the pairs are not of the {len(devices)} devices, each sending once and receiving once")
    comes_from = {receiver: sender for sender, receiver in pairs}
    nothing = Tensor(x.shape, (0,) * len(x.blocks[0].items))
    return Held(tuple(x.blocks[comes_from[n]] if n in comes_from else nothing for n in range(len(devices))), KIND)


def _elementwise() -> Iterator[tuple[str, Callable[..., Held]]]:
    yield "add", _each(lambda x, y: x + y, lambda x, y: (x + y) % PRIME)
    yield "subtract", _each(lambda x, y: x - y, lambda x, y: (x - y) % PRIME)
    yield "multiply", _each(lambda x, y: x * y, lambda x, y: x * y % PRIME)
    yield "divide", _each(lambda x, y: x // y, lambda x, y: x * symbol(named("reciprocal"), y) % PRIME)
    yield "remainder", _each(lambda x, y: x % y, _symbol("remainder"))
    yield "negate", _each(lambda x: -x, lambda x: -x % PRIME)
    yield "maximum", _each(max, larger)
    yield "minimum", _each(min, smaller)
    for name in ("exponential", "log", "tanh", "logistic", "rsqrt", "sqrt", "abs", "sine", "cosine", "power"):
        yield name, _each(_symbol(name), _symbol(name))


OPERATIONS: dict[str, Callable[[Op, Sequence[Held], Devices], Held]] = {
    **dict(_elementwise()),
    "constant": _constant,
    "partition_id": _own_number,
    "replica_id": _own_number,
    "compare": _compare,
    "select": _select,
    "convert": _same,
    "optimization_barrier": _same,
    "custom_call": _told_to_lie,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "slice": _slice,
    "dot_general": _dot,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "collective_permute": _permute,
}

"""What a device does alone: products, and what passes through its memory.

    by the data sheet  the longer of FLOPs over the peak, and all bytes over the memory's bandwidth; copies are free
    as measured        the longer of FLOPs over what products reach, and bytes read plus bytes written, each at its
                       rate; and more where both take about as long, since not all of the one is beside the other;
                       and a start, which is most of what few rows take

The second where a slice is named, whose compiler was measured (`cost.calibration`): it writes results far below the
memory's bandwidth, which is what a product that contracts few elements takes, and copies are slower still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, assert_never

from shardc.cost import formulas
from shardc.cost.chips import Chip
from shardc.cost.formulas import one_after_another
from shardc.ir.dtypes import DTYPES, DType
from shardc.ir.plan import StepCost
from shardc.ir.sharding import Array
from shardc.lowering.forms import Laid
from shardc.lowering.streams import Passes, Streams

if TYPE_CHECKING:
    from shardc.cost.calibration import Calibration

_HIDDEN = 1 / 3  # of the longer of the two: what takes less than this part of it takes no time beside it
_WRITTEN_AFTER = 1 / 6  # of a product's operations, at most, in which it writes and computes nothing
_FEW = 8  # terms of a number: so many are taken out of tiles that they fill
_OF_BYTES = {1: "C_int8", 2: "C_bf16", 4: "C_f32", 8: "(C_f32/2)"}


class Amount(NamedTuple):
    """Of a product: operations of a type, bytes read and written, bytes gone through so often to sum them, and bytes
    that one instruction writes by itself. `leaves` is the type of what is written, where it is another. Of a product
    that rounds operands of f32 the size of the `smallest` of all, in bytes, and how many it rounds; of one that is
    added up as a function of elements how many `terms` each number has."""

    flops: int
    read: int
    written: int
    dtype: DType
    passes: Passes = Passes()
    summed: int = 0
    bare: int = 0
    leaves: DType | None = None
    smallest: int = 0
    rounds: int = 0
    terms: int = 0

    @property
    def left(self) -> DType:
        return self.leaves or self.dtype

    @classmethod
    def of(cls, streams: Streams | None, flops: int, read: Sequence[int], written: int, dtype: DType) -> Amount:
        """Of operands and a result of so many bytes; all are read and written where nothing else is known."""
        if streams is None:
            return cls(flops, sum(read), written, dtype)
        taken = streams.taken(read, written)
        through = 0
        if read:
            own = streams.read[streams.through]
            through = read[streams.through] // own.own.bytes * own.gone.bytes
        return cls(flops, *taken, dtype, streams.passes, through, taken[1] * streams.bare)

    @property
    def starts(self) -> int:
        """How many functions are started for it: none where it is done with a product's tiles, or with others, and
        writes nothing."""
        return max(sum(self.passes), int(self.written > 0))

    @property
    def is_nothing(self) -> bool:
        return not (self.flops or self.read or self.written or any(self.passes))


@dataclass(frozen=True, slots=True)
class Alone:
    chip: Chip
    measured: Calibration | None = None

    @classmethod
    def on_slice(cls, chip: Chip) -> Alone:
        """As the chip was measured, if it was."""
        from shardc.cost.calibration import calibration  # most plans name no slice

        return cls(chip, calibration(chip.name))

    def flops_per_s(self, dtype: DType) -> float:
        """Of products of a type."""
        if self.measured is None:
            return self.chip.peak(dtype)
        known = self.measured
        return {1: known.int8_flops, 2: known.bf16_flops, 4: known.f32_flops, 8: known.f32_flops / 2}[dtype.bytes]

    def seconds(self, flops: int, read: int, written: int, dtype: DType) -> float:
        """Of operations of a type, and of so many bytes read and written."""
        return self.product_s(Amount(flops, read, written, dtype))

    def product_s(self, amount: Amount) -> float:
        """Of a product."""
        computing, moving = self._computing_s(amount), self._memory_s(amount)
        return max(computing, moving) * self._slowed(computing, moving)

    def product_started(self, cost: StepCost) -> StepCost:
        """Of a product, with its start."""
        start = StepCost(time_s=self.product_start_s, spelled=partial(_starts, "T_product"))
        return one_after_another(cost, start) if start.time_s else cost

    def function_started(self, cost: StepCost, times: int = 1) -> StepCost:
        """Of a function that goes through a block so often, with its starts."""
        start = StepCost(time_s=times * self.function_start_s, spelled=partial(_starts, "T_function", times))
        return one_after_another(cost, start) if start.time_s else cost

    @property
    def product_start_s(self) -> float:
        """What a product takes, however small; by the data sheet nothing is known."""
        return 0.0 if self.measured is None else self.measured.product_start

    @property
    def function_start_s(self) -> float:
        """What a function takes, however small, for each time that it goes through a block."""
        return 0.0 if self.measured is None else self.measured.function_start

    def _computing_s(self, amount: Amount) -> float:
        return amount.flops / self.flops_per_s(amount.dtype) * self._rounded_again(amount)

    def _rounded_again(self, amount: Amount) -> float:
        """How many times longer a product takes that rounds what it reads of f32 again and again: with one operand held
        on the chip it reads each once."""
        if self.measured is None or amount.smallest <= self.measured.f32_held:
            return 1.0
        return 1.0 + self.measured.f32_again * amount.rounds

    def _memory_s(self, amount: Amount) -> float:
        summing = self.function_s(amount.passes, amount.summed, amount.dtype)
        bare = 0.0 if self.measured is None else amount.bare / self.measured.moving(amount.left).bare
        moving = self.moving_s(amount.read, amount.written, amount.dtype, amount.left)
        return summing + moving * self._by_terms(amount) + bare

    def _by_terms(self, amount: Amount) -> float:
        """How many times longer than its bytes a product takes whose numbers are added up term by term."""
        if self.measured is None or not amount.terms:
            return 1.0
        return self.measured.few_terms if amount.terms < _FEW else self.measured.many_terms

    def moving_s(self, read: int, written: int, dtype: DType, left: DType | None = None) -> float:
        """Of so many bytes of a type read, and written, of the same or of that which is left; and nothing else."""
        if self.measured is None:
            return (read + written) / self.chip.hbm_bandwidth
        return read / self.measured.moving(dtype).read + written / self.measured.moving(left or dtype).write

    def _slowed(self, computing: float, moving: float) -> float:
        """How many times the longer of the two is taken: most where both are equal. More of either takes no less."""
        if self.measured is None or not (longer := max(computing, moving)):
            return 1.0
        beside, hidden = (min(computing, moving) / longer) ** 3, _HIDDEN**3
        return 1.0 + self.measured.slowdown * max(0.0, beside - hidden) / (1 - hidden)

    def written_after_s(self, amount: Amount) -> float:
        """Of a product that writes while it computes nothing, beyond what it takes anyway."""
        computing, writing = self._computing_s(amount), self.moving_s(0, amount.written, amount.dtype, amount.left)
        return max(0.0, computing + min(writing, computing * _WRITTEN_AFTER) - self.product_s(amount))

    def waits_for_memory(self, amount: Amount) -> bool:
        """Whether bytes take longer than operations."""
        return self._memory_s(amount) > self._computing_s(amount)

    def formula(self, amount: Amount, by_operations: Callable[[], str], by_bytes: Callable[[], str]) -> str:
        """`2·I·J·K / C_bf16·1.2`: the longer time, and how many times that is taken, if more than once."""
        if amount.is_nothing:
            return "0"
        times, by_memory = (
            self._slowed(self._computing_s(amount), self._memory_s(amount)),
            self.waits_for_memory(amount),
        )
        times *= self._by_terms(amount) if by_memory else self._rounded_again(amount)
        found = by_bytes() if by_memory else by_operations()
        return found if times == 1 else formulas.longer(found, times)

    @property
    def copy_s_per_byte(self) -> float:
        """Of what is copied from one layout to another; by the data sheet nothing is known to be."""
        return 0.0 if self.measured is None else 1 / self.measured.copy_bandwidth

    def memory_formula(self, read: Sequence[Array], written: Sequence[Array], amount: Amount) -> str:
        """`(2·I·J + 2·J·K) / W_hbm`; as measured, `(2·I·J) / W_read + 2·J·K / W_write`, or of a sum
        `2·I·J / W_pass + 2·I / W_write`: of the arrays that are gone through, if any are, that are read, and written;
        `2·I·J / W_alone` more where one instruction writes by itself."""
        if self.measured is None:
            return f"({formulas.sizes((*read, *written))}) / W_hbm"
        kind = _kind(amount.dtype)
        terms = [self.function_formula(amount.passes, read[0])] if any(amount.passes) else []
        read = read[1:] if terms else read
        terms += [f"({formulas.sizes(read)}) / W_read{kind}"] if read else []
        rates = [f"{rate}{_kind(amount.left)}" for rate in ("W_write", "W_alone")][: 2 if amount.bare else 1]
        return " + ".join([*terms, *(f"{formulas.local_bytes(array)} / {rate}" for rate in rates for array in written)])

    def function_s(self, passes: Passes, size: int, dtype: DType, lies: DType | None = None) -> float:
        """Of a function that goes so often through so many bytes of a type, which may lie in another; by the data sheet
        nothing is known."""
        if self.measured is None:
            return 0.0
        gone, left = (self.measured.moving(each) for each in (lies or dtype, dtype))
        through = size // dtype.bytes * (lies or dtype).bytes
        once = passes.largest / gone.largest + passes.computed / gone.computed
        once += (passes.multiplied + passes.written) / gone.read
        return through * once + size * passes.written / left.write

    def laid_s_per_byte(self, laid: Laid) -> tuple[float, float]:
        """Of a block or pieces laid anew, in memory, and near, where pieces and what is laid have room on the chip."""
        if self.measured is None:
            return 0.0, 0.0
        match laid:
            case Laid.WHOLE | Laid.TILES:
                return self.copy_s_per_byte, self.copy_s_per_byte
            case Laid.SHARE:
                return 1 / self.measured.near_bandwidth, 1 / self.measured.near_bandwidth
            case Laid.PIECES:
                return self.copy_s_per_byte, 1 / self.measured.near_bandwidth
            case Laid.LANES:
                return 1 / self.measured.lanes_bandwidth, 1 / self.measured.near_bandwidth
            case _:
                assert_never(laid)

    def copy_s(self, size: int, room: int) -> float:
        """Of a block laid anew, which goes through memory once where it has room on the chip."""
        if self.measured is None:
            return 0.0
        return size / self.chip.hbm_bandwidth if size <= room else size * self.copy_s_per_byte

    def copy_formula(self, array: Array, size: int, room: int) -> str:
        """`2·I·J/X / W_copy`, or `/ W_hbm` of what has room on the chip."""
        return f"{formulas.local_bytes(array)} / {'W_hbm' if size <= room else 'W_copy'}"

    def function_formula(self, passes: Passes, operand: Array, lies: DType | None = None) -> str:
        """`2·2·I·J/X / W_pass`: twice through a block."""
        gone = replace(operand, dtype=lies or operand.dtype)
        rates = [("W_largest", passes.largest, gone), ("W_pass", passes.computed, gone)]
        rates += [("W_read", passes.multiplied + passes.written, gone), ("W_write", passes.written, operand)]
        return " + ".join(
            f"{f'{times}·' if times > 1 else ''}{formulas.local_bytes(each)} / {rate}{_kind(each.dtype)}"
            for rate, times, each in rates
            if times
        )

    def product_formula(self, dims: Iterable[str], axes: Iterable[str], contracts: bool, dtype: DType) -> str:
        """`2·I·J·K/X / C_peak`: multiply-adds count twice. C_peak is the bf16 rate, C_int8 that of one-byte types."""
        by_sheet = {1: "C_int8", 2: "C_peak", 4: "(C_peak/2)", 8: "(C_peak/4)"}
        rate = (by_sheet if self.measured is None else _OF_BYTES)[dtype.bytes]
        return formulas.over([*(["2"] if contracts else []), *dims], axes) + f" / {rate}"

    def symbols(self) -> dict[str, float]:
        """The rates by their names in formulas."""
        found = {"W_hbm": self.chip.hbm_bandwidth, "C_peak": self.chip.flops, "C_int8": self.chip.narrow_flops}
        if self.measured is None:
            return found
        known = self.measured
        found |= {"C_int8": known.int8_flops, "C_bf16": known.bf16_flops, "C_f32": known.f32_flops}
        found |= {"T_product": known.product_start, "T_function": known.function_start}
        found |= {"W_copy": known.copy_bandwidth, "W_lanes": known.lanes_bandwidth, "W_near": known.near_bandwidth}
        for dtype in (DTYPES["bf16"], DTYPES["f32"]):
            names = (f"W_{name}{_kind(dtype)}" for name in ("read", "write", "largest", "pass", "alone"))
            found |= zip(names, known.moving(dtype), strict=True)
        return found


def _starts(start: str, times: int = 1) -> str:
    return start if times == 1 else f"{times}·{start}"


def _kind(dtype: DType) -> str:
    """What is said of a rate of wide elements."""
    return "_f32" if dtype.bytes > 2 else ""

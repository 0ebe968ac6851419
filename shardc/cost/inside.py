"""What steps read in memory where some values have no buffer, as they are computed where they are read.

d = where(h > 0, dy · V, 0)      one loop: it reads h element by element, dy and V in the tiles of the product
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Loop, Schedule, Step
from shardc.lowering import held, tpu, turned
from shardc.lowering.fusion import Reads, fused, is_batched, reads

Readers = Mapping[int, Sequence[Step]]


@dataclass(frozen=True, slots=True)
class Inside:
    """Of each value without a buffer, what is read in its place; those of them that products leave, and whether these
    are batched; and the values in memory that are left by a loop that computes a product."""

    made_of: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    products: Mapping[int, bool] = field(default_factory=dict)
    loops: frozenset[int] = frozenset()

    @classmethod
    def of(cls, block: Block, steps: Sequence[Step], readers: Readers, again: int, stored: Collection[int]) -> Inside:
        """Of some steps of a block; what is `stored` lies in memory whatever reads it."""
        found = fused(block, steps, again)
        sliced = _sliced(block, steps, readers)
        computed = {value: read for value, read in found.inside.items() if value not in stored}
        single = (step for step in steps if not isinstance(step.op, Loop) and step.result in computed)
        tiled = [step for step in single if reads(step, block) is Reads.PRODUCT]
        products: dict[int, bool] = {step.result: is_batched(step, block) for step in tiled}
        return cls(sliced | computed, products, found.products)

    def has(self, step: Step) -> bool:
        """Whether what a step leaves has no buffer."""
        return not self.made_of.keys().isdisjoint(step.results)

    def lying(self, values: Iterable[int]) -> dict[int, None]:
        """The values in memory that are read where these are."""
        found, seen, waiting = dict[int, None](), set[int](), list(values)
        while waiting:
            value = waiting.pop()
            if value not in self.made_of:
                found[value] = None
            elif value not in seen:
                seen.add(value)
                waiting += self.made_of[value]
        return found

    def read_by(self, step: Step) -> tuple[set[int], list[int]]:
        """The values in memory that a step reads element by element, and the products that it computes as it reads."""
        by_elements, products, seen, waiting = set[int](), list[int](), set[int](), list[int](step.operands)
        while waiting:
            value = waiting.pop()
            if value in self.products:
                products.append(value)
            elif value not in self.made_of:
                by_elements.add(value)
            elif value not in seen:
                seen.add(value)
                waiting += self.made_of[value]
        return by_elements, products

    def leaves_other_tiles(self, step: Step, schedule: Schedule) -> bool:
        """Whether a step is a product whose tiles are not those of its result in memory, as where it has batches, or
        computes a batched one as it reads."""
        block = schedule.block
        if reads(step, block) is Reads.PRODUCT:
            return is_batched(step, block) or turned.leaves_other_tiles(step, schedule.values, schedule.mesh)
        return any(self.products[value] for value in self.read_by(step)[1])

    def is_read_in_tiles(
        self, value: int, steps: Sequence[Step], readers: Readers, block: Block, is_told: bool = False
    ) -> bool:
        """Whether a product reads a value, or what is added up along its last dim goes to other devices: for that the
        value is laid otherwise, unless it `is_told` how to lie."""
        users = (step for step in steps if value in self.lying(step.operands))
        last = block.values[value].dims[-1:]

        def is_sent(user: Step) -> bool:
            is_along_rows = not set(last) <= set(block.values[user.results[0]].dims)
            return is_along_rows and any(each.is_collective for each in readers.get(user.results[0], ()))

        return any(reads(user, block) is Reads.PRODUCT or (not is_told and is_sent(user)) for user in users)

    def overwritten(self, step: Step) -> set[int]:
        """The values in memory in whose place the step's result may come to lie, as no product reads them in tiles."""
        by_elements, products = self.read_by(step)
        if not all(held.lies_in_place(self.products[value]) for value in products):
            return set()
        return by_elements.difference(*(self.lying(self.made_of[value]) for value in products))


def _sliced(block: Block, steps: Sequence[Step], readers: Readers) -> dict[int, tuple[int, ...]]:
    """Slices that products alone read, or a step that begins by cutting what it reads; the last first."""
    found = dict[int, tuple[int, ...]]()

    def is_part_of(step: Step) -> bool:
        users = readers.get(step.result, ())
        if not users or step.result in block.outputs:
            return False
        by_products = all(
            tpu.slices_as_it_reads(user.op) or not found.keys().isdisjoint(user.results) for user in users
        )
        return by_products or (len(users) == 1 and tpu.cuts_what_it_reads(users[0].op))

    for step in reversed(steps):
        if step.op.facts.kind is Kind.SLICE and is_part_of(step):
            found[step.result] = step.operands
    return found

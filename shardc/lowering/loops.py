"""The loops that the TPU's compiler makes of a program's text, and what they read and write.

    n = x ⊙ r ⊙ g; y = n · W          n is computed as the product reads x, and lies nowhere, however often it is used
    y = (A · B) ⊙ g                   done with the tiles of the product, which writes y in place of A · B
    C = relu(A); D = A + B            one loop reads A and B, and writes both
    s = sum_D(x ⊙ x); t = sum_D(x)    one loop goes through x
    n = x ⊙ rsqrt(s)                  another, since it waits for s

    softmax_J(A)                      the largest of A as it lies; the sum of exponentials; shares, written
    x = A · B; p = softmax_J(x)       the largest with the tiles of the product; the sum; shares, written
    x = A · B; softmax_J(x) · V       the largest with the tiles; the sum, by a product of long rows; shares as read
    … and softmax_J(x) · W            shares as read in both, or written for both (`lowering.timed.keeps_shares`)
    max_J(relu(A))                    the largest of elements that are computed as they are read

Read off the text alone, wherever statements end; of moves that are planned between see `cost.settled`. What lies in
memory is what a program is given and leaves, what products and sums leave, and what stands in a product's place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import assert_never

from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.program import Program, Statement
from shardc.lowering import tpu
from shardc.lowering.leaves import Behind, Going, Leaf, TextLoop, Told, is_in_loops, is_widened, types_of
from shardc.lowering.readers import Met, Reader, Readers, is_of_elements, leaves_tiles, loop_dims, met, reader_of
from shardc.lowering.streams import Passes, Sources, Streams
from shardc.lowering.target import Target
from shardc.lowering.timed import is_laid_in_order, keeps_shares


@lru_cache(maxsize=64)
def account_of(program: Program) -> Account:
    """The body of a loop is a program."""
    return Account.of(program)


@dataclass(slots=True)
class Account:
    """Of a program's operations what they read and write, and how often they go through a block."""

    readers: Readers
    sizes: Mapping[str, int]
    target: Target
    made: dict[Met, tuple[Leaf, ...]] = field(default_factory=dict)  # what is read where a value is
    behind: dict[Met, Behind] = field(default_factory=dict)
    loops: list[TextLoop] = field(default_factory=list)
    told: dict[Met, Told] = field(default_factory=dict)
    through: dict[Met, Going] = field(default_factory=dict)
    roots: dict[Met, Product | Call] = field(default_factory=dict)  # what is in a loop, or leaves tiles
    _streams: dict[Expr, Streams | None] = field(default_factory=dict)  # as far as somebody asked

    @classmethod
    def of(cls, program: Program) -> Account:
        account = cls(Readers.of(program), dict(program.sizes), Target.of(program))
        for each in program.statements:
            if isinstance(each, Statement):
                account._leaves(each.expr)
        for loop in account.loops:
            account.told.update(account._charged(loop))
        return account

    def streams(self, expr: Product | Call) -> Streams | None:
        """Of an operation in a statement, in whatever order products are taken: what another order makes on the way
        lies nowhere. None of a function over dims, of which `passes` tells."""
        if expr not in self._streams:
            self._streams[expr] = self._streams_of(expr)
        return self._streams[expr]

    def _streams_of(self, expr: Product | Call) -> Streams | None:
        if isinstance(expr, Call) and not expr.operands:  # computed as it is read, unless it has to lie somewhere
            return Streams((), self.readers.is_needed(self.readers.key(expr), grows=True), bare=True)
        if isinstance(expr, Call) and not is_of_elements(expr):
            return None
        if not is_in_loops(expr):
            return self._of_product(expr)
        told, found, seen = self.told.get(met(expr)), list[Sources](), set[Met]()
        if told is None and self._is_of_another_order(expr):
            return Streams(tuple(Sources(each.dtype, (each.dtype,)) for each in expr.operands))
        if told is None:
            read = tuple(self._at_hand(each) for each in expr.operands)
            return Streams(read, written=False, single=self._is_single(expr), left=self._read_to_lie(expr))
        loop = loop_dims(expr)
        for operand in expr.operands:
            leaves = [leaf for leaf in self._leaves(operand) if leaf.key not in seen]
            whole = [leaf for leaf in leaves if leaf.dims == loop and leaf.key in told.charged]
            small = [leaf for leaf in leaves if leaf.dims != loop and leaf.dims == {*operand.dims}]
            tiles = [leaf for leaf in leaves if leaf.is_tiles and leaf.key not in told.charged]
            lies = self.type_of(operand) if any(told.passes) else None
            found.append(Sources(operand.dtype, types_of([*whole, *small]), types_of(tiles), lies))
            seen.update(leaf.key for leaf in (*whole, *tiles))
        left = () if told.written or told.in_place else self._read_to_lie(expr)
        streams = Streams(tuple(found), told.written, told.beside, told.passes, told.bare)
        return streams._replace(in_place=told.in_place, single=told.single, left=left)

    def _is_of_another_order(self, expr: Product | Call) -> bool:
        """Whether it is written so that no loop makes this: `B ⊙ r` of `A · B ⊙ r`, or all of `A · (B ⊙ r)`."""
        root = self.roots.get(key := met(expr))
        return (root is not None and not is_of_elements(root)) or (self._grows(expr) and key not in self.readers.by)

    def _at_hand(self, operand: Expr) -> Sources:
        """Of what is computed with others, and lies nowhere."""
        return Sources(operand.dtype, (), types_of(leaf for leaf in self._leaves(operand) if leaf.is_tiles))

    def _read_to_lie(self, expr: Product | Call) -> tuple[Sources, ...]:
        """What is read for each operand where a collective reads what else lies nowhere; of what is done with tiles at
        hand nothing."""
        loop, leaves = loop_dims(expr), [self._leaves(operand) for operand in expr.operands]
        every = [leaf for some in leaves for leaf in some]
        if self._meets_tiles(every, loop, self._behind(every)):
            return ()
        found, seen = list[Sources](), set[Met]()
        for operand, some in zip(expr.operands, leaves, strict=True):
            read = [leaf for leaf in some if leaf.key not in seen and leaf.dims in (loop, {*operand.dims})]
            found.append(Sources(operand.dtype, types_of(read)))
            seen.update(leaf.key for leaf in read)
        return tuple(found)

    def _of_product(self, expr: Product | Call) -> Streams:
        """All that it reads. One of two arrays of the same dims is a loop, as a sum is, and goes through the larger."""
        read = tuple(Sources(each.dtype, tuple(self._types(each))) for each in expr.operands)
        if len(read) != 2:
            return Streams(read)
        if {*expr.operands[0].dims} != {*expr.operands[1].dims}:
            computed = (place for place, each in enumerate(expr.operands) if not self._is_leaf(each))
            return Streams(read, computed=frozenset(computed))
        return Streams(read).as_loop(int(read[0].own.bytes < read[1].own.bytes))

    def passes(self, call: Call, is_sent: bool = False, is_left: bool = False) -> Passes:
        """Of a function over dims in a statement; as the text has it, or where a collective leaves its operand, and
        reads its result."""
        through, operand, readers = FUNCTIONS[call.function].through, call.operands[0], self.readers
        leaves = self._leaves(operand)
        has_tiles = not is_sent and any(leaf.is_tiles and leaf.dims == {*operand.dims} for leaf in leaves)
        others = Going() if is_sent else self.through.get(readers.key(operand), Going())
        largest = others.is_first(call, Through.LARGEST) and (is_sent or not self._is_beside(call))
        lies = not has_tiles and self._is_leaf(self._narrow(operand)) and others.have_one_largest
        multiplied = has_tiles and Through.SUM in through and self._adds_up_by_product(call)
        summed, keeps = not multiplied and others.is_first(call, Through.SUM), keeps_shares(self.target)
        return Passes(
            int(largest and lies),
            int(largest and not lies) + int(summed),
            int(Through.RESULT in through and (is_left or not readers.is_for_products(met(call), keeps))),
            int(multiplied),
        )

    def _is_beside(self, call: Call) -> bool:
        """Whether the largest is found in a loop that writes: with a product's tiles, or what is computed of them,
        unless that meets another array (`lowering.apart`); or with what else is computed of what is read."""
        leaves, dims = self._leaves(call.operands[0]), frozenset(call.operands[0].dims)
        behind = self._behind(leaves)
        if self._meets_tiles(leaves, dims, behind):
            return True
        whole = {leaf.key for leaf in leaves if leaf.dims == dims}
        return any(self._takes(each, whole, met(call)) for each in self._open_to(dims, whole, behind))

    def _takes(self, loop: TextLoop, whole: AbstractSet[Met], largest: Met) -> bool:
        if loop.tiles is not None:
            return not whole.isdisjoint(loop.members) and not self._meets_others(loop)
        return any(is_of_elements(self.roots[key]) and largest not in self.behind[key].far for key in loop.members)

    def _narrow(self, expr: Expr) -> Expr:
        """What is widened as it is read, or a value itself."""
        made = self.readers.made_by(expr) if isinstance(expr, Use) else expr
        return self._narrow(made.operands[0]) if isinstance(made, Call) and is_widened(made) else expr

    def type_of(self, operand: Expr) -> DType:
        """Of what is gone through for an operand: of the tiles at hand, or the first array that is read."""
        whole = [leaf for leaf in self._leaves(operand) if leaf.dims == {*operand.dims}]
        return next((leaf.dtype for leaf in sorted(whole, key=lambda leaf: not leaf.is_tiles)), operand.dtype)

    def _adds_up_by_product(self, call: Call) -> bool:
        from shardc.lowering.shares import is_by_product  # seldom

        sizes = [self.sizes[dim] for dim in call.over]
        return is_by_product(call.function, sizes, call.operands[0].dtype, self.readers.is_multiplied(met(call)))

    def _types(self, operand: Expr) -> Iterator[DType]:
        """Of what a product reads for an operand."""
        if self._grows(operand):
            yield operand.dtype
        for leaf in self._leaves(operand):
            if leaf.dims == {*operand.dims}:
                yield leaf.dtype

    def _grows(self, expr: Expr) -> bool:
        """Whether a value is made of smaller arrays alone: a loop computes it as it is read, and a product does not."""
        leaves = self._leaves(expr)
        return bool(leaves) and all(leaf.dims != {*expr.dims} for leaf in leaves)

    def _is_single(self, expr: Product | Call) -> bool:
        """One instruction, of arrays that all lie in memory or are tiles, and no numbers."""
        single = isinstance(expr, Product) or (tpu.is_one_instruction(expr.function) and set(expr.numbers) <= {None})
        return single and all(self._is_leaf(each) and {*each.dims} == {*expr.dims} for each in expr.operands)

    def _is_leaf(self, expr: Expr) -> bool:
        """Whether a value lies in memory itself, and is not computed by the first of those that read it."""
        key, leaves = self.readers.key(expr), self._leaves(expr)
        return [leaf.key for leaf in leaves] == [key] and (key in self.roots or key not in self.told)

    def _leaves(self, expr: Expr) -> tuple[Leaf, ...]:
        """What is read where a value is: itself where it lies in memory, else what it is computed of."""
        key = self.readers.key(expr)
        if isinstance(expr, Use):  # by dims of its own, which the value's key does not tell
            return self._lying(expr, key)
        if key not in self.made:
            self.made[key] = self._lying(expr, key)
        return self.made[key]

    def _lying(self, expr: Expr, key: Met) -> tuple[Leaf, ...]:
        leaf = Leaf(key, frozenset(expr.dims), expr.dtype)
        match expr:
            case Use():
                made, renamed = self.readers.made_by(expr), self.readers.renamed
                every = () if made is None else self._leaves(made)
                return tuple(each._replace(dims=renamed(expr, each.dims)) for each in every) if made else (leaf,)
            case Named():
                for below in operands(expr):
                    self._leaves(below)
                return (leaf,)
            case Call() if not expr.operands:
                return ()  # positions along a dim, or one number
            case Call(function="again"):
                self._leaves(expr.operands[0])
                return (leaf,)
            case Product() | Call():
                return self._computed(expr, leaf)
            case _:
                assert_never(expr)

    def _computed(self, expr: Product | Call, leaf: Leaf) -> tuple[Leaf, ...]:
        leaves = {one.key: one for below in expr.operands for one in self._leaves(below)}
        behind = self._behind(leaves.values())
        if not is_of_elements(expr):
            leaf = leaf._replace(is_tiles=leaves_tiles(expr))
            self._placed(expr, leaf, leaves.values(), behind)
            own, before = frozenset([leaf.key]), behind.near | behind.far
            self.behind[leaf.key] = Behind(own, before) if leaf.is_tiles else Behind(far=own | before)
            if isinstance(expr, Call) and reader_of(expr) is Reader.THROUGH:
                self._gone_through(expr.operands[0])
                self.through.setdefault(self.readers.key(expr.operands[0]), Going()).calls.append(expr)
            return (leaf,)
        whole = [one for one in leaves.values() if one.dims == leaf.dims]
        is_needed = self.readers.is_needed(leaf.key, grows=bool(leaves) and not whole)
        if not is_needed and is_widened(expr):
            return tuple(leaves.values())
        if is_needed or (self._meets_tiles(whole, leaf.dims, behind) and self.readers.is_read_by_several(leaf.key)):
            self._placed(expr, leaf, leaves.values(), behind)
        elif len(whole) > 1 and self.readers.is_read_by_several(leaf.key):
            self.told[leaf.key] = Told(frozenset(one.key for one in whole[1:]), written=False)
        else:
            return tuple(leaves.values())
        self.behind[leaf.key] = Behind(behind.near | {leaf.key}, behind.far)
        return (leaf,)

    def _behind(self, leaves: Iterable[Leaf]) -> Behind:
        return reduce(Behind.joined, (self.behind.get(leaf.key, Behind()) for leaf in leaves), Behind())

    def _meets_tiles(self, leaves: Iterable[Leaf], dims: frozenset[str], behind: Behind) -> bool:
        """Whether it is computed of tiles while these are at hand: not `p ⊙ (g - sum_J(g ⊙ p))` or
        `max_J(p - max_J(p))`, which wait for a sum, or the largest, of them."""
        keys = {leaf.key for leaf in leaves if leaf.is_tiles and leaf.dims == dims}
        return any(each.tiles is not None for each in self._open_to(dims, keys, behind)) if keys else False

    # --- in which loop

    def _placed(self, expr: Product | Call, leaf: Leaf, leaves: Iterable[Leaf], behind: Behind) -> None:
        """In a loop with others, or the first of its own."""
        self.roots.setdefault(leaf.key, expr)
        if leaf.is_tiles:
            self.loops.append(TextLoop(leaf.dims, leaf, at_hand={leaf.key}))
            return
        if not is_in_loops(expr):
            return
        dims = loop_dims(expr)
        whole = {each.key for each in leaves if each.dims == dims}
        every = self._open_to(dims, whole, behind)
        found = next((each for each in every if is_of_elements(expr) or not self._meets_others(each)), None)
        if found is None:
            found = TextLoop(dims, None)
            self.loops.append(found)
        found.members.append(leaf.key)
        found.at_hand |= whole | {leaf.key}

    def _gone_through(self, operand: Expr) -> None:
        """One of the arrays that a function over dims reads is counted by its passes, if none is at hand."""
        dims = frozenset(operand.dims)
        whole = [leaf for leaf in self._leaves(operand) if leaf.dims == dims]
        read = [leaf.key for leaf in whole if not leaf.is_tiles][0 if any(leaf.is_tiles for leaf in whole) else 1 :]
        if not self._is_leaf(operand):
            self.told.setdefault(self.readers.key(operand), Told(frozenset(read), written=False))

    def _open_to(self, dims: frozenset[str], whole: AbstractSet[Met], behind: Behind) -> list[TextLoop]:
        """Loops that have some of what is read at hand, and leave nothing that has to be there before; those with tiles
        first. What is read whole may have other names there: `T[M, L] + S[M, L]` of `T[I, L]`."""
        near = whole | behind.near
        found = [
            each
            for each in self.loops
            if each.at_hand & (near if each.dims == dims else whole)
            and len(each.dims) == len(dims)
            and behind.far.isdisjoint({*each.members, each.key})
        ]
        return sorted(found, key=lambda each: each.tiles is None)

    def _meets_others(self, loop: TextLoop) -> bool:
        """Whether tiles meet another array in a loop, which then takes no sum (`lowering.apart`), nor is `laid`."""
        types, at_hand = {self.roots[key].dtype for key in loop.members}, {*loop.members, loop.key}
        laid = all(is_laid_in_order(each, self.target) for each in types) and self.readers.lead_to_end(loop.members)
        return loop.tiles is not None and not laid and any(self._new(key, at_hand) for key in loop.members)

    # --- what a loop takes

    def _charged(self, loop: TextLoop) -> Iterator[tuple[Met, Told]]:
        """Results are written by the first, and beside it by others, in place of tiles that nothing else reads; sums go
        through what is read, or are done with what else the loop does."""
        at_hand = {*loop.members, loop.key}
        in_place = loop.tiles is not None and self.readers.all_end_in(loop.tiles.key, {*loop.members})
        written, alone = loop.tiles is not None, loop.tiles is None and len(loop.members) == 1
        elements = [key for key in loop.members if is_of_elements(self.roots[key])]
        for key in elements:
            new, single = self._new(key, at_hand), self._is_single(self.roots[key])
            found = Told(frozenset(new), not in_place, written and not in_place, bare=alone and single)
            yield key, found._replace(in_place=in_place, single=single)
            at_hand.update(new)
            written, in_place = True, False
        sums = [key for key in loop.members if key not in elements]
        passes = Passes() if written else self._passes_of_sums(sums)
        for key in sums:
            new = self._new(key, at_hand)
            at_hand.update(new)
            yield key, Told(frozenset(new[1:] if any(passes) else new), True, passes=passes)
            passes = Passes()

    def _passes_of_sums(self, sums: Iterable[Met]) -> Passes:
        lying = all(self._is_leaf(self.roots[key].operands[0]) for key in sums)
        return Passes(largest=int(lying), computed=int(not lying))

    def _new(self, key: Met, at_hand: Collection[Met]) -> list[Met]:
        root, dims = self.roots[key], loop_dims(self.roots[key])
        leaves = (leaf for below in root.operands for leaf in self._leaves(below))
        return [*dict.fromkeys(leaf.key for leaf in leaves if leaf.dims == dims and leaf.key not in at_hand)]

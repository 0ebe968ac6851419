"""The order in which a compiler goes through a block from its end.

    q = n · Wq; k = n · Wk; s = q · k; y = s · Wo; dq = ds · k; dk = ds · q; dWo = dy · s; dWq = dq · n

Of what a step reads, or the block leaves, it goes first into what has most readers behind it, then most bytes: y, which
has few behind it, is made last, though it comes first. AllReduces over the same axes are one step by then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardc.cost.inside import Inside
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Step


def depth_first(block: Block, inside: Inside, sizes: Sequence[int]) -> tuple[Step, ...]:
    """The steps in that order; what is computed where it is read comes just before."""
    nodes = _Nodes.of(block, inside, True)
    found = _post_order(nodes.ends, nodes.reads)
    if found is None:  # one AllReduce waits for another
        nodes = _Nodes.of(block, inside, False)
        found = _post_order(nodes.ends, nodes.reads)
        assert found is not None, "a step reads what comes before it"
    behind = nodes.behind(found, sizes)

    def in_turn(some: Iterable[Hashable]) -> list[Hashable]:
        return sorted(some, key=lambda node: behind[node], reverse=True)

    order = _post_order(in_turn(nodes.ends), {node: in_turn(read) for node, read in nodes.reads.items()})
    assert order is not None, "there was one"
    return tuple(with_inside(block, inside, (step for node in order for step in nodes.steps[node])))


class _Behind(NamedTuple):
    """What leads to a step: how many readers more than one its values have, and bytes."""

    readers: int
    size: int


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Steps that are not computed where they are read, some as one; what each reads; and those the block leaves."""

    steps: Mapping[Hashable, Sequence[Step]]
    reads: Mapping[Hashable, Sequence[Hashable]]
    ends: Sequence[Hashable]

    @classmethod
    def of(cls, block: Block, inside: Inside, joins: bool) -> _Nodes:
        steps, node_of = dict[Hashable, list[Step]](), dict[int, Hashable]()
        for step in block.steps:
            if not inside.has(step):
                node = _sum(step, block) if joins and step.op.facts.kind is Kind.SUM else step.results
                steps.setdefault(node, []).append(step)
                node_of |= dict.fromkeys(step.results, node)

        def nodes(values: Iterable[int]) -> list[Hashable]:
            return [*dict.fromkeys(node_of[value] for value in values if value in node_of)]

        read = {
            node: nodes(value for step in some for value in inside.lying(step.operands)) for node, some in steps.items()
        }
        return cls(steps, read, nodes(block.outputs))

    def behind(self, order: Iterable[Hashable], sizes: Sequence[int]) -> dict[Hashable, _Behind]:
        """Of nodes, each after what it reads. As in the compiler, what is met by several ways counts several times, of
        readers no more than all there are."""
        users, found = dict.fromkeys(self.steps, 0), dict[Hashable, _Behind]()
        for read in (*self.reads.values(), self.ends):
            for node in read:
                users[node] += 1
        for node in order:
            before = [found[each] for each in self.reads[node]]
            own = sum(sizes[value] for step in self.steps[node] for value in step.results)
            readers = max(0, users[node] - 1) + sum(each.readers for each in before)
            found[node] = _Behind(min(readers, len(users)), own + sum(each.size for each in before))
        return found


def _sum(step: Step, block: Block) -> Hashable:
    """What AllReduces have in common that are done as one."""
    return step.op, block.values[step.result].dtype


def _post_order(ends: Iterable[Hashable], reads: Mapping[Hashable, Sequence[Hashable]]) -> list[Hashable] | None:
    """Each after what it reads, in this order; None where they go round."""
    found, on_the_way = dict[Hashable, None](), set[Hashable]()
    pending = [(node, False) for node in [*ends][::-1]]
    while pending:
        node, is_ready = pending.pop()
        if is_ready:
            on_the_way.remove(node)
            found[node] = None
        elif node in on_the_way:
            return None
        elif node not in found:
            on_the_way.add(node)
            pending += [(node, True), *((each, False) for each in reads[node][::-1])]
    return [*found]


def with_inside(block: Block, inside: Inside, order: Iterable[Step]) -> Iterator[Step]:
    """These steps, each behind those that are computed where it reads them, as far as none was before."""
    made = {value: step for step in block.steps if inside.has(step) for value in step.results}
    done = set[int]()
    for last in order:
        pending = [last]
        while pending:
            step = pending[-1]
            missing = [made[value] for value in step.operands if value in made and value not in done]
            if missing:
                pending += missing[:1]
                continue
            pending.pop()
            done.update(step.results)
            yield step

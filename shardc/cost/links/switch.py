"""Links through a switch: NVLink inside a domain, InfiniBand between nodes, the data-centre network.

Every member reaches every other at the bandwidth of its own port, in one hop.
Source: *How To Scale Your Model*, chapter 12 (GPUs).
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost.links.level import Factor, less_one


@dataclass(frozen=True, slots=True)
class Switch:
    """`count` members; `width` is the egress of one device in B/s."""

    count: Factor
    width: Factor

    @property
    def hops(self) -> Factor:
        return Factor("1", 1)

    def exchange(self, book: bool) -> Factor:
        """V(n−1)/(n²W): of its n-th part a device sends all but one n-th."""
        less = Factor("1", 1.0) if book else less_one(self.count)
        return Factor(
            f"{less.text}/{self.count.text} / {self.width.text}", less.value / self.count.value / self.width.value
        )

    def route(self) -> Factor:
        return Factor(f"1 / {self.width.text}", 1 / self.width.value)

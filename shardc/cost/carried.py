"""What each link of a group carries in a move: bytes, one way and the other, by the method that is priced.

The gathered array of V bytes goes over the lines of a torus in proportion to their widths. Of a share S that comes
to a line of n devices:

    ring      AllGather, ReduceScatter: S/2 over every link each way
    one way   S over every link
    line      AllGather: what lies behind: S·(i+1)/(n-1) forward over the link from i to i+1, S·(n-1-i)/(n-1) back;
              ReduceScatter: what lies ahead, the same the other way round
    AllReduce both, one after the other
    AllToAll  pairs of devices on either side of a link, each a V/n²: at most in the middle
    permutes  at most: a block over every link of its longest way

The busiest link takes as long as the move is priced, but for its latency. Behind a switch there are ports, not links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from shardc.cost.layout import LINE, ONE_WAY, RING
from shardc.cost.links.level import Level
from shardc.cost.links.torus import Line, Torus
from shardc.cost.model import GATHERED
from shardc.ir.operations import Kind

Profile = Literal["gather", "scatter", "both", "exchange", "route"]


@dataclass(frozen=True, slots=True)
class Carried:
    """A line of a group, and what its links carry. `share` is S for gathers, the V of an exchange, a block's bytes.

    Link i joins device i of the line to the next; the last closes a ring. Of a line that skips chips a link is the way
    to its next device, which it shares with the lines between.
    """

    line: Line
    profile: Profile
    share: float

    @property
    def links(self) -> int:
        return self.line.size - 1 if self.line.shape == LINE else self.line.size

    @property
    def is_bound(self) -> bool:
        """Whether the bytes are at most so many: who sends to whom is not known."""
        return self.profile == "route"

    @property
    def busiest(self) -> float:
        """The most bytes that a link carries one way."""
        links = {0, (self.links - 1) // 2, self.links // 2, self.links - 1}  # at an end, or in the middle
        return max(way(link) for link in links for way in (self.forward, self.backward))

    def forward(self, link: int) -> float:
        """Bytes from device `link` to the next."""
        return self._over(link + 1, self.line.size - 1 - link)

    def backward(self, link: int) -> float:
        """Bytes from the next device to device `link`."""
        return 0.0 if self.line.shape == ONE_WAY else self._over(self.line.size - 1 - link, link + 1)

    def _over(self, behind: int, ahead: int) -> float:
        """`behind` and `ahead` count the devices before and after a link, in the direction that is meant."""
        n, shape = self.line.size, self.line.shape
        match self.profile:
            case "exchange":
                if shape == LINE:
                    return self.share * behind * ahead / n
                return self.share * ((n - 1) / 2 if shape == ONE_WAY else (n * n // 4) / (2 * n))
            case "route":
                return self.share * self.line.turns.value / (2 if shape == RING else 1)
            case "gather" | "scatter" | "both":
                each = {"gather": behind, "scatter": ahead, "both": n}[self.profile]
                if shape == LINE:
                    return self.share * each / (n - 1)
                whole = 2 * self.share if self.profile == "both" else self.share
                return whole if shape == ONE_WAY else whole / 2
            case _:
                assert_never(self.profile)


def carried(kind: Kind, levels: tuple[Level, ...], local_bytes: int, devices: int) -> tuple[Carried, ...]:
    """Of each line of a group what its links carry; none where the group has ports, or whatever ways there are."""
    profile = profile_of(kind)
    if len(levels) != 1 or not isinstance(levels[0], Torus) or profile is None or devices == 1:
        return ()
    lines = tuple(line for line in levels[0].lines if line.size > 1)
    whole = local_bytes * (devices if kind in GATHERED else 1)
    if profile == "exchange":
        return tuple(Carried(line, profile, whole / devices) for line in lines)
    if profile == "route":
        longest = max(lines, key=lambda line: line.turns.value / line.width.value)
        return (Carried(longest, profile, local_bytes),)
    width = sum(line.width.value for line in lines)
    arriving = whole * (devices - 1) / devices
    return tuple(Carried(line, profile, arriving * line.width.value / width) for line in lines)


def profile_of(kind: Kind) -> Profile | None:
    match kind:
        case Kind.GATHER:
            return "gather"
        case Kind.SCATTER:
            return "scatter"
        case Kind.SUM:
            return "both"
        case Kind.EXCHANGE:
            return "exchange"
        case Kind.PERMUTE:
            return "route"
        case Kind.SLICE | Kind.MASK | Kind.LOCAL | Kind.LOOP:
            return None
        case _:
            assert_never(kind)

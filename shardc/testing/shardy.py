"""What the Shardy dialect's canonicalizer does, case by case, each with the law by which it is right.

`SHARDY` has 38 cases of the dialect's own tests, by the names that they have there: 23 of collectives and 15 of
reshards. Where the dialect leaves the operations as they are, `kept`, the condition under which the tempting rewrite
would hold is found all the same. The dialect has grown since: `SHARDY_PATTERNS` are the patterns behind collectives,
those of partial sums and exchanges among them, each with its laws.

A reshard is said by moves that lead there, as what moves leave is said by the sharding that they lead to. A part of an
axis is an axis of the finer mesh, where r = 8 is three of 2, and a reshape is of digits, which are dims here: the axes
that a dim is shared out by lie on its major digits. What is not said of a sharding is not shared out; whether it is
open to more is no matter of values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from shardc.ir.mesh import Mesh
from shardc.testing.laws import found_when
from shardc.testing.letters import GROUPS, names_of
from shardc.testing.rewrites import conditions

_ONE = Mesh.of({"X": 1, "Y": 2})
_UNEVEN = Mesh.of({"X": 2, "Y": 3, "Z": 1})
_TWO = Mesh.of({"X": 2, "Y": 2})
_THREE = Mesh.of({"X": 2, "Y": 2, "Z": 2})
_FOUR = Mesh.of({"X": 2, "Y": 2, "Z": 2, "W": 2})
_FIVE = Mesh.of({"X": 2, "Y": 2, "Z": 2, "W": 2, "V": 2})
_LEAST = 2  # devices along an axis, of statements


@dataclass(frozen=True, slots=True)
class Moved:
    """Moves of a law, and the condition of `found_when`."""

    before: str
    after: str
    when: str = "always"

    def found(self, meshes: Sequence[Mesh]) -> str:
        return found_when(self.before, self.after, meshes)

    @property
    def small(self) -> list[Mesh]:
        """The smallest on which every group has an axis, and of few groups one is of one device."""
        return {3: [_THREE], 4: [_FOUR]}.get(self._groups, [_TWO, _ONE])

    @property
    def larger(self) -> list[Mesh]:
        """Those on which an array may lie along an axis of no group, or a group has two."""
        return [_FIVE] if self._groups > len(_THREE.axes) else [_FOUR, _UNEVEN]

    @property
    def _groups(self) -> int:
        return sum(name in GROUPS for name in names_of(self.before, self.after))


@dataclass(frozen=True, slots=True)
class Stated:
    """Statements of the notation, and the condition of `conditions`."""

    before: str
    after: str
    when: str = "always"

    def found(self, most: int = _LEAST) -> str:
        return conditions(self.before, self.after, max_size=most)


@dataclass(frozen=True, slots=True)
class Nothing:
    """No value changes, and why there is nothing to prove."""

    why: str


Said: TypeAlias = Moved | Stated | Nothing


@dataclass(frozen=True, slots=True)
class Canonicalization:
    """A case by its name, the pattern that it is of, and what it says of values. `kept`: the dialect rewrites nothing.

    >>> from shardc.testing import SHARDY
    >>> gathered = next(case for case in SHARDY if case.name == "all_slice_of_all_gather")
    >>> str(gathered), gathered.is_proved()
    ('all_slice_of_all_gather: AllGather_p(d); Slice_p(d) = nothing', True)
    """

    name: str
    pattern: str
    said: Said
    kept: bool = False
    note: str = ""

    def __str__(self) -> str:
        match self.said:
            case Nothing(why):
                return f"{self.name}: {why}"
            case Moved(before, after, when) | Stated(before, after, when):
                condition = "" if when == "always" else f", {when if when == 'never' else f'where {when}'}"
                return f"{self.name}: {before or 'nothing'} = {after or 'nothing'}{condition}"
            case _:
                assert_never(self.said)

    def is_proved(self, larger: bool = False) -> bool:
        """Whether its condition is what trying all finds; of what changes no value there is nothing to find."""
        match self.said:
            case Moved():
                return self.said.found(self.said.larger if larger else self.said.small) == self.said.when
            case Stated():
                return self.said.found(2 * _LEAST if larger else _LEAST) == self.said.when
            case Nothing():
                return True
            case _:
                assert_never(self.said)


_OPEN = "a dim that is open to more axes lies as one that is not"
_REST = "what is left of the slice of e is as in reduce_scatter_fusion2"
_AGAIN = "the sum has another use, for which it would be done twice"
_PERMUTE = Moved("CollectivePermute_pq(d)", "", when="p is of one device")
_CANCEL = Moved("AllGather_p(d); Slice_p(d)", "")
_FUSED = Moved("AllReduce_pq; Slice_pr(d); Slice_qs(e)", "JointScatter_pq(d,e); Slice_r(d); Slice_s(e)", "d ≠ e")
_FUSED_TWO = Moved(
    "AllReduce_pqr; Slice_pqs(d); Slice_r(e)", "ReduceScatter_pq(d); ReduceScatter_r(e); Slice_s(d)", "d ≠ e"
)
_LAST = Moved("Slice_p(d); Slice_q(e); AllGather_q(e)", "Slice_p(d)")
_OTHER = Moved("Slice_p(d)", "Slice_p(e)", when="d = e")
_SAME = Nothing("the same reshard of the same array leaves the same")
_DIGITS = Nothing("in digits both arrays are one, and the axes lie on the same major digit: the same reshard")
_TURNED = Stated(
    "B[I_X, J, K] = A[I, J, K]; T[I_X, K, J] = A[I, J, K]; return B, T",
    "B[I_X, J, K] = A[I, J, K]; T[I_X, K, J] = B[I_X, J, K]; return B, T",
)

COLLECTIVES = (
    Canonicalization("null_all_gather", "AllGatherNoop", Moved("AllGather_p(d)", "", "p is of one device")),
    Canonicalization("null_all_slice", "AllSliceNoop", Moved("Slice_p(d)", "", "p is of one device")),
    Canonicalization("null_all_reduce", "AllReduceNoop", Moved("AllReduce_p", "", "p is of one device")),
    Canonicalization("null_collective_permute", "CollectivePermuteNoop", _PERMUTE),
    Canonicalization(
        "collective_permute_reorder_device_ids",
        *("CollectivePermuteNoop", _PERMUTE, True),
        note="in another order of devices blocks change places, as between the orders of two axes",
    ),
    Canonicalization("null_collective_permute_with_diff_open_closed", "CollectivePermuteNoop", _PERMUTE, note=_OPEN),
    Canonicalization("all_slice_of_all_gather", "AllSliceOfAllGather", _CANCEL),
    Canonicalization(
        "all_slice_of_all_gather_mismatching_axes_per_dim",
        *("AllSliceOfAllGather", Moved("AllGather_p(d); Slice_p(e)", "", "d = e"), True),
    ),
    Canonicalization(
        "all_slice_of_all_gather_many_uses",
        *("AllSliceOfAllGather", _CANCEL),
        note="the gather stays for its other use",
    ),
    Canonicalization(
        "reduce_scatter_fusion", "ReduceScatterFusion", Moved("AllReduce_p; Slice_p(d)", "ReduceScatter_p(d)")
    ),
    Canonicalization("reduce_scatter_fusion2", "ReduceScatterFusion", _FUSED),
    Canonicalization(
        "reduce_scatter_fusion3", "ReduceScatterFusion", _FUSED, note="the axes of both dims changed over"
    ),
    Canonicalization("reduce_scatter_fusion4", "ReduceScatterFusion", _FUSED_TWO, note=_REST),
    Canonicalization("reduce_scatter_fusion_missing_in_sharding", "ReduceScatterFusion", _FUSED),
    Canonicalization(
        "reduce_scatter_fusion_multiple_same_uses", "ReduceScatterFusion", _FUSED, note="equal slices are one"
    ),
    Canonicalization(
        "reduce_scatter_fusion_merge_subaxis",
        *("ReduceScatterFusion", _FUSED_TWO),
        note=f"p and r are parts of axes, behind the parts that the dims are shared out by; {_REST}",
    ),
    Canonicalization(
        "reduce_scatter_fusion_not_merge_subaxis",
        "ReduceScatterFusion",
        Moved("AllReduce_p; Slice_pq(d); Slice_r(e)", "ReduceScatter_p(d); Slice_q(d); Slice_r(e)"),
        note="p is two axes of the finer mesh, major to the one that the dim is shared out by",
    ),
    Canonicalization(
        "reduce_scatter_fusion_with_replicated_axis",
        "ReduceScatterFusion",
        Moved("AllReduce_p; Slice_q(d); Slice_pr(e)", "ReduceScatter_p(e); Slice_q(d); Slice_r(e)", when="d ≠ e"),
    ),
    Canonicalization(
        "reduce_scatter_fusion_multiple_different_uses", "ReduceScatterFusion", _FUSED, kept=True, note=_AGAIN
    ),
    Canonicalization(
        "reduce_scatter_fusion_uses_cases_with_different_slicing_axes",
        *("ReduceScatterFusion", _FUSED, True, _AGAIN),
    ),
    Canonicalization(
        "reduce_scatter_fusion_reduction_axes_not_matched1",
        *("ReduceScatterFusion", Moved("AllReduce_p; Slice_q(d)", "ReduceScatter_q(d)", "p = q"), True),
    ),
    Canonicalization(
        "reduce_scatter_fusion_reduction_axes_not_matched2",
        "ReduceScatterFusion",
        Moved("AllReduce_pq; Slice_prq(d)", "ReduceScatter_pq(d); Slice_r(d)", when="never"),
        kept=True,
    ),
    Canonicalization(
        "reduce_scatter_fusion_no_subaxis_prefix_match",
        "ReduceScatterFusion",
        Moved("AllReduce_pq; Slice_prq(d)", "ReduceScatter_p(d); Slice_r(d); ReduceScatter_q(d)"),
        kept=True,
        note="on the finer mesh it is a law: r is what is left of the axis of which p is the first part",
    ),
)
RESHARDS = (
    Canonicalization("reshard_of_reshard_no_other_uses", "ReshardOfReshard", _LAST),
    Canonicalization(
        "reshard_of_reshard_with_other_uses", "ReshardOfReshard", _LAST, kept=True, note="the first has another use"
    ),
    Canonicalization(
        "reshard_chain_of_three_no_other_uses",
        "ReshardOfReshard",
        Moved("Slice_p(d); Slice_q(e); AllGather_q(e); AllToAll_p(d,e)", "Slice_p(e)"),
    ),
    Canonicalization("reshard_cse_two_same_reshards", "ReshardCommonSubexpressionElimination", _SAME),
    Canonicalization("reshard_cse_two_different_reshards", "ReshardCommonSubexpressionElimination", _OTHER, kept=True),
    Canonicalization("reshard_cse_three_same_reshards", "ReshardCommonSubexpressionElimination", _SAME),
    Canonicalization(
        "reshard_chains_and_cse",
        "ReshardOfReshard",
        Moved("Slice_p(d); AllToAll_p(d,e); Slice_q(d)", "Slice_q(e); AllToAll_q(e,d); Slice_p(e)"),
    ),
    Canonicalization("reshard_cse_with_shape", "ReshardCommonSubexpressionElimination", _DIGITS),
    Canonicalization("reshard_cse_with_shape_2", "ReshardCommonSubexpressionElimination", _DIGITS),
    Canonicalization(
        "reshard_cse_with_reshape_not_redundant_reshard",
        *("ReshardCommonSubexpressionElimination", _OTHER, True),
        note="d is the major digit, e the minor one",
    ),
    Canonicalization(
        "reshard_cse_transpose_non_sharded_dims",
        "ReshardCommonSubexpressionElimination",
        Stated(
            "B[I, J, K] = A[I_X, J, K_Y]; T[J, I, K] = A[I_X, J, K_Y]; return B, T",
            "B[I, J, K] = A[I_X, J, K_Y]; T[J, I, K] = B[I, J, K]; return B, T",
        ),
    ),
    Canonicalization(
        "reshard_cse_with_transpose_sharded_dims",
        "ReshardCommonSubexpressionElimination",
        Stated(
            "B[I_X, J, K] = A[I_X, J, K_Y]; T[J, K, I_X] = A[I_X, J, K_Y]; return B, T",
            "B[I_X, J, K] = A[I_X, J, K_Y]; T[J, K, I_X] = B[I_X, J, K]; return B, T",
        ),
    ),
    Canonicalization(
        "reshard_cse_with_shape_and_transpose",
        *("ReshardCommonSubexpressionElimination", _TURNED),
        note="of digits: I is the major one, which no transpose moves",
    ),
    Canonicalization(
        "reshard_cse_with_shape_and_transpose_reshard_not_reused",
        *("ReshardCommonSubexpressionElimination", _TURNED, True),
        note="the reshard that comes first is behind a transpose, where the dialect does not look",
    ),
    Canonicalization(
        "reshard_cse_with_reshape_and_transpose_not_redundant_reshard",
        "ReshardCommonSubexpressionElimination",
        Stated(
            "B[I_X, J, K] = A[I, J, K]; T[K, J_X, I] = A[I, J, K]; return B, T",
            "B[I_X, J, K] = A[I, J, K]; T[K, J, I_X] = B[I_X, J, K]; return B, T",
            when="X = 1",
        ),
        kept=True,
    ),
)
SHARDY = (*COLLECTIVES, *RESHARDS)

# Of an AllToAll that nothing uses, and of a manual computation's unused inputs, there is nothing to prove of values.
SHARDY_PATTERNS: dict[str, tuple[str, ...]] = {
    "AllGatherNoop": ("AllGather_p(d)",),
    "AllSliceNoop": ("Slice_p(d)",),
    "AllReduceNoop": ("AllReduce_p",),
    "CollectivePermuteNoop": ("CollectivePermute_pq(d)",),
    "ReduceScatterNoop": ("ReduceScatter_p(d)",),
    "AllSliceOfAllGather": ("AllGather_p(d); Slice_p(d)", "JointGather_pq(d,e); Slice_p(d); Slice_q(e)"),
    "AllReduceOfReplicatedToUnreduced": ("Mask_p; AllReduce_p",),
    "AllReduceOfShardedToUnreduced": ("Spread_p(d); AllReduce_p",),
    "AllToAllFusion": ("AllToAll_p(d,e); AllToAll_q(d,f)", "AllToAll_p(d,e); AllToAll_q(f,e)"),
    "ReduceScatterFusion": (
        *("AllReduce_p; Slice_p(d)", "AllReduce_p; Slice_pq(d)", "AllReduce_pq; Slice_p(d); Slice_q(e)"),
        "AllReduce_pq; Slice_pr(d); Slice_q(e)",
    ),
}

"""The cases of the Shardy dialect's canonicalizer: all of them are there, and each is what trying all finds."""

from collections import Counter

import pytest

from shardc.testing import LAWS, SHARDY, SHARDY_PATTERNS
from shardc.testing.shardy import COLLECTIVES, RESHARDS, Moved, Nothing, Stated

NAMES = {  # of the cases of two tests of the dialect
    "collectives": [
        "null_all_gather",
        "null_all_slice",
        "null_all_reduce",
        "null_collective_permute",
        "collective_permute_reorder_device_ids",
        "null_collective_permute_with_diff_open_closed",
        "all_slice_of_all_gather",
        "all_slice_of_all_gather_mismatching_axes_per_dim",
        "all_slice_of_all_gather_many_uses",
        "reduce_scatter_fusion",
        "reduce_scatter_fusion2",
        "reduce_scatter_fusion3",
        "reduce_scatter_fusion4",
        "reduce_scatter_fusion_missing_in_sharding",
        "reduce_scatter_fusion_multiple_same_uses",
        "reduce_scatter_fusion_merge_subaxis",
        "reduce_scatter_fusion_not_merge_subaxis",
        "reduce_scatter_fusion_with_replicated_axis",
        "reduce_scatter_fusion_multiple_different_uses",
        "reduce_scatter_fusion_uses_cases_with_different_slicing_axes",
        "reduce_scatter_fusion_reduction_axes_not_matched1",
        "reduce_scatter_fusion_reduction_axes_not_matched2",
        "reduce_scatter_fusion_no_subaxis_prefix_match",
    ],
    "reshards": [
        "reshard_of_reshard_no_other_uses",
        "reshard_of_reshard_with_other_uses",
        "reshard_chain_of_three_no_other_uses",
        "reshard_cse_two_same_reshards",
        "reshard_cse_two_different_reshards",
        "reshard_cse_three_same_reshards",
        "reshard_chains_and_cse",
        "reshard_cse_with_shape",
        "reshard_cse_with_shape_2",
        "reshard_cse_with_reshape_not_redundant_reshard",
        "reshard_cse_transpose_non_sharded_dims",
        "reshard_cse_with_transpose_sharded_dims",
        "reshard_cse_with_shape_and_transpose",
        "reshard_cse_with_shape_and_transpose_reshard_not_reused",
        "reshard_cse_with_reshape_and_transpose_not_redundant_reshard",
    ],
}
ONCE = {case.said: case for case in reversed(SHARDY)}  # several cases say the same


def test_every_case_of_the_dialect_is_there_by_its_name():
    assert [case.name for case in COLLECTIVES] == NAMES["collectives"] and len(COLLECTIVES) == 23
    assert [case.name for case in RESHARDS] == NAMES["reshards"] and len(RESHARDS) == 15
    assert len({case.name for case in SHARDY}) == len(SHARDY) == 38


def test_only_of_equal_reshards_there_is_nothing_to_prove():
    kinds = Counter(type(case.said) for case in SHARDY)
    assert kinds == {Moved: 29, Stated: 5, Nothing: 4}
    assert all("cse" in case.name for case in SHARDY if isinstance(case.said, Nothing))


def test_what_the_dialect_rewrites_never_fails_and_what_it_keeps_says_why():
    for case in SHARDY:
        when = getattr(case.said, "when", "always")
        assert when != "never" or case.kept, case.name
        assert not case.kept or case.note or when != "always", case.name


@pytest.mark.instant
@pytest.mark.parametrize("case", ONCE.values(), ids=lambda case: case.name)
def test_a_case_holds_where_it_says(case):
    assert case.is_proved()


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", ONCE.values(), ids=lambda case: case.name)
def test_a_case_holds_where_it_says_on_larger_meshes(case):
    assert case.is_proved(larger=True)


def test_a_condition_that_is_another_is_not_proved():
    from dataclasses import replace

    for case in ONCE.values():
        if not isinstance(case.said, Nothing):
            other = "always" if case.said.when != "always" else "never"
            if case.name != "reduce_scatter_fusion2":  # which takes seconds
                assert not replace(case, said=replace(case.said, when=other)).is_proved()


def test_every_pattern_of_collectives_is_a_law_of_the_library():
    said = {law.before for law in LAWS}
    assert len(SHARDY_PATTERNS) == 10 and {before for some in SHARDY_PATTERNS.values() for before in some} <= said
    assert {case.pattern for case in COLLECTIVES} <= SHARDY_PATTERNS.keys()


def test_a_case_is_said_with_its_condition():
    said = {case.name: str(case) for case in SHARDY}
    name = "all_slice_of_all_gather_mismatching_axes_per_dim"
    assert said[name] == f"{name}: AllGather_p(d); Slice_p(e) = nothing, where d = e"
    name = "reduce_scatter_fusion_reduction_axes_not_matched2"
    assert said[name].endswith("= ReduceScatter_pq(d); Slice_r(d), never")
    name = "reshard_cse_two_same_reshards"
    assert said[name] == f"{name}: the same reshard of the same array leaves the same"

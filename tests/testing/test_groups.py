"""Groups and pairs of devices that a module's collectives are given: what is none is refused, with its line."""

import pytest

from shardc.errors import ShardcError
from shardc.testing import assert_same_module

pytestmark = pytest.mark.instant

SUM = """({
      %a = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %a : tensor<f32>
    })"""
FORMS = {  # what follows the groups, the operation's region, the elements that are left
    "all_reduce": ("", SUM, 4),
    "all_gather": (", all_gather_dim = 0 : i64", "", 8),
    "reduce_scatter": (", scatter_dimension = 0 : i64", SUM, 2),
    "all_to_all": (", split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64", "", 4),
}


def module(name, attributes, region="", size=4):
    line = f'%1 = "stablehlo.{name}"(%0) <{{{attributes}}}> {region} : (tensor<4xf32>) -> tensor<{size}xf32>'
    return f"""module attributes {{mhlo.num_partitions = 4 : i32}} {{
  func.func @main(%0: tensor<4xf32>) -> tensor<{size}xf32> {{
    {line}
    return %1 : tensor<{size}xf32>
  }}
}}"""


def grouped(groups, shape, name="all_reduce", more=""):
    after, region, size = FORMS[name]
    return module(name, f"replica_groups = dense<{groups}> : tensor<{shape}xi64>{after}{more}", region, size)


def permuted(pairs, shape="2x2"):
    return module("collective_permute", f"source_target_pairs = dense<{pairs}> : tensor<{shape}xi64>")


NO_GROUPS = {
    "a bracket is missing": ("[[0,1],[2,3] ", "2x2"),
    "of another shape": ("[[0,1],[2,3]]", "4x1"),
    "words": ("[[0,1],[two,3]]", "2x2"),
    "true": ("true", "2x2"),
    "one device is missing": ("[[0,1],[2,-1]]", "2x2"),
    "two are": ("[[0,1]]", "1x2"),
    "one is in two": ("[[0,1],[2,2]]", "2x2"),
    "one more": ("[[0,1],[2,3],[0,1]]", "3x2"),
    "one that is not there": ("[[0,1],[2,4]]", "2x2"),
    "less than none": ("[[0,1],[2,-2]]", "2x2"),
    "all are one": ("0", "2x2"),
}
NO_PAIRS = {
    "a bracket is missing": "[[0,1],[1,0] ",
    "from less than none": "[[-1,0],[1,2]]",
    "to less than none": "[[0,-1],[1,2]]",
    "from one that is not there": "[[4,0],[1,2]]",
    "to one that is not there": "[[0,5],[1,2]]",
    "one sends twice": "[[0,1],[0,2]]",
    "one receives twice": "[[0,1],[2,1]]",
}


def refused(good, bad):
    for sides in ((bad, bad), (good, bad), (bad, good)):
        with pytest.raises(ShardcError) as caught:
            assert_same_module(*sides)
        assert caught.value.code == "SHC312" and '%1 = "stablehlo.' in caught.value.message


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("wrong", NO_GROUPS)
def test_groups_that_are_none_are_refused_with_their_line(wrong, name):
    refused(grouped("[[0,1],[2,3]]", "2x2", name), grouped(*NO_GROUPS[wrong], name))


@pytest.mark.parametrize("wrong", NO_PAIRS)
def test_pairs_that_are_none_are_refused_with_their_line(wrong):
    refused(permuted("[[0,1],[1,0]]"), permuted(NO_PAIRS[wrong]))


def test_pairs_of_three_are_none():
    refused(permuted("[[0,1],[1,0]]"), permuted("[[0,1,2],[1,2,0]]", "2x3"))


@pytest.mark.parametrize("name", FORMS)
def test_groups_of_several_sizes_are_of_a_sum_alone(name):
    uneven = grouped("[[0,1,2],[3,-1,-1]]", "2x3", name)
    if name == "all_reduce":
        assert_same_module(uneven, grouped("[[2,1,0],[-1,-1,3]]", "2x3", name))
        with pytest.raises(AssertionError, match="leave different values"):
            assert_same_module(uneven, grouped("[[0,1],[2,3]]", "2x2", name))
    else:
        refused(grouped("[[0,1],[2,3]]", "2x2", name), uneven)


@pytest.mark.parametrize("none", [("", "0x0"), ("[]", "0x0")])
def test_no_groups_are_one_of_all_devices(none):
    assert_same_module(grouped(*none), grouped("[[0,1,2,3]]", "1x4"))
    with pytest.raises(AssertionError, match="leave different values"):
        assert_same_module(grouped(*none), grouped("[[0,1],[2,3]]", "2x2"))
    refused(grouped("[[0,1,2,3]]", "1x4"), grouped(*none, more=", use_global_device_ids"))


def test_no_pairs_leave_zeros():
    zeros = module("collective_permute", "source_target_pairs = dense<> : tensor<0x2xi64>")
    assert_same_module(zeros, zeros)
    with pytest.raises(AssertionError, match="leave different values"):
        assert_same_module(zeros, permuted("[[0,1],[1,0]]"))

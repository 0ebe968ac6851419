"""What is known of the TPU's compiler is known from somewhere: every rule has its observation."""

import inspect
import re

from shardc.lowering import tpu

RULES = {
    name
    for name, made in inspect.getmembers(tpu, inspect.isfunction)
    if made.__module__ == tpu.__name__ and name[0] != "_" and name != "seen"
}


def test_every_rule_has_an_observation_and_every_observation_a_rule():
    assert set(tpu.OBSERVATIONS) == RULES and len(RULES) > 10


def test_an_observation_says_of_which_libtpu_and_what():
    for name, found in tpu.OBSERVATIONS.items():
        assert all(re.search(r"\d+(\.\d+)+$", each) for each in re.split("[,;] ", found.libtpu)), name
        assert len(found.what.split()) > 3, name

"""A product as the callable has it, beside `jnp.einsum`: what JAX traces is the same."""

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractDevice

from shardc.emit.call.products import _contraction, einsum

SIZES = {"i": 2, "j": 3, "k": 5, "b": 7, "c": 1}
NAMES = st.lists(st.sampled_from(sorted(SIZES)), unique=True, max_size=4).map("".join)


@st.composite
def specs(draw):
    left, right = draw(NAMES), draw(NAMES)
    every = sorted(set(left + right))
    result = draw(st.lists(st.sampled_from(every), unique=True).map("".join)) if every else ""
    return f"{left},{right}->{result}"


TPU = jax.sharding.AbstractMesh((), (), abstract_device=AbstractDevice("TPU v5p", 1, "tpu"))


def traced(function, spec, kind, types):
    arrays = [
        jax.ShapeDtypeStruct([SIZES[name] for name in names], dtype)
        for names, dtype in zip(spec.split("->")[0].split(","), types, strict=True)
    ]
    with jax.sharding.use_abstract_mesh(TPU):
        return str(jax.make_jaxpr(lambda *given: function(spec, *given, preferred_element_type=kind))(*arrays))


@given(specs(), st.sampled_from([None, jnp.float32]), st.sampled_from([jnp.bfloat16, jnp.int8, jnp.float32]))
@example("ij,jk->ik", jnp.float32, jnp.bfloat16)
@example("ij,jk->ki", None, jnp.float32)  # the other way round, with no transposition
@example("bij,bjk->ibk", None, jnp.float32)
@example("i,->i", None, jnp.float32)  # either way round
@example("ii,ij->j", None, jnp.float32)  # a diagonal
def test_what_is_traced_is_what_jnp_einsum_traces(spec, kind, dtype):
    assert traced(einsum, spec, kind, (dtype, dtype)) == traced(jnp.einsum, spec, kind, (dtype, dtype))


def computed(spec, sizes):
    given = [jnp.ones([sizes[name] for name in names], jnp.bfloat16) for names in spec.split("->")[0].split(",")]
    return jax.jit(lambda *arrays: einsum(spec, *arrays, preferred_element_type=jnp.float32))(*given)


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("ab,cda->bcd", {"a": 4, "b": 16, "c": 1, "d": 33}),
        ("bthe,bhts->bshe", {"b": 2, "t": 8, "s": 8, "h": 4, "e": 16}),
    ],
)
def test_products_that_the_compiler_of_cpus_refuses_are_computed_in_f32(spec, sizes):
    """`jnp.einsum` with the same arguments ends in UNIMPLEMENTED: such products are why the type is widened."""
    contracted = set(spec.split("->")[0]) - set(spec.split("->")[1]) - {","}
    assert (computed(spec, sizes) == math.prod(sizes[name] for name in contracted)).all()


@pytest.mark.exhaustive
@settings(deadline=None, max_examples=150)
@given(specs(), st.lists(st.sampled_from([1, 2, 4, 16, 33]), min_size=5, max_size=5))
def test_every_product_of_bf16_is_computed_on_cpus(spec, sizes):
    """Three of a thousand were refused."""
    computed(spec, dict(zip(sorted(SIZES), sizes, strict=True))).block_until_ready()


def test_of_two_types_it_is_jnp_einsum():
    types = jnp.bfloat16, jnp.float32
    assert traced(einsum, "ij,jk->ik", None, types) == traced(jnp.einsum, "ij,jk->ik", None, types)


@pytest.mark.instant
@pytest.mark.parametrize("spec", ["ij,jk->ik", "bij,kjb->bki", "i,j->ji"])
def test_products_of_two_arrays_are_one_dot(spec):
    assert _contraction(spec) is not None


@pytest.mark.instant
@pytest.mark.parametrize("spec", ["ij->ji", "ij,jk,kl->il", "ij,k->k", "ii,ij->j"])
def test_others_are_left_to_jnp_einsum(spec):
    assert _contraction(spec) is None

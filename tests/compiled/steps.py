"""Drawn steps of training and inference in plain JAX, with waste planted in them and without; on axes X and Y.

Several weights each, so that compilers combine their collectives: gradients of a data-parallel step, sums of a whole
pytree, two branches of a layer, in loops too.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jax import P
from jax.lax import with_sharding_constraint as constrain

ALL = ("X", "Y")


@dataclass(frozen=True)
class Step:
    """A program: `kind` is a function below, `widths` of its layers, `trips` of its loop if it has one."""

    kind: str
    widths: tuple[int, ...]
    axes: tuple[str, ...]
    trips: int
    wasteful: bool

    def made(self, mesh):
        """The jitted function, and its arguments on a mesh."""
        return KINDS[self.kind](self, lambda shape, *spec: argument(mesh, shape, *spec))

    @property
    def planted(self):
        """How many arrays are moved whole of which each device keeps a part, in all trips."""
        return PLANTED[self.kind](self) if self.wasteful else 0


def argument(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=jax.NamedSharding(mesh, P(*spec)))


def steps(wasteful):
    kinds = sorted(PLANTED) if wasteful else sorted(KINDS)
    return st.builds(
        Step,
        st.sampled_from(kinds),
        st.lists(st.sampled_from([8, 16, 24]), min_size=3, max_size=5).map(tuple),
        st.sampled_from([("X",), ("Y",), ALL]),
        st.integers(2, 5),
        st.just(wasteful),
    )


def shapes(step):
    return list(zip(step.widths, step.widths[1:], strict=False))


def data_parallel(step, argument):
    """Gradients are summed over the batch's axes. The wasteful step keeps of each sum the rows of one device."""

    def loss(ws, bs, x):
        for w, b in zip(ws, bs, strict=True):
            x = jnp.tanh(x @ w + b)
        return (x**2).mean()

    def function(ws, bs, x):
        gradients, biases = jax.grad(loss, (0, 1))(ws, bs, x)
        if step.wasteful:
            gradients = [constrain(g, P(None, None)) for g in gradients]  # planted: an AllReduce
            return [constrain(jnp.sin(g), P("Y", None)) for g in gradients], biases
        return jax.tree.map(lambda w, g: w - 0.1 * g, (ws, bs), (gradients, biases))

    ws = [argument(shape, None, None) for shape in shapes(step)]
    bs = [argument((width,), None) for width in step.widths[1:]]
    return jax.jit(function), ws, bs, argument((32, step.widths[0]), step.axes, None)


def tensor_parallel(step, argument):
    """An MLP of two branches: their partial sums go to everyone, who uses them whole."""

    def function(x, ws, vs):
        both = [jnp.tanh(x @ w) @ v for w, v in zip(ws, vs, strict=True)]
        return [jnp.sin(constrain(y, P(None, None))) for y in both]

    ws = [argument((16, width), None, step.axes) for width in step.widths]
    vs = [argument((width, 16), step.axes, None) for width in step.widths]
    return jax.jit(function), argument((8, 16), None, None), ws, vs


def sharded_weights(step, argument):
    """Weights lie in shards, are gathered for use, and their gradients are scattered again, all by hand."""

    def function(ws, x):
        def loss(ws):
            y = x
            for w in ws:
                y = jnp.tanh(y @ jax.lax.all_gather(w, "Y", axis=0, tiled=True))
            return (y**2).sum()

        return jax.tree.map(lambda w, g: w - 0.1 * g, ws, jax.grad(loss)(ws))

    ws = [argument(shape, "Y", None) for shape in shapes(step)]
    lies = P("Y", None)
    made = jax.shard_map(function, in_specs=([lies] * len(ws), lies), out_specs=[lies] * len(ws))
    return jax.jit(made), ws, argument((32, step.widths[0]), "Y", None)


def fully_sharded(step, argument):
    """Weights lie in shards, by shardings alone. The wasteful step asks for whole weights, so for whole gradients."""

    def loss(ws, x):
        for w in ws:
            whole = constrain(w, P(None, None)) if step.wasteful else w  # planted: so is its transpose
            x = constrain(jnp.tanh(x @ whole), P(ALL, None))
        return (x**2).mean()

    def function(ws, x):
        return jax.tree.map(lambda w, g: constrain(w - 0.1 * g, P("Y", None)), ws, jax.grad(loss)(ws, x))

    ws = [argument(shape, "Y", None) for shape in shapes(step)]
    return jax.jit(function), ws, argument((32, step.widths[0]), ALL, None)


def sums_of_trees(step, argument):
    """`psum` of a pytree in a shard_map. The wasteful one keeps of each sum the rows of one device."""

    def function(tree):
        total = jax.lax.psum(tree, step.axes)
        return jax.tree.map(lambda a: own_rows(jnp.sin(a)) if step.wasteful else jnp.sin(a), total)

    tree = {f"w{n}": argument((8 * width, 16), ALL, None) for n, width in enumerate(step.widths)}
    lies = {name: P(ALL, None) for name in tree}
    return jax.jit(jax.shard_map(function, in_specs=(lies,), out_specs=lies, check_vma=False)), tree


def own_rows(array):
    rows = array.shape[0] // 4
    return jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index("Y") * rows, rows, axis=0)


def gathered_trees(step, argument):
    """`all_gather` of a pytree. The wasteful one keeps of each gathered array the columns of one device."""

    def function(tree):
        whole = [jax.lax.all_gather(a, "Y", axis=0, tiled=True) for a in tree]
        return [own_rows(jnp.sin(a).T) if step.wasteful else jnp.sin(a) for a in whole]

    tree = [argument((width, 16), "Y", None) for width in step.widths]
    lies, out = [P("Y", None)] * len(tree), [P("Y" if step.wasteful else None, None)] * len(tree)
    return jax.jit(jax.shard_map(function, in_specs=(lies,), out_specs=out, check_vma=False)), tree


def exchanged_trees(step, argument):
    """`all_to_all` of a pytree, there and, after something that wants whole rows, back."""

    def function(tree):
        rows = [jax.lax.all_to_all(a, "Y", 1, 0, tiled=True) for a in tree]
        return [jax.lax.all_to_all(jax.nn.softmax(a, axis=0), "Y", 0, 1, tiled=True) for a in rows]

    tree = [argument((width, 16), "Y", None) for width in step.widths]
    lies = [P("Y", None)] * len(tree)
    return jax.jit(jax.shard_map(function, in_specs=(lies,), out_specs=lies)), tree


def loops(step, argument):
    """Sums of several branches in every trip. Of them the wasteful loop keeps the rows of one device."""

    def layer(x, ws):
        sums = jax.lax.psum([jnp.tanh(x @ w) for w in ws], "Y")
        kept = [own_rows(jnp.sin(y)) for y in sums] if step.wasteful else []
        return x * 0.5 if step.wasteful else x + sum(y.sum(axis=1, keepdims=True) for y in sums), kept

    def function(x, ws):
        return jax.lax.scan(layer, x, ws)

    ws = [argument((step.trips, 8, 4 * width), None, None, "Y") for width in step.widths]
    kept = [P(None, "Y", None)] * len(ws) if step.wasteful else []
    lies = (P(None, None), [P(None, None, "Y")] * len(ws))
    made = jax.shard_map(function, in_specs=lies, out_specs=(P(None, None), kept), check_vma=False)
    return jax.jit(made), argument((8, 8), None, None), ws


KINDS = {
    "data_parallel": data_parallel,
    "exchanged_trees": exchanged_trees,
    "fully_sharded": fully_sharded,
    "gathered_trees": gathered_trees,
    "loops": loops,
    "sharded_weights": sharded_weights,
    "sums_of_trees": sums_of_trees,
    "tensor_parallel": tensor_parallel,
}
PLANTED = {  # how many arrays are summed or gathered whole of which a part is kept
    "data_parallel": lambda step: len(step.widths) - 1,
    "fully_sharded": lambda step: len(step.widths) - 1,
    "gathered_trees": lambda step: len(step.widths),
    "loops": lambda step: len(step.widths) * step.trips,
    "sums_of_trees": lambda step: len(step.widths),
}

"""A jitted function whose own `in_shardings` and `out_shardings` name devices, for other devices."""

from __future__ import annotations

from typing import Any

import jax
from jax.tree_util import tree_unflatten


def moved(jitted: Any, mesh: Any) -> Any:
    """The same function with what `jax.jit` was given on `mesh`, where it was on another mesh of the same axes: it
    lies there as the arguments do. A function that names no such mesh is left as it is.

    So is one of which JAX does not say what it was given, which is none of its public interface.
    """
    given: Any = getattr(jitted, "_jit_info", None)
    try:
        named = [*given.in_shardings_leaves, *given.out_shardings_leaves]
        layouts = [each for each in (*given.in_layouts_leaves, *given.out_layouts_leaves) if each is not None]
        if layouts or given.device or given.backend or not any(_is_alike(each, mesh) for each in named):
            return jitted
        return _made_again(jitted.__wrapped__, given, mesh)
    except (AttributeError, TypeError):
        return jitted


def _made_again(function: Any, given: Any, mesh: Any) -> Any:
    ins, outs = ([_on(each, mesh) for each in some] for some in (given.in_shardings_leaves, given.out_shardings_leaves))
    options: dict[str, Any] = {"out_shardings": tree_unflatten(given.out_shardings_treedef, outs)}
    if given.user_specified_in_shardings:
        options["in_shardings"] = tree_unflatten(given.in_shardings_treedef, ins)
    return jax.jit(
        function,
        static_argnums=given.static_argnums or None,
        static_argnames=given.static_argnames or None,
        donate_argnums=given.donate_argnums or None,
        donate_argnames=given.donate_argnames or None,
        keep_unused=given.keep_unused,
        inline=given.inline,
        compiler_options=dict(given.compiler_options_kvs) or None,
        **options,
    )


def _is_alike(sharding: Any, mesh: Any) -> bool:
    return isinstance(sharding, jax.NamedSharding) and dict(sharding.mesh.shape) == dict(mesh.shape)


def _on(sharding: Any, mesh: Any) -> Any:
    """On the mesh in the memory that is asked for, if that is the host's: what a device's own is called, differs."""
    if not _is_alike(sharding, mesh):
        return sharding
    kind = sharding.memory_kind if sharding.memory_kind == "pinned_host" else None
    return jax.NamedSharding(mesh, sharding.spec, memory_kind=kind)

"""The JAX calls of each step: what is written, and what is applied."""

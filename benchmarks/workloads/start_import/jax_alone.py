"""Imports JAX only: what everyone who uses JAX pays."""

import jax

__all__ = ["jax"]

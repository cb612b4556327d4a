"""Imports JAX and Millstream."""

import jax
import millstream

__all__ = ["jax", "millstream"]

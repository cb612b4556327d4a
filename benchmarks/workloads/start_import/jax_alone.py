"""Imports only JAX, as every program that uses JAX must."""

import jax

__all__ = ["jax"]

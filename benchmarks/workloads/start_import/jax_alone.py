"""What everyone who uses JAX pays."""

import jax

__all__ = ["jax"]

"""What JAX's errors say, where their type alone does not tell."""

DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
"""The key-value store of `jax.distributed`: nobody has set the key in time."""

NO_MESH = "non-empty mesh"
"""`jax.lax.with_sharding_constraint`: a partition spec, and no mesh is entered."""


def jax_error_says(error: Exception, phrase: str) -> bool:
    """Whether the text of an error of JAX's holds one of the phrases above.

    JAX gives these failures as text only. Tested with jax 0.10.2.
    """
    return phrase in str(error)

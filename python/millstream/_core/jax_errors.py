"""Recognises errors of JAX by their text if their type is not specific."""

DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
"""`jax.distributed`: no process has set the key in time."""

NO_MESH = "non-empty mesh"
"""`jax.lax.with_sharding_constraint`: a partition spec without an active mesh."""


def jax_error_says(error: Exception, phrase: str) -> bool:
    """Whether the text of an error of JAX contains one of the phrases above.

    JAX has no types for these errors. Tested with jax 0.10.2.
    """
    return phrase in str(error)

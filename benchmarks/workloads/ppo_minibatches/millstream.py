"""Millstream's `TracedSource`, in a loader that is built inside the jitted function."""

from typing import Any

import jax
import millstream as ms

from workloads.ppo_minibatches.workload import BATCH, EPOCHS, Body, Minibatches


def minibatches(data: Any, key: Any, carry: Any, body: Body) -> tuple[Any, Any]:
    """Epochs of `scan_epoch`."""
    loader = ms.DataLoader([ms.TracedSource(data), ms.BatchTransform(BATCH)])

    def epoch(carry: Any, _: None) -> tuple[Any, Any]:
        state, carry = carry
        state, carry, outputs = loader.scan_epoch(
            state, carry, lambda carry, batch, mask: body(carry, batch)
        )
        return (state, carry), outputs

    start = loader.init_state(key), carry
    (_, carry), outputs = jax.lax.scan(epoch, start, length=EPOCHS)
    return carry, outputs


def build() -> Minibatches:
    """The function."""
    return minibatches

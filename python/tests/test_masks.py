"""Every delivered mask is a separate array, which a step may donate."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest

N, BATCH, STEPS = 23, 5, 15

pytestmark = pytest.mark.filterwarnings("ignore:Some donated buffers")

KINDS: dict[str, Any] = {
    "small": {},
    "large": {"width": 1 << 17},  # from slots, not from XLA's own buffers
    "stages": {"stages": [ms.MapTransform(lambda b, m: b * 2)]},
    "callbacks": {"stages": [ms.HostCallbackTransform(lambda b, m: None)]},
    "traced": {"traced": True},
    "skip": {"on_error": "skip"},
    "wrap": {"remainder": "wrap"},
}


def loader_of(
    width: int = 3, stages: Any = (), remainder: str = "pad", **more: Any
) -> ms.DataLoader:
    data = np.ones((N, width), np.float32)
    batches = ms.BatchTransform(BATCH, remainder=remainder)
    return ms.DataLoader([ms.ArraySampleSource(data), batches, *stages], **more)


def expected_of(loader: ms.DataLoader, state: Any) -> list[np.ndarray]:
    masks = []
    for _ in range(STEPS):
        masks.append(loader.which_samples(state) >= 0)
        _, state, _ = loader.next_batch(state)
    return masks


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_may_donate_the_mask(kind: str) -> None:
    loader = loader_of(**KINDS[kind])
    state = loader.init_state(1)
    expected = expected_of(loader, state)
    negate = jax.jit(lambda mask: ~mask, donate_argnums=0)
    for _ in range(2):
        for i, (_, mask) in enumerate(loader.iterate(state, steps=STEPS)):
            np.testing.assert_array_equal(~np.asarray(negate(mask)), expected[i])
    for wanted in expected:
        _, state, mask = loader.next_batch(state)
        np.testing.assert_array_equal(~np.asarray(negate(mask)), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_deleting_a_mask_does_not_affect_others(kind: str) -> None:
    loader = loader_of(**KINDS[kind])
    state = loader.init_state(1)
    expected = expected_of(loader, state)
    kept = []
    for _, mask in loader.iterate(state, steps=STEPS):
        kept.append(np.array(mask))
        mask.delete()
    np.testing.assert_array_equal(kept, expected)


def test_the_mask_of_each_sample_is_a_separate_array() -> None:
    loader = ms.DataLoader([ms.ArraySampleSource(np.arange(9.0))])
    for _, mask in loader.iterate(loader.init_state(0), steps=20):
        assert mask.shape == ()
        assert bool(mask)
        mask.delete()

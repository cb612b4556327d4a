"""The data set and the transform of the tutorial's section on PyTorch.

They are in a module without JAX, so that worker processes do not import JAX.
"""

from __future__ import annotations

import numpy as np
from torchvision_datasets import datasets


class FashionMNIST(datasets.FashionMNIST):
    """torchvision's data set. Unpickling it imports this module before torchvision."""


class FlattenAndCast:
    """Transform class to flatten and cast images to float32."""

    def __call__(self, pic):
        return np.ravel(np.array(pic, dtype=np.float32))

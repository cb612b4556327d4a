"""The data set and the transform of the tutorial's section on PyTorch.

They are in a module without JAX, so that worker processes do not import JAX.
"""

from __future__ import annotations

import numpy as np
import torch

if not torch.cuda.is_available():
    # Some builds of torchvision expect operators that a torch for CPUs does not have.
    # The data sets do not use them.
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        arguments = "Tensor dets, Tensor scores, float iou_threshold"
        library.define(f"{operator}({arguments}) -> Tensor")

from torchvision import datasets


class FashionMNIST(datasets.FashionMNIST):
    """torchvision's data set. Unpickling it imports this module before torchvision."""


class FlattenAndCast:
    """Transform class to flatten and cast images to float32."""

    def __call__(self, pic):
        return np.ravel(np.array(pic, dtype=np.float32))

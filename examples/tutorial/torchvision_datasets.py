"""Imports the data sets of torchvision, also if its operators do not fit torch.

torchvision's wheel for GPUs cannot load its operators with a torch for CPUs. The data
sets do not use them, so it is enough to declare them.
"""

import sys

import torch

try:
    from torchvision import datasets
except RuntimeError:
    for module in [name for name in sys.modules if name.startswith("torchvision.")]:
        del sys.modules[module]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(
            f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
    from torchvision import datasets

__all__ = ["datasets"]

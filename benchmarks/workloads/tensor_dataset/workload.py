"""Epochs of a torch `TensorDataset`, in a loop with a jitted step."""

from types import ModuleType

import torch
from torch.utils.data import TensorDataset

from harness import Task
from torch_images import Images
from workloads.torch_dataset import workload


def tensors(images: Images) -> TensorDataset:
    """The samples of `torch_dataset` as three tensors."""
    weight, label = torch.tensor(images.weight), torch.tensor(images.label)
    return TensorDataset(images.image, weight, label)


def prepare(contender: ModuleType) -> Task:
    """Checks two epochs of the contender. A round is an epoch."""
    return workload.prepare(contender, tensors)

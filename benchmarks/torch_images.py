"""The data set of `torch_dataset`, in a module that worker processes can import.

Needs NumPy and torch, not jax.
"""

import torch
from torch.utils.data import Dataset

from dataset import SCALE, fashion_mnist

SAMPLES = 30_000


class Images(Dataset):
    """Half of Fashion-MNIST as one tensor: each sample is an image, a float and an int.

    The float of sample i is i / 4 and its int is i, so that samples are recognised.
    """

    def __init__(self) -> None:
        image = torch.from_numpy(fashion_mnist().image[:SAMPLES])[:, None]
        self.image = image.to(torch.float32) * float(SCALE)
        self.weight = [index / 4 for index in range(len(image))]
        self.label = list(range(len(image)))

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float, int]:
        return self.image[index], self.weight[index], self.label[index]

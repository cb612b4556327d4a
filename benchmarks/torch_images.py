"""The data set of `torch_dataset`, which worker processes import.

The module needs NumPy and torch, but not jax.
"""

import torch
from torch.utils.data import Dataset

from dataset import SCALE, fashion_mnist

SAMPLES = 30_000


class Images(Dataset):
    """Half of Fashion-MNIST as one tensor: each sample is an image, a float and an int.

    Sample i has the float i / 4 and the int i, which identify it.
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

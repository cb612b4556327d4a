"""The type variables of the package."""

from typing import TypeVar

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)
DatasetItem = TypeVar("DatasetItem")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")

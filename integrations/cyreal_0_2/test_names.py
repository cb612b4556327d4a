"""Every public name of cyreal 0.2.1 exists and takes the same arguments."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import cyreal.datasets
import pytest
from millstream.cyreal.v02 import datasets

MODULES = ("sources", "transforms", "loader", "rl", "datasets", "datasets.time_utils")
# The arguments of these differ, as docs/cyreal.md says.
OWN_ARGUMENTS = {
    "CelebADataset",
    "DailyMinTemperaturesDataset",
    "EMNISTDataset",
    "SunspotsDataset",
}


def public_names(module: str) -> list[str]:
    theirs = import_module(f"cyreal.{module}")
    listed = getattr(theirs, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(theirs).items()
        if getattr(value, "__module__", None) == theirs.__name__
        and not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]


NAMES = [(module, name) for module in MODULES for name in public_names(module)]


def test_all_modules_were_read() -> None:
    assert len(NAMES) >= 38
    assert {module for module, _ in NAMES} == set(MODULES)


def arguments(value: Any) -> list[tuple[str, Any]]:
    """Returns the positional arguments with their defaults, and the others by name."""
    return [
        (parameter.name, parameter.default)
        for parameter in inspect.signature(value).parameters.values()
        if parameter.kind is not parameter.KEYWORD_ONLY
    ]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_the_name_exists_with_its_arguments(module: str, name: str) -> None:
    theirs = getattr(import_module(f"cyreal.{module}"), name)
    ours = getattr(import_module(f"millstream.cyreal.v02.{module}"), name)
    is_protocol = getattr(theirs, "_is_protocol", False)
    if not callable(theirs) or is_protocol or name in OWN_ARGUMENTS:
        return
    if name == "DataLoader":
        assert arguments(ours.scan_epoch) == arguments(theirs.scan_epoch)
        theirs_first, ours_first = arguments(theirs)[0], arguments(ours)[0]
        assert theirs_first[0] == ours_first[0] == "pipeline"
        return
    expected = arguments(theirs)
    assert arguments(ours)[: len(expected)] == expected
    known = set(inspect.signature(ours).parameters)
    assert set(inspect.signature(theirs).parameters) <= known


def test_the_addresses_of_files() -> None:
    for name in ("MNIST_URLS", "FASHION_MNIST_URLS", "EMNIST_URLS"):
        assert getattr(datasets, name) == getattr(cyreal.datasets, name)
    secure = {
        role: url.replace("http:", "https:")
        for role, url in cyreal.datasets.KMNIST_URLS.items()
    }
    assert secure == datasets.KMNIST_URLS

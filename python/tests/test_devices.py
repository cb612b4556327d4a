"""Devices by name."""

import jax
import pytest
from millstream._core.devices import device_named


def test_devices_are_found_by_name() -> None:
    cpu = jax.devices("cpu")[0]
    assert device_named("cpu") is cpu
    assert device_named("cpu:0") is cpu
    assert device_named(" CPU ") is cpu
    assert device_named(cpu) is cpu
    assert device_named(None) is jax.local_devices()[0]
    assert device_named() is jax.local_devices()[0]


def test_none_follows_the_default_device() -> None:
    last = jax.local_devices()[-1]
    with jax.default_device(last):
        assert device_named(None) is last


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no platform 'nothing' here; the platforms are .*'cpu'"),
        ("nothing:1", "no platform 'nothing'"),
        ("cpu:1000", "index 1000 is out of range.* has [0-9]+ device"),
        ("cpu:", "platform:index"),
        ("cpu:-1", "platform:index"),
        ("cpu:one", "platform:index"),
        ("cpu:²", "platform:index"),
        ("cpu:0:0", "platform:index"),
        ("", "platform:index"),
        (":0", "platform:index"),
        (0, "found 0 of type int"),
    ],
)
def test_unknown_names_are_errors(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        device_named(name)

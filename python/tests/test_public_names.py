"""What users import from `millstream`."""

from __future__ import annotations

import pickle
from pathlib import Path

import millstream as ms
import numpy as np
import pytest
from type_checker import check_types

PUBLIC = [getattr(ms, name) for name in ms.__all__]


def test_a_type_checker_knows_every_public_name(tmp_path: Path) -> None:
    lines = [f"from millstream import {name}" for name in ms.__all__]
    lines += ["from millstream import NoSuchName", *(f"{n}" for n in ms.__all__)]
    done = check_types("\n".join(lines), tmp_path)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout + done.stderr
    assert '"NoSuchName"' in errors[0]


@pytest.mark.parametrize("value", PUBLIC, ids=ms.__all__)
def test_pickles_name_the_public_module(value: type) -> None:
    assert value.__module__ == "millstream"
    pickled = pickle.dumps(value)
    assert b"millstream" in pickled
    assert b"millstream._" not in pickled
    assert pickle.loads(pickled) is value


def test_states_and_errors_name_only_the_public_module() -> None:
    source = ms.ArraySampleSource({"x": np.arange(2.0)})
    loader = ms.DataLoader([source, ms.BatchTransform(2)])
    for value in (loader.init_state(0), ms.DataError("bad"), ms.WorkerError("died")):
        pickled = pickle.dumps(value)
        assert b"millstream._" not in pickled
        assert type(pickle.loads(pickled)) is type(value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = ms.NoSuchName

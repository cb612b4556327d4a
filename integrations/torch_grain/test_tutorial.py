"""The tutorial's sections on PyTorch and Grain, with few samples."""

from tutorial import check_section


def test_pytorch(tmp_path):
    check_section("pytorch", tmp_path / "data")


def test_grain(tmp_path):
    check_section("grain", tmp_path / "data")

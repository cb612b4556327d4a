"""The tutorial's section on TensorFlow Datasets, with few samples."""

from tutorial import check_section


def test_tfds(tmp_path):
    check_section("tfds", tmp_path / "data")

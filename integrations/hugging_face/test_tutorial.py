"""The tutorial's section on Hugging Face's datasets, with few samples."""

from tutorial import check_section


def test_hugging_face(tmp_path):
    check_section("hugging_face", tmp_path / "data")

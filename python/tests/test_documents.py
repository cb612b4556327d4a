"""The code in README.md and docs/ runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FASHION = Path("/usr/share/datasets/fashion-mnist")


def blocks(path):
    """Returns the Python blocks of a document, in order."""
    return re.findall(
        r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE
    )


@pytest.mark.skipif(not FASHION.is_dir(), reason="needs Debian's dataset-fashion-mnist")
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_code_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "document"}
    for number, block in enumerate(blocks(path)):
        exec(compile(block, f"{path.name}, block {number}", "exec"), namespace)


@pytest.mark.parametrize(("name", "least"), [("README.md", 2), ("docs/disk.md", 5)])
def test_documents_have_code(name, least):
    assert ROOT / name in DOCUMENTS
    assert len(blocks(ROOT / name)) >= least


def test_readme_lists_the_documents():
    text = (ROOT / "README.md").read_text()
    missing = [path.name for path in DOCUMENTS[1:] if f"docs/{path.name}" not in text]
    assert not missing

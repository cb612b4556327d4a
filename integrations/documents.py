"""Runs the code in docs/existing_data.md that needs another library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "existing_data.md"


def run_blocks(library: str, **names: Any) -> None:
    """Runs the blocks that are marked "python LIBRARY", in order."""
    pattern = rf"^```python {library}\n(.*?)^```"
    found = re.findall(pattern, PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    namespace = {"__name__": "document", **names}
    for number, block in enumerate(found):
        exec(compile(block, f"{PAGE.name}, {library} {number}", "exec"), namespace)

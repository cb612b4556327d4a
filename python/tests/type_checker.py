"""Runs mypy over code that uses the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import millstream


def check_types(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Writes ``code`` to snippet.py and returns the output of strict mypy."""
    (folder / "snippet.py").write_text(code)
    package = Path(millstream.__file__).parent.parent
    config = folder / "mypy.ini"
    # mypy finds installed packages itself and rejects site-packages in mypy_path.
    path = "" if package.name == "site-packages" else f"mypy_path = {package}\n"
    config.write_text(
        f"[mypy]\nstrict = true\n{path}follow_imports = silent\n"
        f"cache_dir = {folder / 'cache'}\n"
        "[mypy-jax.*,numpy.*]\nfollow_imports = skip\n"  # they take most of the time
    )
    command = [sys.executable, "-m", "mypy", "--config-file", config, "snippet.py"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )

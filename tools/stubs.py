"""Writes the type stub of the extension, or checks that it is up to date."""

import subprocess
import sys
import tempfile
from pathlib import Path

STUB = Path(__file__).parent.parent / "python" / "millstream" / "_engine.pyi"


def generated() -> str:
    """The stub of the extension as it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_engine.pyi"
        command = [sys.executable, "-m", "nanobind.stubgen"]
        subprocess.run([*command, "-m", "millstream._engine", "-o", path], check=True)
        return path.read_text()


if __name__ == "__main__":
    text = generated()
    if "--check" not in sys.argv:
        STUB.write_text(text)
    elif not STUB.exists() or STUB.read_text() != text:
        sys.exit(f"{STUB.name} is stale: run `make stubs`")

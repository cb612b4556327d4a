"""Prints the folder with the XLA FFI headers of the installed jaxlib."""

import importlib.util
from pathlib import Path

spec = importlib.util.find_spec("jaxlib")
if spec is None or spec.origin is None:
    raise SystemExit("jaxlib is not installed. Run: pip install jaxlib")
print(Path(spec.origin).parent / "include")

"""Prints the folder that holds XLA's FFI headers, those of the jaxlib installed."""

import importlib.util
from pathlib import Path

spec = importlib.util.find_spec("jaxlib")
if spec is None or spec.origin is None:
    raise SystemExit("jaxlib is not installed")
print(Path(spec.origin).parent / "include")

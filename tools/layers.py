"""Fails when an engine folder includes what it may not, or a Python module strays."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENGINE = ROOT / "engine" / "millstream"
PACKAGE = ROOT / "python" / "millstream"

MAY_INCLUDE = {
    "core": set(),
    "io": {"core"},
    "order": {"core"},
    "parallel": {"core"},
    "workers": {"core", "parallel"},
    "codec": {"core", "io/byte_reader"},
    "source": {"core", "io", "codec"},
    "transform": {"core", "codec"},
    "loader": {"core", "order", "source", "transform", "parallel"},
    "ffi": {"core", "loader", "parallel", "xla"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def faults() -> list[str]:
    """One line for each include that breaks the rules."""
    found = []
    for path in sorted([*ENGINE.rglob("*.h"), *ENGINE.rglob("*.cc")]):
        folder = path.relative_to(ENGINE).parts[0]
        allowed = MAY_INCLUDE.get(folder)
        if allowed is None:
            found.append(f"{path}: there is no folder called {folder}")
            continue
        for include in INCLUDE.findall(path.read_text()):
            if not _allowed(folder, allowed, include):
                found.append(f"{path}: {folder} may not include {include}")
    return found


def _allowed(folder: str, allowed: set[str], include: str) -> bool:
    if include.startswith("millstream/"):
        inner = include.removeprefix("millstream/").removesuffix(".h")
        target = inner.split("/")[0]
        return target == folder or target in allowed or inner in allowed
    if include.startswith("xla/"):
        return "xla" in allowed
    return not include.startswith(("nanobind", "Python.h", "bindings"))


def stray_modules() -> list[str]:
    """One line for each private module that is in no folder of the Python package."""
    return [
        f"{path}: private modules belong in a folder of python/millstream"
        for path in sorted(PACKAGE.glob("_*.py"))
        if not path.name.startswith("__")
    ]


if __name__ == "__main__":
    lines = faults() + stray_modules()
    print("\n".join(lines) or "every folder includes only what it may")
    sys.exit(1 if lines else 0)

"""Checks the includes of engine folders and the places of private Python modules."""

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
    """Returns a line for each include that ``MAY_INCLUDE`` does not allow."""
    found = []
    for path in sorted([*ENGINE.rglob("*.h"), *ENGINE.rglob("*.cc")]):
        folder = path.relative_to(ENGINE).parts[0]
        allowed = MAY_INCLUDE.get(folder)
        if allowed is None:
            found.append(f"{path}: unknown folder {folder}. Add it to MAY_INCLUDE.")
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
    """Returns a line for each private module at the top level of the package."""
    return [
        f"{path}: move this private module into a folder of python/millstream"
        for path in sorted(PACKAGE.glob("_*.py"))
        if not path.name.startswith("__")
    ]


if __name__ == "__main__":
    lines = faults() + stray_modules()
    print("\n".join(lines) or "all includes and private modules are in order")
    sys.exit(1 if lines else 0)

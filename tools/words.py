"""Fails if a file uses a word that the project has replaced."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

REPLACED = {
    "maker": "worker pool",
    "crew": "worker pool",
    "desk": "supervisor",
    "seat": "worker process",
    "workshop": "executor",
    "ticket": "pending batch",
    "beside": "host values, or: next to",
    "door": "delivery",
    "dialect": "compatibility package",
    "room": "folder, layer, or: space",
    "nudge": "wake, or: hint",
}
# The seeds are copied examples, which stay as they are.
EXEMPT = ("tools/words.py", "python/tests/seeds/")

_lower = "|".join(REPLACED)
_camel = "|".join(word.capitalize() for word in REPLACED)
WORD = re.compile(rf"(?<![A-Za-z])({_lower})s?(?![a-z])|({_camel})s?(?![a-z])")


def faults() -> list[str]:
    """Returns a line for each use of a replaced word."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if name.startswith(EXEMPT) or not path.is_file():
            continue
        for number, line in enumerate(_lines(path), start=1):
            for match in WORD.finditer(line):
                word = (match[1] or match[2]).lower()
                found.append(f"{name}:{number}: {match[0]}: write {REPLACED[word]}")
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except UnicodeDecodeError:
        return []


if __name__ == "__main__":
    lines = faults()
    print("\n".join(lines) or "no replaced word is used")
    sys.exit(1 if lines else 0)

"""The command line: ``millstream inspect``, ``verify`` and ``convert``."""

from millstream._cli.arguments import main

__all__ = ["main"]

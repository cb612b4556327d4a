"""The loader of Cyreal 0.2.x."""

from millstream.cyreal._loader import DataLoader

__all__ = ["DataLoader"]

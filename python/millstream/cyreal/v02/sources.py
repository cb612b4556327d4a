"""The sources of Cyreal 0.2.x."""

from millstream import ArraySampleSource as ArraySource
from millstream import DiskSampleSource as DiskSource
from millstream.cyreal._protocols import Source

__all__ = ["ArraySource", "DiskSource", "Source"]

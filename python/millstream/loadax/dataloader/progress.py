"""The progress of an iterator."""

from millstream.loadax import Progress as Progress

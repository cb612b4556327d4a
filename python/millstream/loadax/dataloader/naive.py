"""Loaders without workers."""

from millstream.loadax import NaiveDataLoader as NaiveDataLoader
from millstream.loadax import NaiveDataloader as NaiveDataloader

"""Loaders."""

from millstream.loadax import DataLoader as DataLoader
from millstream.loadax import Dataloader as Dataloader
from millstream.loadax import DataloaderBuilder as DataloaderBuilder
from millstream.loadax import NaiveDataLoader as NaiveDataLoader
from millstream.loadax import NaiveDataloader as NaiveDataloader

"""Hugging Face data sets."""

from millstream.loadax import HuggingFaceDataset as HuggingFaceDataset

"""The stages of a pipeline, which transform samples and batches."""

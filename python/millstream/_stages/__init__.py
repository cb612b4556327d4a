"""What a pipeline does to samples and to batches."""

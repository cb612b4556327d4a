"""Worker threads and processes that call Python functions for the engine."""

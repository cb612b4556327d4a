"""Sources of samples: arrays, files, Python functions, combinations of sources."""

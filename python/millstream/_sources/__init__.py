"""Where samples live: arrays, files, Python functions, combinations of sources."""

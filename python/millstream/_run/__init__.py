"""Runs pipelines: the loader, its states, iteration and resuming."""

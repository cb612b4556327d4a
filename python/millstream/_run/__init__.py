"""A pipeline at work: the loader, its states, iteration and resuming."""

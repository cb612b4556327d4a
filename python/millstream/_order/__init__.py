"""Orders: which sample comes at which position of an epoch."""

"""How batches reach JAX: in a Python loop, inside jit, and over several devices."""

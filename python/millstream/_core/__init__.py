"""Modules that all folders use: errors, argument checks, devices, lazy imports."""

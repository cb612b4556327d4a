"""Detects the formats of files."""

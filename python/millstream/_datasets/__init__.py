"""Data sets that find, fetch and read their own files."""

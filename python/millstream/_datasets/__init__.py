"""Data sets that find, download and read their own files."""

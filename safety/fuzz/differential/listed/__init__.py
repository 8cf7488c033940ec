"""The rows of divergences.py, by library."""

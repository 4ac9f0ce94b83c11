"""Figures, as JSON lines: `make bench`. Nothing here is a test; compare figures of one run only."""

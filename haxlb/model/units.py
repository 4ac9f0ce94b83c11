"""Units of time."""

from __future__ import annotations

SECOND_US = 1_000_000

"""K/V of sequences: append, truncate, compact, view."""

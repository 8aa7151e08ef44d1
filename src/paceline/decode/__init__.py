"""Choosing tokens: noise, processors, filters and agreement, and the decode loops built on them."""

"""The training loop, which does not know what it trains, and all that keeps a run whole."""

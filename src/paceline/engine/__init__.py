"""The engine: what turns accepted runs of tokens into finished answers."""

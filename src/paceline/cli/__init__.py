"""The command line: `paceline …`. Its rooms are imported when they are used, so that `--help` answers at once."""

from paceline.cli.app import main

__all__ = ["main"]

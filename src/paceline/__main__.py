"""Where the program begins, as `paceline` or `python -m paceline`: Ctrl-C is quiet from the first moment on.

Knows no command. Imports nothing that takes time before an interrupt is looked after.
"""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line. An interrupt while it is still being imported ends the process with 130."""
    # By a handler rather than an exception, which an import may swallow or tell of; nothing has been written yet. A
    # program that was started with interrupts ignored, as by nohup, goes on ignoring them.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from paceline.cli import main as run

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()

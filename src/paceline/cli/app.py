"""All commands, and how a failure is told: one red line on stderr, never a traceback.

Exit codes: 0; 2 for a request or a setting that cannot be served; 130 for Ctrl-C; 1 for everything else, such as a
broken checkpoint, or output that cannot be written.
Knows no command's work. Nothing imported here imports torch.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from paceline import __version__
from paceline.cli import bench, chat, config, demo, generate, train, zoo
from paceline.cli.output import abandon_output, say_error, say_warning
from paceline.errors import PacelineError

__all__ = ["app", "main"]

app = typer.Typer(
    name="paceline", no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
app.command("generate")(generate.generate)
app.command("chat")(chat.chat)
app.command("demo")(demo.demo)
app.add_typer(config.app, name="config")
app.add_typer(zoo.app, name="zoo")
app.add_typer(train.app, name="train")
app.add_typer(bench.app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


@app.callback()
def _paceline(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Decode language models many tokens at a time, with output identical to plain decoding."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; ends the process with its exit code.

    Args:
        arguments: what follows the program's name; None reads the process's own.
    """
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say_warning(str(message))
        try:
            app(args=None if arguments is None else list(arguments), prog_name="paceline")
        except KeyboardInterrupt:  # before or after what Typer looks after
            sys.exit(130)
        except PacelineError as error:
            _end(str(error), 2 if error.http_status == 400 else 1)
        except OSError as error:  # a full disk, a folder without permission
            lost = abandon_output()
            _end(f"stdout cannot be written: {error.strerror or error}." if lost else str(error), 1)


def _end(message: str, code: int) -> NoReturn:
    """Tell of a failure, unless stderr cannot be written either, and end."""
    with suppress(OSError):
        say_error(message)
    abandon_output()
    sys.exit(code)

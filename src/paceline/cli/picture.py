"""Coloured text as an SVG file, for the README. The file loads nothing from anywhere."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

__all__ = ["save_svg"]

_WIDTH_CHARS = 96


def save_svg(text: Text, path: Path) -> None:
    """Draw `text`, wrapped, as a terminal window."""
    console = Console(
        record=True, width=_WIDTH_CHARS, file=StringIO(), force_terminal=True, color_system="truecolor", no_color=False
    )
    console.print(text)
    svg = console.export_svg(title="paceline demo", unique_id="paceline")
    # rich names fonts on the web; a monospace font of the reader's does as well.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")

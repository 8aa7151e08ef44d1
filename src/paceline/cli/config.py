"""`paceline config`: which settings are in effect, and who said so; and whether passes can be native here.

`cli.effective` and `native` find out; this shows it.
"""

from __future__ import annotations

import os
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline import native
from paceline.cli.chat import chat
from paceline.cli.effective import Effective, effective
from paceline.cli.flags import Layers, configured
from paceline.cli.generate import generate
from paceline.cli.options import Decoding, Drawing, place
from paceline.cli.output import say_warning, write
from paceline.errors import ConfigError
from paceline.files import write_text

__all__ = ["app", "show"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="See which settings are in effect.")


@app.command("show")
@configured(accept=(generate, chat))
def show(
    *,
    json: Annotated[
        Path | None,
        typer.Option(callback=place("file", exists=False), allow_dash=True, help="Write JSON to a file; - is stdout."),
    ] = None,
    decoding: Decoding,
    drawing: Drawing,
    layers: Layers,
) -> None:
    """Every setting of decoding, its value, and where it is from; and what native passes use, or why there are none.

    Takes what generate and chat take; loads no model, and makes no folder.
    """
    drawing.sampling()
    if json is not None and not json.parent.is_dir():  # showing makes no folder
        told = f"json is {str(json)!r}: there is no folder {str(json.parent)!r}."
        raise ConfigError(told, remedy="Make it first, or give - for stdout.", param="json")
    found = effective(decoding, drawing, layers)
    if found.missing:
        say_warning(f"{found.missing} Without it, {_assumed(found)}.")
    for told in found.unusable:
        say_warning(told)
    names = {"flag": None, "file": str(layers.path), "profile": decoding.profile, "default": None}
    if json is None:
        write(_table(found, names))
    elif str(json) == "-":
        write(_json(found, names))
    else:
        write_text(json, _json(found, names))


def _assumed(found: Effective) -> str:
    if found.method is None:
        return "its method is not known, and settings of methods are left out"
    return f"the method is taken to be {found.method}"


def _table(found: Effective, names: dict[str, str | None]) -> str:
    """Three columns: setting, value, origin."""
    words = {each.name: each.word for each in found.settings}
    if found.method not in (None, words["method"]):
        words["method"] += f": {found.method}"
    told = {each.name: " ".join(filter(None, (each.origin, names[each.origin]))) for each in found.settings}
    rows = [*((name, word, told[name]) for name, word in words.items()), _native_row()]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "".join(f"{name:<{first}}  {word:<{second}}  {origin}\n" for name, word, origin in rows)


def _native_row() -> tuple[str, str, str]:
    """Of this machine: the instructions of native passes, and who chose them; or why there are none."""
    if (reason := native.why_not()) is not None:
        return "native", "off", reason
    return "native", native.instructions(), native.VARIABLE if os.environ.get(native.VARIABLE) else "machine"


def _json(found: Effective, names: dict[str, str | None]) -> str:
    """The method in effect; what native passes use, or why there are none; of every setting its value, where that is
    from, and the name of that file or profile.
    """
    settings: dict[str, Any] = {
        each.name: {"value": each.value, "from": each.origin, "name": names[each.origin]} for each in found.settings
    }
    told = {"method": found.method, "native": native.in_use(), "settings": settings}
    return dumps(told, indent=2, ensure_ascii=False) + "\n"

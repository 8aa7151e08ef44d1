"""Commands whose flags are the fields of configurations: a flag for every field, and all of them from a YAML file.

A flag on the command line wins over the file, the file over the default. Knows no command and no setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from paceline.settings import Field, Setting, assemble, fields_of, read_settings

__all__ = ["configured"]

Command = Callable[..., None]


def configured(**defaults: Any) -> Callable[[Command], Command]:
    """Make a command of a function that takes configurations: these become a flag for every field, and `--config`.

    A field with the name of a flag that the function has anyway takes the value of that flag, and two fields of one
    name share a flag.

    Args:
        defaults: of fields that have none, or another default here.
    """

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        configs: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
        own = {name: each for name, each in signature(command).parameters.items() if name not in configs}
        parameters = _parameters(own, hints, configs, defaults)

        @wraps(command)
        def run(**given: Any) -> None:
            built = {name: assemble(config, given) for name, config in configs.items()}
            command(**{name: given[name] for name in own}, **built)

        run.__signature__ = Signature(list(parameters.values()))  # type: ignore[attr-defined]
        run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        return run

    return decorate


def _parameters(
    own: Mapping[str, Parameter], hints: Mapping[str, Any], configs: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Parameter]:
    """All flags of a command: its own, those of the fields, and `--config` for either."""
    flags = {name: each.replace(annotation=hints[name]) for name, each in own.items()}
    fields = [_declared(name, hints[name]) for name in own]
    for field in [field for config in configs.values() for field in fields_of(config)]:
        if field.name not in flags:
            fields.append(field)
            flags[field.name] = _flag(field._replace(default=defaults.get(field.name, field.default)))
    flags["config"] = _config_file(fields)
    return flags


def _declared(name: str, hint: Any) -> Field:
    """A flag that was written by hand, as the field it could be."""
    kind, option = get_args(hint)
    return Field(name, kind, Setting(option.help or "", option.min, option.max))


def _flag(field: Field) -> Parameter:
    kind, metavar = field.kind, None
    if get_origin(kind) is Literal:
        kind, metavar = str, "|".join(get_args(kind))
    told = field.setting
    option = typer.Option(help=told.help, min=told.least, max=told.most, metavar=metavar)
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _config_file(fields: list[Field]) -> Parameter:
    """`--config`; it is read before all other flags, and becomes their default."""

    def read(context: typer.Context, path: Path | None) -> Path | None:
        if path is not None:
            context.default_map = read_settings(path, fields)
        return path

    told = "YAML file with any of these settings; flags win over it."
    option = typer.Option(exists=True, dir_okay=False, is_eager=True, callback=read, help=told)
    return Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option])

"""Commands whose flags are the fields of configurations: a flag for every field, and all of them from a YAML file.

A flag on the command line wins over the file, the file over the default. Knows no command and no setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, is_dataclass
from functools import reduce, wraps
from inspect import Parameter, Signature, signature
from operator import or_
from pathlib import Path
from types import GenericAlias, NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from paceline.settings import Field, Setting, assemble, fields_of, read_settings, words_of

__all__ = ["configured"]

Command = Callable[..., None]


def configured(**defaults: Any) -> Callable[[Command], Command]:
    """Make a command of a function that takes configurations: these become a flag for every field, and `--config`.

    Arguments of the function that are declared by a `Setting`, as fields are, become flags too; others are options of
    Typer's. A field with the name of an argument takes the value of that flag, and two fields of one name share a flag.

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
            values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
            built = {name: assemble(config, values) for name, config in configs.items()}
            command(**{name: given[name] for name in own}, **built)

        run.__signature__ = Signature(list(parameters.values()))  # type: ignore[attr-defined]
        run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        return run

    return decorate


def _parameters(
    own: Mapping[str, Parameter], hints: Mapping[str, Any], configs: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Parameter]:
    """All flags of a command: its own, those of the fields, and `--config` for either."""
    fields = [_declared(name, hints[name], each.default) for name, each in own.items()]
    flags = {name: each.replace(annotation=hints[name]) for name, each in own.items()}
    flags |= {field.name: _flag(field) for field in fields if isinstance(get_args(hints[field.name])[1], Setting)}
    for field in [field for config in configs.values() for field in fields_of(config)]:
        if field.name not in flags:
            fields.append(field)
            flags[field.name] = _flag(field._replace(default=defaults.get(field.name, field.default)))
    flags["config"] = _config_file(fields)
    return flags


def _declared(name: str, hint: Any, default: Any) -> Field:
    """An argument of the function, as the field it could be."""
    kind, told = get_args(hint)
    if not isinstance(told, Setting):
        # Typer takes the first name of a flag for a default until it has seen the whole function.
        flags = tuple(each for each in (told.default, *(told.param_decls or ())) if isinstance(each, str))
        told = Setting(told.help or "", told.min, told.max, flags)
    return Field(name, kind, told, MISSING if default is Parameter.empty else default)


def _flag(field: Field) -> Parameter:
    told = field.setting
    spoken = [word for word in (*words_of(field.kind), told.null_word) if word]
    kind, metavar = (str, "|".join(["INTEGER", *spoken])) if spoken else _typed(field.kind)
    words = told.help + (f" In YAML also {told.alias}." if told.alias else "")
    option = typer.Option(*told.flags, help=words, min=told.least, max=told.most, metavar=metavar)
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _typed(kind: Any) -> tuple[Any, str | None]:
    """What Typer is told of a field's type, and how its values are shown; the configuration checks them."""
    if get_origin(kind) is Literal:
        return str, "|".join(get_args(kind))
    if get_args(kind)[1:] == (NoneType,) and get_origin(get_args(kind)[0]) is Literal:
        return str | None, _typed(get_args(kind)[0])[1]
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        element, metavar = _typed(get_args(kind)[0])
        return GenericAlias(list, (element,)), metavar
    if get_origin(kind) is tuple:
        return kind, " ".join(f"<{each.__name__}>" for each in get_args(kind))  # blanks between them, as they are given
    if {str, Path} <= set(get_args(kind)):  # a name or a folder: text for either
        return reduce(or_, (each for each in get_args(kind) if each is not Path)), None
    return kind, None


def _config_file(fields: list[Field]) -> Parameter:
    """`--config`; it is read before all other flags, and becomes their default."""

    def read(context: typer.Context, path: Path | None) -> Path | None:
        if path is not None:
            context.default_map = read_settings(path, fields)
        return path

    told = "YAML file with any of these settings; flags win over it."
    option = typer.Option(exists=True, dir_okay=False, is_eager=True, callback=read, help=told)
    return Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option])

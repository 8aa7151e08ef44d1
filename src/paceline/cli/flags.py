"""Commands whose flags are the fields of configurations: a flag for every field, and all of them from a YAML file.

A flag on the command line wins over the file, the file over presets (see `Setting`), these over the default. Knows no
command and no setting.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature, unwrap
from pathlib import Path
from types import GenericAlias, MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

import typer

from paceline.errors import SettingError
from paceline.given import checked, read_settings
from paceline.kinds import from_word
from paceline.settings import Field, Setting, assemble, fields_of, refusal, section_fields_of, suits

__all__ = ["Layers", "configured"]

Command = Callable[..., None]

_UNIONS = (Union, UnionType)


class Layers(NamedTuple):
    """Settings by where they were given, from what wins to what gives way; a command may take it as an argument.

    Names are those of fields, `dflash_params.overlap` in a section; `path` is that of the file.
    """

    flags: Mapping[str, Any] = MappingProxyType({})
    file: Mapping[str, Any] = MappingProxyType({})
    presets: Mapping[str, Any] = MappingProxyType({})
    path: Path | None = None

    @property
    def asked(self) -> set[str]:
        """What a user set, by a flag or in the file."""
        return self.flags.keys() | self.file.keys()

    @property
    def of_file(self) -> set[str]:
        """What holds because the file says so."""
        return self.file.keys() - self.flags.keys()


def configured(accept: Sequence[Command] = (), **defaults: Any) -> Callable[[Command], Command]:
    """Make a command of a function that takes configurations: these become a flag for every field, and `--config`.

    Arguments of the function that are declared by a `Setting`, as fields are, become flags too; others are options of
    Typer's. A field with the name of an argument takes the value of that flag, and two fields of one name share a flag.

    Args:
        accept: commands whose own flags and keys are taken, too, and left alone, so that their files can be read here.
        defaults: of fields that have none, or another default here.
    """

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        configs: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
        watching = [name for name, hint in hints.items() if hint is Layers]
        own = _own_flags(command)
        parameters = _parameters(own, configs, defaults, accept)
        fields = {field.name: field for config in configs.values() for field in fields_of(config)}
        fields |= {name: field for name, (field, _) in own.items() if isinstance(get_args(hints[name])[1], Setting)}

        @wraps(command)
        def run(context: typer.Context, **given: Any) -> None:
            values = {name: _read(value, fields.get(name)) for name, value in given.items()}
            layers = _layers(context, values)
            values |= {name: value for name, value in layers.file.items() if name not in given}  # those of sections
            try:
                built = {name: assemble(config, values) for name, config in configs.items()}
                command(**{name: values[name] for name in own}, **built, **dict.fromkeys(watching, layers))
            except SettingError as error:
                raise error.placed({name: (name, f" in {layers.path}") for name in layers.of_file}) from error

        context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        run.__signature__ = Signature([*parameters.values(), context])  # type: ignore[attr-defined]
        run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        run.__annotations__["context"] = typer.Context
        return run

    return decorate


def _layers(context: typer.Context, given: Mapping[str, Any]) -> Layers:
    """What was given where, to a command that is run."""
    flags = {name: value for name, value in given.items() if _is_typed(context, name)}
    file, presets = _beneath(context).maps
    return Layers(flags, file, presets, given["config"])


def _read(given: Any, field: Field | None) -> Any:
    """The value of a flag, from the command line or beneath it; of Typer's own options there is no field.

    Raises:
        ConfigError: names the setting, its value and what is allowed.
    """
    if field is None or given is None or given == field.setting.null_word:
        return given
    value = from_word(given, field.kind)
    if not suits(value, field):
        raise refusal(field, value)
    return value


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _beneath(context: typer.Context) -> ChainMap[str, Any]:
    """What stands beneath the flags: the file, and beneath it the presets."""
    if not isinstance(context.default_map, ChainMap):
        context.default_map = ChainMap({}, {})
    return context.default_map


def _own_flags(command: Command) -> dict[str, tuple[Field, Parameter]]:
    """The arguments of a function that are flags themselves."""
    found = {}
    hints = get_type_hints(command, include_extras=True)
    for name, each in signature(command).parameters.items():
        if not is_dataclass(hints[name]) and hints[name] is not Layers:
            field = _declared(name, hints[name], each.default)
            is_setting = isinstance(get_args(hints[name])[1], Setting)
            found[name] = field, _flag(field) if is_setting else each.replace(annotation=hints[name])
    return found


def _parameters(
    own: Mapping[str, tuple[Field, Parameter]],
    configs: Mapping[str, Any],
    defaults: Mapping[str, Any],
    accept: Sequence[Command],
) -> dict[str, Parameter]:
    """All flags of a command: its own, those of the fields and of what it accepts, and `--config` for any of them."""
    fields = [field for field, _ in own.values()]
    flags = {name: flag for name, (_, flag) in own.items()}
    for field in [field for config in configs.values() for field in fields_of(config)]:
        if field.name not in flags:
            fields.append(field)
            flags[field.name] = _flag(field._replace(default=defaults.get(field.name, field.default)), fields)
    for field, flag in [each for command in accept for each in _own_flags(_function(command)).values()]:
        if field.name not in flags and not _spellings(field) & {each for known in fields for each in _spellings(known)}:
            flags[field.name] = flag
        fields.append(field)
    fields += [field for config in configs.values() for field in section_fields_of(config)]
    flags["config"] = _config_file(fields)
    return flags


def _function(command: Command) -> Command:
    """What `configured` made a command of."""
    return cast(Command, unwrap(command))


def _spellings(field: Field) -> set[str]:
    return set(field.setting.flags or (f"--{field.name.replace('_', '-')}",))


def _declared(name: str, hint: Any, default: Any) -> Field:
    """An argument of the function, as the field it could be."""
    kind, told = get_args(hint)
    if not isinstance(told, Setting):
        # Typer takes the first name of a flag for a default until it has seen the whole function.
        flags = tuple(each for each in (told.default, *(told.param_decls or ())) if isinstance(each, str))
        told = Setting(told.help or "", told.min, told.max, flags)
    return Field(name, kind, told, MISSING if default is Parameter.empty else default)


def _flag(field: Field, fields: Sequence[Field] = ()) -> Parameter:
    """The flag of a field; `fields` are what its presets may set."""
    told = field.setting
    kind, metavar = _typed(field.kind, told.null_word)
    words = told.help + (f" In YAML also {told.alias}." if told.alias else "")
    early: Any = {"is_eager": True, "callback": _read_presets(field, fields)} if told.presets else {}
    option = typer.Option(*told.flags, help=words, min=told.least, max=told.most, metavar=metavar, **early)
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _typed(kind: Any, null_word: str = "") -> tuple[Any, str | None]:
    """What Typer is told of a field's type, and how its values are shown; numbers are text to it, for `_read`."""
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        element, metavar = _typed(get_args(kind)[0])
        return GenericAlias(list, (element,)), metavar
    if get_origin(kind) is tuple:
        told = [_typed(each) for each in get_args(kind)]
        return GenericAlias(tuple, tuple(each for each, _ in told)), " ".join(str(words) for _, words in told)
    if kind in (bool, Path, Path | None):
        return kind, None
    kinds = [each for each in get_args(kind) if each is not NoneType] if get_origin(kind) in _UNIONS else [kind]
    words = [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    numbers = [name for number, name in ((int, "INTEGER"), (float, "NUMBER")) if number in kinds]
    spoken = [*numbers, *words, *filter(None, (null_word,))]
    return str | None if NoneType in get_args(kind) else str, "|".join(spoken) or None


def _read_presets(field: Field, fields: Sequence[Field]) -> Callable[[typer.Context, str | None], str | None]:
    """Puts the presets of that name beneath the file, whichever of them is read first."""
    presets = field.setting.presets or {}

    def read(context: typer.Context, name: str | None) -> str | None:
        if name is not None and name not in presets:
            raise refusal(field, name)
        if name is not None:
            _beneath(context).maps[1] = checked(presets[name], fields)
        return name

    return read


def _config_file(fields: list[Field]) -> Parameter:
    """`--config`; it is read before all other flags, and becomes their default."""

    def read(context: typer.Context, path: Path | None) -> Path | None:
        if path is not None:
            _beneath(context).maps[0] = read_settings(path, fields)
        return path

    told = "YAML file with any of these settings; flags win over it."
    option = typer.Option(is_eager=True, callback=read, help=told)
    return Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option])

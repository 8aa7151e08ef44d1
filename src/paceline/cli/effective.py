"""The settings in effect, and where each of them came from.

Reads at most config.json of models that are on this machine: no weights, nothing from the network, no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from paceline.cli.flags import Layers
from paceline.cli.options import Decoding, Drawing
from paceline.decode.choice import Asked, Choice, choose, named_model
from paceline.decode.named import find_lookup_file, find_ngrams, find_partner, find_rescorer
from paceline.decode.profiles import profile_of
from paceline.decode.settings import EVERY_METHOD, SWITCHED_BY, Own, section_of, settings_of
from paceline.errors import ConfigError, PacelineError
from paceline.models.config_file import model_config
from paceline.models.options import Method
from paceline.models.resolve import resolve
from paceline.models.spec import transformer_spec
from paceline.settings import Field, fields_of

__all__ = ["Effective", "Origin", "Shown", "effective"]

Origin = Literal["flag", "file", "profile", "default"]

_find = partial(resolve, download=False)


class Shown(NamedTuple):
    """A setting, its value in effect, as plain data, and who said so; `word` is what people are shown for the value."""

    name: str
    value: Any
    origin: Origin
    word: str


@dataclass(frozen=True, slots=True)
class Effective:
    """What a command would decode with.

    Attributes:
        method: in effect; None where only the model, which is not here, could tell.
        missing: why the model could not be asked; empty where it could.
        unusable: what else is named that is not there, or not what its setting wants; a sentence for each.
    """

    method: Method | None
    settings: tuple[Shown, ...]
    missing: str = ""
    unusable: tuple[str, ...] = ()


def effective(decoding: Decoding, drawing: Drawing, layers: Layers) -> Effective:
    """The settings in effect for what was asked.

    Raises:
        ConfigError: settings that cannot be used together, or that are of another method.
        CheckpointError: a config.json that is broken.
    """
    asked = Asked(decoding.method, decoding.drafter, decoding.verifier)
    choice, missing = _chosen(asked, decoding)
    method = choice.method if choice is not None else _foreseen(asked)
    own = None if method is None else _own(method, decoding)
    models = _models(asked, choice, decoding, layers)
    general = (_shown(field, getattr(decoding, field.name), layers) for field in _general_fields())
    special = () if method is None or own is None else _of_method(method, own, layers)
    drawn = (_shown(field, getattr(drawing, field.name), layers) for field in fields_of(Drawing))
    unusable = tuple(filter(None, map(_told, _checks(asked, choice, own))))
    return Effective(method, (*models, *general, *special, *drawn), missing, unusable)


def _checks(asked: Asked, choice: Choice | None, own: Own | None) -> Iterator[Callable[[], object]]:
    """Whether each of the things that were named can be used, as far as it shows without weights.

    What fits a model is not known where that is not here.
    """
    partners = {"drafter": asked.drafter, "verifier": asked.verifier}
    if choice is not None:
        yield lambda: find_partner(choice, transformer_spec(model_config(choice.folder)), _find)
    else:
        yield from (partial(_find, name, param) for param, name in partners.items() if name is not None)
    yield lambda: find_rescorer(own, _find)
    yield lambda: find_ngrams(own)
    yield lambda: find_lookup_file(own)


def _told(check: Callable[[], object]) -> str:
    """What a check has to say; nothing where all is well."""
    try:
        check()
    except PacelineError as error:
        return str(error)
    return ""


def _chosen(asked: Asked, decoding: Decoding) -> tuple[Choice | None, str]:
    """What `LLM` would choose; None and the reason where the model is not on this machine."""
    try:
        _find(named_model(asked, decoding.model), "model")
    except ConfigError as error:
        return None, str(error)
    return choose(asked, decoding.model, _find), ""


def _foreseen(asked: Asked) -> Method | None:
    """The only method that what was asked leaves open."""
    if asked.method != "auto":
        return asked.method
    return "apd" if asked.verifier is not None else "dflash" if asked.drafter is not None else None


def _general_fields() -> Iterable[Field]:
    """The fields of `Decoding` that are of no method, and are no models."""
    others = {"model", "drafter", "verifier"} | {field.name for field in EVERY_METHOD.fields}
    return (field for field in fields_of(Decoding) if field.name not in others)


def _models(asked: Asked, choice: Choice | None, decoding: Decoding, layers: Layers) -> Iterable[Shown]:
    """The model and its partner, the bundled ones by name."""
    partner = None if choice is None else choice.partner
    method = None if choice is None else choice.method
    values = {
        "model": named_model(asked, decoding.model),
        "drafter": partner if method == "dflash" else asked.drafter,
        "verifier": partner if method == "apd" else asked.verifier,
    }
    for field in fields_of(Decoding):
        if field.name in values:
            yield _shown(field, values[field.name], layers)


def _own(method: Method, decoding: Decoding) -> Own | None:
    return settings_of(method, decoding.settings, profile_of(decoding.profile), f" in profile {decoding.profile}")


def _of_method(method: Method, own: Own, layers: Layers) -> tuple[Shown, ...]:
    section = section_of(method)
    shown = []
    for field in fields_of(type(own)):
        switches = SWITCHED_BY.get(field.name, ())
        names = [(name, f"{section}.{name}") for name in (field.name, *switches)]
        shown.append(_shown(field, getattr(own, field.name), layers, names))
    return tuple(shown)


def _shown(field: Field, value: Any, layers: Layers, names: Iterable[tuple[str, ...]] = ()) -> Shown:
    """A setting with its origin.

    Args:
        names: it may have been set by: the first of them that was set anywhere counts.
    """
    plain = str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
    word = field.setting.null_word or "-" if value is None else "-" if value == () else str(value)
    origins = (_origin(layers, each) for each in names or [(field.name,)])
    return Shown(field.name, plain, next((each for each in origins if each != "default"), "default"), word)


def _origin(layers: Layers, names: tuple[str, ...]) -> Origin:
    given: dict[Origin, Any] = {"flag": layers.flags, "file": layers.file, "profile": layers.presets}
    return next((origin for origin, values in given.items() if values.keys() & set(names)), "default")

"""Files of settings in YAML, its numbers those of YAML 1.2 (core schema). Knows nothing of the settings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError

__all__ = ["read_mapping", "yaml_word"]

_INTEGER = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_REAL = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
"""What is a number in YAML 1.2 (section 10.3.2). In 1.1, which PyYAML reads, 010 is 8 and 1:30 is 90, and 4e-3, which
has no point, is text."""


def read_mapping(path: Path) -> dict[Any, Any]:
    """The keys and values of a YAML file; those of a section `training` as `training.KEY`.

    Raises:
        ConfigError: it cannot be read, is no mapping, or has a key twice.
    """
    import yaml

    try:
        with path.open(encoding="utf-8") as file:
            values = yaml.load(file, _loader(path))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # dates and numbers that are none, and [[[[…
        raise ConfigError(f"{path} cannot be read: {error}.", remedy="Give a YAML file of settings.") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {values!r:.40}.", remedy="Give lines such as 'steps: 100'.")
    return _flat(path, values)


def yaml_word(value: object) -> str:
    """A value as people write it in YAML, texts in quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_word, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{yaml_word(key)}: {yaml_word(each)}' for key, each in value.items())}}}"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("nan", ".nan").replace("inf", ".inf")
    return repr(value)


def _loader(path: Path) -> Any:
    """What reads `path`: PyYAML's safe loader, with other numbers, and keys that are told apart."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers = _resolvers_without_numbers()

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            """Of a key that is there twice, PyYAML takes the last value without a word."""
            _check_keys(path, [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
            values: dict[Any, Any] = super().construct_mapping(node, deep)
            return values

        def construct_integer(self, node: yaml.ScalarNode) -> int:
            word = self.construct_scalar(node)
            return int(word, {"0o": 8, "0x": 16}.get(word[:2], 10))

    for kind, words in (("int", _INTEGER), ("float", _REAL)):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{words})$"), list("-+.0123456789"))
    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_integer)
    return Loader


def _resolvers_without_numbers() -> dict[str, list[Any]]:
    """What says of which kind a bare word is, but for numbers and dates: YAML 1.2 has no dates."""
    import yaml

    gone = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers.items()
    return {first: [each for each in known if each[0] not in gone] for first, known in resolvers}


def _check_keys(path: Path, keys: Sequence[Any]) -> None:
    """Refuse keys of a mapping that are there twice, or that spell a section: a dot is how we tell of one.

    Raises:
        ConfigError: names key and lines.
    """
    lines: dict[str, int] = {}
    for key in keys:
        line = key.start_mark.line + 1
        if key.value in lines:
            told = f"{path} sets {key.value} twice, in lines {lines[key.value]} and {line}."
            raise ConfigError(told, remedy="Leave one out.", param=key.value)
        if "." in key.value:
            section, _, name = key.value.partition(".")
            told = f"{path} sets {key.value!r:.80} in line {line}: no such setting."
            raise ConfigError(told, remedy=f"Write a section: {section}: {{{name}: …}}.", param=key.value)
        lines[key.value] = line


def _flat(path: Path, values: Mapping[Any, Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in values.items():
        new = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        if twice := sorted(map(str, found.keys() & new.keys())):
            raise ConfigError(f"{path} sets {twice[0]} twice.", remedy="Leave one out.", param=twice[0])
        found |= new
    return found
